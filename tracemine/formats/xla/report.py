"""What makes a recording of XLA say less than it could, one sentence each, with the way to record more."""

from __future__ import annotations

import re
from collections import Counter

from tracemine.formats.xla.recording import Recording
from tracemine.timeline.arrow import MISSING, take
from tracemine.units import count_text

_ALLOCATOR = re.compile(r"GPU_(\d{1,6})_")


def warnings(recording: Recording, unowned: Counter[str]) -> list[str]:
    """Return what a reader must know about completeness."""
    gpu, host = recording.gpu, recording.host
    late = int((take(host["start_ns"], gpu["launch"], MISSING) > gpu["start_ns"]).sum())
    facts = (
        (not len(gpu["name"]), "The trace holds no GPU activity."),
        (
            unowned["graph_replay"],
            f"{_activities(unowned['graph_replay'])} of command buffers whose instructions are not known.",
        ),
        (unowned["no_launch_call"], f"{_activities(unowned['no_launch_call'])} whose launch was not recorded."),
        (
            recording.source == "json",
            "A trace.json does not hold the compiled modules, so instructions, shapes and dataflow are not known: pass "
            "the .xplane.pb in the same folder.",
        ),
        (
            len(gpu["name"]) and not (host["step"] != MISSING).any(),
            'No step was marked: put each under jax.profiler.StepTraceAnnotation("train", step_num=n).',
        ),
        (
            recording.without_frames,
            "There are more frames of Python than are read: lines of the program are not known.",
        ),
        (late, f"The recording's clocks disagree: {_activities(late)} began before being launched."),
    )
    return [sentence for holds, sentence in facts if holds]


def events(recording: Recording) -> dict[str, int]:
    """Return how many events there are, by what they are."""
    counts = {
        "GPU activities": len(recording.gpu["name"]),
        "Python frames": recording.frame_count,
        "allocations": len(recording.memory["name"]),
        "host events": len(recording.host["name"]),
    }
    return {name: count for name, count in counts.items() if count}


def _activities(count: int) -> str:
    return count_text(count, "activity")


def allocator_device(name: str) -> int:
    """Return the GPU of an allocator, −1 of the host's.

    >>> allocator_device("GPU_0_bfc"), allocator_device("xla_gpu_host_bfc")
    (0, -1)
    """
    found = _ALLOCATOR.match(name)
    return int(found[1]) if found else -1
