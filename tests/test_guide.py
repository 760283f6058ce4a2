"""Run every code block of the guide as it stands, in the order of its page, in a folder that has fixtures/.

A block that needs a program which is not there (Nsight's, or a GPU's) is checked for its syntax alone. One marked
`service` speaks to GitHub: here to the one of tests/tickets/server.py, which is empty where a page begins. One marked
`suite` is a file of tests, which tests/testing runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.tickets.server import World, running

with suppress(ImportError):  # it keeps standard error as it finds it: before a test captures that
    import mcp.client.stdio  # noqa: F401

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))
INTERNALS = [ROOT / "docs" / "internals" / f"{name}.md" for name in ("codegen", "validation")]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>printed|service|suite|needs (?P<program>[\w-]+)) -->\n)?```(?P<kind>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
SHOWN = {"text", "json", "toml"}  # output and settings, no code
MOST_WORDS = 600


def bash(code: str, folder: Path, **more: str) -> str:
    """What the commands print, ended by the first that fails; `tracemine` begins loaded, which took most of it."""
    path = os.pathsep.join([str(forked.program().parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "XDG_DATA_HOME": str(folder / "data")}
    own |= {"XDG_STATE_HOME": str(folder / "state")}
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")} | own | more
    done = subprocess.run(["bash", "-euc", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def with_service(code: str, folder: Path, world: World) -> str:
    """What commands print that speak to a service, which is this world's."""
    assert "--github you/model" in code
    elsewhere = f"--github you/model --github-url {world.address}"
    return bash(code.replace("--github you/model", elsewhere), folder, GH_ENTERPRISE_TOKEN="t0ken-of-tests")


@pytest.fixture
def world() -> Iterator[World]:
    with running() as world:
        yield world
    assert not world.violations


@pytest.mark.parametrize("page", [*PAGES, *INTERNALS], ids=lambda page: page.stem)
def test_a_page_runs(page: Path, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for fence in FENCE.finditer(page.read_text("utf-8")):
        kind, code = fence["kind"], fence["code"]
        if fence["program"] and shutil.which(fence["program"]) is None:
            bash(f"set -n\n{code}", tmp_path)  # its syntax
        elif fence["mark"] == "suite":
            compile(code, str(page), "exec")
        elif fence["mark"] == "service":
            printed = with_service(code, tmp_path, world)
        elif kind == "bash":
            printed = bash(code, tmp_path)
        elif kind == "python":
            exec(compile(code, str(page), "exec"), names)  # noqa: S102 - of our own page
            printed = capsys.readouterr().out
        else:
            assert kind in SHOWN, f"a block of {kind or 'no language'}"
        if fence["mark"] == "printed":
            assert code.strip("\n") in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_guide_is_short_and_shows_an_example(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.split()) <= MOST_WORDS
    assert "```" in text or "](../assets/" in text


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no such file"):
        bash("tracemine scan nothing.json\necho done", tmp_path)
