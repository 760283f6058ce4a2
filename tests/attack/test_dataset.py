"""Data sets that a stranger hands on, folders of traces with odd names and files, and arguments without bounds."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attack.changes import prepared
from tests.attack.harness import FIXTURES, Attack, Ended
from tracemine.fleet.traces import labeller

TRACE = FIXTURES / "kineto/chain.json.gz"
OTHER = FIXTURES / "kineto/triton_kernel.json.gz"
REPORT = ("fleet", "report", "set")
AGAIN = ("fleet", str(TRACE), str(FIXTURES / "kineto/clean_gemms.json.gz"), "-o", "set", "-j", "1")
LIMITS: dict[str, Any] = {"limit_s": 20.0, "memory": 4 << 30}
Change = Callable[[Path], object]


def parts(data: Path, table: str) -> list[Path]:
    return sorted((data / table).rglob("*.parquet"))


def column(table: str, name: str, values: Callable[[int], pa.Array]) -> Change:
    """A column of a table's first file replaced."""

    def change(data: Path) -> None:
        path = parts(data, table)[0]
        found = pq.ParquetFile(path).read()
        at = found.schema.get_field_index(name)
        pq.write_table(found.set_column(at, name, values(found.num_rows)), path)

    return change


def no_text(count: int) -> pa.Array:
    """Texts that are no UTF-8."""
    ends = b"".join((4 * number).to_bytes(4, "little") for number in range(count + 1))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(b"a\xff\xfeb" * count))


def made_once(change: Change) -> Change:
    """The same change; where it is made again, what it made is copied."""
    made: list[Path] = []

    def again(data: Path) -> None:
        if made:
            shutil.rmtree(data)
            shutil.copytree(made[0], data)
            return
        change(data)
        made.append(Path(tempfile.mkdtemp(dir=prepared())) / "set")
        shutil.copytree(data, made[0])

    return again


def many(table: str) -> Change:
    """A small file of 20,000,000 equal rows."""

    @made_once
    def change(data: Path) -> None:
        (data / table).mkdir(exist_ok=True)
        path = (parts(data, table) or [data / table / "x.parquet"])[0]
        schema = pq.read_schema(parts(data, "runs")[0])
        if table == "_known":
            names = ("file", "uri", "generation", "size_bytes", "modified_ns", "content_sha256", "status")
            schema = pa.schema([(name, pa.string() if name in ("file", "uri") else pa.int64()) for name in names])
        rows = pa.table({field.name: pa.nulls(1_000_000, field.type) for field in schema})
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in schema]))
        with pq.ParquetWriter(path, rows.schema, compression="zstd") as writer:
            for _ in range(20):
                writer.write_table(rows)

    return change


@made_once
def long_text(data: Path) -> None:
    """One text of a megabyte, a hundred thousand times, in a file of some kilobytes."""
    column("runs", "message", lambda count: pa.array(["x"] * count))(data)
    path = parts(data, "runs")[0]
    found = pq.ParquetFile(path).read()
    rows = pa.concat_tables([found] * 100_000).combine_chunks()
    at = rows.schema.get_field_index("message")
    texts = pa.DictionaryArray.from_arrays(pa.nulls(rows.num_rows, pa.int32()).fill_null(0), ["x" * (1 << 20)])
    pq.write_table(rows.set_column(at, "message", texts), path)


def about(content: bytes) -> Change:
    """Another dataset.json."""
    return lambda data: (data / "dataset.json").write_bytes(content)


def about_fifo(data: Path) -> None:
    (data / "dataset.json").unlink()
    os.mkfifo(data / "dataset.json")


def about_link(data: Path) -> None:
    shutil.move(data / "dataset.json", data.parent / "elsewhere.json")
    (data / "dataset.json").symlink_to("../elsewhere.json")


def sparse(data: Path) -> None:
    with (data / "dataset.json").open("wb") as file:
        file.truncate(5 << 30)


def table_fifo(data: Path) -> None:
    os.mkfifo(data / "runs/day=2026-01-01.parquet")


def linked_file(data: Path) -> None:
    path = parts(data, "runs")[0]
    shutil.move(path, data.parent / "elsewhere.parquet")
    path.symlink_to(data.parent / "elsewhere.parquet")


DEEP = b'{"schema_version": 1, "generations": [], "z": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
DAMAGED: dict[str, Change] = {
    "dataset.json is a FIFO": about_fifo,
    "dataset.json is a link": about_link,
    "dataset.json is of 5 GB": sparse,
    "dataset.json is deep": about(DEEP),
    "dataset.json is no UTF-8": about(
        b'{"schema_version": 1, "generations": [{"digest": "\xff", "tracemine": "0", "options": {}}]}'
    ),
    "a list for an integer": column("runs", "activities", lambda count: pa.array([[1]] * count)),
    "a struct for a text": column("runs", "uri", lambda count: pa.array([{"a": 1}] * count)),
    "a text for an integer": column("runs", "activities", lambda count: pa.array(["abc"] * count)),
    "a list for a text": column("findings", "title", lambda count: pa.array([["x"]] * count)),
    **{
        f"{table}.{name} is no UTF-8": column(table, name, no_text)
        for table, name in (("runs", "job"), ("runs", "uri"), ("runs", "message"), ("findings", "title"))
    },
    "twenty million rows": many("runs"),
    "a text of a megabyte, often": long_text,
    "a file is a link": linked_file,
}

