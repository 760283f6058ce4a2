"""What the reports for people say in the same words."""

from __future__ import annotations

import re
from itertools import groupby
from textwrap import dedent
from typing import TYPE_CHECKING

from tracemine.documents.bar import TITLES
from tracemine.documents.numbered import claimed
from tracemine.documents.step_words import is_sums, share_text
from tracemine.findings.record import NOTHING, Range
from tracemine.tables import table_beside
from tracemine.units import bytes_text, count_text, percent_text, range_text, ratio_text, time_text, uneven_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracemine.findings.record import Counted, Finding, Parts, Scan, Source, Summary, TraceSummary, Variant

_TABLE = table_beside(__file__, "words.toml")
EVIDENCE: dict[str, str] = _TABLE["evidence"]

_DROPPED: dict[str, str] = _TABLE["dropped"]

_WORTH_NAMING = 0.1  # of what GPU time could be less
_WORTH_A_WORD = 0.01  # of GPU time, of memory


def summary_parts(trace: TraceSummary) -> tuple[str, ...]:
    """Return what was read: format, GPU, steps, activities."""
    unattributed = f" ({trace.unattributed:,} without an operator)" if trace.unattributed else ""
    activities = count_text(trace.activities, "activity") + unattributed
    return trace.format, trace.gpu or "GPU not named", count_text(trace.steps, "step"), activities


def unprofiled_text(summary: Summary) -> str:
    """Say how long the unprofiled step is, or all that was recorded; "" where that is not known."""
    step = summary.per_step
    alone = summary.unprofiled_ns if step is None else step.unprofiled_ns
    if alone is None or is_sums(summary):
        return ""
    spread = "" if alone.low == alone.high else f" ({range_text(alone.low, alone.high)})"
    how = "timed alone" if alone.source == "captured" else "estimated"
    what = "" if step is not None else ", all that was recorded"
    if alone.source == "recorded":
        return f"as recorded {time_text(alone.mid)}, what recording cost is not known{what}"
    uneven = uneven_text(alone.p10, alone.mid, alone.p90)
    return f"unprofiled {time_text(alone.mid)}{spread}, {how}{what}" + (f"; {uneven}" if uneven else "")


def busy_text(summary: Summary) -> str:
    """Return for how much of the recorded time the GPU was busy."""
    whole = summary.gpu_busy_ns + summary.gpu_idle_ns
    if is_sums(summary):
        return f"GPU time {time_text(whole)}, summed (a tree has no timeline)"
    share = percent_text(summary.gpu_busy_ns, whole)
    return f"recorded: the GPU busy {share}, {time_text(summary.gpu_busy_ns)} of {time_text(whole)}"


def whole_text(scan: Scan) -> str:
    """Return what savings of the step are of."""
    return "trace" if scan.summary.per_step is None else "step"


def share_of_text(scan: Scan) -> str:
    """Say what a saving of the step is a share of: where recording's cost is not known, of the step with it."""
    step = scan.summary.per_step
    alone = scan.summary.unprofiled_ns if step is None else step.unprofiled_ns
    if alone is not None and alone.source == "recorded":
        return f"the {whole_text(scan)} as recorded"
    return f"the unprofiled {whole_text(scan)}"


