"""What a recording has of each thing that findings rest on, and what it costs the reader where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tracemine.doctor.record import Holding
from tracemine.findings import Scan
from tracemine.timeline import MEANS, Timeline
from tracemine.units import count_text, percent_text, time_text

_ENOUGH_STEPS = 3  # from which on their spread is known
_ALL_OPERATORS = 0.95  # of GPU time


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
