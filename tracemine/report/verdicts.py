"""Verdicts for a person at a terminal: predicted and measured, and how far each finding was verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracemine.findings.record import GRAPH
from tracemine.report.escape import line
from tracemine.report.paragraphs import console_for
from tracemine.units import count_text, time_text
from tracemine.verdicts.levels import LEVELS

if TYPE_CHECKING:
    from tracemine.report import Drawing
    from tracemine.verdicts.verdict import CallVerdict, StepVerdict, Verdict, Verdicts

_STYLES = {"L0": "red", "L1": "yellow", "L2": "green", "L3": "green"} | dict.fromkeys(
    ("L4", "L5", "L6", "L7"), "bold green"
)
_COLUMNS = ("", "finding", "calls", "level", "predicted", "measured", "error", "eager", "fused", "compile", "copy")
_WIDE, _NARROW = 110, 78
_MARGIN = 4 * " "
_Line = tuple[Text | None, str, str]  # a head, a text behind it, and its style
_VARIANTS = {
    "eager": "replayed",
    "fused": "with fused kernels",
    "eager_graph": "replayed, as a CUDA graph",
    "fused_graph": "with fused kernels, as a CUDA graph",
}
_CHANGES = {
    "fused": "fused kernels",
    "graph": "a CUDA graph",
    "fused_graph": "fused kernels within a CUDA graph",
    "all": "both",
}
_SKIPPED = {
    "nothing_to_fuse": "with nothing to fuse",
    "not_reported": "too small to be reported (scan --min-saving 0ns reports all)",
    "another_finding": "others than --finding",
    "another_rule": "of other rules",
    "settled": "with a verdict that settles it (--again)",
    "beyond_top": "beyond --top",
    "interrupted": "left when it ended",
}


def render(found: Verdicts, out: TextIO, how: Drawing) -> None:
    """Write a table, a line a finding, with what it came to and what it assumes below."""
    drawn = StringIO()
    console = console_for(drawn, how)
    console.print(Text(line(f"{found.trace} · {found.gpu or 'no GPU: levels up to L2'}")))
    columns = _print_table(found, console, how.width) if found.verdicts else ()
    for head, text, style in _lines(found, "finding" in columns):
        _print_indented(console, head, text, style)
    out.writelines(text.rstrip() + "\n" for text in drawn.getvalue().splitlines())


def _lines(found: Verdicts, titled: bool) -> Iterator[_Line]:
    """Yield what each finding came to, then what holds of all. titled: a table above has the findings' titles."""
    for rank, verdict in enumerate(found.verdicts, 1):
        says = _came_to(verdict, found.step is not None)
        says = says if titled and verdict.by != GRAPH else f"{verdict.title[:60]}: {says}"
        yield Text.assemble((f"{rank:>3} {verdict.fingerprint[:16]}", "dim"), " "), line(says), ""
        yield from _details(verdict)
    yield from ((Text(), line(f"assumed {text}", 500), "dim") for text in assumption_texts(found.verdicts))
    if found.step is not None:
        yield from _step_lines(found.step)
    left_out = [f"{count_text(n, 'finding')} {_SKIPPED.get(name, name)}" for name, n in found.skipped.items()]
    if left_out:
        yield Text(), f"not looked at: {', '.join(left_out)}", "dim"
    yield from ((Text(), line(f"note: {warning}"), "dim") for warning in found.warnings)
    yield from ((None, "", ""), (Text(), summary_text(found), ""))


def _details(verdict: Verdict) -> Iterator[_Line]:
    """Yield which wrong kernels were not found out, a bug of ours that it did not come to, and what else there is."""
    validation = verdict.validation
    if validation is not None and validation.mutants:
        caught, tried = validation.killed
        yield None, f"{caught} of {count_text(tried, 'wrong kernel')} found out", ""
        left = [m for m in validation.mutants if m.killed_by is None and m.equivalent is None]
        yield from ((None, line(f"not found out: {one.name}: {one.line.strip()}"), "") for one in left)
    if verdict.bug is not None and verdict.bug not in verdict.says:
        yield None, line(verdict.bug), ""
    yield from ((None, line(text, 300), "") for text in call_texts(verdict))
    if verdict.measured is not None:  # of others the verdict says why; L6 is asked for
        left_out = (text for text in verdict.not_tested if not text.startswith("L6"))
        yield from ((None, line(f"not tried: {text}", 300), "dim") for text in left_out)


