"""One call opens a trace, plain or gzipped and under any name, or a timeline that was written before."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.kineto_file import call, kernel, op, timeline
from tracemine.errors import InputError, TimelineError
from tracemine.formats import open_trace
from tracemine.formats.format import Format
from tracemine.timeline import Meta, Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"


def test_a_gzipped_trace_under_a_plain_name_is_the_same_timeline(tmp_path: Path) -> None:
    plain = timeline(tmp_path, op("aten::mul", 0, 9), call("cudaLaunchKernel", 1, 2, 1), kernel("k", 3, 4, 1))
    (tmp_path / "packed.json").write_bytes(gzip.compress((tmp_path / "trace.json").read_bytes()))
    packed = open_trace(tmp_path / "packed.json")
    assert packed.activities.to_pylist() == plain.activities.to_pylist()
    assert packed.meta.source == "packed.json"


def test_a_timeline_directory_is_read_back(tmp_path: Path) -> None:
    ingested = open_trace(FIXTURES / "convnet_train.json.gz")
    ingested.write(tmp_path / "out")
    again = open_trace(tmp_path / "out")
    assert again.meta == ingested.meta
    for name in ("activities", "ops", "api", "steps", "stacks"):
        assert getattr(again, name).to_pylist() == getattr(ingested, name).to_pylist()


def test_a_folder_that_is_no_timeline_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder, and no timeline lies in it"):
        open_trace(tmp_path)


def test_a_timeline_directory_that_misses_a_table_is_refused(tmp_path: Path) -> None:
    timeline(tmp_path, kernel("k", 0, 1, 1)).write(tmp_path / "out")
    (tmp_path / "out" / "ops.parquet").unlink()
    with pytest.raises(TimelineError, match="not a readable timeline"):
        open_trace(tmp_path / "out")


def test_progress_is_told_and_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = shutil.copy(FIXTURES / "decoder_prefill.json.gz", tmp_path)
    told: list[tuple[int, int]] = []
    open_trace(path, progress=lambda done_bytes, total_bytes: told.append((done_bytes, total_bytes)))
    size = Path(path).stat().st_size
    assert told[-1] == (size, size)
    assert told == sorted(told)


def test_a_format_that_is_handed_over_is_asked_before_those_that_are_known(tmp_path: Path) -> None:
    path = shutil.copy(FIXTURES / "decoder_prefill.json.gz", tmp_path)
    empty = Timeline(meta=Meta(tracemine_version="0", source="none", format="none"))
    assert open_trace(path, formats=[Format("none", lambda head: head[:1] == b"{", lambda *_: empty)]) is empty
    assert open_trace(path, formats=[Format("none", lambda head: False, lambda *_: empty)]).meta.format == "kineto"


def test_opening_a_trace_imports_neither_pandas_nor_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tracemine.formats import open_trace\n"
        f"open_trace({str(FIXTURES / 'chain.json.gz')!r}).write(Path({str(tmp_path / 'out')!r}))\n"
        f"open_trace({str(tmp_path / 'out')!r})\n"
        "assert not {'pandas', 'torch', 'triton'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


RECORDINGS = sorted(FIXTURES.glob("*.json.gz"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_in_our_own_recordings_nesting_and_the_profilers_ids_name_the_same_operators(path: Path) -> None:
    t = open_trace(path)
    of_op = t.ops["external_id"].to_pylist()
    owned = [row for row in t.activities.to_pylist() if row["op_row"] is not None]
    assert [of_op[row["op_row"]] for row in owned] == [row["external_id"] for row in owned]


@pytest.mark.parametrize("event", [{"cat": "quantum_op"}, {}])
def test_a_trace_of_which_nothing_is_known_is_refused_and_one_of_the_host_alone_is_read(
    tmp_path: Path, event: dict[str, str]
) -> None:
    path, named = tmp_path / "t.json", {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}
    other = {"ph": "X", "name": "entangle", "ts": 1, "dur": 2, "pid": 1, "tid": 1} | event
    path.write_text(json.dumps({"traceEvents": [named, other]}))
    with pytest.raises(
        InputError, match=rf"a writer that tracemine does not know.*{event.get('cat', 'phase X')} \(1\)"
    ):
        open_trace(path)
    path.write_text(json.dumps({"traceEvents": [named, other, other | {"cat": "cpu_op", "name": "aten::mul"}]}))
    assert open_trace(path).ops.num_rows == 1
