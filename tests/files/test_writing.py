"""A file is written whole or not at all, and nowhere but where it was asked for."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracemine.errors import UsageError
from tracemine.files import write_file

ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where something is written; nothing else is to lie beside it."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "report"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("named", [True, False])
def test_a_file_of_before_is_replaced_by_a_new_one(target: Path, named: bool) -> None:
    target.write_text("old")
    other = target.with_name("twin")
    other.hardlink_to(target)
    write_file(target, "new", named=named)
    assert (target.read_text(), other.read_text()) == ("new", "old")
    assert names(target.parent) == ["report", "twin"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_file_is_readable_to_those_whom_the_umask_lets(target: Path, named: bool, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_file(target, b"", named=named)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("length", [241, 250, 255])
def test_names_may_be_as_long_as_the_system_lets_them(target: Path, named: bool, length: int) -> None:
    target = target.with_name("a" * length)
    write_file(target, "new", named=named)
    assert target.read_text() == "new"
    assert names(target.parent) == [target.name]


def test_links_that_wait_for_this_process_s_number_are_not_written_through(target: Path) -> None:
    precious = target.parent.parent / "precious"
    precious.write_text("mine")
    target.with_name(f".{target.name}.{os.getpid()}.tmp").symlink_to(precious)
    write_file(target, "new")
    assert precious.read_text() == "mine"
    assert (target.is_symlink(), target.read_text()) == (False, "new")


def test_a_link_at_the_very_name_that_is_drawn_is_not_written_through(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = target.parent.parent / "precious"
    precious.write_text("mine")
    monkeypatch.setattr("os.urandom", bytes)  # zeros
    target.with_name(f".{'0' * 16}.tmp").symlink_to(precious)
    with pytest.raises(UsageError, match="cannot be written: File exists"):
        write_file(target, "new")
    assert precious.read_text() == "mine"
    assert not target.exists()


def test_a_link_that_the_user_named_keeps_pointing_to_what_is_written(target: Path) -> None:
    other = target.parent.parent / "elsewhere"
    target.symlink_to(other)
    write_file(target, "new")  # what it points to is made
    write_file(target, "newer")
    assert target.is_symlink()
    assert other.read_text() == "newer"
    assert names(target.parent.parent) == ["elsewhere", "out"]


@pytest.mark.parametrize("content", [None, "mine"])
def test_a_link_at_a_name_that_was_not_given_is_refused(target: Path, content: str | None) -> None:
    other = target.parent.parent / "elsewhere"
    if content is not None:
        other.write_text(content)
    target.symlink_to(other)
    with pytest.raises(UsageError) as caught:
        write_file(target, "new", named=False)
    assert str(caught.value) == f"{target}: is a link, and is not written through\n  hint: move it away"
    assert other.exists() == (content is not None)
    assert content is None or other.read_text() == content
    assert names(target.parent) == ["report"]


def test_a_pipe_at_a_name_that_was_not_given_is_not_waited_for(target: Path) -> None:
    os.mkfifo(target)
    with pytest.raises(UsageError, match="is not a regular file"):
        write_file(target, "new", named=False)


@pytest.mark.parametrize("named", [True, False])
def test_a_loop_of_links_is_an_error(target: Path, named: bool) -> None:
    target.symlink_to(target)
    with pytest.raises(UsageError, match="is a link"):
        write_file(target, "new", named=named)
    with pytest.raises(UsageError, match="cannot be written: Too many levels of symbolic links"):
        write_file(target / "in it", "new", named=named)


def test_a_full_disk_is_said_with_the_name_that_was_given(target: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_file(Path("/dev/full"), "new")
    assert str(caught.value) == (
        "/dev/full: cannot be written: No space left on device\n  hint: make room there, or name another place"
    )


def test_where_not_all_of_it_can_be_written_the_file_of_before_stays(target: Path) -> None:
    target.write_text("old")
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tracemine.files import write_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_file(Path(sys.argv[1]), bytes(10_000))\n"
        "except Exception as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert said.stdout == (
        f"{target}: cannot be written: File too large\n  hint: make room there, or name another place\n"
    )
    assert target.read_text() == "old"
    assert names(target.parent) == ["report"]


def test_a_folder_that_may_not_be_written_to_is_said_with_the_file_s_name(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(UsageError) as caught:
        write_file(target, "new")
    assert str(caught.value) == (
        f"{target}: cannot be written: Read-only file system\n  hint: name a place that may be written to"
    )
