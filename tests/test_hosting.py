"""What a host of the repository reads: its workflow, the hooks of commits, and the texts of a release."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in TOWNCRIER["type"]]
BEGINS = "<!-- towncrier: the newest release stands below this line -->"


def parsed(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_workflow_runs_what_ci_runs_and_may_write_nothing() -> None:
    workflow = parsed(".github/workflows/ci.yml")
    runs = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    assert runs[-1] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert workflow["permissions"] == {"contents": "read"}


def test_hooks_are_checks_that_check_runs_and_name_files_that_are_there() -> None:
    check = (ROOT / "check").read_text("utf-8")
    for hook in parsed(".pre-commit-config.yaml")["repos"][0]["hooks"]:
        program, first, *rest = hook["entry"].split()
        assert " ".join((program, first)) in check, hook["id"]
        assert all((ROOT / name).exists() for name in rest if "/" in name)


def test_what_is_not_released_is_a_file_of_a_known_kind() -> None:
    files = [path.name for path in (ROOT / TOWNCRIER["directory"]).iterdir() if path.name not in TOWNCRIER["ignore"]]
    wrong = [name for name in files if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", name)]
    assert not wrong, f"changes/ takes WHAT.KIND.md, KIND one of {KINDS}"
    changes = (ROOT / TOWNCRIER["filename"]).read_text("utf-8")
    assert "unreleased" not in changes.lower()
    assert changes.count(BEGINS) == 1


def test_a_release_is_the_newest_section_made_of_its_files(tmp_path: Path) -> None:
    pytest.importorskip("towncrier")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"), encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{BEGINS}\n\n## 0.1.0 (2026-11-28)\n", encoding="utf-8")
    folder = tmp_path / "changes"
    folder.mkdir()
    for name, text in {
        "section.md.jinja": (ROOT / "changes" / "section.md.jinja").read_text("utf-8"),
        "a-report.added.md": "A report.",
        "b-wrong.fixed.md": "What was wrong.",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    call = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "0.2.0", "--date", "2027-01-02"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = re.sub(r"\n\n+", "\n\n", (tmp_path / "CHANGELOG.md").read_text("utf-8"))
    section = "## 0.2.0 (2027-01-02)\n\n### Added\n\n- A report.\n\n### Fixed\n\n- What was wrong.\n"
    assert made == f"# Changelog\n\n{BEGINS}\n\n{section}\n## 0.1.0 (2026-11-28)\n"