def _print_table(found: Verdicts, console: Console, width: int) -> Sequence[str]:
    """Return a line a finding, and what the levels say; the names of the columns that there is room for."""
    timed = any(v.measured is not None for v in found.verdicts)
    columns = _columns(width) if timed else _COLUMNS[:5]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="left" if name in ("finding", "level") else "right", no_wrap=name != "finding")
    for rank, verdict in enumerate(found.verdicts, 1):
        if verdict.by == GRAPH:  # of the step, of which the lines below tell
            continue
        title = Text(line(verdict.title, longest=60))
        cells: list[str | Text] = [
            str(rank),
            title,
            str(verdict.calls or ""),
            Text(verdict.level, _STYLES.get(verdict.level, "")),
            *_times(verdict),
        ]
        of = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*(of[name] for name in columns))
    console.print(table)
    told = [f"{level} {says}" for level, says in LEVELS.items() if any(v.level == level for v in found.verdicts)]
    console.print(Text(f"levels: {', '.join(told)}", style="dim"))
    console.print(Text("times: of one occurrence; findings: each variant alone, by its own id", style="dim"))
    console.print()
    return columns


def _columns(width: int) -> tuple[str, ...]:
    """Return columns for which there is room. Numbers are never cut: where it is narrow the title goes below."""
    left_out = [*["finding", "calls"] * (width < _WIDE), *["compile", "copy"] * (width < _NARROW)]
    return tuple(name for name in _COLUMNS if name not in left_out)


def _print_indented(console: Console, head: Text | None, text: str, style: str) -> None:
    """Write an indented paragraph; with a head its first line begins with that instead. Nothing is an empty line."""
    whole = Text(text, style=style) if head is None else Text.assemble(head, (text, style))
    lines = whole.wrap(console, console.width - len(_MARGIN))
    for number, each in enumerate(lines):
        each.rstrip()
        console.print(Text.assemble(_MARGIN if number or head is None else "", each), soft_wrap=True)


def _step_lines(step: StepVerdict) -> Iterator[_Line]:
    """Yield what is replayed, what it came to, and each change: predicted and measured."""
    replayed = f"{step.replayed_launches} of {count_text(step.launches, 'launch')}, {step.share:.1%} of its GPU time"
    yield None, "", ""
    yield Text("step ", "bold"), line(f"{step.step or 'the whole recording'}: {replayed}"), ""
    if step.shorter is None:  # else it is the first of the changes
        yield None, line(step.says), ""
    left_out = [f"not replayed: {left.reason} ({left.calls})" for left in step.left]
    left_out += [f"{count_text(n, 'occurrence')} not replaced: {reason}" for reason, n in step.refused.items()]
    yield from ((None, line(says), "dim") for says in left_out)
    for name, times in step.medians_ns.items():
        says = f"{_VARIANTS.get(name, name)}: {time_text(times['step_ns'])}, the host {time_text(times['host_ns'])}"
        yield None, line(says), ""
    if step.recorded_ns:
        yield None, f"the model's own step alone: {time_text(step.recorded_ns)}", ""
    for change in step.changes:
        interval = f"{_signed(change.low_ns)} to {_signed(change.high_ns)}"
        says = f"{_CHANGES.get(change.change, change.change)} saved {_signed(change.measured_ns)} ({interval})"
        if (claim := change.predicted_ns) is not None:
            says += f", predicted {_signed(claim.mid)} ({_signed(claim.low)} to {_signed(claim.high)})"
        if change.replay_ns > change.measured_ns:
            says += f"; the replay, whose host is slower, {_signed(change.replay_ns)}"
        yield None, line(says + (f"; not compared: {change.says}" if change.says else "")), ""


def assumption_texts(verdicts: Sequence[Verdict]) -> list[str]:
    """Return each assumption once, with the ranks of the findings that rest on it."""
    ranks: dict[str, list[int]] = {}
    for rank, verdict in enumerate(verdicts, 1):
        for text in verdict.assumptions:
            ranks.setdefault(text, []).append(rank)
    return [f"for {_ranks(found)}: {text}" for text, found in ranks.items()]


