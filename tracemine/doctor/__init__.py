"""Can a recording be trusted, what is missing in it, and how to record it right: `tracemine doctor`.

check_up(timeline, scan)   a Checkup, from what reading and scanning found out already
render(checkup, width)     the same on one screen

`having` says what was recorded and what a missing thing costs, `doubts` what distorts it. How to record: recipes.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import shorten

from tracemine.doctor.doubts import doubts_of
from tracemine.doctor.record import CHECKUP_SCHEMA_VERSION, Checkup, Doubt, Holding, Recipe
from tracemine.findings import Scan
from tracemine.report.escape import line
from tracemine.report.wrapping import wrapped
from tracemine.tables import table_beside
from tracemine.timeline import MEANS, Timeline
from tracemine.units import count_text, percent_text, time_text

_CODE: dict[str, str] = table_beside(__file__, "recipes.toml")
COMMAND = "tracemine capture -o run -- python train.py"

_ENOUGH_STEPS = 3  # from which on their spread is known
_ALL_OPERATORS = 0.95  # of GPU time


def recipe_for(trace_format: str) -> Recipe:
    """Return how to record what a trace of this format is of.

    >>> recipe_for("kineto").command
    'tracemine capture -o run -- python train.py'
    """
    code = _CODE.get(trace_format, _CODE["torch"])
    if trace_format in _CODE and trace_format != "nsys":
        return Recipe(code=code, capture=None, command="")
    return Recipe(code=code, capture=_CODE["capture"], command=COMMAND)


LINES, COLUMNS = 24, 100
_NAME = 16  # columns of a part's name
_HEADS = {
    "fine": "This recording can be trusted.",
    "limited": "This recording can be used; mind what is below.",
    "serious": "Do not take this recording's figures as they stand:",
}


def render(found: Checkup) -> str:
    """Return the screen."""
    head = [_head(found), _about(found), *_parts(found)]
    code = ["", *_code(found)] if found.verdict != "fine" else []
    room = LINES - len(head) - len(code) - 1
    doubts = ["", *_doubts(found.doubts, room)] if found.doubts else []
    return "\n".join(text[:COLUMNS].rstrip() for text in (*head, *doubts, *code)) + "\n"


def _head(found: Checkup) -> str:
    first = next((doubt.says for doubt in found.doubts if doubt.serious), "")
    return shorten(f"{_HEADS[found.verdict]} {line(first)}".strip(), COLUMNS, placeholder=" …")


def _about(found: Checkup) -> str:
    facts = (found.path, found.producer or found.format, found.gpu or "GPU not named")
    return line(" · ".join(facts), longest=COLUMNS)


def _parts(found: Checkup) -> Iterator[str]:
    for part in found.parts:
        switch = f"  → {part.switch}" if part.switch else ""
        mark = "yes" if part.recorded else "no "
        yield f"{mark} {part.name:<{_NAME}} {line(part.says, longest=COLUMNS - _NAME - 5)}{switch}"


def _doubts(doubts: tuple[Doubt, ...], room: int) -> Iterator[str]:
    """Yield doubts in so many lines: as many as fit, and how many more there are."""
    blocks = [_block(doubt) for doubt in doubts]
    left = len(blocks)
    for block in blocks:
        if len(block) + (left > 1) > room:
            break
        yield from block
        left, room = left - 1, room - len(block)
    if left:
        yield f"    {left} more: --format json"


def _block(doubt: Doubt) -> list[str]:
    mark = "!!  " if doubt.serious else "!   "
    text = f"{line(doubt.says, longest=600)}{f' → {doubt.do}' if doubt.do else ''}"
    first, *more = wrapped(text, COLUMNS - len(mark), 2)
    return [mark + first, *(" " * len(mark) + one for one in more)]


def _code(found: Checkup) -> Iterator[str]:
    command = found.recipe.command
    yield f"Record it right: {command}    or:" if command else "Record it right:"
    yield from (f"    {one}" for one in found.recipe.code.splitlines())


__all__ = ["CHECKUP_SCHEMA_VERSION", "Checkup", "check_up", "render"]

_OPTIONAL = ("memory",)  # a recording without it is none the less fine


def check_up(timeline: Timeline, scan: Scan) -> Checkup:
    """Return what a recording holds, what distorts it, and how to record it right, from its timeline and its scan."""
    parts, doubts = tuple(parts_of(timeline, scan)), tuple(doubts_of(timeline, scan))
    missing = any(not part.recorded for part in parts if part.name not in _OPTIONAL)
    serious = any(doubt.serious for doubt in doubts)
    return Checkup(
        path=scan.trace.path,
        format=scan.trace.format,
        producer=timeline.meta.producer,
        gpu=scan.trace.gpu,
        verdict="serious" if serious else "limited" if missing or doubts else "fine",
        parts=parts,
        doubts=doubts,
        recipe=recipe_for(scan.trace.format),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A thing that may be recorded: how much there is of it ("": none), and what it costs that there is none."""

    name: str
    amount: Callable[[Timeline, Scan], str]
    costs: str
    kineto: str = ""  # what switches it on, by format; "": it has no such thing
    nsys: str = ""
    xla: str = ""
    proton: str = ""
    rocpd: str = ""
    tensorrt: str = ""
    onnxruntime: str = ""


def _steps(timeline: Timeline, scan: Scan) -> str:
    steps = scan.summary.per_step
    if steps is None or not steps.count:
        return ""
    if timeline.meta.format in MEANS:
        return "a run, the mean of those that were profiled"
    how = "" if steps.source == "marked" else f", inferred from {steps.source}"
    few = "; one has no spread: record 3" if steps.count == 1 else "; their spread needs 3"
    return f"{steps.count} counted{how}{few if steps.count < _ENOUGH_STEPS else ''}"


