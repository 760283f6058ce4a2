"""What activities are: kernels, copies, sets, and what their details say, each distinct text once."""

from __future__ import annotations

import re

import numpy as np

from tracemine.columns import Array
from tracemine.formats.arrow import MISSING, take
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.names import copy_kind
from tracemine.formats.xla.recording import Columns, Recording

KINDS = ("kernel", "memcpy", "memset")
_KERNEL, _MEMCPY, _MEMSET = range(len(KINDS))
_COPIES = re.compile(r"^Memcpy|^Copy(Host|Device)To|^__amd_rocclr_copyBuffer")
_SETS = re.compile(r"^Memset|^__amd_rocclr_fillBuffer")
_COLLECTIVE = re.compile(
    r"^(?:ragged-)?(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)\b"
)
_MEMORY = {name: name for name in ("pageable", "pinned", "device", "managed", "array", "host")}
_LONGEST = 18  # digits


def details_of(recording: Recording) -> Columns:
    """Return kind, grid_x … block_z, registers, shared_memory, bytes, occupancy, and copies' memories as ids in
    `MEMORIES`; MISSING or −1 where not recorded.
    """
    gpu, strings = recording.gpu, recording.strings
    kind = np.full(len(gpu["name"]), _KERNEL, np.int8)
    details = gpu["copy_details"] >= 0, np.maximum(gpu["set_details"], gpu["old_set_details"]) >= 0
    kind[named(gpu["name"], strings, _SETS) | details[1]] = _MEMSET
    kind[named(gpu["name"], strings, _COPIES) | details[0]] = _MEMCPY
    columns: Columns = {"kind": kind}
    launch = _parsed(gpu["kernel_details"], strings)
    copies = _parsed(gpu["copy_details"], strings)
    sets = _parsed(np.maximum(gpu["set_details"], gpu["old_set_details"]), strings)
    for name in ("grid", "block"):
        for axis, part in zip("xyz", range(3), strict=True):
            columns[f"{name}_{axis}"] = launch.numbers(name, part)
    columns["registers"] = launch.numbers("regs")
    static, dynamic, shared = (launch.numbers(name) for name in ("static_shared", "dynamic_shared", "shm"))
    shared = np.where(shared == MISSING, launch.numbers("group_mem"), shared)
    both = (static != MISSING) & (dynamic != MISSING)
    columns["shared_memory"] = np.where(both, static + np.where(both, dynamic, 0), shared)
    size = np.where(kind == _MEMSET, sets.numbers("num_bytes"), copies.numbers("size"))
    columns["bytes"] = np.where((kind == _MEMSET) & (size == MISSING), sets.numbers("size"), size)
    recorded = launch.numbers("occ_pct").astype(np.float64)
    recorded[recorded <= 0] = np.nan  # AMD writes 0 of all
    columns["occupancy"] = np.where(np.isnan(gpu["occupancy"]), recorded, gpu["occupancy"])
    columns["source"], columns["target"] = copies.memories("kind_src"), copies.memories("kind_dst")
    return columns


MEMORIES = tuple(_MEMORY)


class _Details:
    """`key:value key:value` texts, taken apart once each."""

    def __init__(self, ids: Array, strings: list[str]) -> None:
        self.ids = ids
        self.known = {number: dict(_pairs(strings[number])) for number in set(ids.tolist()) if number >= 0}
        self.count = len(strings)

    def numbers(self, key: str, part: int = 0) -> Array:
        """Return the integer of a key, or of a part of it between commas."""
        values = np.full(self.count + 1, MISSING)
        for number, pairs in self.known.items():
            values[number] = _whole(pairs.get(key, "").split(","), part)
        return values[self.ids]

    def memories(self, key: str) -> Array:
        """Return ids in `MEMORIES`."""
        values = np.full(self.count + 1, -1, np.int32)
        for number, pairs in self.known.items():
            memory = _MEMORY.get(pairs.get(key, ""))
            values[number] = -1 if memory is None else MEMORIES.index(memory)
        return values[self.ids]


def _parsed(ids: Array, strings: list[str]) -> _Details:
    return _Details(ids, strings)


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = (part.partition(":") for part in text.split())
    return [(key, value) for key, colon, value in parts if colon]


def _whole(parts: list[str], at: int) -> int:
    text = parts[at].partition(".")[0] if at < len(parts) else ""
    return int(text) if text.isdecimal() and len(text) <= _LONGEST else MISSING


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
