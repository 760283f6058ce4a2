"""Traces and data sets in S3, by a server of this machine that answers as S3 does, with faults."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from pyarrow.fs import FileSelector

from tests.fleet.faults import KINDS, Faults, failing
from tests.fleet.made import folder_of
from tests.fleet.test_run import LABELS, begun_at_once
from tracemine.cli import main
from tracemine.errors import InputError
from tracemine.fleet import dataset as held
from tracemine.fleet.dataset import RUNS, TABLES, Dataset, Generation
from tracemine.fleet.machine import Limits
from tracemine.fleet.places import filesystem
from tracemine.fleet.report import report
from tracemine.fleet.run import on_this_machine, tasks, total
from tracemine.fleet.task import FAILED, refused
from tracemine.fleet.traces import TraceSource, Unreachable, fetched, sources
from tracemine.scan_settings import ScanSettings
from tracemine.timeline import TableSchema

server = pytest.importorskip("moto.server", reason="moto answers as S3")
BUCKET = "perf"


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What stands behind a URI of the server's bucket."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    found = f"?endpoint_override=http%3A%2F%2F{host}%3A{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
    store, _ = filesystem(f"s3://{BUCKET}{found}")
    store.create_dir(BUCKET)
    yield found
    store.delete_dir_contents(BUCKET)  # moto keeps its buckets as long as the process lives
    running.stop()


@contextmanager
def through(query: str, faults: Faults) -> Iterator[str]:
    """What stands behind a URI of the same bucket, reached with faults."""
    found = re.search(r"127\.0\.0\.1%3A(\d+)", query)
    assert found is not None
    with failing("127.0.0.1", int(found[1]), faults) as port:
        yield query.replace(found[0], f"127.0.0.1%3A{port}")


def copied(folder: Path, query: str) -> None:
    store, _ = filesystem(f"s3://{BUCKET}{query}")
    for path in folder.rglob("*"):
        if path.is_file():
            name = f"{BUCKET}/{'nightly/' * (folder.name == 'traces')}{path.relative_to(folder).as_posix()}"
            with store.open_output_stream(name, compression=None) as file:
                file.write(path.read_bytes())


def test_traces_of_a_bucket_make_the_same_rows_as_those_of_a_folder(tmp_path: Path, query: str) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    given = f"s3://{BUCKET}/nightly{query}"
    assert len(list(sources(given))) == 7
    assert len(list(sources(f"s3://{BUCKET}/nightly/llama/*/rank0*{query}"))) == 2
    dataset = f"s3://{BUCKET}/fleet{query}"
    for scanned, known in ((5, 0), (0, 7)):
        made, seen, wrong = tasks([given], dataset, ScanSettings(), LABELS)
        ended = list(on_this_machine(2)(made, Limits()))
        assert [one.message for one in ended if one.status == FAILED] == []
        found = total(ended, seen, wrong)
        assert (found.scanned, found.known) == (scanned, known)
    here, _, _ = tasks([str(tmp_path / "traces")], str(tmp_path / "set"), ScanSettings(), LABELS)
    total(on_this_machine(2)(here, Limits()), 0, ())
    there, local = report(dataset), report(str(tmp_path / "set"))
    assert there.causes == local.causes and there.totals == local.totals


def test_what_is_gone_when_it_is_fetched_is_a_row_that_says_so(tmp_path: Path, query: str) -> None:
    gone = TraceSource(uri=f"s3://{BUCKET}/none.json{query}", names=(), size_bytes=5, modified_ns=None)
    with pytest.raises(Unreachable, match="cannot be fetched"), fetched(gone):
        pass
    copied(folder_of(tmp_path / "traces"), query)
    (task, *_), _, _ = tasks([f"s3://{BUCKET}/nightly{query}"], str(tmp_path / "set"), ScanSettings(), LABELS)
    outcome = refused(task, FAILED, "cannot be fetched")
    assert Dataset(str(tmp_path / "set")).has(task.labels.day, outcome.key)


USER, PASSWORD = "AKIDEXAMPLE", "hush/hush"


def test_who_may_reach_a_store_is_neither_stored_nor_printed(
    tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    copied(tmp_path / "traces" / "llama" / "2026-11-21", query)  # its job is what the bucket holds
    address, dataset = f"s3://{USER}:{quote(PASSWORD, safe='')}@{BUCKET}", tmp_path / "set"
    for given in (f"{address}/nightly{query}", f"{address}/rank*{query}", f"{address}/none{query}"):
        main(["fleet", given, "-o", str(dataset), "-j", "1"])
    main(["fleet", f"{address}/nightly/bad{query}", "-o", f"{address}/fleet{query}", "-j", "1"])
    for place in (str(dataset), f"{address}/fleet{query}", f"{address}/none{query}", f"{address}/none{query}&odd=1"):
        for how in (["report"], ["report", "-f", "json"], ["report", "-f", "html"], ["tickets", "--project", "a"]):
            main(["fleet", how[0], place, *how[1:], *(["--out", str(tmp_path / "out")] if how[0] == "tickets" else [])])
    for table in TABLES:
        for place in (str(dataset), f"s3://{BUCKET}/fleet{query}"):
            print(Dataset(place).read(table).to_pylist())
    print(*(path.read_text() for path in (tmp_path / "out").iterdir()))
    said = "".join(capsys.readouterr())
    assert f"'uri': 's3://{BUCKET}/nightly/llama/2026-11-21/rank0.json.gz'" in said and "no trace lies there" in said
    assert f"{BUCKET}/none" in said and "odd" in said
    for secret in (USER, PASSWORD, quote(PASSWORD, safe=""), "endpoint_override", "127.0.0.1"):
        assert secret not in said


def test_what_a_store_is_reached_with_may_change(tmp_path: Path, query: str) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    for user, scanned, known in (("", 5, 0), (f"{USER}:another@", 0, 7)):
        made, seen, wrong = tasks(
            [f"s3://{user}{BUCKET}/nightly{query}"], str(tmp_path / "set"), ScanSettings(), LABELS
        )
        found = total(on_this_machine(2)(made, Limits()), seen, wrong)
        assert (found.scanned, found.known) == (scanned, known)


def test_a_file_in_a_bucket_is_one_request(tmp_path: Path, query: str) -> None:
    (task, *_), _, _ = tasks([str(folder_of(tmp_path / "traces") / "vit")], str(tmp_path / "set"), ScanSettings())
    seen = list[str]()
    with through(query, Faults(of=lambda method, path: seen.append(f"{method} {path}"))) as counted:
        refused(replace(task, dataset=f"s3://{BUCKET}/fleet{counted}"), FAILED, "took longer than 1 s")
    assert len(seen) == 1 and seen[0].startswith("PUT /perf/fleet/runs/day"), seen


def test_calls_that_begin_at_once_in_a_bucket_lose_no_generation(query: str) -> None:
    dataset = f"s3://{BUCKET}/fleet{query}"
    assert sorted(begun_at_once(dataset, 2, 4)) == list(range(1, 9))
    assert len(Dataset(dataset).about().generations) == 8
    store, _ = filesystem(f"s3://{BUCKET}{query}")
    left = store.get_file_info(FileSelector(f"{BUCKET}/fleet"))
    assert [one.base_name for one in left if one.is_file] == ["dataset.json"]


def test_what_a_process_left_that_is_gone_holds_nobody_up(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, root = filesystem(f"s3://{BUCKET}/fleet{query}")
    with store.open_output_stream(f"{root}/.alone-0") as file:
        file.write(b"")
    monkeypatch.setattr(held, "_PATIENCE_S", 0.0)
    generation = Generation(digest="d", tracemine="0", options={})
    with pytest.raises(InputError, match="other calls"):
        Dataset(f"s3://{BUCKET}/fleet{query}").begin(generation)
    monkeypatch.setattr(held, "_STALE_NS", 0)
    time.sleep(1.1)  # the server counts in seconds
    assert Dataset(f"s3://{BUCKET}/fleet{query}").begin(generation) == 1


def of_place(dataset: str, table: TableSchema) -> list[tuple[Any, ...]]:
    """Rows without what differs where the same trace lies elsewhere."""
    found = Dataset(dataset).read(table).to_pylist()
    other = {"key", "uri", "trace", "modified_ns", "message"}
    return sorted((tuple(value for name, value in row.items() if name not in other) for row in found), key=repr)


def test_a_store_that_fails_every_tenth_time_changes_no_row(tmp_path: Path, query: str) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    faults = Faults(every=10)
    with through(query, faults) as failing_query:
        made, _, wrong = tasks(
            [f"s3://{BUCKET}/nightly{failing_query}"], f"s3://{BUCKET}/fleet{failing_query}", ScanSettings(), LABELS
        )
        found = total(on_this_machine(2)(made, Limits(attempts=5)), 0, wrong)
    assert (found.scanned + found.known, found.refused, found.failed) == (5, 2, 0)
    assert faults.requests >= 50 and set(faults.made) == set(KINDS), faults.made
    here, _, _ = tasks([str(tmp_path / "traces")], str(tmp_path / "set"), ScanSettings(), LABELS)
    total(on_this_machine(2)(here, Limits()), 0, ())
    for table in TABLES:
        assert of_place(f"s3://{BUCKET}/fleet{query}", table) == of_place(str(tmp_path / "set"), table)


@pytest.mark.parametrize("kind", ["error", "reset", "cut off"])
def test_a_trace_that_cannot_be_fetched_is_one_row_and_no_other_suffers(tmp_path: Path, query: str, kind: str) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    bad = "/perf/nightly/vit/2026-11-22/rank0.json.gz"
    faults = Faults(of=lambda method, path: kind if method == "GET" and path.partition("?")[0] == bad else None)
    with through(query, faults) as failing_query:
        given = [f"s3://{BUCKET}/nightly{failing_query}"]
        made, _, wrong = tasks(given, str(tmp_path / "set"), ScanSettings(), LABELS)
        found = total(on_this_machine(2)(made, Limits(attempts=2)), 0, wrong)
        assert (found.scanned, found.refused, found.failed) == (4, 2, 1)
        assert faults.made[kind] >= 2  # another attempt was made
        row = [row for row in Dataset(str(tmp_path / "set")).read(RUNS).to_pylist() if row["status"] == FAILED]
        assert [("cannot be fetched" in one["message"], one["activities"]) for one in row] == [(True, None)]
        faults.of = None  # the store is well again
        made, known, _ = tasks(given, str(tmp_path / "set"), ScanSettings(), LABELS, again=True)
        found = total(on_this_machine(2)(made, Limits()), known, ())
        assert found.scanned == 1 and found.failed == 0
    totals = report(str(tmp_path / "set")).totals
    assert (totals.traces, totals.duplicates, totals.not_scanned, totals.without_activities) == (3, 1, 2, 1)
