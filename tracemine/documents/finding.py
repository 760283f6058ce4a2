"""One finding as a document: labelled sections of lines, which every report for people draws in its own way.

A line is ours or a rule's sentence, a name from the trace, which is shown as it is whatever it holds, or code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct

from tracemine.documents import words
from tracemine.documents.own_code import own_first
from tracemine.documents.screen import sure_of
from tracemine.documents.step_words import is_sums
from tracemine.documents.verdict_words import error_text, not_tested_text, said_text, times_text, unprofiled_ns
from tracemine.findings.payback import COMPILE
from tracemine.ops.kernel_names import short_name
from tracemine.patterns import deferred
from tracemine.perfmodel import Range
from tracemine.units import bytes_text, percent_text, range_text, ratio_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan, Source, Variant, Verified

PROSE, NAME, CODE, CALM = "prose", "name", "code", "calm"  # a calm line is a name of which there are many
_MOST_VARIANTS, _MOST_FRAMES = 6, 3
_FIGURE = deferred(r"\d[\d.,–]*(?: [kMGTµnm]?[Bs]\b)?")
# How each profiler records source lines, or what stands in their place.
_RECORDS_LINES = {
    "kineto": "record with `with_stack=True`",
    "nsys": "`nsys profile --python-backtrace=cuda` records Python's lines, and NVTX ranges the modules",
}
NAMED = ("tensorrt",)  # formats whose kernels have names of the model's: where they are
_LONGEST_CYCLE = 8


class Line(Struct, frozen=True):
    """A line of a section."""

    text: str
    kind: str = PROSE
    saves: Range | None = None  # what it says, for who draws intervals


def before_after(scan: Scan) -> tuple[str, str]:
    """Return what commands call a recording, and the one with the fix: as files of its format are called."""
    return ("before.json.gz", "after.json.gz") if scan.trace.format == "kineto" else ("BEFORE", "AFTER")


def sections(finding: Finding, scan: Scan, frames: Mapping[str, Source] | None = None) -> dict[str, tuple[Line, ...]]:
    """Return all that is known of a finding: lines by label, without empty ones. frames: as of `first_screen`."""
    identity = f"{finding.fingerprint} · rule {finding.rule} · severity {finding.severity}"
    known = (
        ("id", [Line(identity, NAME)]),
        ("saves", saves(finding, scan)),
        ("sure", [Line(_sure(finding))]),
        ("cost", cost(finding, scan)),
        ("why", rule_lines(finding.why)),
        ("where", where(finding, scan, frames)),
        ("kernels" if finding.on_gpu else "before", [*operators(finding), *_kernels(finding)]),
        ("counted", [Line(words.counted_text(finding.counters))] if finding.counters else ()),
        ("fix", [*rule_lines(finding.fix), *_compile_time(finding, scan)]),
        ("verdict", verdicts(finding, whole=True)),
        ("variants", _variants(finding, scan)),
        ("assumes", map(Line, _told_once(finding.assumptions))),
        ("check", [Line("record the same steps with the fix, compare both, and compare the programs' results:"),
                   Line(f"tracemine diff {' '.join(before_after(scan))}", CODE)]),
    )  # fmt: skip
    return {label: lines for label, each in known if (lines := tuple(one for one in each if one.text))}


def _saves_outside(finding: Finding) -> Iterator[Line]:
    for name, saving in (("", finding.step_saving_ns), ("GPU ", finding.gpu_saving_ns)):
        if saving.high:
            yield Line(f"{name}{_interval(saving)} over the trace, outside of the steps", saves=saving)


def saves(finding: Finding, scan: Scan) -> Iterator[Line]:
    """Yield what its fix alone saves of the step, and of GPU time."""
    if finding.refuted:
        yield Line("nothing: verdicts took away what was predicted")
        return
    if words.outside_steps(finding):
        yield from _saves_outside(finding)
        return
    step, gpu = words.saved_alone(finding), words.of_finding(finding, "gpu_saving_ns")
    each, whole_ns = "" if finding.per_step is None else " per step", unprofiled_ns(scan.summary)
    if step.mid or (step.high and not gpu.high):
        share = "" if whole_ns is None else f", {percent_text(step.mid, whole_ns)} of {words.share_of_text(scan)}"
        yield Line(f"{_interval(step)}{each} alone{share}", saves=step)
    if gpu.high:
        basis = f", {text}" if (text := words.basis_text(finding)) else ""
        yield Line(f"GPU {_interval(gpu)}{each}, {words.gpu_text(gpu.mid, scan)}{basis}", saves=gpu)
    if gpu.high and not step.mid:
        yield Line(
            "what the step gains is not known: times are sums"
            if is_sums(scan.summary)
            else "nothing of the step alone: something else sets its pace"
        )


def _interval(saving: Range) -> str:
    return f"{time_text(saving.mid)} ({range_text(saving.low, saving.high)})"


def _sure(finding: Finding) -> str:
    rests = words.EVIDENCE.get(finding.evidence, "see the documentation")
    return f"{sure(finding)}; evidence {finding.evidence}: {rests}"


def sure(finding: Finding) -> str:
    """Return how sure its saving is, of the step or else of GPU time."""
    saving = words.saved_alone(finding)
    return sure_of(finding, saving if saving.mid else words.of_finding(finding, "gpu_saving_ns"))


def cost(finding: Finding, scan: Scan) -> Iterator[Line]:
    """Yield how often it occurs, what that takes, what the fix leaves of it, and what it moves."""
    left = ""
    if finding.fused_ns is not None and not finding.refuted:
        left = f"; after the fix {_interval(words.a_step(finding, finding.fused_ns))} {words.each_text(finding)}"
    yield Line(words.cost_text(finding, scan) + left)
    moved = []
    if (traffic := finding.traffic_bytes) is not None:
        moved.append(f"traffic {bytes_text(traffic.before)} → {bytes_text(traffic.after)}")
    if (intensity := finding.arithmetic_intensity) is not None:
        ridge = "" if intensity.ridge is None else f" (ridge {ratio_text(intensity.ridge)})"
        moved.append(f"{ratio_text(intensity.before)} → {ratio_text(intensity.after)} FLOP per byte{ridge}")
    if finding.intermediate_bytes:
        moved.append(f"tensors of {bytes_text(finding.intermediate_bytes)} need not exist")
    yield Line("; ".join(moved))


def _told_once(texts: Sequence[str]) -> Iterator[str]:
    """Yield texts, of more than two that differ in figures alone the first, with their number.

    >>> list(_told_once(["168 MB at 2 GB/s", "none", "4.2 MB at 3 GB/s", "5 kB at 1.5 GB/s"]))
    ['168 MB at 2 GB/s (and 2 more with other figures)', 'none']
    """
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(_FIGURE.sub("#", text), []).append(text)
    for first, *others in alike.values():
        if len(others) > 1:
            yield f"{first} (and {len(others):,} more with other figures)"
        else:
            yield from (first, *others)


def where(
    finding: Finding, scan: Scan, frames: Mapping[str, Source] | None = None, *, short: bool = False
) -> Iterator[Line]:
    """Yield the module and the source lines, the user's own first, or how they are recorded. short: the first alone."""
    if finding.module:
        yield Line(finding.module, NAME)
    known = own_first(finding, frames or {})
    behind = "" if finding.source else ", whose backward pass this is"
    for source in known[: 1 if short else _MOST_FRAMES]:
        file = "/".join(PurePath(source.file).parts[-2:]) if short else source.file
        yield Line(f"{words.source_text(source, file)}{behind}", NAME)
    if scan.trace.format in NAMED and finding.kernels:
        yield from _kernels(finding)
    elif not (finding.module or known):
        how = _RECORDS_LINES.get(scan.trace.format)
        yield Line(f"no module or source line was recorded{'' if how is None else f': {how}'}")


