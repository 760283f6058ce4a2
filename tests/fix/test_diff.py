"""Which file a diff is of: one under the folder that is given, as it is, and as the finding says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libcst", reason="LibCST is not installed: pip install libcst")

from tests.fix.test_edits import applied, found
from tracemine.findings.record import Source
from tracemine.fix.diff import source_diff

TEXT = "import torch\n\n\ndef step(o, x):\n    o.zero_grad(set_to_none=False)\n    return x  # é\n"
EDITS = ["gradients_to_none"]


def made(
    folder: Path, file: str = "/w/pkg/train.py", line: int = 4, function: str = "step", begins: bool = True
) -> tuple[str, list[str]]:
    source = Source(file=file, line=line, function=function, begins=begins)
    return source_diff(found((source,)), folder, EDITS)


def why(folder: Path, **where: Any) -> str:
    text, refused = made(folder, **where)
    assert text == ""
    return "; ".join(refused)


@pytest.mark.parametrize(
    "text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT.rstrip("\n"), "# -*- coding: utf-8 -*-\n" + TEXT]
)
def test_line_ends_and_all_else_stay(tmp_path: Path, text: str) -> None:
    (tmp_path / "pkg").mkdir()
    path = tmp_path / "pkg/train.py"
    path.write_bytes(text.encode())
    diff, _ = made(tmp_path, line=4 + text.startswith("# -*-"))
    assert diff.startswith("--- a/pkg/train.py\n+++ b/pkg/train.py\n")
    assert path.read_bytes() == text.encode()  # nothing is applied
    (tmp_path / "the.diff").write_bytes(diff.encode())
    subprocess.run(["git", "-C", str(tmp_path), "apply", "--whitespace=nowarn", "the.diff"], check=True)
    assert path.read_bytes().decode() == text.replace("=False", "=True")


def test_a_line_of_a_call_is_changed_alone(tmp_path: Path) -> None:
    other = "\n\ndef other(o):\n    o.zero_grad(set_to_none=False)\n"
    (tmp_path / "train.py").write_text(TEXT + other)
    diff, _ = made(tmp_path, line=10, function="other", begins=False)
    applied(tmp_path, diff)
    assert (tmp_path / "train.py").read_text() == TEXT + other.replace("False", "True")


def test_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    outside, folder = tmp_path / "secret.py", tmp_path / "mine"
    folder.mkdir()
    outside.write_text(TEXT)
    assert "does not lie under" in why(folder, file=str(outside))
    assert "does not lie under" in why(folder, file="../secret.py")
    (folder / "train.py").symlink_to(outside)
    assert "leads out of the folder" in why(folder)
    (folder / "linked").symlink_to(tmp_path)
    assert "leads out of the folder" in why(folder, file="linked/secret.py")


def test_a_source_that_is_not_as_recorded_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("\n" + TEXT)
    assert "changed since" in why(tmp_path)
    path.write_text(TEXT + "def broken(:\n")
    assert "does not parse" in why(tmp_path)
    path.write_bytes(TEXT.encode("latin-1"))
    assert "cannot be read" in why(tmp_path)
    path.write_text(TEXT.replace("# é", "# \x1b[2J"))
    assert "control characters" in why(tmp_path)
    (tmp_path / "a b.py").write_text(TEXT)
    assert "would have to quote" in why(tmp_path, file="a b.py")


def test_a_source_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nraise SystemExit\n\ndef step(o, x):\n    o.zero_grad(False)\n")
    assert "+    o.zero_grad(set_to_none=True)" in made(tmp_path)[0]


def test_a_librarys_lines_are_not_changed(tmp_path: Path) -> None:
    assert "no line of your own" in why(tmp_path, file="torch/optim/adam.py")