# What a run does not read of a data set.
NOT_READ_AGAIN = frozenset(
    (
        *("a list for an integer", "a text for an integer", "a list for a text", "a text of a megabyte, often"),
        *(f"{column} is no UTF-8" for column in ("runs.job", "runs.message", "findings.title")),
    )
)


def with_set(attack: Attack, change: Change) -> Path:
    here = attack.fresh()
    shutil.copytree(prepared() / "dataset", here / "set")
    change(here / "set")
    return here / "set"


@pytest.mark.parametrize("name", DAMAGED)
def test_a_data_set_that_is_damaged_is_told_in_a_line(attacks: Callable[..., Attack], name: str) -> None:
    attack = attacks("data sets by hand")
    for command in (REPORT, ("fleet", "tickets", "set", "--project", "p", "--out", "t")):
        with_set(attack, DAMAGED[name])
        attack(*command, label=name, codes=(2,), **LIMITS)
    with_set(attack, DAMAGED[name])
    attack(*AGAIN, label=name, codes=(0,) if name in NOT_READ_AGAIN else (2,), may_write=("set",), **LIMITS)


@pytest.mark.parametrize("change", [many("_known"), table_fifo], ids=["index of many rows", "FIFO in runs"])
def test_what_a_data_set_can_do_without_stops_nothing(attacks: Callable[..., Attack], change: Change) -> None:
    attack = attacks("data sets by hand")
    for command in (REPORT, AGAIN):
        with_set(attack, change)
        attack(*command, codes=(0,), **LIMITS)


@pytest.mark.parametrize("rows", [{"file": [[1]]}, {"file": [1]}, {"file": [None]}, {"file": ["day=x"]}])
def test_an_index_of_other_types_is_no_index(attacks: Callable[..., Attack], rows: dict[str, list[Any]]) -> None:
    def change(data: Path) -> None:
        (data / "_known").mkdir()
        names = ("uri", "generation", "size_bytes", "modified_ns", "content_sha256", "status")
        pq.write_table(pa.table({**rows, **{name: [1] for name in names}}), data / "_known/x.parquet")

    attack = attacks("data sets by hand")
    with_set(attack, change)
    attack(*AGAIN, codes=(0,), must=says(b"2 known already"), **LIMITS)


@pytest.mark.parametrize("table", ["runs", "findings", "occurrences", "steps", "_known"])
def test_nothing_is_written_through_a_link(attacks: Callable[..., Attack], table: str) -> None:
    def change(data: Path) -> None:
        shutil.rmtree(data / table, ignore_errors=True)
        (data / table).symlink_to(data.parent.parent / "home")

    attack = attacks("links in data sets")
    with_set(attack, change)
    attack("fleet", OTHER, "-o", "set", "-j", "1", codes=(2,), must=says(b"is a link, and is not followed"), **LIMITS)


def test_a_data_set_may_be_named_by_a_link(attacks: Callable[..., Attack]) -> None:
    attack = attacks("links in data sets")
    data = with_set(attack, lambda data: None)
    data.rename(data.with_name("real"))
    data.symlink_to("real")
    attack(*AGAIN, codes=(0,), must=says(b"2 known already"), may_write=("real",), **LIMITS)
    attack(*REPORT, codes=(0,), **LIMITS)


def test_an_index_that_names_a_trace_that_was_not_scanned_counts_for_nothing(attacks: Callable[..., Attack]) -> None:
    attack = attacks("data sets by hand")
    data = with_set(attack, lambda data: None)
    status = OTHER.stat()
    row = {"uri": str(OTHER), "generation": 1, "size_bytes": status.st_size, "modified_ns": status.st_mtime_ns}
    row |= {"file": parts(data, "runs")[0].relative_to(data / "runs").as_posix(), "status": "scanned"}
    (data / "_known").mkdir()
    for number, content in enumerate((None, "0")):
        whole = row | {"content_sha256": content}
        pq.write_table(pa.table({name: [value] for name, value in whole.items()}), data / f"_known/{number}.parquet")
    attack("fleet", OTHER, "-o", "set", "-j", "1", codes=(0,), may_write=("set",), must=says(b"1 trace scanned"))
    assert len(parts(data, "runs")) == 3


def says(text: bytes) -> Callable[[Ended], object]:
    """Asserts what is said."""

    def must(ended: Ended) -> None:
        assert text in ended.out + ended.err, ended.said

    return must


# Traces and arguments


