"""Verdicts for a person at a terminal: predicted beside measured, and how far each finding was verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracemine.findings.record import GRAPH
from tracemine.report.escape import LONGEST, line
from tracemine.units import count_text, time_text

if TYPE_CHECKING:
    from tracemine.report import Options
    from tracemine.verify.library.outcome import CallVerdict
    from tracemine.verify.step.compared import StepVerdict
    from tracemine.verify.verdicts.verdict import Verdict, Verdicts

_STYLES = {
    "L0": "red",
    "L1": "yellow",
    "L2": "green",
    "L3": "green",
    "L4": "bold green",
    "L5": "bold green",
    "L6": "bold green",
}
_COLUMNS = ("", "finding", "calls", "level", "predicted", "measured", "error", "eager", "fused", "compile", "copy")
_WIDE, _NARROW = 110, 78
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
    "another_rule": "of other rules",
    "settled": "with a verdict that settles it (--again)",
    "beyond_top": "beyond --top",
    "interrupted": "left when it was interrupted",
}


def render(found: Verdicts, out: TextIO, how: Options) -> None:
    """A table, a line a finding, with what it came to and what it takes for granted below."""
    console = Console(
        file=out,
        width=how.width,
        force_terminal=how.color,
        no_color=not how.color,
        highlight=False,
        legacy_windows=False,
    )
    where = found.gpu or "no GPU: levels up to L2"
    console.print(Text(line(f"{found.trace} · {where}")))
    timed = any(v.measured is not None for v in found.verdicts)
    columns = _columns(how.width) if timed else _COLUMNS[:5]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="left" if name in ("finding", "level") else "right", no_wrap=name != "finding")
    for rank, verdict in enumerate(found.verdicts, 1):
        title = Text(line(verdict.title, longest=60))
        cells: list[str | Text] = [str(rank), title, str(verdict.calls or ""), _level(verdict), *_times(verdict)]
        of = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*(of[name] for name in columns))
    console.print(table)
    console.print()
    for rank, verdict in enumerate(found.verdicts, 1):
        says = verdict.says if "finding" in columns else f"{verdict.title[:60]}: {verdict.says}"
        console.print(Text.assemble((f"{rank:>3} ", "dim"), (verdict.fingerprint[:16], "dim"), " ", line(says)))
        for text in wrong_texts(verdict):
            console.print(_indented(text))
        for text in call_texts(verdict):
            console.print(_indented(text, longest=300))
        for text in verdict.assumptions:
            console.print(_indented(f"taken for granted: {text}", style="dim", longest=500))
    if found.step is not None:
        _print_step(found.step, console)
    left_out = [f"{count_text(n, 'finding')} {_SKIPPED.get(name, name)}" for name, n in found.skipped.items()]
    if left_out:
        console.print(Text(f"not looked at: {', '.join(left_out)}", style="dim"))
    for warning in found.warnings:
        console.print(Text(line(f"note: {warning}"), style="dim"))


def _columns(width: int) -> tuple[str, ...]:
    """Columns for which there is room. Numbers are never cut: where it is narrow the title goes to the text below."""
    left_out = [*["finding", "calls"] * (width < _WIDE), *["compile", "copy"] * (width < _NARROW)]
    return tuple(name for name in _COLUMNS if name not in left_out)


def _indented(text: str, *, style: str = "", longest: int = LONGEST) -> Padding:
    return Padding(Text(line(text, longest), style=style), (0, 0, 0, 4), expand=False)


def _print_step(step: StepVerdict, console: Console) -> None:
    """What is replayed, what it came to, and each change: predicted beside measured."""
    replayed = f"{step.replayed_launches} of {count_text(step.launches, 'launch')}, {step.share:.1%} of its GPU time"
    console.print()
    console.print(Text.assemble(("step ", "bold"), line(f"{step.step or 'the whole recording'}: {replayed}")))
    console.print(_indented(step.says))
    for left in step.left:
        console.print(_indented(f"not replayed: {left.reason} ({left.calls})", style="dim"))
    for reason, count in step.refused.items():
        says = f"{count_text(count, 'occurrence')} not replaced: {reason}"
        console.print(_indented(says, style="dim"))
    for name, times in step.medians_ns.items():
        says = f"{_VARIANTS.get(name, name)}: {time_text(times['step_ns'])}, the host {time_text(times['host_ns'])}"
        console.print(_indented(says))
    if step.recorded_ns:
        console.print(_indented(f"the model's own step alone: {time_text(step.recorded_ns)}"))
    for change in step.changes:
        interval = f"{_signed(change.low_ns)} to {_signed(change.high_ns)}"
        says = f"{_CHANGES.get(change.change, change.change)} saved {_signed(change.measured_ns)} ({interval})"
        if change.predicted_ns is not None:
            claim = change.predicted_ns
            says += f", predicted {_signed(claim.mid)} ({_signed(claim.low)} to {_signed(claim.high)})"
        if change.says:
            says += f"; not compared: {change.says}"
        console.print(_indented(says))


def wrong_texts(verdict: Verdict) -> list[str]:
    """How many wrong kernels were found out, and those that were not; nothing where none were tried."""
    proof = verdict.proof
    if proof is None or not proof.mutants:
        return []
    caught, tried = proof.killed
    found = [f"{caught} of {count_text(tried, 'wrong kernel')} found out"]
    left = [m for m in proof.mutants if m.killed_by is None and m.equivalent is None]
    return found + [f"not found out: {one.name}: {one.line.strip()}" for one in left]


def call_texts(verdict: Verdict) -> list[str]:
    """What calls there are in place of a finding's chain, and how they did."""
    found = []
    for name, beside in (("library", verdict.library), ("compiled", verdict.compiled)):
        if beside is not None:
            ahead = ", the fastest" if verdict.best == name and verdict.measured is not None else ""
            kept = f", {count_text(beside.eager_calls, 'eager call')} kept" if beside.eager_calls else ""
            found.append(f"or {beside.text}: {_did(beside)}{ahead}{kept}")
    if (around := verdict.with_products) is not None:
        found.append(f"or, with the products around it, {around.text}: {_did(around)} (another algorithm, no fusion)")
    return found


def _did(call: CallVerdict) -> str:
    """How a call did: its level, and how many times as long eager takes."""
    if call.ratio is None:
        return f"{call.level}, {call.says}"
    ratio = f"{call.ratio:.1f}x"
    return f"{ratio}, {call.level}" if call.level in ("L4", "L5") else f"{ratio}, {call.level}, {call.says}"


def _level(verdict: Verdict) -> Text:
    return Text(verdict.level, style=_STYLES.get(verdict.level, ""))


def _times(verdict: Verdict) -> list[str]:
    """Times of one occurrence: what it saves, and what eager, the fused kernel, torch.compile and a copy take."""
    found = [_signed(verdict.predicted_ns.mid) if verdict.by != GRAPH else ""]  # of a step, in what it says
    measured = verdict.measured
    if measured is None:
        return [*found, *[""] * 6]
    error = "" if verdict.error_ns is None else f"{'+' if verdict.error_ns > 0 else ''}{_signed(verdict.error_ns)}"
    compiled = "" if measured.compiled_ns is None else time_text(measured.compiled_ns)
    found += [_signed(measured.saving_ns), error, time_text(measured.eager_ns), time_text(measured.fused_ns)]
    return [*found, compiled, time_text(measured.copy_ns)]


def _signed(ns: int) -> str:
    return time_text(ns) if ns >= 0 else f"-{time_text(-ns)}"
