"""Which traces are found, what their paths say of them, and what a digest depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.made import CHAIN, FIXTURES, folder_of
from tracemine.errors import InputError, UsageError
from tracemine.fleet.places import filesystem
from tracemine.fleet.traces import Labels, TraceSource, content_sha256, fetched, labeller, listed, sources


def source(uri: str, modified_ns: int | None = None) -> TraceSource:
    return TraceSource(uri=uri, names=(), size_bytes=1, modified_ns=modified_ns)


@pytest.mark.parametrize(
    ("pattern", "uri", "labels"),
    [
        ("{job}/{day}/*", "/a/llama/2026-11-22/r.json", Labels("llama", None, "2026-11-22")),
        ("{job}/{day}/*", "/a/llama/run_20261122_b/r.json", Labels("llama", None, "2026-11-22")),
        ("{model}-{job}/*.json", "s3://b/vit-night/r.json", Labels("night", "vit", None)),
        ("{job}/{day}/*", "/r.json", Labels(None, None, None)),
        ("{job}/{day}/*", "/a/llama/2026-13-45/r.json", Labels("llama", None, None)),
        (None, "runs/llama/r.json", Labels("llama", None, None)),
    ],
)
def test_labels_are_read_off_the_end_of_a_path(pattern: str | None, uri: str, labels: Labels) -> None:
    assert labeller(pattern)(source(uri)) == labels


def test_a_day_is_else_that_of_the_last_change() -> None:
    assert labeller(None)(source("a/b.json", 1_763_856_000_000_000_000)).day == "2025-11-23"


@pytest.mark.parametrize("pattern", ["{name}/*", ""])
def test_a_pattern_with_other_names_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--labels"):
        labeller(pattern)


def test_a_folder_holds_its_traces_and_recordings_are_one_each(tmp_path: Path) -> None:
    found = [one for one in listed([str(folder_of(tmp_path))]) if isinstance(one, TraceSource)]
    names = {Path(one.uri).relative_to(tmp_path).as_posix() for one in found}
    assert {"llama/2026-11-21/rank0.json.gz", "vit/2026-11-22/rank0.json.gz", "bad/2026-11-22/cut.json"} <= names
    recording = next(sources(str(FIXTURES / "captures" / "chain")))
    assert set(recording.names) <= {"trace.json.gz", "et.json.gz", "capture.json"} and len(recording.names) > 1
    assert recording.size_bytes == sum((Path(recording.uri) / name).stat().st_size for name in recording.names)


def test_what_should_be_a_trace_and_is_damaged_is_listed_and_other_json_is_told(tmp_path: Path) -> None:
    contents = {
        "rank0.json.gz": CHAIN.read_bytes(),
        "empty.json": b"",
        "blank.json": b"  \n",
        "noise.json.gz": b"\x8a" * 99,
    }
    contents |= {"short.json.gz": b"\x1f\x8b", "text.json": b"hello", "config.json": b'{"lr": 1}', "list.json": b"[1]"}
    contents["rows.json"] = b'[{"lr": 1}]'
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    told = list[str]()
    names = {Path(one.uri).name for one in sources(str(tmp_path), told.append)}
    assert names == {*contents} - {"config.json", "rows.json"}
    assert told == [f"{tmp_path}: left out, no traces: config.json, rows.json (2 files)"]


def test_a_folder_of_damaged_traces_alone_has_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"")
    assert [one.uri for one in sources(str(tmp_path))] == [str(tmp_path / "a.json.gz")]
    (tmp_path / "a.json.gz").write_bytes(b"{}")
    with pytest.raises(InputError, match="no trace"):
        list(sources(str(tmp_path)))


def test_each_trace_is_listed_once_and_what_is_wrong_is_said_in_its_place(tmp_path: Path) -> None:
    found = list(listed([str(CHAIN), str(tmp_path / "none*.json"), str(tmp_path / "none"), str(CHAIN)]))
    assert [type(one) for one in found] == [TraceSource, InputError, InputError]
    assert "no such file or folder" in str(found[2])


def test_a_uri_of_this_machine_is_read_like_a_store(tmp_path: Path) -> None:
    folder_of(tmp_path)
    found = list(sources(f"file://{tmp_path}/llama"))
    assert [one.uri.rpartition("llama/")[2] for one in found] == [
        "2026-11-21/rank0.json.gz", "2026-11-22/rank0.json.gz", "2026-11-22/rank1.json.gz",
    ]  # fmt: skip
    assert all(one.uri.startswith("file://") and one.modified_ns for one in found)
    some = list(sources(f"file://{tmp_path}/llama/*/rank1*"))
    assert [one.uri for one in some] == [found[2].uri]
    with fetched(found[0]) as path:
        copy = path
        assert path.read_bytes() == (tmp_path / "llama/2026-11-21/rank0.json.gz").read_bytes()
    assert not copy.exists()


def test_a_scheme_that_nobody_knows_is_said() -> None:
    with pytest.raises(UsageError, match="nosuch://"):
        filesystem("nosuch://bucket/key")


def test_a_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / name).write_bytes(content)
    digests = {content_sha256(tmp_path, names) for names in (["a"], ["b"], ["c"], ["a", "b"], ["b", "a"])}
    assert len(digests) == 5
    assert content_sha256(tmp_path / "a", []) == content_sha256(tmp_path / "c", [])
    with pytest.raises(InputError, match="there is no such file"):
        content_sha256(tmp_path / "gone", [])
