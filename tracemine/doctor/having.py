"""What a recording has of each thing that findings rest on, and what it costs the reader where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from tracemine.doctor.record import Holding
from tracemine.findings import Scan
from tracemine.timeline import Timeline
from tracemine.units import count_text, percent_text, time_text

_ENOUGH_STEPS = 3  # from which on their spread is known
_ALL_OPERATORS = 0.95  # of GPU time


@dataclass(frozen=True, slots=True)
class _Row:
    """A thing that may be recorded: how much there is of it ("": none), and what it costs that there is none."""

    name: str
    amount: Callable[[Timeline, Scan], str]
    costs: str
    torch: str  # what switches it on
    nsys: str
    jax: str = ""  # "": JAX's profiler has no such thing


def _steps(timeline: Timeline, scan: Scan) -> str:
    steps = scan.summary.per_step
    if steps is None or not steps.count:
        return ""
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
    if not count:
        return ""
    whose = f", of {percent_text(share, 1)} of GPU time" if timeline.activities.num_rows else ""
    return f"{count:,}{whose}" + ("; the rest has no owner" if whose and share < _ALL_OPERATORS else "")


def _shapes(timeline: Timeline, scan: Scan) -> str:
    ops = timeline.ops
    return f"of {ops.num_rows - ops['input_shapes'].null_count:,} operators" if _known(timeline, "input_shapes") else ""


def _modules(timeline: Timeline, scan: Scan) -> str:
    ops = timeline.ops
    return f"of {ops.num_rows - ops['module'].null_count:,} operators" if _known(timeline, "module") else ""


def _stacks(timeline: Timeline, scan: Scan) -> str:
    ops = timeline.ops
    return f"of {ops.num_rows - ops['stack_row'].null_count:,} operators" if _known(timeline, "stack_row") else ""


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


def _known(timeline: Timeline, column: str) -> bool:
    return bool(timeline.ops[column].null_count < timeline.ops.num_rows)


_NVTX = "--pytorch=autograd-shapes-nvtx"
_CAPTURE = "tracemine.capture(…, steps=3)"
_MODULES = "ProfileOptions().enable_hlo_proto"
_ROWS = (
    _Row(
        "steps", _steps, "no time per step, warm-up counts as the rest", "prof.step()", "NVTX ranges step 0, step 1",
        'StepTraceAnnotation("train", step_num=n)',
    ),
    _Row("GPU activity", _activities, "nothing can be judged", "ProfilerActivity.CUDA", "--trace=cuda,nvtx", "a GPU"),
    _Row("operators", _operators, "kernels have no owner: few rules match", "ProfilerActivity.CPU", _NVTX, _MODULES),
    _Row("shapes", _shapes, "no bytes, so hardly a saving", "record_shapes=True", _NVTX, _MODULES),
    _Row("stacks", _stacks, "findings name operators, not lines", "with_stack=True", "torch.profiler", _MODULES),
    _Row("modules", _modules, "no layers: equal ones are told by shapes alone", "with_stack=True", "NVTX ranges"),
    _Row(
        "Python frames", _frames, "idle time has no line of yours", "with_stack=True", "torch.profiler",
        "ProfileOptions().python_tracer_level = 1",
    ),
    _Row("execution trace", _execution_trace, "dataflow is inferred, not proven", _CAPTURE, "torch.profiler"),
    _Row("memory", _memory, "no peak memory", "profile_memory=True", "torch.profiler"),
    _Row("unprofiled step", _alone, "estimated from the recorded one", _CAPTURE, "torch.profiler, tracemine.capture"),
)  # fmt: skip


# Recordings in which nothing can be switched on that they do not hold.
_SAY_ALL = ("tensorrt", "onnxruntime")


def parts_of(timeline: Timeline, scan: Scan) -> Iterator[Holding]:
    """Yield each thing that a recording may hold, in the order in which one looks at them."""
    switches = {"nsys": attrgetter("nsys"), "xla": attrgetter("jax")}.get(timeline.meta.format, attrgetter("torch"))
    for row in _ROWS:
        amount, switch = row.amount(timeline, scan), switches(row)
        if not amount and (not switch or timeline.meta.format in _SAY_ALL):
            continue
        yield Holding(name=row.name, recorded=bool(amount), says=amount or row.costs, switch=None if amount else switch)
