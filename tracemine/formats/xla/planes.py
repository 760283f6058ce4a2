"""What planes, lines and events are called in both files that JAX writes."""

from __future__ import annotations

import re
from collections.abc import Collection

from tracemine.errors import InputError
from tracemine.formats.xla import recording as rec
from tracemine.formats.xla.recording import EventKind

GPU = re.compile(r"/device:GPU:(\d{1,9})")
TPU = re.compile(r"/device:TPU|#Chip")
STREAM = re.compile(r"Stream #(\d{1,18})")  # other lines of a GPU repeat what streams hold
HOST, METADATA, TASK = "/host:CPU", "/host:metadata", "Task Environment"
FRAMES_BYTES = 32_000_000  # of a thread, or of all JSON: where there is more, Python's frames are stepped over

_CLONED = " [clone .kd]"  # ends the name of a kernel on AMD, as ".kd" does


def refuse(planes: Collection[str], *, truncated: bool) -> None:
    """Raise InputError where none of a file's planes is of a GPU."""
    if any(GPU.match(name) for name in planes):
        return
    if any(TPU.match(name) for name in planes):
        raise InputError("is a profile of a TPU, and tracemine knows GPUs", hint="xprof reads it")
    if truncated:
        raise InputError("is cut off before what a GPU did", hint="copy the file again, to its end")
    hint = "record where jax.devices() names a GPU: with jax.profiler.trace(DIR): step()"
    raise InputError("is a JAX profile of a CPU", hint=hint)


def event_name(name: str, kind: EventKind) -> str:
    """Return what an event of a kind is called: frames in which the host waits have their own name.

    >>> event_name("$api.py:2757 block_until_ready", rec.OF_HOST["host"])
    'jax.block_until_ready'
    >>> event_name("gemm_fusion_dot_6.kd", rec.GPU), event_name("fmha(long*) [clone .kd]", rec.GPU)
    ('gemm_fusion_dot_6', 'fmha(long*)')
    """
    if kind is rec.GPU:
        return name.removesuffix(_CLONED).removesuffix(".kd")
    return rec.WAIT if kind is rec.OF_HOST["host"] and rec.WAITING_FRAME.match(name) else name
