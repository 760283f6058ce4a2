"""What holds for a whole export: its clock, versions, GPUs, threads, and what makes it say less than it could.

Exports also carry the profiled process's environment, command line, output, host and user names. Nothing is copied from
there but what this module names, and a version only where it looks like one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracemine.formats.nsys import schema
from tracemine.formats.nsys.device_rows import Columns, pid
from tracemine.formats.nsys.tables import Tables
from tracemine.timeline import RecordedDevice
from tracemine.timeline.arrow import MISSING, distinct
from tracemine.units import count_text

GRAPH_LAUNCH = re.compile("GraphLaunch", re.IGNORECASE)
_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "nsys_schema"}
_VERSION_TEXT = re.compile(r"\d{1,9}(\.\d{1,9}){0,3}([-+][\w.]{1,12})?")
_LONGEST_NAME = 200
_GPU_FACTS = {"memory_bytes": "totalMemory", "sm_count": "smCount", "warp_size": "threadsPerWarp",
              "registers_per_sm": "maxRegistersPerSm", "shared_memory_per_sm_bytes": "maxShmemPerSm"}  # fmt: skip
# Nsight Systems' own words. They can hold paths, so they are recognised and not repeated.
_DIAGNOSIS = re.compile(r"Not all (CUDA|NVTX) events might have been collected", re.IGNORECASE)


def _exported(tables: Tables) -> dict[str, str]:
    found: dict[str, str] = {}
    for table in (schema.EXPORT, schema.OLD_EXPORT):
        rows = tables.texts(table)
        found |= {n: v for n, v in zip(rows["name"], rows["value"], strict=True) if n is not None and v is not None}
    return found


def versions(tables: Tables) -> dict[str, str]:
    """Return the versions of nsys and of the export's schema, where recorded."""
    exported = _exported(tables)
    found = {name: exported[key] for key, name in _VERSIONS.items() if key in exported}
    return {name: text for name, text in found.items() if _VERSION_TEXT.fullmatch(text)}


def clock_start_ns(tables: Tables) -> int:
    """Return what to add to the export's times to have nanoseconds since the Unix epoch; 0 where they were shifted."""
    exported = _exported(tables)
    shifted = exported.get("EXPORT_PARAM_TIME_NORMALIZE", "false") == "true"
    shifted |= exported.get("EXPORT_PARAM_TIME_SHIFT", "0") not in ("0", "")
    start = tables.numbers(schema.SESSION_START)["utcEpochNs"]
    known = len(start) == 1 and not shifted and 0 < start[0] < 1 << 62
    return int(start[0]) if known else 0


def devices(tables: Tables, gpu: Columns) -> tuple[RecordedDevice, ...]:
    """Return the GPUs that activities name, described as far as the export does so without doubt.

    An activity's device counts within its process. TARGET_INFO_CUDA_DEVICE says which GPU of the machine that is; else
    the driver's own number does, if no two GPUs share it, or any of them where all are the same.
    """
    rows, facts = tables.numbers(schema.GPU), _facts_of_gpus(tables)
    # A GPU that the process could not see is listed without properties, and with the driver's number 0.
    seen = [at for at, fact in enumerate(facts) if fact["sm_count"] is not None] or list(range(len(facts)))
    known = tables.numbers(schema.CUDA_DEVICE)
    row_of = {int(rows["id"][at]): at for at in seen}
    triples = zip(*(known[name].tolist() for name in ("gpuId", "cudaId", "pid")), strict=True)
    of_process = {(process, ordinal): row_of[gpu_id] for gpu_id, ordinal, process in triples if gpu_id in row_of}
    described: dict[int, dict[str, Any]] = {}
    for process, device in _used(gpu):
        at = of_process.get((process, device))
        if at is None:
            at = _numbered(device, [int(rows["cuDevice"][row]) for row in seen], seen, facts)
        described.setdefault(device, {} if at is None else facts[at])
    return tuple(RecordedDevice(ordinal=ordinal, **described[ordinal]) for ordinal in sorted(described))


def _used(gpu: Columns) -> Iterator[tuple[int, int]]:
    """Yield each process and device of its own that activities name."""
    used = np.flatnonzero(gpu["device"] != MISSING)
    process_codes, processes = distinct(pid(gpu["process"][used]))
    device_codes, ordinals = distinct(gpu["device"][used])
    pairs = distinct(process_codes.astype(np.int64) * (len(ordinals) + 1) + device_codes)[1]
    for process_code, device_code in (divmod(pair, len(ordinals) + 1) for pair in pairs.tolist()):
        yield int(processes[process_code]), int(ordinals[device_code])


