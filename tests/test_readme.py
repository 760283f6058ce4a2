"""What README.md shows is what the program does."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tracemine.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_are_found_and_install_this_project() -> None:
    commands = re.findall(r"<!-- (runs the main job|passes the tests) -->\n```bash\n(.+?)\n```", README, re.S)
    assert [name for name, _ in commands] == ["runs the main job", "passes the tests"]
    assert all("python3 -m venv" in command and "\n" not in command for _, command in commands)


def test_the_picture_shows_what_the_main_job_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = re.search(r"<!-- runs the main job -->\n```bash\n.*&& \S+/tracemine (.+?)\n```", README)
    shown = re.search(r"!\[.+?\]\((.+?\.svg)\)", README)
    assert job is not None
    assert shown is not None
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*job[1].split(), "--no-color"]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.strip()][:25]
    drawn = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", (ROOT / shown[1]).read_text("utf-8")))
    drawn = re.sub(r"\s", "", html.unescape(drawn))
    assert all(re.sub(r"\s", "", line) in drawn for line in printed)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_what_it_links_to_is_there(link: str) -> None:
    assert (ROOT / link).exists()
