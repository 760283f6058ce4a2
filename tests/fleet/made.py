"""Traces to scan: copies of our recordings, and what is none; and the processes that scan them."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from tests import forked

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHAIN = FIXTURES / "kineto" / "chain.json.gz"
PREFILL = FIXTURES / "kineto" / "decoder_prefill.json.gz"


def folder_of(root: Path) -> Path:
    """Two jobs with traces of two days, and one each that is damaged, empty, cut off and no trace."""
    for job, day, name, source in (
        ("llama", "2026-11-21", "rank0", PREFILL),
        ("llama", "2026-11-22", "rank0", CHAIN),
        ("llama", "2026-11-22", "rank1", CHAIN),
        ("vit", "2026-11-22", "rank0", PREFILL),
    ):
        folder = root / job / day
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / f"{name}.json.gz")
    bad = root / "bad" / "2026-11-22"
    bad.mkdir(parents=True)
    (bad / "damaged.json.gz").write_bytes(CHAIN.read_bytes()[:200])
    (bad / "empty.json").write_bytes(b"")
    (bad / "cut.json").write_bytes(gzip.decompress(CHAIN.read_bytes())[:3000])
    return root


def scanning() -> list[int]:
    """Return processes below this one that scan traces; a cluster that it began is below it too."""
    parents, found = dict[int, int](), list[int]()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            started = b"tracemine.fleet.worker" in (path / "cmdline").read_bytes().split(b"\0")
            if started or (path / "comm").read_text("utf-8", "replace").endswith("fleet.worker\n"):  # or forked
                found.append(int(path.name))
        except OSError:
            continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or pid in forked.ASKED or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in found if is_ours(pid)]
