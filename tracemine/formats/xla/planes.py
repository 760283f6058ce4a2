"""What planes, lines and events are called in both files that JAX writes, and what is wanted of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from tracemine.errors import InputError
from tracemine.formats.xla import recording as rec

GPU = re.compile(r"/device:GPU:(\d{1,9})")
TPU = re.compile(r"/device:TPU|#Chip")
STREAM = re.compile(r"Stream #(\d{1,18})")  # other lines of a GPU repeat what streams hold
HOST, METADATA, TASK = "/host:CPU", "/host:metadata", "Task Environment"
OCCUPANCY = "theoretical_occupancy_pct"
FRAMES_BYTES = 32_000_000  # of a thread, or of all JSON: where there is more, Python's frames are stepped over

_CLONED = " [clone .kd]"  # ends the name of a kernel on AMD, as ".kd" does
_OWN_WORK = ("BUFFER_FLUSH", "<UNKNOWN>")  # the profiler's


def _is_host(name: str) -> bool:
    if name.startswith(rec.FRAME):
        return rec.WAITING_FRAME.match(name) is not None
    return name not in rec.MEMORY_EVENTS and name not in _OWN_WORK


# Of each kind of host event its numbers and texts, and by which name it is known.
HOST_PARTS: dict[str, tuple[dict[str, str], dict[str, str], Callable[[str], bool]]] = {
    "host": (rec.HOST_NUMBERS, rec.HOST_TEXTS, _is_host),
    "memory": (rec.MEMORY_NUMBERS, rec.MEMORY_TEXTS, rec.MEMORY_EVENTS.__contains__),
    "frame": ({}, {}, lambda name: name.startswith(rec.FRAME)),
}


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


def host_name(name: str, kind: str) -> str:
    """Return what an event of a kind ("": an activity) is called: frames in which the host waits have their own name.

    >>> host_name("$api.py:2757 block_until_ready", "host"), host_name("$api.py:2757 block_until_ready", "frame")
    ('jax.block_until_ready', '$api.py:2757 block_until_ready')
    >>> host_name("gemm_fusion_dot_6.kd", ""), host_name("fmha(long*) [clone .kd]", "")
    ('gemm_fusion_dot_6', 'fmha(long*)')
    """
    if kind == "host" and rec.WAITING_FRAME.match(name):
        return rec.WAIT
    return name if kind else name.removesuffix(_CLONED).removesuffix(".kd")
