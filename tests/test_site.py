"""The site builds from docs/, strictly: every page in its navigation, no dead link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(docs: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(docs / "site/mkdocs.yml"),
        "-d",
        str(target),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = build(ROOT / "docs", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        assert (tmp_path / "site" / ("." if name.name == "index" else name) / "index.html").exists()


def test_a_dead_link_and_a_page_without_a_place_stop_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    (docs / "guide" / "new.md").write_text("[nothing](../nothing.md)\n", "utf-8")
    done = build(docs, tmp_path / "site")
    assert done.returncode != 0
    assert "nothing.md" in done.stderr
    assert "guide/new.md" in done.stderr
