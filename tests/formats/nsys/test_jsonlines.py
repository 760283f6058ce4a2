"""The JSON lines of nsys until 2025.5: the same recording is the same timeline, as far as they say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.formats.nsys.make import Export, timeline
from tests.formats.nsys.test_schemas import recording, same
from tracemine.errors import InputError
from tracemine.formats import open_trace

NOT_IN_JSON = ("TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME")
ON_DEVICE = {"deviceId": int, "contextId": str, "streamId": str, "correlationId": int, "globalPid": str}
PARTS = {
    "KERNEL": ("kernel", 3, 79),
    "MEMCPY": ("memcpy", 1, 80),
    "MEMSET": ("memset", 2, 80),
    "SYNCHRONIZATION": ("sync", 5, 106),
}
SYNC_TYPE = {4: "SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE"}


def events(export: Export) -> Iterator[dict[str, Any]]:
    """What nsys 2025.3 makes of the rows: numbers of 64 bits as texts."""
    yield {"Type": 47, "TraceProcessEvent": {"startNs": "1", "endNs": "1", "eventClass": 10, "name": "1"}}
    for row in export.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]:
        said = {"startNs": str(row["start"]), "endNs": str(row["end"]), "correlationId": row["correlationId"]}
        said |= {"eventClass": row["eventClass"], "name": str(row["nameId"]), "globalTid": str(row["globalTid"])}
        yield {"Type": 48, "TraceProcessEvent": said}
    for row in export.rows["NVTX_EVENTS"]:
        said = {"Type": row["eventType"], "Timestamp": str(row["start"]), "Text": row["text"], "NsTime": True}
        said |= {"GlobalTid": str(row["globalTid"]), "DomainId": str(row["domainId"])}
        said |= {} if row["end"] is None else {"EndTimestamp": str(row["end"])}
        yield {"Type": row["eventType"], "NvtxEvent": said}
    for table, (part, event_class, kind) in PARTS.items():
        for row in export.rows.get(f"CUPTI_ACTIVITY_KIND_{table}", ()):
            said = {"startNs": str(row["start"]), "endNs": str(row["end"]), "eventClass": event_class}
            said |= {name: as_type(row[name]) for name, as_type in ON_DEVICE.items()}
            own = {key: value for key, value in row.items() if key not in (*ON_DEVICE, "start", "end")}
            own |= {key: str(own[key]) for key in ("demangledName", "shortName", "copyKind") if key in own}
            own |= {"sizebytes": str(own.pop("bytes"))} if "bytes" in own else {}
            own |= {"syncType": SYNC_TYPE[own["syncType"]]} if "syncType" in own else {}
            yield {"Type": kind, "CudaEvent": {**said, part: own}}


def strings(export: Export) -> dict[str, Any]:
    """All texts in one line; a text's number is its place."""
    return {"data": ["", *export.texts], "files": []}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def plain(tmp_path: Path) -> tuple[Export, Any]:
    export = recording()
    for table in NOT_IN_JSON:
        export.rows.pop(table)
    return export, timeline(tmp_path, export)


@pytest.mark.parametrize("texts_first", [True, False])
def test_it_is_the_timeline_of_the_database_without_gpus_and_without_the_time_of_day(
    tmp_path: Path, texts_first: bool
) -> None:
    export, database = plain(tmp_path)
    lines = list(events(export))
    lines.insert(0 if texts_first else len(lines), strings(export))
    lines.append({"data": [{"nameIdx": "1", "priority": "10", "globalTid": "7"}]})
    found = open_trace(written(tmp_path / "t.json", lines))
    assert same(found, database)
    assert found.activities.num_rows == 4
    assert (found.meta.format, found.meta.versions) == ("nsys", {})


def test_separate_strings_and_gzip_make_no_difference(tmp_path: Path) -> None:
    export, database = plain(tmp_path)
    texts = [{"type": "String", "id": str(number), "value": text} for text, number in export.texts.items()]
    path = written(tmp_path / "t.json", [*events(export), *texts])
    assert same(open_trace(path), database)
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert same(open_trace(packed), database)


def test_texts_longer_than_what_is_looked_at_are_recognised(tmp_path: Path) -> None:
    export, _ = plain(tmp_path)
    export.text("x" * (1 << 17))
    database = timeline(tmp_path, export)
    assert same(open_trace(written(tmp_path / "t.json", [strings(export), *events(export)])), database)


def test_other_events_and_times_in_other_units_are_counted_and_left_out(tmp_path: Path) -> None:
    export, database = plain(tmp_path)
    odd = [
        {"Type": 81, "CudaEvent": {"startNs": "1", "endNs": "2", "graphExec": {}}},
        {"Type": 59, "NvtxEvent": {"Type": 59, "Timestamp": "1", "EndTimestamp": "2", "Text": "step 9"}},
        {"Type": 1, "CommEvent": {"Commname": "1", "WorkDir": "/home/someone"}},
    ]
    found = open_trace(written(tmp_path / "t.json", [*events(export), *odd, strings(export)]))
    assert found.meta.ingest.dropped == {
        "NVTX event whose time is not in nanoseconds": 1,
        "event of another kind, in JSON": 1,
    }
    assert found.activities.equals(database.activities)
    assert found.ops.equals(database.ops)


def test_what_is_no_number_is_counted(tmp_path: Path) -> None:
    export, _ = plain(tmp_path)
    lines = [*events(export), strings(export)]
    lines[-2]["CudaEvent"]["sync"]["syncType"] = "SOMETHING_NEW"
    found = open_trace(written(tmp_path / "t.json", lines))
    assert found.meta.ingest.repaired == {"value that is no integer, read as not recorded": 1}
    assert "Unknown Sync" in found.api["name"].to_pylist()


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ('{"Type":59,"NvtxEvent":{"Type"', r"t.json:2: is no JSON, or cut short"),
        ('{"Type":59,"NvtxEvent":[]}', r"t.json:2: is no JSON, or cut short"),
    ],
)
def test_damage_is_told_by_its_line(tmp_path: Path, end: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"Type":47,"TraceProcessEvent":{"eventClass":0,"startNs":"1","endNs":"2"}}\n' + end)
    with pytest.raises(InputError, match=message):
        open_trace(path)


def test_lines_without_an_event_of_it_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"Type":1,"CommEvent":{}}\n')
    with pytest.raises(InputError, match="no event of Nsight Systems"):
        open_trace(path)


def test_other_json_is_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"data":["a","b"]}\n{"data":[]}\n')
    with pytest.raises(InputError, match=r"no trace|not a trace|no list of traceEvents"):
        open_trace(path)


def test_a_gzip_file_that_is_cut_off_between_lines_says_so(tmp_path: Path) -> None:
    export, _ = plain(tmp_path)
    packed = gzip.compress(written(tmp_path / "t.json", [*events(export), strings(export)]).read_bytes())
    (tmp_path / "t.json.gz").write_bytes(packed[:-8])
    said = "The gzip file is cut off or damaged: what could be inflated was read."
    assert said in open_trace(tmp_path / "t.json.gz").meta.ingest.warnings