def _activities(timeline: Timeline, scan: Scan) -> str:
    devices = scan.recorded.devices if scan.recorded is not None else 0
    on = f" on {devices} GPUs" if devices > 1 else ""
    return f"{count_text(timeline.activities.num_rows, 'activity')}{on}" if timeline.activities.num_rows else ""


def _operators(timeline: Timeline, scan: Scan) -> str:
    count = timeline.ops.num_rows
    share = 0.0 if scan.recorded is None else scan.recorded.operators
    if not count or timeline.meta.format == "proton":  # whose scopes are no operators
        return ""
    whose = f", of {percent_text(share, 1)} of GPU time" if timeline.activities.num_rows else ""
    return f"{count:,}{whose}" + ("; the rest has no owner" if whose and share < _ALL_OPERATORS else "")


def _shapes(timeline: Timeline, scan: Scan) -> str:
    return _of_rows(timeline, "input_shapes", "stated_bytes")


def _modules(timeline: Timeline, scan: Scan) -> str:
    return _of_rows(timeline, "module", "module")


def _stacks(timeline: Timeline, scan: Scan) -> str:
    return _of_rows(timeline, "stack_row", "stack_row")


def _of_rows(timeline: Timeline, column: str, own: str) -> str:
    """Return of how many operators something is known, or, where there is none, of how many kernels by themselves."""
    for table, name, what in ((timeline.ops, column, "operators"), (timeline.activities, own, "kernels")):
        if known := table.num_rows - table[name].null_count:
            return f"of {known:,} {what}"
    return ""


def _model(timeline: Timeline, scan: Scan) -> str:
    joined = timeline.meta.format == "onnxruntime" and timeline.tensors.num_rows
    return "which node reads what another gives" if joined else ""


def _frames(timeline: Timeline, scan: Scan) -> str:
    events = timeline.meta.ingest.events
    count = events.get("python_function") or events.get("Python frames")
    return f"{count:,}" if count else ""


def _execution_trace(timeline: Timeline, scan: Scan) -> str:
    return timeline.meta.execution_trace or ""


def _memory(timeline: Timeline, scan: Scan) -> str:
    return "allocations" if timeline.meta.profile_memory else ""


def _alone(timeline: Timeline, scan: Scan) -> str:
    alone_ns = timeline.meta.alone_step_ns
    return "" if alone_ns is None else f"{time_text(alone_ns)} per step, measured"


_NVTX, _ROCTX = "--pytorch=autograd-shapes-nvtx", "--marker-trace, emit_nvtx"
_CAPTURE, _TORCH = "tracemine.capture(…, steps=3)", "torch.profiler"
_MODULES = "ProfileOptions().enable_hlo_proto"
_ROWS = (
    _Row(
        "steps", _steps, "no time per step, warm-up counts as the rest", "prof.step()", "NVTX ranges step 0, step 1",
        'StepTraceAnnotation("train", step_num=n)', 'proton.scope(f"step_{n}")',
        "roctx ranges step 0, step 1",
    ),
    _Row(
        "GPU activity", _activities, "nothing can be judged", "ProfilerActivity.CUDA", "--trace=cuda,nvtx", "a GPU",
        "a GPU", "--kernel-trace", onnxruntime="a build that records kernels, nsys or rocprofv3",
    ),
    _Row(
        "operators", _operators, "kernels have no owner: few rules match", "ProfilerActivity.CPU", _NVTX, _MODULES,
        rocpd=_ROCTX,
    ),
    _Row(
        "shapes", _shapes, "no bytes, so hardly a saving", "record_shapes=True", _NVTX, _MODULES,
        "launch_metadata: bytes, flops16", _ROCTX,
    ),
    _Row(
        "stacks", _stacks, "findings name operators, not lines", "with_stack=True", _TORCH, _MODULES,
        'context="python"', _TORCH,
    ),
    _Row(
        "modules", _modules, "no layers: equal ones are told by shapes alone", "with_stack=True", "NVTX ranges",
        proton="with proton.scope(NAME)", rocpd="roctx ranges",
    ),
    _Row(
        "Python frames", _frames, "idle time has no line of yours", "with_stack=True", _TORCH,
        "ProfileOptions().python_tracer_level = 1", rocpd=_TORCH,
    ),
    _Row("execution trace", _execution_trace, "dataflow is inferred, not proven", _CAPTURE, _TORCH, rocpd=_TORCH),
    _Row("model", _model, "no chains: which node reads what is not known", onnxruntime="optimized_model_filepath"),
    _Row("memory", _memory, "no peak memory", "profile_memory=True", _TORCH, rocpd=_TORCH),
    _Row(
        "unprofiled step", _alone, "estimated from the recorded one", _CAPTURE, f"{_TORCH}, tracemine.capture",
        rocpd=f"{_TORCH}, tracemine.capture", tensorrt="--exportTimes=times.json",
    ),
)  # fmt: skip


def parts_of(timeline: Timeline, scan: Scan) -> Iterator[Holding]:
    """Yield each thing that a recording may hold, in the order in which one looks at them."""
    for row in _ROWS:
        amount, switch = row.amount(timeline, scan), getattr(row, timeline.meta.format, row.kineto)
        if amount or switch:
            yield Holding(
                name=row.name, recorded=bool(amount), says=amount or row.costs, switch=None if amount else switch
            )