def _ranks(found: Sequence[int]) -> str:
    """Return numbers as a person lists them.

    >>> _ranks([1]), _ranks([1, 2, 3, 5, 7, 8])
    ('1', '1-3, 5, 7, 8')
    """
    runs = [[number for _, number in run] for _, run in groupby(enumerate(found), lambda each: each[1] - each[0])]
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def summary_text(found: Verdicts) -> str:
    """Return how many findings reached which level, what share of the saving is validated, and the time it took."""
    counts = Counter(v.level for v in found.verdicts)
    levels = ", ".join(f"{counts[level]} {level}" for level in sorted(counts, reverse=True))
    says = [f"{count_text(len(found.verdicts), 'finding')}: {levels}" if counts else "no finding to verify"]
    claims = [(v.level, max(v.predicted_ns.mid, 0) * v.occurrences) for v in found.verdicts if v.by != GRAPH]
    least, what = ("L4", "right and faster than eager") if found.gpu else ("L2", "right (interpreter on the CPU)")
    whole, validated = sum(ns for _, ns in claims), sum(ns for level, ns in claims if level >= least)
    if whole:
        share = f"{validated / whole:.0%} of the {time_text(whole)} of GPU time they are to save in this trace"
        says += [f"{what}: {share}", *([] if found.gpu else ["speed not measured: no GPU"])]
    return " · ".join(says if found.seconds is None else [*says, f"{found.seconds:.0f} s"])


def _came_to(verdict: Verdict, stepped: bool) -> str:
    """Return what a finding came to: how many times as fast, and what its level asks beyond that."""
    if verdict.by == GRAPH:
        return f"{verdict.level}, {verdict.says}"
    if verdict.measured is None or verdict.level < "L4":
        return verdict.says
    in_step = verdict.level == "L6" and stepped  # the step is reported once
    says = "and a replayed step got shorter with it in place (below)" if in_step else verdict.says
    return f"{_as_fast(verdict.measured.eager_to_fused['ratio'])}, {says}"


def _as_fast(ratio: float) -> str:
    return f"{ratio:.1f} times as fast as eager"


def call_texts(verdict: Verdict) -> list[str]:
    """Return what calls there are in place of a finding's chain, and how they did."""
    found = []
    for name, beside in (("library", verdict.library), ("compiled", verdict.compiled)):
        if beside is not None:
            ahead = ": take this, it is the fastest" if verdict.best == name and verdict.measured is not None else ""
            kept = f", {count_text(beside.eager_calls, 'eager call')} kept" if beside.eager_calls else ""
            found.append(f"or {beside.text}: {_did(beside)}{kept}{ahead}")
    if (around := verdict.with_products) is not None:
        found.append(f"or, with the products around it, {around.text}: {_did(around)} (another algorithm, no fusion)")
    return found


def _did(call: CallVerdict) -> str:
    """Return how a call did: its level, and how many times as long eager takes."""
    if call.ratio is None:
        return f"{call.level}, {call.says}"
    did = f"{_as_fast(call.ratio)}, {call.level}"
    return did if call.level in ("L4", "L5") else f"{did}, {call.says}"


def _times(verdict: Verdict) -> list[str]:
    """Return times of one occurrence: its saving, and those of eager, the fused kernel, torch.compile and a copy."""
    found = [_signed(verdict.predicted_ns.mid)]
    measured = verdict.measured
    if measured is None:
        return [*found, *[""] * 6]
    error = "" if verdict.error_ns is None else f"{'+' if verdict.error_ns > 0 else ''}{_signed(verdict.error_ns)}"
    compiled = "" if measured.compiled_ns is None else time_text(measured.compiled_ns)
    found += [_signed(measured.saving_ns), error, time_text(measured.eager_ns), time_text(measured.fused_ns)]
    return [*found, compiled, time_text(measured.copy_ns)]


def _signed(ns: int) -> str:
    return time_text(ns) if ns >= 0 else f"-{time_text(-ns)}"
