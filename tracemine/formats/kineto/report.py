"""What a reader must know about a trace's completeness, and which PyTorch and which options it shows."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from tracemine.columns import Array
from tracemine.errors import InputError, Location
from tracemine.formats.kineto import header
from tracemine.formats.kineto.scan import RawTrace
from tracemine.formats.kineto.structs import row_of
from tracemine.units import count_text

_OF_ANY = frozenset(["metadata", "instant", "counter"])  # by their phase: whoever writes events writes them
# Categories that carry no row by design: other events say it too, or it is no part of a timeline.
_WITHOUT_ROWS = frozenset(
    [
        *("ac2g", "async_gpu", "async", "async_cpu_to_gpu", "fwdbwd", "forward_backward", "cpu_to_cuda"),
        *("trace", "overhead", "gpu_user_annotation", "cuda_event", "cuda_profiler_range"),
        *("external_correlation", "collective_comm", "hardware_counters", "xpu_scope_profiler"),
        *_OF_ANY,
    ]
)

# What is said of operators by whether their shapes, and their stacks, were recorded.
_NOT_RECORDED = {
    (True, True): "",
    (False, True): "Shapes were not recorded, so bytes and savings cannot be derived: profile with record_shapes=True.",
    (True, False): "Stacks were not recorded, so no source line can be named: profile with with_stack=True.",
    (False, False): "No shapes, no stacks, so no source line: profile with record_shapes=True, with_stack=True.",
}


class Seen(Struct, frozen=True):
    """What the events themselves show, taken before their columns are used up."""

    torch: tuple[int, int] | None
    activities: int
    operators: int
    record_shapes: bool | None
    with_stack: bool | None
    profile_memory: bool | None

    @staticmethod
    def of(raw: RawTrace) -> Seen:
        categories = {category.lower() for category in raw.events}
        features: list[header.Feature] = [("category", category) for category in categories]
        features += [("header", key) for key in raw.header]
        features += [("column", name) for name in header.TELLING_COLUMNS if _any(raw.ops[name])]
        torch = header.torch_version(features, whole_microseconds=raw.time_resolution_ns > 1)
        since_2_0 = torch is not None and torch >= (2, 0)

        def switched_on(key: str, *, seen: bool) -> bool | None:
            return header.switched_on(raw.header, key, seen=seen, absent_means_off=since_2_0)

        return Seen(
            torch=torch,
            activities=len(raw.gpu["start_ns"]),
            operators=len(raw.ops["start_ns"]),
            record_shapes=switched_on("record_shapes", seen=_any(raw.ops["input_dims"])),
            with_stack=switched_on("with_stack", seen=bool(len(raw.frames["name"])) or _any(raw.ops["call_stack"])),
            profile_memory=switched_on("profile_memory", seen="cpu_instant_event" in categories),
        )


def unknown_categories(raw: RawTrace) -> str:
    """Return the categories that are not known, the first of them, with how many events each has."""
    unknown = sorted(
        (category, count)
        for category, count in raw.events.items()
        if row_of(category) is None and category.lower() not in _WITHOUT_ROWS
    )
    return ", ".join(f"{category} ({count})" for category, count in unknown[:9])


def check_known(raw: RawTrace, path: str) -> None:
    """Raise InputError where nothing that a file holds is known, and it does not say that Kineto wrote it."""
    known = any(row_of(name) is not None or name.lower() in _WITHOUT_ROWS - _OF_ANY for name in raw.events)
    if not known and "schemaVersion" not in raw.header and (unknown := unknown_categories(raw)):
        raise InputError(
            f"is a trace of a writer that tracemine does not know, by its categories of events: {unknown}",
            where=Location(path),
            hint="pass a recording of torch.profiler, Nsight Systems, jax.profiler, TensorRT, ONNX Runtime, Proton "
            "or rocprofv3 (rocpd)",
        )


def warnings(raw: RawTrace, seen: Seen, unowned: Counter[str], *, launched_late: int) -> list[str]:
    """Return one sentence for each thing that makes the trace say less than it could, with the way to record more."""
    unknown = unknown_categories(raw)
    facts = (
        (
            seen.activities and not seen.operators,
            "No operators were recorded, so no activity has an owner: profile with ProfilerActivity.CPU too.",
        ),
        (seen.operators, _NOT_RECORDED[bool(seen.record_shapes), bool(seen.with_stack)]),
        (
            unowned["before_window"],
            f"{_activities(unowned['before_window'])} without a known operator: launched before recording began.",
        ),
        (
            unowned["no_launch_call"],
            f"{_activities(unowned['no_launch_call'])} without a known operator: no recorded call is known to have "
            "launched them.",
        ),
        (launched_late, f"The trace's clocks disagree: {_activities(launched_late)} began before being launched."),
        (unknown, f"Events of categories that tracemine does not know were left out: {unknown}."),
    )
    return [sentence for holds, sentence in facts if holds and sentence]


def _activities(count: int) -> str:
    return count_text(count, "activity")


def _any(column: Array) -> bool:
    """Return whether any row has a value: absent ones are negative in every column."""
    return bool((column >= 0).any())
