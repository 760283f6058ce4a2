"""JAX's JSON and its folders: the same recording without the modules, and the .xplane.pb goes before it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.formats.xla.make import Event, Line, small_planes, write_json, write_xplane
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.discover import traces

ALONE = "A trace.json does not hold the compiled modules"


def test_the_json_alone_holds_the_same_activities_calls_and_steps(tmp_path: Path) -> None:
    planes = small_planes(devices=2)
    whole = open_trace(write_xplane(tmp_path / "a.xplane.pb", planes))
    json = open_trace(write_json(tmp_path / "b.trace.json.gz", planes))
    shifted = [row | {"start_ns": row["start_ns"] - whole.meta.base_ns} for row in whole.activities.to_pylist()]
    assert json.activities.to_pylist() == shifted
    assert json.api["name"].equals(whole.api["name"])
    assert json.steps["number"].to_pylist() == [0, 1, 2]
    assert json.stacks.to_pylist() == whole.stacks.to_pylist()
    assert [text for text in json.meta.ingest.warnings if text.startswith(ALONE)]
    assert json.meta.devices[0].name is None


def test_the_xplane_beside_it_is_read_and_said(tmp_path: Path) -> None:
    planes = small_planes()
    path = write_json(tmp_path / "host.trace.json.gz", planes)
    write_xplane(tmp_path / "other.xplane.pb", planes)
    assert open_trace(path).meta.source == "host.trace.json.gz"  # another host's says nothing of this one
    write_xplane(tmp_path / "host.xplane.pb", planes)
    timeline = open_trace(path)
    assert timeline.meta.source == "host.xplane.pb"
    says = "host.xplane.pb was read, which lies in the folder of host.trace.json.gz and says more."
    assert timeline.meta.ingest.warnings[0] == says


def test_a_folder_as_jax_writes_it(tmp_path: Path) -> None:
    run = tmp_path / "log" / "plugins" / "profile" / "2026_05_01_12_00_00"
    run.mkdir(parents=True)
    path = write_xplane(run / "host.xplane.pb", small_planes())
    write_json(run / "host.trace.json.gz", small_planes())
    for folder in (tmp_path / "log", run):
        assert open_trace(folder).meta.source == "host.xplane.pb"
        assert list(traces(str(folder))) == [path]
    other = write_xplane(run / "other.xplane.pb.gz", small_planes(), packed=True)
    assert list(traces(str(tmp_path))) == [path, other]
    with pytest.raises(InputError, match="2 profiles of XLA lie") as several:
        open_trace(tmp_path / "log")
    assert several.value.hint == f"name one: {other}"


def test_one_that_ends_within_an_event_is_truncated(tmp_path: Path) -> None:

    path = write_json(tmp_path / "host.trace.json.gz", small_planes())
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(text[: text.rindex(b'"ts"') + 6])
    timeline = open_trace(path)
    assert timeline.meta.ingest.truncated
    assert timeline.activities.num_rows == 9


@pytest.mark.parametrize(
    ("was", "becomes"), [(b'"ph":"X"', b'"ph":7'), (b'"ts":', b'"ts":"'), (b'"ts":1', b'"ts":1e300')]
)
def test_what_is_no_such_json_is_refused(tmp_path: Path, was: bytes, becomes: bytes) -> None:

    path = write_json(tmp_path / "host.trace.json.gz", small_planes())
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(text.replace(was, becomes, 1))
    with pytest.raises(InputError):
        open_trace(path)


def test_lines_that_repeat_streams_are_not_counted(tmp_path: Path) -> None:
    planes = small_planes()
    planes[1].lines.append(Line("XLA Ops", [Event("gemm_fusion_dot", 1_160_000, 30_000)], 99))
    for timeline in (
        open_trace(write_xplane(tmp_path / "x.xplane.pb", planes)),
        open_trace(write_json(tmp_path / "j.trace.json.gz", planes)),
    ):
        assert timeline.activities.num_rows == 9
