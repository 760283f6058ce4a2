"""Traces and data sets in S3, by a server of this machine that answers as S3 does, with faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.made import folder_of
from tests.fleet.test_run import LABELS
from tracemine.fleet.dataset import Dataset
from tracemine.fleet.machine import Limits
from tracemine.fleet.report import report
from tracemine.fleet.run import on_this_machine, tasks, total
from tracemine.fleet.task import FAILED, Settings, refused
from tracemine.fleet.traces import Source, Unreachable, fetched, filesystem, sources

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
    running.stop()


def copied(folder: Path, query: str) -> None:
    store, _ = filesystem(f"s3://{BUCKET}{query}")
    for path in folder.rglob("*"):
        if path.is_file():
            name = f"{BUCKET}/nightly/{path.relative_to(folder).as_posix()}"
            with store.open_output_stream(name, compression=None) as file:
                file.write(path.read_bytes())


def test_traces_of_a_bucket_make_the_same_rows_as_those_of_a_folder(tmp_path: Path, query: str) -> None:
    copied(folder_of(tmp_path / "traces"), query)
    given = f"s3://{BUCKET}/nightly{query}"
    assert len(list(sources(given))) == 7
    assert len(list(sources(f"s3://{BUCKET}/nightly/llama/*/rank0*{query}"))) == 2
    dataset = f"s3://{BUCKET}/fleet{query}"
    for scanned, known in ((5, 0), (0, 7)):
        made, seen, wrong = tasks([given], dataset, Settings(), LABELS)
        ended = list(on_this_machine(2)(made, Limits()))
        assert [one.message for one in ended if one.status == FAILED] == []
        found = total(ended, seen, wrong)
        assert (found.scanned, found.known) == (scanned, known)
    here, _, _ = tasks([str(tmp_path / "traces")], str(tmp_path / "set"), Settings(), LABELS)
    total(on_this_machine(2)(here, Limits()), 0, ())
    there, local = report(dataset), report(str(tmp_path / "set"))
    assert there.causes == local.causes and there.totals == local.totals


def test_what_is_gone_when_it_is_fetched_is_a_row_that_says_so(tmp_path: Path, query: str) -> None:
    gone = Source(uri=f"s3://{BUCKET}/none.json{query}", names=(), size_bytes=5, modified_ns=None)
    with pytest.raises(Unreachable, match="cannot be fetched"), fetched(gone):
        pass
    copied(folder_of(tmp_path / "traces"), query)
    (task, *_), _, _ = tasks([f"s3://{BUCKET}/nightly{query}"], str(tmp_path / "set"), Settings(), LABELS)
    outcome = refused(task, FAILED, "cannot be fetched")
    assert Dataset(str(tmp_path / "set")).has(task.labels.day, outcome.key)
