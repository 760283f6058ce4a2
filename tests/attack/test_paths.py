"""Every argument that is a path, and every kind of thing that can lie there."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.changes import prepared
from tests.attack.harness import FIXTURES, Attack

TRACE = FIXTURES / "kineto/clean_gemms.json.gz"  # nothing is to be won in it, so nothing is proved
FINDINGS = "findings_chain.json"
ANEW = ("scan", "verify")  # of the others what is read counts, and not what is found in it
MINED: dict[str, Any] = {"program": "tests.attack.ways:mined_once"}
ANALYSED: dict[str, Any] = {"program": "tests.attack.ways:analysed_once"}

# Readers: the command line, @ for the path; what is right to put there.
READERS: dict[str, tuple[list[str], Path | str]] = {
    "scan": (["scan", "@", "-q"], TRACE),
    "scan a database": (["scan", "@", "-q"], FIXTURES / "nsys/block_graph_whole.sqlite"),
    "scan a timeline": (["scan", "@", "-q"], "timeline_chain"),
    "scan a folder of tables": (["scan", "@", "-q"], "parquetdir"),
    "scan a recording": (["scan", "@", "-q"], FIXTURES / "captures/chain"),
    "scan --et": (["scan", str(FIXTURES / "kineto/chain.json.gz"), "-q", "--et", "@"], FIXTURES / "captures/chain/et.json.gz"),
    "scan --ncu": (["scan", str(FIXTURES / "ncu/chain/trace.json.gz"), "-q", "--ncu", "@"], FIXTURES / "ncu/chain/raw.csv.gz"),
    "scan --evidence": (["scan", str(TRACE), "-q", "--evidence", "@"], FIXTURES / "verdicts/captures_h200.jsonl"),
    "scan --rules": (["scan", str(TRACE), "-q", "--rules", "@"], "rules"),
    "scan --parquet": (["scan", "@", "-q", "--parquet", "out"], TRACE),
    "scan --parquet --et": (["scan", str(FIXTURES / "kineto/chain.json.gz"), "--parquet", "out", "--et", "@"], FIXTURES / "captures/chain/et.json.gz"),
    "scan --parquet --ncu": (["scan", str(FIXTURES / "ncu/chain/trace.json.gz"), "-q", "--parquet", "out", "--ncu", "@"], FIXTURES / "ncu/chain/raw.csv.gz"),
    "counters of a timeline": (["top", "@", "--ncu", "@"], "timeline_counters"),
    "counters": (["top", "@"], FIXTURES / "ncu/chain/raw.csv.gz"),
    "counters of a trace": (["top", "@", "--ncu", str(FIXTURES / "ncu/chain/raw.csv.gz")], FIXTURES / "ncu/chain/trace.json.gz"),
    "scan -f perfetto": (["scan", "@", "-q", "-f", "perfetto", "-o", "out"], TRACE),
    "verify": (["verify", "@", "-q"], TRACE),
    "verify --et": (["verify", str(TRACE), "-q", "--et", "@"], FIXTURES / "captures/clean_gemms/et.json.gz"),
    "verify --rules": (["verify", str(TRACE), "-q", "--rules", "@"], "rules"),
    "scan of findings": (["scan", "@", "-q"], FINDINGS),
    "scan of findings --evidence": (["scan", "f.json", "-q", "--evidence", "@"], FIXTURES / "verdicts/captures_h200.jsonl"),
    "rules list": (["rules", "list", "--rules", "@"], "rules"),
    "rules show": (["rules", "show", "my_rule", "--rules", "@"], "rules"),
}  # fmt: skip

Put = Callable[[Path, Path], object]


def _copied(right: Path, path: Path) -> None:
    shutil.copytree(right, path) if right.is_dir() else shutil.copyfile(right, path)


def _socket(right: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


def _filled(right: Path, path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "trace.json")
    (path / "loop.json").symlink_to("loop.json")
    (path / "zero.json.gz").symlink_to("/dev/zero")


# What lies there: name, how it is put there, exit codes that fit. A reader may follow links.
LYING: dict[str, tuple[str | bytes, Put, tuple[int, ...]]] = {
    "a FIFO": ("p", lambda right, path: os.mkfifo(path), (2,)),
    "a socket": ("s", _socket, (2,)),
    "an endless device": ("z", lambda right, path: path.symlink_to("/dev/zero"), (2,)),
    "memory": ("m", lambda right, path: path.symlink_to("/proc/self/mem"), (2,)),
    "an empty folder": ("e", lambda right, path: path.mkdir(), (0, 2)),
    "a folder of traps": ("t", _filled, (0, 2)),
    "an empty file": ("f", lambda right, path: path.touch(), (2,)),
    "a link to what is right": ("l", lambda right, path: path.symlink_to(right), (0,)),
    "a link to nothing": ("d", lambda right, path: path.symlink_to("nowhere"), (2,)),
    "a link to itself": ("lo", lambda right, path: path.symlink_to("lo"), (2,)),
    "nothing": ("nothing", lambda right, path: None, (2,)),
    "no name": ("", lambda right, path: None, (2,)),
    "a name of 5,000 bytes": ("n" * 5000, lambda right, path: None, (2,)),
    "a name that is no UTF-8": (b"\xff\xfe", _copied, (0,)),
    "a name of 250 bytes": ("n" * 242, _copied, (0,)),
    "escape sequences, a pattern and a default in a name": ("\x1b[2J\x1b]0;x\x07\u202e\n[a]*=value", _copied, (0,)),
}


@pytest.mark.parametrize("lying", LYING)
def test_a_reader_reads_it_or_says_in_a_line_what_it_is(
    attacks: Callable[..., Attack], lying: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = attacks("paths that are read")
    name, put, codes = LYING[lying]
    for reader, (args, given) in READERS.items():
        monkeypatch.chdir(attack.fresh())
        shutil.copyfile(prepared() / FINDINGS, "f.json")
        right = prepared() / given
        ending = "".join(right.suffixes[-2:]).encode() if right.is_file() and 0 in codes else b""
        path = Path(os.fsdecode(os.fsencode(name) + ending)) if name else None
        put(right, path or Path())
        given_path = os.fsdecode(path) if path else ""
        fit = (*codes, 1) if reader.startswith("rules") else codes
        full = [given_path if arg == "@" else arg for arg in args]
        how = {"limit_s": 20.0} | ({} if reader in ANEW else MINED)
        attack(*full, label=f"{lying}, {reader}", codes=fit, may_write=["out"], **how)


# Writers: the command line, @ for the path; whether a folder is written.
WRITERS: dict[str, tuple[list[str], bool]] = {
    "scan -o": (["scan", str(TRACE), "-q", "--format", "json", "-o", "@"], False),
    "scan of findings -o": (["scan", "f.json", "-q", "-o", "@"], False),
    "scan -f perfetto -o": (["scan", str(TRACE), "-q", "-f", "perfetto", "-o", "@"], False),
    "scan --parquet -o": (["scan", str(TRACE), "-q", "--parquet", "@"], True),
    "verify -o": (["verify", str(TRACE), "-q", "-o", "@"], True),
    "verify --emit": (["verify", str(TRACE), "-q", "--emit", "@"], True),
}


def _device(path: Path) -> None:
    path.symlink_to("/dev/full")


def _folder_with_notes(path: Path) -> None:
    path.mkdir()
    (path / "notes").write_text("mine")


def _link_to_file(path: Path) -> None:
    Path("real").write_text("old")
    path.symlink_to("real")


def _link_to_folder(path: Path) -> None:
    Path("real").mkdir()
    path.symlink_to("real")


# What lies where it is written: name, how it is put there, exit codes that fit for a file and for a folder, and what
# may be written beside the name itself.
TARGETS: dict[str, tuple[str | bytes, Callable[[Path], object], tuple[int, ...], tuple[int, ...], str]] = {
    "nothing": ("x", lambda path: None, (0,), (0,), "x"),
    "a file": ("x", lambda path: path.write_text("old"), (0,), (2,), "x"),
    "a folder with a file": ("x", _folder_with_notes, (2,), (0, 2), "x"),
    "an empty folder": ("x", lambda path: path.mkdir(), (2,), (0,), "x"),
    "a link to a file": ("x", _link_to_file, (0,), (2,), "real"),
    "a link to a folder": ("x", _link_to_folder, (2,), (0,), "real"),
    "a link to nothing": ("x", lambda path: path.symlink_to("real"), (0, 2), (0, 2), "real"),
    "a link to itself": ("x", lambda path: path.symlink_to("x"), (2,), (2,), "-"),
    "a full device": ("x", _device, (2,), (2,), "-"),
    "no device": ("x", lambda path: path.symlink_to("/dev/null"), (0,), (2,), "-"),
    "a socket": ("x", lambda path: _socket(path, path), (2,), (2,), "-"),
    "a name of 250 bytes": ("n" * 250, lambda path: None, (0,), (0,), "n" * 250),
    "a name of 5,000 bytes": ("n" * 5000, lambda path: None, (2,), (2,), "-"),
    "a name that is no UTF-8": (b"\xff\xfe", lambda path: None, (0,), (0,), "\\xff\\xfe"),
    "a name with escape sequences": ("\x1b[2J\n", lambda path: None, (0,), (0,), "\x1b[2J\n"),
    "no name": ("", lambda path: None, (2,), (2,), "-"),
    "the current folder": (".", lambda path: None, (2,), (0, 2), "."),
    "a folder that is not there": ("no/such/x", lambda path: None, (0, 2), (0,), "no"),
    "below a file": ("f.json/x", lambda path: None, (2,), (2,), "-"),
    "where nobody may write": ("/proc/x", lambda path: None, (2,), (2,), "-"),
}  # fmt: skip


@pytest.mark.parametrize("lying", TARGETS)
def test_a_writer_writes_what_was_named_and_nothing_else(
    attacks: Callable[..., Attack], lying: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = attacks("paths that are written")
    name, put, file_codes, folder_codes, own = TARGETS[lying]
    for writer, (args, is_folder) in WRITERS.items():
        monkeypatch.chdir(attack.fresh())
        shutil.copyfile(prepared() / FINDINGS, "f.json")
        path = Path(os.fsdecode(name))
        put(path)
        link, notes = len(name) < 4096 and path.is_symlink(), Path("x/notes").exists()
        full = [os.fsdecode(name) if arg == "@" else arg for arg in args]
        codes = folder_codes if is_folder else file_codes
        may = [f"verdicts{end}" for end in (".json", ".parquet")] if own == "." and writer == "verify -o" else [own]
        may += ["x/verdicts.json", "x/verdicts.parquet"] if writer == "verify -o" else []

        def same(ended: object, link: bool = link, notes: bool = notes, path: Path = path) -> None:
            assert not link or path.is_symlink(), "the link is gone"
            assert Path("x/notes").exists() or not notes, "a file of another is gone"
            assert not [p for p in Path().iterdir() if p.name.startswith(".")], "something stays beside it"

        attack(*full, label=f"{lying}, {writer}", codes=codes, may_write=may, must=same, limit_s=20.0, **ANALYSED)