def operators(finding: Finding | Variant, *, on_gpu: bool = True) -> Iterator[Line]:
    """Yield the operators in order, what repeats folded, and what they run on."""
    between = " → " if on_gpu and getattr(finding, "on_gpu", True) else ", "  # what follows gaps is no chain
    if names := folded([words.operator_name(name) for name in finding.ops]):
        yield Line(between.join(names), NAME)
    operands = " ".join(text for text in (getattr(finding, "dtype", None), finding.shapes) if text)
    if operands:
        yield Line(operands, NAME)


def _kernels(finding: Finding) -> Iterator[Line]:
    counts = Counter(map(short_name, finding.kernels))
    yield Line(", ".join(name if times == 1 else f"{name} ×{times:,}" for name, times in counts.items()), CALM)


def rule_lines(text: str) -> Iterator[Line]:
    """Yield a rule's text: a line each paragraph and each piece of code."""
    for is_code, block in words.blocks(text):
        yield Line(block, CODE if is_code else PROSE)


def first_of_fix(fix: str) -> tuple[list[Line], bool]:
    """Return the first sentence of a fix, or the paragraph that leads up to code with the code; and whether more is.

    >>> [line.text for line in first_of_fix("Do this:\\n\\n    f()\\n\\nIt is exact.")[0]]
    ['Do this:', 'f()']
    """
    first, *others = [*rule_lines(fix)] or [Line("")]
    if first.text.endswith(":") and others and others[0].kind == CODE:
        return [first, others[0]], bool(others[1:])
    sentence = words.first_sentence(first.text)
    return [Line(sentence)], bool(others) or sentence != first.text


