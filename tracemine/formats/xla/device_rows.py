"""What activities are: kernels, copies, sets, and what their details say, each distinct text once."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, used
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.names import copy_kind
from tracemine.formats.xla.recording import Recording
from tracemine.timeline.arrow import MISSING, take, texts, triples

KINDS = ("kernel", "memcpy", "memset")
_KERNEL, _MEMCPY, _MEMSET = range(len(KINDS))
_COPIES = re.compile(r"^Memcpy|^Copy(Host|Device)To|^__amd_rocclr_copyBuffer")
_SETS = re.compile(r"^Memset|^__amd_rocclr_fillBuffer")
_COLLECTIVE = re.compile(
    r"^(?:ragged-)?(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)\b"
)
_MEMORIES = ("pageable", "pinned", "device", "managed", "array", "host")
_LONGEST = 18  # digits


def kinds_of(recording: Recording) -> Array:
    """Return what each activity is recorded as, as ids in `KINDS`."""
    gpu, strings = recording.gpu, recording.strings
    kind = np.full(len(gpu["name"]), _KERNEL, np.int8)
    kind[named(gpu["name"], strings, _SETS) | (gpu["set_details"] >= 0) | (gpu["old_set_details"] >= 0)] = _MEMSET
    kind[named(gpu["name"], strings, _COPIES) | (gpu["copy_details"] >= 0)] = _MEMCPY
    return kind


def detail_columns(recording: Recording, is_set: Array, copies: Array, copied_bytes: Array) -> dict[str, pa.Array]:
    """Return what details say, as columns of `activities`, and take them out of the recording.

    `is_set`: which rows set memory; `copies`: rows whose bytes are known otherwise.
    """
    gpu, strings = recording.gpu, recording.strings
    launch = _Details(gpu.pop("kernel_details"), strings)
    static, dynamic, shared = (launch.of_texts(key) for key in ("static_shared", "dynamic_shared", "shm"))
    shared = np.where(shared == MISSING, launch.of_texts("group_mem"), shared)
    both = (static != MISSING) & (dynamic != MISSING)
    shared = np.where(both, static + np.where(both, dynamic, 0), shared)
    recorded = launch.of_texts("occ_pct").astype(np.float64)
    recorded[recorded <= 0] = np.nan  # AMD writes 0 of all
    occupancy = gpu.pop("occupancy")
    copied = _Details(gpu.pop("copy_details"), strings)
    sets = _Details(np.maximum(gpu.pop("set_details"), gpu.pop("old_set_details")), strings)
    cleared = sets.of_texts("num_bytes")
    cleared = np.where(cleared == MISSING, sets.of_texts("size"), cleared)
    size = np.where(is_set, cleared[sets.ids], copied.of_texts("size")[copied.ids])
    size[copies] = copied_bytes
    return {
        "grid": triples(launch.ids, strings, lambda text: _triple(text, "grid")),
        "block": triples(launch.ids, strings, lambda text: _triple(text, "block")),
        "registers_per_thread": launch.of_texts("regs")[launch.ids],
        "shared_memory_bytes": shared[launch.ids],
        "occupancy_percent": np.where(np.isnan(occupancy), recorded[launch.ids], occupancy),
        "bytes": size,
        "source_memory": texts(copied.ids, strings, lambda text: _memory(text, "kind_src")),
        "target_memory": texts(copied.ids, strings, lambda text: _memory(text, "kind_dst")),
    }


class _Details:
    """`key:value key:value` texts, of which each is taken apart once."""

    def __init__(self, ids: Array, strings: list[str]) -> None:
        self.ids = ids
        self.known = {number: dict(_pairs(strings[number])) for number in used(ids, strings)}
        self.count = len(strings)

    def of_texts(self, key: str) -> Array:
        """Return the integer of a key of each text; MISSING where it has none, and behind the last."""
        values = np.full(self.count + 1, MISSING)
        for number, pairs in self.known.items():
            values[number] = _whole(pairs.get(key, ""))
        return values


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = (part.partition(":") for part in text.split())
    return [(key, value) for key, colon, value in parts if colon]


def _whole(value: str) -> int:
    text = value.partition(",")[0].partition(".")[0]
    return int(text) if text.isdecimal() and len(text) <= _LONGEST else MISSING


def _triple(text: str, key: str) -> tuple[int, int, int] | None:
    sizes = [_whole(part) for part in dict(_pairs(text)).get(key, "").split(",")[:3]]
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and all(0 <= size < 1 << 31 for size in sizes) else None


def _memory(text: str, key: str) -> str | None:
    value = dict(_pairs(text)).get(key, "")
    return value if value in _MEMORIES else None


def copy_texts(recording: Recording, kind: Array) -> tuple[Array, list[str]]:
    """Return for each copy which way it goes, as ids in a list; −1 where neither it nor its launch says that."""
    gpu, strings = recording.gpu, recording.strings
    found = [copy_kind(text) or "" for text in strings]
    ways = sorted({way for way in found if way})
    code = np.array([*(ways.index(way) if way else -1 for way in found), -1], np.int32)
    own = code[gpu["name"]]
    launched = code[take(recording.host["name"], gpu["launch"])]
    return np.where(kind == _MEMCPY, np.where(own >= 0, own, launched), -1).astype(np.int32), ways


def collective(hlo_op: str) -> str | None:
    """Return which collective an instruction is by its opcode, which XLA names it after.

    >>> collective("all-reduce.38"), collective("all-reduce-start.3"), collective("loop_add_fusion")
    ('all-reduce', 'all-reduce', None)
    """
    found = _COLLECTIVE.match(hlo_op)
    return found[1] if found else None
