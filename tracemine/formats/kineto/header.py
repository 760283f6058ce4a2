"""What holds for the whole trace: devices, rank, versions, what was switched on, and which PyTorch wrote it.

The header also carries host, user and job names, and whatever `add_metadata` was given, environment and tokens
included. Only what this module names is ever copied from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tracemine.tables import table_beside
from tracemine.timeline import RecordedDevice

# Device's field → the header's spellings, newest first.
_DEVICE_NUMBERS: dict[str, tuple[str, ...]] = {
    "memory_bytes": ("totalGlobalMem",),
    "sm_count": ("numSms",),
    "warp_size": ("warpSize",),
    "max_threads_per_sm": ("maxThreadsPerMultiprocessor",),
    "registers_per_sm": ("regsPerMultiprocessor",),
    "shared_memory_per_sm_bytes": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
}

_VERSIONS = (
    *("cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("roctracer_version", "hip_runtime_version", "hip_driver_version"),
)
_VERSION_TEXT = re.compile(r"\d{1,9}(\.\d{1,9}){0,3}([-+][\w.]{1,12})?")  # no sentence, path or token looks like it
_LONGEST_NAME = 200

_RANK_IN_NAME = re.compile(r"(?<![a-zA-Z])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)

# What shows that at least this torch wrote the file: a category, a header key, or a column that is filled.
Feature = tuple[Literal["category", "header", "column"], str]
_TABLE = table_beside(__file__, "header.toml")
_FIRST_SEEN: tuple[tuple[tuple[int, int], Feature], ...] = tuple(
    ((major, minor), (place, name)) for (major, minor), place, name in _TABLE["first_seen"]
)

TELLING_COLUMNS = tuple(name for _, (place, name) in _FIRST_SEEN if place == "column")


def devices(header: Mapping[str, Any], recorded: Iterable[int]) -> tuple[RecordedDevice, ...]:
    """The GPUs as the header describes them; `recorded` are the activities' device ordinals in order of appearance.

    ROCm numbers activities by another scheme than the header. Where an activity's device is not among the header's,
    the descriptions go to the devices in order of appearance, if there are as many of each or all are the same GPU;
    else those devices stay undescribed, rather than wrongly described.

    >>> [d.ordinal for d in devices({"deviceProperties": [{"id": 0, "name": ""}]}, [2])]
    [2]
    """
    given = header.get("deviceProperties", header.get("computeProperties"))
    properties = [p for p in given if isinstance(p, dict)] if isinstance(given, list) else []
    ids = [_integer(p.get("id")) for p in properties]
    described = {i: _facts(p) for i, p in zip(ids, properties, strict=True) if i is not None}
    recorded = list(recorded)
    if not set(recorded) <= set(described):
        facts = list(described.values())
        if len(facts) == len(recorded):
            described = dict(zip(recorded, facts, strict=True))
        elif facts and all(f == facts[0] for f in facts):
            described = dict.fromkeys(recorded, facts[0])
        else:
            described = {ordinal: described.get(ordinal, {}) for ordinal in recorded}
    return tuple(RecordedDevice(ordinal=ordinal, **described[ordinal]) for ordinal in sorted(described))


def _facts(properties: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        field: next((n for n in (_integer(properties.get(key)) for key in keys) if n is not None), None)
        for field, keys in _DEVICE_NUMBERS.items()
    }
    name = properties.get("name")
    facts["name"] = _text(name.strip()[:_LONGEST_NAME]) or None if isinstance(name, str) else None
    major, minor = (
        _integer(properties.get(f"compute{part}", properties.get(part.lower()))) for part in ("Major", "Minor")
    )
    facts["compute_capability"] = None if major is None or minor is None else f"{major}.{minor}"
    return facts


def _text(name: str) -> str:
    """Without lone surrogates, which JSON can spell and no file can hold.

    >>> _text("NVIDIA \\ud800H200")
    'NVIDIA ?H200'
    """
    return name.encode("utf-8", "replace").decode()


def rank(header: Mapping[str, Any], source_name: str) -> int | None:
    """This process's rank: as recorded, else from `rank-N` or `rankN` in the file name, else None.

    >>> rank({"distributedInfo": {"rank": 3}}, "rank-5.json"), rank({}, "job_rank-5.json"), rank({}, "frank1.json")
    (3, 5, None)
    """
    recorded = _integer(_distributed(header).get("rank"))
    if recorded is not None:
        return recorded
    named = _RANK_IN_NAME.search(source_name)
    return int(named[1]) if named else None


def world_size(header: Mapping[str, Any]) -> int | None:
    """Return how many ranks the job had, if the header says."""
    return _integer(_distributed(header).get("world_size"))


def group_ranks(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the ranks of each process group that the header lists, as JSON, by the group's name.

    >>> group_ranks({"distributedInfo": {"pg_config": [{"pg_name": "1", "ranks": [0, 2]}, {"pg_name": "2"}]}})
    {'1': '[0, 2]'}
    """
    listed = _distributed(header).get("pg_config")
    groups = [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
    found = {}
    for group in groups:
        name, ranks = group.get("pg_name"), group.get("ranks")
        if isinstance(name, str) and isinstance(ranks, list) and all(_integer(rank) is not None for rank in ranks):
            found[name] = str(ranks)
    return found


def versions(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded versions of the GPU's software.

    >>> versions({"cupti_version": 24, "host_name": "secret", "roctracer_version": "4.1"})
    {'cupti_version': '24', 'roctracer_version': '4.1'}
    """
    found = {key: header[key] for key in _VERSIONS if key in header}
    if "nccl_version" in _distributed(header):
        found["nccl_version"] = _distributed(header)["nccl_version"]
    texts = {key: str(value) for key, value in found.items() if isinstance(value, str | int | float)}
    return {key: text for key, text in texts.items() if _VERSION_TEXT.fullmatch(text)}


def torch_version(features: Iterable[Feature], *, whole_microseconds: bool) -> tuple[int, int] | None:
    """Return the oldest torch that writes all these features; None if nothing tells.

    Times relative to a base came with 2.4. So a file without a base is from 2.3 at the latest, and one that has
    fractions of a microsecond nonetheless is from 2.3 at the earliest.

    >>> torch_version([("category", "cpu_op"), ("category", "cuda_sync")], whole_microseconds=True)
    (2, 1)
    """
    present = set(features)
    shown = [version for version, feature in _FIRST_SEEN if feature in present]
    if not shown:
        return None
    if ("header", "baseTimeNanoseconds") in present:
        return max(shown)
    return min(max(shown), (2, 3)) if whole_microseconds else (2, 3)


def switched_on(header: Mapping[str, Any], key: str, *, seen: bool, absent_means_off: bool) -> bool | None:
    """Return whether an option of the profiler was on: as the header says, else by what it leaves in the trace.

    A header without the key says "off" only from torch 2.0 on, which writes the key when the option is on.
    """
    if header.get(key) in (1, True, "1") or seen:
        return True
    return False if absent_means_off or key in header else None


def _distributed(header: Mapping[str, Any]) -> Mapping[str, Any]:
    info = header.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