def _compile_time(finding: Finding, scan: Scan) -> Iterator[Line]:
    payback = scan.summary.payback
    if payback is not None and COMPILE in finding.fix:
        took = range_text(payback.compile_low_ns, payback.compile_high_ns)
        yield Line(f"Compile time: {took} once ({payback.source}).")


def verdicts(finding: Finding, *, whole: bool = False) -> Iterator[Line]:
    """Yield what was measured, of each variant. whole: also what was not tested, and where it was read."""
    every: tuple[Finding | Variant, ...] = finding.variants or (finding,)
    for part in every:
        verified = part.verdict
        if verified is None:
            continue
        if whole and len(every) > 1:
            yield Line(f"variant {part.identity.finding}", NAME)
        yield from verdict(part, verified, whole=whole)


def verdict(part: Finding | Variant, verified: Verified, *, whole: bool) -> Iterator[Line]:
    """Yield what was measured of a finding or of a variant of it. whole: as `verdicts`."""
    yield from (Line(text) for text in (said_text(verified), times_text(verified), error_text(part)) if text)
    if whole:
        yield from [Line(f"not tested: {text}")] if (text := not_tested_text(verified)) else []
        yield from (Line(f"assumes: {text}") for text in verified.assumptions)
        yield Line(f"read from {verified.file}", NAME)


def _variants(finding: Finding, scan: Scan) -> Iterator[Line]:
    """Yield where it occurs in several ways: how often, what it saves of GPU time, and its shapes or operators."""
    if len(finding.variants) < 2:
        return
    several = len({variant.ops for variant in finding.variants}) > 1
    for variant in finding.variants[:_MOST_VARIANTS]:
        ops = " → ".join(folded([words.operator_name(name) for name in variant.ops]))
        what = " ".join(filter(None, (ops if several or not variant.shapes else "", variant.shapes)))
        saving = words.a_step(finding, variant.gpu_saving_ns).mid
        saved = f", GPU −{time_text(saving)}" if saving else ""
        yield Line(f"{variant.identity.finding} {words.cost_text(finding, scan, variant)}{saved}: {what}", NAME)
    if (more := len(finding.variants) - _MOST_VARIANTS) > 0:
        yield Line(f"{more:,} more: --format json")


def folded(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in order, with what repeats, one name or several, counted.

    >>> folded(["mm", "add", "mul", "add", "mul", "add", "mul", "div", "div"])
    ('mm', '(add → mul) ×3', 'div ×2')
    """
    shown, at = [], 0
    while at < len(names):
        length, times = max(
            ((length, _repeats(names, at, length)) for length in range(1, _LONGEST_CYCLE + 1)),
            key=lambda cycle: (cycle[0] * cycle[1] if cycle[1] > 1 else 1, -cycle[0]),
        )
        cycle = names[at : at + (length if times > 1 else 1)]
        name = cycle[0] if len(cycle) == 1 else f"({' → '.join(cycle)})"
        shown.append(name if times == 1 else f"{name} ×{times:,}")
        at += len(cycle) * times
    return tuple(shown)


def _repeats(names: Sequence[str], at: int, length: int) -> int:
    """Return how often the names from there on repeat, so many at a time; a cycle of none is one."""
    cycle, times = names[at : at + length], 1
    while cycle == names[at + times * length : at + (times + 1) * length]:
        times += 1
    return times if len(cycle) == length else 1