def test_a_folder_whose_name_is_no_text_has_its_row(attacks: Callable[..., Attack]) -> None:
    attack = attacks("names of traces")
    for name in (b"\xff\xfe", "\u202eevil".encode(), b"x\x1b[2J"):
        folder = os.path.join(os.fsencode(attack.fresh()), b"in", name)  # noqa: PTH118 - bytes
        os.makedirs(folder)  # noqa: PTH103
        shutil.copyfile(TRACE, os.path.join(folder, b"t.json.gz"))  # noqa: PTH118
        (attack.here / "in/job").mkdir()
        shutil.copyfile(OTHER, attack.here / "in/job/u.json.gz")
        attack("fleet", "in", "-o", "set", "-j", "1", codes=(0,), may_write=("set",), must=says(b"2 traces scanned"))
        attack("fleet", "in", "-o", "set", "-j", "1", codes=(0,), must=says(b"2 known already"), may_write=("set/.",))
        for how in ("text", "json", "html"):
            attack(*REPORT, "--format", how, label=(name, how), codes=(0,))


def waited_for(here: Path, name: str) -> Sequence[object]:
    """A command line that is given something to wait for."""
    if name == "rule":
        with_rule = here / "rules/a/b"
        with_rule.mkdir(parents=True)
        os.mkfifo(with_rule / "rule.toml")
        return "fleet", TRACE, "-o", "set", "-j", "1", "--rules", "rules"
    os.mkfifo(here / "p.json.gz")
    return "fleet", "p.json.gz" if name == "FIFO" else "/dev/zero", "-o", "set", "-j", "1"


@pytest.mark.parametrize("name", ["FIFO", "device", "rule"])
def test_nothing_is_waited_for(attacks: Callable[..., Attack], name: str) -> None:
    attack = attacks("what is waited for")
    ended = attack(*waited_for(attack.fresh(), name), may_write=("set",), limit_s=20.0)
    assert name == "rule" or b"1 no trace or damaged" in ended.err


ARGUMENTS: dict[str, tuple[Sequence[object], Sequence[int]]] = {
    "rows": ((*REPORT, "--top", "9" * 30), (0,)),
    "price": ((*REPORT, "--price", "1e300"), (2,)),
    "names twice": (("fleet", TRACE, "-o", "q", "--labels", "{job}{job}/*"), (2,)),
    "many pieces": (("fleet", TRACE, "-o", "q", "--labels", "*a" * 400), (2,)),
    "time": ((*AGAIN, "--time-limit", "1e300"), (2,)),
    "no time": ((*AGAIN, "--time-limit", "nan"), (2,)),
    "memory": ((*AGAIN, "--memory", "9" * 30 + "GB"), (2,)),
    "more memory": ((*AGAIN, "--memory", "9" * 400 + "GB"), (2,)),
    "attempts": ((*AGAIN, "--attempts", "1" + "0" * 400), (0, 2)),
    "output": (("fleet", TRACE, "-o", b"a\xff", "-j", "1"), (2,)),
    "report": (("fleet", "report", b"a\xff"), (2,)),
    "archive": (("fleet", "zip://x::/etc/passwd", "-o", "q"), (2,)),
    "rules": ((*AGAIN, "--rules", b"r\xff"), (2,)),
    "hours": ((*REPORT, "--hours", "h.csv"), (2,)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_without_bounds_is_told_in_a_line(attacks: Callable[..., Attack], name: str) -> None:
    attack = attacks("arguments")
    with_set(attack, lambda data: None)
    (attack.here / "h.csv").write_bytes(b"job,gpu_hours\n" + b"x" * 200_000 + b",1\n")
    args, codes = ARGUMENTS[name]
    attack(*args, label=name, codes=codes, may_write=("set/.", "q"), **LIMITS)


def test_a_pattern_of_labels_takes_no_time(attacks: Callable[..., Attack]) -> None:
    attack = attacks("arguments")
    with_set(attack, lambda data: None)
    for pattern in ("*" * 40 + "x", "*a" * 40, "{job}" + "*a" * 40):
        attack("fleet", TRACE, "-o", "q", "-j", "1", "--labels", pattern, codes=(0,), may_write=("q",), limit_s=20.0)


@pytest.mark.parametrize(
    ("pattern", "job", "model"),
    [
        ("{job}-{model}/*", "llama", "7b-x"),
        ("*-{job}/*", "x", None),
        ("{job}*/*", "l", None),
        ("{job}/*.json", "llama-7b-x", None),
        ("vit*/*", None, None),
        ("{model}-7b-x/{job}.json", "rank0", "llama"),
    ],
)
def test_labels_are_read_as_before(pattern: str, job: str | None, model: str | None) -> None:
    from tracemine.fleet.traces import TraceSource

    found = labeller(pattern)(TraceSource(uri="a/llama-7b-x/rank0.json", names=(), size_bytes=1, modified_ns=None))
    assert (found.job, found.model) == (job, model)
