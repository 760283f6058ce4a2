"""What is read is a regular file of bearable size: anything else is refused in one line, and never waited for."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.formats.nsys.test_schemas import recording
from tracemine.causes import load_rule
from tracemine.cli import main
from tracemine.errors import InputError, RuleError
from tracemine.files import opened, read_file, read_head, read_parquet
from tracemine.formats import open_trace
from tracemine.formats.nsys.folder import read_arrow
from tracemine.matching.cases import read_cases
from tracemine.perfmodel.calibration import read_calibration

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
TRACE = FIXTURES / "chain.json.gz"
Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """Ends a test that waits for a pipe's other end."""

    def late(*_: object) -> None:
        raise TimeoutError("a pipe is waited for")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The line that a command ends with, whose exit code is 2."""

    def run(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in (*arguments, "-q")]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) <= 2
        return lines[0]

    return run


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def bound(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))
    return path


# -- one way to open


def test_what_is_no_regular_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    for path in (pipe(tmp_path / "pipe"), bound(Path("socket")), Path("/dev/zero")):
        with pytest.raises(InputError, match="is not a regular file"):
            opened(path)
    with pytest.raises(InputError, match="is a folder, not a file"):
        opened(tmp_path)
    with pytest.raises(InputError, match="is not a path"):
        opened(Path("a\0b"))


def test_a_link_to_a_file_is_that_file_and_a_link_to_a_pipe_is_that_pipe(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_head(tmp_path / "link", 2) == b"te"
    (tmp_path / "other").symlink_to(pipe(tmp_path / "pipe").name)
    with pytest.raises(InputError, match="other: is not a regular file"):
        opened(tmp_path / "other")


def test_a_file_that_became_a_pipe_once_it_was_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"text")
    found = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda path: found)
    with pytest.raises(InputError, match="is not a regular file"):
        opened(pipe(tmp_path / "pipe"))


def test_a_file_is_read_up_to_its_bound_and_not_beyond(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    assert read_file(tmp_path / "file", 4) == b"text"
    with pytest.raises(InputError, match="file: is larger than 3 bytes"):
        read_file(tmp_path / "file", 3)


# -- everywhere


def test_a_pipe_as_a_trace_or_beside_one_is_refused(tmp_path: Path, refused: Refused) -> None:
    path = pipe(tmp_path / "p.json")
    said = f"{path}: is not a regular file"
    assert refused("scan", path) == said
    assert refused("scan", path) == said
    assert refused("top", path) == said
    assert refused("scan", TRACE, "--et", path) == said
    assert refused("scan", TRACE, "--ncu", path) == said
    assert refused("scan", TRACE, "--evidence", path) == said
    assert refused("scan", TRACE, "--evidence", pipe(tmp_path / "p.parquet")) == said.replace(".json", ".parquet")
    with pytest.raises(InputError, match="is not a regular file"):
        read_calibration(path)


def test_in_a_folder_of_evidence_a_pipe_is_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(tmp_path / "p.json")
    assert main(["scan", str(TRACE), "--evidence", str(tmp_path), "--format", "json"]) == 0
    assert f"{tmp_path / 'p.json'}: left out, it is not a regular file" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that fails when it is read")
def test_a_disk_that_fails_is_said_with_the_name_of_the_file(tmp_path: Path, refused: Refused) -> None:
    failing = tmp_path / "t.json"
    failing.symlink_to("/proc/self/mem")
    said = f"{failing}: cannot be read: Input/output error"
    with opened(failing) as file:
        for read in (file.read, lambda: file.readinto(bytearray(9)), lambda: read_head(failing, 9)):
            with pytest.raises(InputError, match=f"^{said}$"):
                read()
    assert refused("scan", failing) == said
    assert refused("scan", TRACE, "--et", failing) == said
    assert refused("top", failing) == said


def test_pipes_in_a_folder_of_rules_are_refused(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "mine").mkdir()
    path = pipe(tmp_path / "mine" / "rule.toml")
    assert refused("scan", TRACE, "--rules", tmp_path) == f"{path}: is not a regular file"


def test_a_rules_cases_in_a_pipe_are_refused(tmp_path: Path, refused: Refused) -> None:
    shipped = sorted((Path(__file__).parents[2] / "rules").glob("*/rule.toml"))[0].parent
    shutil.copytree(shipped, tmp_path / "another")
    pipe(tmp_path / "another" / "cases.md")
    with pytest.raises(RuleError, match=r"cases\.md: is not a regular file"):
        read_cases(load_rule(tmp_path / "another"))


@pytest.mark.parametrize("table", ["ops", "api", "steps", "stacks", "memory", "tensors"])
def test_a_pipe_among_the_tables_of_a_timeline_is_refused(tmp_path: Path, refused: Refused, table: str) -> None:
    open_trace(TRACE).write(tmp_path / "tl")
    pipe(tmp_path / "tl" / f"{table}.parquet")
    said = f"{tmp_path / 'tl'}: is not a readable timeline: {table}.parquet is not a regular file"
    assert refused("scan", tmp_path / "tl") == said


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_pipe_among_the_tables_of_an_export_is_refused(tmp_path: Path, refused: Refused, form: str) -> None:
    folder = recording().folder(tmp_path / "export", f"{form}dir")
    path = pipe(folder / f"CUPTI_ACTIVITY_KIND_KERNEL.{form}")
    assert refused("scan", folder) == f"{path}: is not a regular file"


def test_a_pipe_where_verdicts_would_lie_is_refused(tmp_path: Path, refused: Refused) -> None:
    assert main(["scan", str(TRACE), "--format", "json", "-o", str(tmp_path / "f.json"), "-q"]) == 0
    path = pipe(tmp_path / "f.verdicts.json")
    assert refused("verify", tmp_path / "f.json") == f"{path}: is not a regular file"


# -- tables


def test_a_table_of_equal_values_is_not_inflated_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    part = pa.table({"id": np.ones(1_000_000, np.int64), "other": np.ones(1_000_000, np.int64)})
    with pq.ParquetWriter(path, part.schema) as out:
        for _ in range(20):
            out.write_table(part)
    assert read_parquet(path, ("nothing",)).num_columns == 0
    with pytest.raises(InputError, match=r"t\.parquet: inflates to more than 200 times its size, which no table"):
        read_parquet(path)
    with pytest.raises(InputError, match="inflates to more than 200 times its size"):
        read_parquet(path, ("id",))


def test_a_table_of_a_million_equal_values_is_read_and_its_texts_are_held_once(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    texts = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int32), ["long " * 1000])
    pq.write_table(pa.table({"id": np.ones(1_000_000, np.int64), "text": texts}), path, store_schema=False)
    found = read_parquet(path)
    assert (found.num_rows, found.nbytes < 20_000_000) == (1_000_000, True)


def arrow(
    path: Path,
    values: int,
    parts: int,
    compression: str | None,
    *,
    file: bool = False,
    columns: Sequence[str] = ("start", "text"),
) -> Path:
    part = pa.table({"start": np.zeros(values, np.int64), "text": ["k"] * values}).select(columns)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    made = pa.ipc.new_file if file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as out, made(out, part.schema, options=options) as written:
        for _ in range(parts):
            written.write_table(part)
    return path


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("file", [False, True])
def test_arrow_files_are_read_packed_or_not(tmp_path: Path, compression: str | None, *, file: bool) -> None:
    path = arrow(tmp_path / "t.arrow", 1000, 3, compression, file=file)
    found = read_arrow(path, ("text", "start"))
    assert found.to_pydict() == {"start": [0] * 3000, "text": ["k"] * 3000}
    assert read_arrow(path, ("text",)).column_names == ["text"]


@pytest.mark.parametrize("file", [False, True])
def test_packed_arrow_files_of_equal_values_are_not_inflated_without_bound(tmp_path: Path, *, file: bool) -> None:
    path = arrow(tmp_path / "t.arrow", 1_000_000, 20, "zstd", file=file, columns=("start",))
    with pytest.raises(InputError, match=r"t\.arrow: inflates to more than 200 times its size"):
        read_arrow(path, ("start",))


def test_rows_without_values_are_counted_too(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    part = pa.table({"start": pa.nulls(100_000_000)})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, part.schema) as written:
        written.write_table(part)
    with pytest.raises(InputError, match="inflates to more than 200 times its size"):
        read_arrow(path, ("start",))


def test_an_arrow_file_that_is_cut_or_changed_is_damaged_and_no_more(tmp_path: Path) -> None:
    path = arrow(tmp_path / "t.arrow", 100, 2, "lz4")
    content = path.read_bytes()
    for at in range(len(content)):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
            path.write_bytes(changed)
            with contextlib.suppress(OSError, pa.ArrowException, UnicodeDecodeError, InputError):
                read_arrow(path, ("start", "text")).validate(full=True)