def a_step(finding: Finding, of: Range) -> Range:
    """Return nanoseconds over the trace as nanoseconds a step, where the finding's figures are a step's."""
    if finding.per_step is None or outside_steps(finding):
        return of
    part, whole = finding.per_step.measured_ns, max(finding.measured_ns, 1)
    return Range(*(ns * part // whole for ns in (of.low, of.mid, of.high)))


def basis_text(finding: Finding) -> str:
    """Return what a saving of GPU time rests on, where verdicts were given: `measured`, `partly measured` and so on."""
    bases = [None if one.verdict is None else one.verdict.basis for one in finding.variants or (finding,)]
    known = dict.fromkeys(basis for basis in bases if basis is not None)
    partly = "partly " if len(set(bases)) > 1 else ""
    return partly + " and ".join(known) if known else ""


def ceiling_text(scan: Scan) -> str:
    """Return how far GPU time could fall, and how far the findings get; "" where that is not known.

    >>> from tracemine.findings.record import Part, Parts
    >>> parts = Parts(ns=9_000, parts=(Part(name="products", ns=8_000, gpu_time_ns=8_000),), covered_communication_ns=0,
    ...     after_ns=Range(5_000, 6_000, 7_000), gpu_time_after_ns=Range(4_000, 5_000, 6_000), least_gpu_time_ns=3_000,
    ...     least_known_share=0.8)
    >>> print(_ceiling(parts, findings=True))
    roofline floor of GPU time 3.00 µs (20% of it as it is); these fixes reach 5.00 µs (now 8.00 µs)
    """
    parts, devices = scan.summary.parts, 1 if scan.recorded is None else max(scan.recorded.devices, 1)
    hidden = sum(of_finding(one, "gpu_saving_ns").mid for one in scan.findings if not one.reported)
    return "" if parts is None else _ceiling(parts, findings=bool(scan.reported), hidden_ns=hidden // devices)


def _ceiling(parts: Parts, *, findings: bool, hidden_ns: int = 0) -> str:
    after, least = parts.gpu_time_after_ns, parts.least_gpu_time_ns
    spent = sum(part.gpu_time_ns for part in parts.parts)
    if after is None or least is None or not spent:
        return ""
    not_known = 1 - parts.least_known_share
    rest = f" ({share_text(not_known)} of it as it is)" if not_known >= _WORTH_A_WORD else ""
    reach = f"; these fixes reach {time_text(after.mid + hidden_ns)}" if findings else ""
    by = _by_part(parts, spent - least)
    return f"roofline floor of GPU time {time_text(least)}{rest}{by}{reach} (now {time_text(spent)})"


def _by_part(parts: Parts, whole_ns: int) -> str:
    """Return the two parts in which most of what could be less is; "" where that is known of none.

    >>> from tracemine.findings.record import Part, Parts
    >>> each = (("products", 8_000, 3_000), ("attention", 1_000, 700), ("memory_bound", 3_000, 1_000))
    >>> parts = [Part(name=name, ns=ns, gpu_time_ns=ns, least_gpu_time_ns=least) for name, ns, least in each]
    >>> _by_part(Parts(ns=12_000, parts=tuple(parts), covered_communication_ns=0, after_ns=Range(0, 0, 0)), 7_300)
    ': GEMM/conv by 5.00 µs, memory-bound by 2.00 µs'
    """
    less = [
        (part.gpu_time_ns - part.least_gpu_time_ns, part.name)
        for part in parts.parts
        if part.least_gpu_time_ns is not None
    ]
    most = [(ns, name) for ns, name in sorted(less, reverse=True)[:2] if ns > _WORTH_NAMING * max(whole_ns, 1)]
    return ": " + ", ".join(f"{TITLES.get(name, name)} by {time_text(ns)}" for ns, name in most) if most else ""


def memory_text(scan: Scan) -> str:
    """Return how much lower peak memory is with all findings fixed; "" where that is little, or not known."""
    peak = scan.summary.peak_memory
    if peak is None or peak.before_bytes - peak.after_bytes < _WORTH_A_WORD * max(peak.before_bytes, 1):
        return ""
    missing = f" ({count_text(peak.not_found, 'tensor')} not found)" if peak.not_found else ""
    return f"peak {bytes_text(peak.before_bytes)} → {bytes_text(peak.after_bytes)} once all findings are fixed{missing}"


def all_of(scan: Scan, name: str) -> Range:
    """Return what all findings that reports show save together: `gpu_saving_ns` or `step_saving_ns`.

    It is a step's where steps are known. High ends do not add up: together they save no more than all there are.
    """
    most: Range | None = getattr(scan.summary, name)
    if (step := scan.summary.per_step) is None or any(finding.per_step is None for finding in scan.findings):
        each = [getattr(finding, name) for finding in scan.reported]
    else:
        most = step.step_saving_ns if name == "step_saving_ns" else None
        each = [of_finding(finding, name) for finding in scan.reported]
    shown: Range = sum(each, NOTHING)
    return shown if most is None else shown.at_most(most.high)


def of_finding(finding: Finding, name: str) -> Range:
    """Return what a finding saves, a step where steps are known, as `all_of`."""
    found: Range = getattr(finding if finding.per_step is None else finding.per_step, name)
    return found


def cause_of(finding: Finding) -> str:
    """Return a finding's title without the place behind it: the title of its rule or of the advice that fits it."""
    return cause_in(finding.title)


def cause_in(title: str) -> str:
    """Return the cause that a finding's title begins with.

    >>> cause_in("Unfused RMSNorm: LlamaRMSNorm")
    'Unfused RMSNorm'
    """
    return re.split(r": | · ", title, maxsplit=1)[0]


def saved_alone(finding: Finding) -> Range:
    """Return by how much its fix alone makes a step shorter; where that is not known, its part of what all save."""
    alone = (finding.per_step or finding).step_saving_alone_ns
    return of_finding(finding, "step_saving_ns") if alone is None else alone


def each_text(finding: Finding) -> str:
    """Return what a finding's figures are of."""
    return "over the trace" if finding.per_step is None or outside_steps(finding) else "per step"


def saving_of_each(finding: Finding, name: str) -> Range:
    """Return what a finding's fix alone saves, `gpu_saving_ns` or `step_saving_ns`, of what `each_text` says."""
    if outside_steps(finding):
        found: Range = getattr(finding, name)
        return found
    return saved_alone(finding) if name == "step_saving_ns" else of_finding(finding, name)


def outside_steps(finding: Finding) -> bool:
    """Return whether all of it lies outside of the steps: no step gains anything."""
    return finding.per_step is not None and finding.per_step.measured_ns == 0 < finding.measured_ns


def gpu_text(saving_ns: int, scan: Scan) -> str:
    """Return what share of GPU time a saving is: of a step's, where steps are known and savings are a step's."""
    step = scan.summary.per_step
    if step is None:
        return f"{percent_text(saving_ns, scan.summary.gpu_time_ns)} of GPU time"
    return f"{percent_text(saving_ns, step.gpu_busy_ns)} of the step's GPU time"


def cost_text(finding: Finding, scan: Scan, variant: Variant | None = None) -> str:
    """Return how often a finding, or a variant of it, occurs and what that takes; a step where steps are known."""
    one = finding if variant is None else variant
    if finding.per_step is None or outside_steps(finding):
        times = "once, " if one.occurrences == 1 else f"{one.occurrences:,} times, "
        where = "" if finding.per_step is None else ", outside of the steps"
        often = "" if is_sums(scan.summary) else times  # a sum is of as many runs as there were
        return f"{often}{time_text(one.measured_ns)} in all{where}"
    apart = () if scan.summary.per_step is None else scan.summary.per_step.apart
    steps = max(scan.trace.steps + len(apart), 1)
    each, left = divmod(one.occurrences, steps)
    times = f"{each:,} × per step" if not left else f"{one.occurrences:,} × in {count_text(steps, 'step')}"
    cost_ns = a_step(finding, Range(*[one.measured_ns] * 3)).mid
    return f"{times}, {time_text(cost_ns)} per step{_of_what(cost_ns, finding, scan)}"


def _of_what(cost_ns: int, finding: Finding, scan: Scan) -> str:
    """Say that a cost is of another time than the step that is printed: of the recorded one, or of several devices."""
    step = scan.summary.per_step
    alone = None if step is None else step.unprofiled_ns
    if alone is None or alone.source == "recorded":
        return ""
    if not finding.on_gpu:
        return " as recorded"
    several = scan.recorded is not None and scan.recorded.devices > 1
    return " on all devices" if several and cost_ns > alone.mid else ""


def little_text(scan: Scan) -> str:
    """Return how many findings are not shown, and what they save together; "" where none are."""
    little = [finding for finding in scan.findings if not finding.reported]
    if not little:
        return ""
    ns = sum(max(of_finding(one, name).mid for name in ("step_saving_ns", "gpu_saving_ns")) for one in little)
    per_step = " per step" if little[0].per_step is not None else ""
    return f"{count_text(len(little), 'smaller finding')} hidden ({time_text(ns)}{per_step} together): --min-saving 0ns"


def source_text(source: Source, file: str) -> str:
    """Return a line, as far as it is known: profilers record the line at which a function begins.

    >>> from tracemine.findings.record import Source
    >>> source_text(Source(file="/a/norm.py", line=70, function="forward", begins=True), "a/norm.py")
    'a/norm.py:70 forward() (line of def)'
    >>> source_text(Source(file="/a/norm.py", line=71, function="forward"), "a/norm.py")
    'a/norm.py:71 forward()'
    >>> source_text(Source(file="/a/norm.py", line=70, function="forward", begins=True, statement=74), "a/norm.py")
    'a/norm.py:74 in forward()'
    """
    if source.statement is not None:
        return f"{file}:{source.statement} in {source.function}()"
    if source.begins:
        return f"{file}:{source.line} {source.function}() (line of def)"
    return f"{file}:{source.line} {source.function}()"


def counted_text(counted: Counted) -> str:
    """Return what Nsight Compute counted of a finding's kernels, in a line.

    >>> from tracemine.findings.record import Counted
    >>> counted_text(Counted(kernels=8, known=8, exact=8, dram_bytes=164_000_000, derived=False, flops=656_000_000,
    ...                      arithmetic_intensity=4.0, ridge=14.0, bounds={"memory": 6, "latency": 2}))
    '8 of 8 kernels: 164 MB of DRAM traffic, 4 FLOP a byte (ridge 14) · bound by memory 6, latency 2'
    """
    known = f"{counted.known:,} of {count_text(counted.kernels, 'kernel')}"
    facts = []
    if counted.dram_bytes is not None:
        facts.append(f"{bytes_text(counted.dram_bytes)} of DRAM traffic{' (derived)' if counted.derived else ''}")
    if counted.arithmetic_intensity is not None:
        ridge = "" if counted.ridge is None else f" (ridge {ratio_text(counted.ridge)})"
        facts.append(f"{ratio_text(counted.arithmetic_intensity)} FLOP a byte{ridge}")
    if counted.bounds:
        facts[-1:] = [" · ".join((*facts[-1:], "bound by " + ", ".join(_bounds(counted.bounds))))]
    if counted.exact < counted.known:
        facts.append(f"{counted.known - counted.exact:,} found by name and grid only")
    return f"{known}: {', '.join(facts)}" if facts else known


def _bounds(bounds: Mapping[str, int]) -> Iterator[str]:
    for name, count in sorted(bounds.items(), key=lambda each: -each[1]):
        yield f"{'no single unit' if name == 'neither' else name} {count:,}"


def dropped_text(dropped: Mapping[str, int]) -> str:
    """Return what was looked at and not reported, and why, most first.

    >>> dropped_text({"below_threshold": 2, "some_new_reason": 1200})
    '1,200 matches some new reason, 2 below --min-saving'
    """
    by_count = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    first = count_text(by_count[0][1], "match") if by_count else ""
    counts = [first, *(f"{count:,}" for _, count in by_count[1:])]
    reasons = [left_out_text(reason) for reason, _ in by_count]
    return ", ".join(map(" ".join, zip(counts, reasons, strict=False)))


def left_out_text(reason: str) -> str:
    """Return what is said of matches that a scan left out, behind their number.

    >>> left_out_text("nothing_to_win"), left_out_text("some_new_reason")
    ('with nothing to win', 'some new reason')
    """
    return _DROPPED.get(reason, reason.replace("_", " "))


def shown_text(scan: Scan, hidden: int) -> str:
    """Say how many findings a report shows of how many; what verdicts took away is not counted."""
    every = len(claimed(scan))
    return f"{every - hidden:,} of {count_text(every, 'finding')} shown"


def chain(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in order, neighbours of one name counted.

    >>> chain(["mm", "add", "add", "add"])
    ('mm', 'add ×3')
    """
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    return tuple(name if count == 1 else f"{name} ×{count}" for name, count in runs)


def operator_name(name: str) -> str:
    """Return an operator without the namespace that all have; a kernel family as it is.

    >>> operator_name("aten::pow"), operator_name("my_ops::rope"), operator_name("triton")
    ('pow', 'my_ops::rope', 'triton')
    """
    return name.removeprefix("aten::")


def blocks(text: str) -> tuple[tuple[bool, str], ...]:
    """Return a rule's text as paragraphs and indented code, (is code, text) each; a paragraph is one line.

    >>> blocks('''Do this:
    ...
    ...     a = 1
    ...
    ...     b = 2
    ...
    ... And look
    ... again.''')
    ((False, 'Do this:'), (True, 'a = 1\\n\\nb = 2'), (False, 'And look again.'))
    """
    found: list[tuple[bool, str]] = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = [one.rstrip() for one in block.splitlines() if one.strip()]
        if not lines:
            continue
        is_code = all(one.startswith("    ") for one in lines)
        content = dedent("\n".join(lines)) if is_code else " ".join(one.strip() for one in lines)
        if is_code and found and found[-1][0]:
            content = f"{found.pop()[1]}\n\n{content}"
        found.append((is_code, content))
    return tuple(found)


def first_sentence(text: str) -> str:
    """Return a text up to the first full stop that ends a sentence.

    >>> first_sentence("Use torch.compile. It fuses.")
    'Use torch.compile.'
    """
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text.strip(), maxsplit=1)[0]
