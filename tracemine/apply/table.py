"""What trying fixes came to, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracemine.apply.record import Applied, Tried
from tracemine.apply.run import text_of
from tracemine.report.escape import line
from tracemine.units import time_text

_MOST = 18  # rows; with head and foot a screen of 24 lines
_NAME, _PREDICTED, _WHY = 28, 19, 64
_MEMORY_SHOWN = 0.02
_ROLLED_BACK = ("wrong", "failed", "slower")


def table(run: Applied) -> Iterable[str]:
    """Yield the lines: what was tried, its predicted and its measured saving, and what stays."""
    rows = [*run.alone, *run.together]
    where = run.device if run.ranks == 1 else f"{run.ranks} ranks, {run.device}"
    yield f"{line(run.entry)} on {where}: {time_text(run.step_ns)} a step, unchanged"
    yield f"{'tried':<{_NAME}} {'predicted':>{_PREDICTED}} {'measured':>9}  {'95 %':<18} first run"
    yield from (_row(tried, run.peak_bytes if run.device != "cpu" else 0) for tried in rows[:_MOST])
    if len(rows) > _MOST:
        yield f"… and {len(rows) - _MOST} more: --format json has all"
    yield f"{sum(tried.said in _ROLLED_BACK for tried in rows)} of {len(rows)} rolled back: wrong, slower or failed"
    yield f"keep: {_names(run.best)}" if run.best else "keep: nothing; the step stays as it is"
    if run.beside_compile and run.best != (run.compiled,):
        times = 1 / run.beside_compile.ratio
        yield f"{times:.2f} x as fast as {run.compiled} alone, the best of torch.compile's modes"


def _names(variants: Sequence[str]) -> str:
    return line(text_of(tuple(variants)))


def _row(tried: Tried, base_bytes: int) -> str:
    ends = (tried.predicted, tried.predicted_high, tried.predicted_low)
    likely, least, most = ("" if share is None else f"{-100 * share:+.0f}" for share in ends)
    predicted = f"{likely}% ({least} to {most})" if likely else ""
    name = _names(tried.variants)
    name = name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"  # modes stand last
    begin = f"{name:<{_NAME}} {predicted:>{_PREDICTED}}"
    if tried.timed is None:
        return f"{begin} {tried.said}: {line(tried.why)[:_WHY]}"
    timed = tried.timed
    interval = f"{timed.low - 1:+.1%} to {timed.high - 1:+.1%}"
    off = ", ".join(
        f"{kind} off by {tried.errors[kind]:.1g}" for kind in ("output", "gradient", "loss") if kind in tried.errors
    )
    more = tried.peak_bytes / base_bytes - 1 if base_bytes else 0.0
    memory = f"memory {more:+.0%}" if abs(more) >= _MEMORY_SHOWN else ""
    said = "; ".join(filter(None, (f"{tried.said} {line(tried.why)}".rstrip(), memory, off)))
    return f"{begin} {timed.ratio - 1:>+9.1%}  {interval:<18} {tried.first_s:.1f} s  {said}"
