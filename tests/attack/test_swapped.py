"""A file that is swapped for a link between the check of its name and its opening: what was opened counts."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.harness import FIXTURES
from tracemine import pipeline
from tracemine.agents import reading
from tracemine.agents.folders import Folders
from tracemine.agents.served import Served
from tracemine.errors import InputError
from tracemine.files import opened, read_file, within

TRACE, DATABASE = FIXTURES / "kineto/chain.json.gz", FIXTURES / "nsys/block_train.sqlite"
NAMES = {"one_stored": reading, "analyse": pipeline, "traces": reading}


def swapping(monkeypatch: pytest.MonkeyPatch, name: str, swap: Callable[[], object]) -> None:
    """What reads finds another file than was checked."""
    own = getattr(NAMES[name], name)

    def read(*args: Any, **how: Any) -> Any:
        swap()
        return own(*args, **how)

    monkeypatch.setattr(NAMES[name], name, read)


@pytest.mark.parametrize("source", [TRACE, DATABASE], ids=["trace", "database"])
@pytest.mark.parametrize("tool", ["scan", "emit"])
@pytest.mark.parametrize("name", ["one_stored", "analyse"])
def test_what_lies_outside_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, tool: str, source: Path
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "secret"
    inside.mkdir()
    file = inside / source.name
    shutil.copyfile(source, file)
    shutil.copyfile(source, outside)

    def swap() -> None:
        file.unlink(missing_ok=True)
        file.symlink_to(outside)

    swapping(monkeypatch, name, swap)
    more = {"id": "0" * 16} if tool == "emit" else {}
    given = Served(Folders.of([inside])).call(tool, {"path": source.name, **more})
    assert isinstance(given, str)
    assert "was replaced by a link to what may not be read" in given


def test_what_lies_within_is_read_whatever_its_name_is_by_now(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    (tmp_path / "b").symlink_to("a")
    with within([tmp_path]):
        assert read_file(tmp_path / "b", 10) == b"mine"
        with opened(tmp_path / "a") as file:
            (tmp_path / "a").unlink()
            assert file.read() == b"mine"
    with within([tmp_path / "b"]), pytest.raises(InputError, match="what may not be read"):
        (tmp_path / "c").write_text("x")
        opened(tmp_path / "c")
    assert read_file(tmp_path / "c", 10) == b"x"  # it is over


def test_it_holds_in_threads_and_one_within_another(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("mine")
    (tmp_path / "secret").write_text("secret")
    found: list[object] = []

    def read(path: Path) -> None:
        try:
            found.append(read_file(path, 10))
        except InputError as error:
            found.append(error.message)

    with within([tmp_path / "in"]), within([tmp_path]):
        for name in ("secret", "in/a"):
            thread = threading.Thread(target=read, args=(tmp_path / name,))
            thread.start()
            thread.join()
    assert found == ["was replaced by a link to what may not be read", b"mine"]


def test_a_race_is_lost(tmp_path: Path) -> None:
    """A name that is a file within at one moment and a link out at the next."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (tmp_path / "small.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    shutil.copyfile(TRACE, outside / "s.json")
    shutil.copyfile(tmp_path / "small.json", inside / "race.json")
    ends = threading.Event()

    def flip() -> None:
        while not ends.is_set():
            shutil.copyfile(tmp_path / "small.json", inside / ".x")
            os.replace(inside / ".x", inside / "race.json")  # noqa: PTH105
            (inside / ".x").symlink_to(outside / "s.json")
            os.replace(inside / ".x", inside / "race.json")  # noqa: PTH105

    thread = threading.Thread(target=flip, daemon=True)
    thread.start()
    server = Served(Folders.of([inside]))
    for _ in range(300):
        given = server.call("scan", {"path": "race.json"})
        assert isinstance(given, str) or given["activities"] == 0
        server._reader._scans.clear()
    ends.set()
    thread.join()
