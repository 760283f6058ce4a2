"""Keep recorded jobs as small files: `python benchmarks/programs/jobs_kept.py RECORDED KEPT`.

Of each trace what `scan` reads of a job: no arrows, no events of the step that is left out as the first, no arguments
of kernels but those of their launch, grid and communication. It says where something else is found then.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

ARGUMENTS = frozenset(
    (
        *("External id", "correlation", "stream", "device", "grid", "block", "Input Dims", "Input type", "Rank"),
        *("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size"),
        *("Out split size", "Process Group Name", "Process Group Ranks", "Process Group Description"),
        *("Src Rank", "Dst Rank", "Seq", "Global rank start", "Global rank stride", "bytes", "Comms Id"),
    )
)
DEVICE, LAUNCH = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
# Large, or like others that are kept.
LEFT_OUT = frozenset(
    (
        *("fsdp2_gathers_again/clean", "fsdp2_gathers_again/planted", "ddp_collects_garbage/clean"),
        *("ddp_collects_garbage/planted", "ddp_late_host/clean", "ddp_late_host_ahead/clean", "ddp_shared_gpu/clean"),
        *(
            "ddp_longer_batch/clean",
            "ddp_small_buckets/clean",
            "ddp_small_buckets/planted",
            "no_overlap/clean",
            "no_overlap_large/clean",
        ),
        *("pp_uneven_stages/clean", "ddp_rank_0_logs/clean", "broadcast_buffers/clean"),
    )
)
DROPPED = frozenset(("fwdbwd", "ac2g", "Trace"))


def smaller(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace with nothing that the scan of a job does not read."""
    events = trace["traceEvents"]
    marks = (e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep"))
    steps = sorted(marks, key=lambda e: e["ts"])
    begin = steps[1 if len(steps) > 2 else 0]["ts"]
    late = {e["args"]["correlation"] for e in events if e.get("cat") in DEVICE and e["ts"] + e["dur"] >= begin}
    kept = []
    for event in events:
        launches = event.get("cat") in LAUNCH and event.get("args", {}).get("correlation") in late
        over = event.get("ph") == "X" and event["ts"] + (event["dur"] if event.get("cat") in DEVICE else 0) < begin
        if event.get("cat") in DROPPED or (over and not launches):
            continue
        if "args" in event and event.get("ph") == "X":
            event["args"] = {key: value for key, value in event["args"].items() if key in ARGUMENTS}
        kept.append(event)
    return {**trace, "traceEvents": kept}


def main() -> None:
    from tracemine.ranks.find import find_job
    from tracemine.ranks.recognise import read_ranks

    source, target = map(Path, sys.argv[1:])
    for meta in sorted(source.glob("*/meta.json")):
        for folder in sorted(path for path in meta.parent.iterdir() if path.is_dir()):
            if f"{meta.parent.name}/{folder.name}" in LEFT_OUT:
                continue
            out = target / meta.parent.name / folder.name
            out.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob("rank*.json.gz")):
                text = json.dumps(smaller(json.loads(gzip.decompress(path.read_bytes()))), separators=(",", ":"))
                with gzip.GzipFile(out / path.name, "wb", 9, mtime=0) as file:
                    file.write(text.encode())
            jobs = [find_job(read_ranks(sorted(each.glob("rank*"))), "") for each in (folder, out)]
            found = [[(one.rule, one.ranks, one.step_saving_ns) for one in job.findings] for job in jobs]
            size = sum(path.stat().st_size for path in out.iterdir())
            print(f"{meta.parent.name}/{folder.name}: {size / 1000:.0f} kB", flush=True)
            if found[0] != found[1]:
                print("   something else is found")
        (target / meta.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(meta, target / meta.parent.name / "meta.json")


if __name__ == "__main__":
    main()