def _numbered(device: int, numbers: Sequence[int], seen: Sequence[int], facts: Sequence[object]) -> int | None:
    """Return the one GPU with the driver's number, or any where all are the same."""
    numbered = [row for row, number in zip(seen, numbers, strict=True) if number == device]
    if len(numbered) == 1:
        return numbered[0]
    alike = bool(seen) and all(facts[row] == facts[seen[0]] for row in seen)
    return seen[0] if alike else None


def _facts_of_gpus(tables: Tables) -> list[dict[str, Any]]:
    rows, names = tables.numbers(schema.GPU), tables.texts(schema.GPU)["name"]
    return [_facts({key: int(column[at]) for key, column in rows.items()}, name) for at, name in enumerate(names)]


def _facts(numbers: dict[str, int], name: str | None) -> dict[str, Any]:
    facts: dict[str, Any] = {field: numbers[key] if numbers[key] > 0 else None for field, key in _GPU_FACTS.items()}
    facts["name"] = (name or "").strip()[:_LONGEST_NAME] or None
    warps, threads = numbers["maxWarpsPerSm"], numbers["threadsPerWarp"]
    facts["max_threads_per_sm"] = warps * threads if 0 < warps < 1 << 20 and 0 < threads < 1 << 10 else None
    major, minor = numbers["computeMajor"], numbers["computeMinor"]
    facts["compute_capability"] = f"{major}.{minor}" if major >= 0 and minor >= 0 else None
    return facts


class Recorder(Struct, frozen=True):
    """Who recorded, and the way to record more, by what is missing."""

    format: str
    producer: str
    activities: str = "No GPU activity was recorded: profile with nsys profile --trace=cuda,nvtx."
    operators: str = (
        "No operators were recorded, so no activity has an owner. Those of a PyTorch program come with "
        "--pytorch=autograd-shapes-nvtx, or under torch.autograd.profiler.emit_nvtx(record_shapes=True)."
    )
    shapes: str = (
        "Shapes were not recorded, so bytes and savings cannot be derived: use --pytorch=autograd-shapes-nvtx, or "
        "emit_nvtx(record_shapes=True)."
    )


NSYS = Recorder("nsys", "Nsight Systems")


def warnings(
    tables: Tables,
    recorder: Recorder,
    *,
    activities: int,
    graphs: int,
    graph_launches: int,
    calls: int,
    operators: int,
    has_sizes: bool,
    processes: int,
    unowned: Counter[str],
    launched_late: int,
) -> list[str]:
    """Return one sentence for each thing that makes the export say less than it could, with the way to record more."""
    found = (_DIAGNOSIS.search(text) for text in tables.texts(schema.DIAGNOSTICS)["text"] if text)
    lost = " and ".join(sorted({match[1].upper() for match in found if match}))
    facts = (
        (not activities, recorder.activities),
        (activities and not calls, "No CUDA calls were recorded, so no activity has a launch."),
        (activities and not operators, recorder.operators),
        (operators and not has_sizes, recorder.shapes),
        (
            operators and has_sizes,
            "NVTX ranges do not say the dtype of a tensor, so bytes and savings are not derived from shapes.",
        ),
        (
            graphs,
            f"{count_text(graphs, 'CUDA graph launch')} traced as a whole: profile with "
            "--cuda-graph-trace=node to see the kernels.",
        ),
        (
            graphs and graphs < graph_launches,
            f"Only {graphs} of {graph_launches} CUDA graph launches have a trace of the graph, so GPU time is missing.",
        ),
        (
            processes > 1,
            f"{processes} processes used the GPUs; streams of equal number are distinguished by device only.",
        ),
        (unowned["before_window"], f"{_activities(unowned['before_window'])} launched before recording began."),
        (
            operators and unowned["no_launch_call"],
            f"{_activities(unowned['no_launch_call'])} without a known operator: no launch call is recorded.",
        ),
        (lost, f"Nsight Systems says that not all {lost} events might have been collected."),
        (launched_late, f"The export's clocks disagree: {_activities(launched_late)} began before being launched."),
    )
    return [sentence for holds, sentence in facts if holds]


def _activities(count: int) -> str:
    return count_text(count, "activity")
