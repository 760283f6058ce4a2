"""Traces to scan: copies of our recordings, and what is none."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

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
