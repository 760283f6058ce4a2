"""The scanner gives what the reference reader gives, whatever the layout, the block size and the strings."""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from benchmarks.reading.trace_maker import LAYOUTS, make_trace
from tests.formats import reference_reader
from tracemine.errors import InputError
from tracemine.formats.kineto import decoder
from tracemine.formats.kineto.scan import ABSENT, MISSING, RawTrace
from tracemine.formats.kineto.scanner import scan
from tracemine.formats.kineto.structs import TABLES
from tracemine.formats.kineto.values import InexactTimes, exact_ns, numbers_to_ns
from tracemine.formats.source import FileSource

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
TRACES = sorted(FIXTURES.glob("*.json.gz"))
BLOCKS = (1 << 12, 1 << 14, 1 << 18)


def read(path: Path, **options: Any) -> RawTrace:
    """Read a trace without compiled code, and with it where it is there: both say the same, or raise the same."""
    try:
        raw = read_once(path, by_compiled_code=False, **options)
    except InputError as error:
        if decoder.AVAILABLE:
            with pytest.raises(InputError, match=re.escape(str(error))):
                read_once(path, **options)
        raise
    if decoder.AVAILABLE:
        assert told(read_once(path, **options)) == told(raw)
    return raw


def read_once(path: Path, **options: Any) -> RawTrace:
    with FileSource(path) as source:
        return scan(source, **options)


def told(raw: RawTrace) -> list[Any]:
    """All that a scan tells; ids of strings are replaced by the strings, whatever their order."""
    rest = [getattr(raw, field.name) for field in structs.fields(raw) if field.name not in (*TABLES, "strings")]
    return [reference_reader.rows_of(raw), *rest]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def assert_as_reference(path: Path, **options: Any) -> RawTrace:
    raw = read(path, **options)
    expected = reference_reader.read(path)
    for name, rows in reference_reader.rows_of(raw).items():
        assert len(rows) == len(expected[name]), name
        for got, wanted in zip(rows, expected[name], strict=True):
            assert got == wanted
    return raw


def kernel(number: int, name: str = '"k"', extra: str = "", ts: str | None = None) -> str:
    """One event in libkineto's layout; `name` and `extra` are JSON text."""
    ts = ts or f"{1000 + number}.{number % 1000:03d}"
    return (
        f'\n  {{\n    "ph": "X", "cat": "kernel", "name": {name}, "pid": 0, "tid": 7,\n    "ts": {ts}, "dur": 1.250,'
        f'\n    "args": {{\n      "External id": {number}, "correlation": {number}{extra}\n    }}\n  }}'
    )


def document(
    events: list[str], head: str = '{\n  "schemaVersion": 1,', tail: str = '\n  ],\n  "traceName": "x"\n}'
) -> str:
    return f'{head}\n  "traceEvents": [' + ",".join(events) + tail


def test_the_tables_have_the_documented_columns_all_of_one_length_and_type() -> None:
    raw = read(FIXTURES / "convnet_train.json.gz")
    for name, table in TABLES.items():
        columns = getattr(raw, name)
        assert sorted(columns) == sorted([*table.columns, *(a.column for a in table.arguments)])
        assert len({len(values) for values in columns.values()}) == 1
        for column, values in columns.items():
            text = column == "name" or any(a.column == column and a.kind in ("raw", "text") for a in table.arguments)
            kind = {"category": "u1", "occupancy": "f8"}.get(column, "i4" if text else "i8")
            assert values.dtype == np.dtype(kind), column


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_every_recording_reads_as_the_reference_reads_it(path: Path, block_bytes: int) -> None:
    raw = assert_as_reference(path, block_bytes=block_bytes)
    assert not raw.truncated
    assert not raw.dropped
    assert not raw.repaired


def test_every_public_trace_reads_as_the_reference_reads_it() -> None:
    folder = os.environ.get("TRACEMINE_COMPAT_TRACES")
    if not folder:
        pytest.skip("TRACEMINE_COMPAT_TRACES names no folder of public traces")
    paths = [*Path(folder).glob("kineto/*.json*"), *Path(folder).glob("h200/*/[ecn]*.json.gz")]
    paths = sorted(path for path in paths if path.name != "et.json.gz")
    assert paths
    for path in paths:
        # The large ones differ from the others in size alone, and the reference takes seconds for each.
        if path.stat().st_size < 500_000 or "ns_resolution" in path.name:
            raw = assert_as_reference(path, block_bytes=1 << 16)
            assert not raw.dropped, path


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_as_the_reference_reads_it(tmp_path: Path, layout: str, block_bytes: int) -> None:
    path = tmp_path / "trace.json"
    count = make_trace(FIXTURES / "chain.json.gz", path, megabytes=0.1, layout=layout)
    raw = assert_as_reference(path, block_bytes=block_bytes)
    assert raw.events.total() == count


def test_every_event_is_counted_once_by_its_category(tmp_path: Path) -> None:
    path = FIXTURES / "convnet_train.json.gz"
    raw = read(path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    categories = [e.get("cat", "metadata" if e["ph"] == "M" else "instant") for e in events]
    assert raw.events == {category: categories.count(category) for category in set(categories)}
    assert raw.events.total() == len(events)
    assert raw.skipped["ac2g"] == categories.count("ac2g")
    assert raw.skipped["kernel"] == 0


EVIL = [
    *('}, {"ph": "X", "cat": "kernel"', "a\\", 'b\\\\"', "{[{[", "]}]}", '},\n  {\n    "ph"', '"', '\\"', "é中"),
    *('x},{"ph"', "\t},\n", '"traceEvents": [', '],\n  "traceName"', "]}", "\\u0041", "\x00"),
]


def evil_text(seed: int, count: int) -> list[str]:
    random_ = random.Random(seed)
    return [json.dumps("".join(random_.choices(EVIL, k=3)), ensure_ascii=seed % 2 == 0) for _ in range(count)]


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("where", ["names", "arguments", "header"])
def test_structure_inside_strings_is_not_taken_for_structure(tmp_path: Path, where: str, block_bytes: int) -> None:
    texts = evil_text(3, 300)
    events = [
        kernel(i, name=text if where == "names" else '"k"', extra=f', "note": {text}' if where == "arguments" else "")
        for i, text in enumerate(texts)
    ]
    head = '{\n  "note": "the \\"traceEvents\\": [ key", "more": {"traceEvents": [1]},' if where == "header" else "{"
    path = written(tmp_path / "trace.json", document(events, head=head if where == "header" else '{\n  "a": 1,'))
    raw = assert_as_reference(path, block_bytes=block_bytes)
    assert len(raw.gpu["name"]) == 300
    assert not raw.repaired


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("layout", ["separators", "indent", "compact"])
def test_structure_inside_strings_does_not_matter_in_other_layouts(
    tmp_path: Path, layout: str, block_bytes: int
) -> None:
    events = json.loads("[" + ",".join(kernel(i, name=text) for i, text in enumerate(evil_text(4, 300))) + "]")
    options: dict[str, dict[str, Any]] = {
        "separators": {"separators": (",", ":")},
        "indent": {"indent": 2},
        "compact": {},
    }
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "z": [1]}, **options[layout])
    raw = assert_as_reference(written(tmp_path / "trace.json", text), block_bytes=block_bytes)
    assert raw.header == {"schemaVersion": 1, "z": [1]}


LOOKALIKES = ', "sub": [' + ",".join(kernel(9_000_000 + i, '"fake"') for i in range(3)) + "]"


@pytest.mark.parametrize("block_bytes", [1 << 11, *BLOCKS])
def test_an_object_in_the_arguments_that_looks_like_an_event_is_none(tmp_path: Path, block_bytes: int) -> None:
    events = [kernel(i, extra=LOOKALIKES if i % 7 == 0 else "") for i in range(200)]
    raw = assert_as_reference(written(tmp_path / "trace.json", document(events)), block_bytes=block_bytes)
    assert not raw.dropped


def test_a_top_level_list_is_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json", "[" + ",".join(kernel(i) for i in range(50)) + "\n]")
    raw = assert_as_reference(path, block_bytes=1 << 12)
    assert (raw.header, raw.truncated) == ({}, False)


def test_the_exporter_before_kineto_names_processes_instead_of_categories(tmp_path: Path) -> None:
    events = [
        {"name": "aten::add", "ph": "X", "ts": 1.5, "dur": 2, "tid": 1, "pid": "CPU functions", "args": {}},
        {"name": "add", "ph": "s", "ts": 1.5, "tid": 1, "pid": "CPU functions", "id": 1, "cat": "cpu_to_cuda"},
        {"name": "add_kernel", "ph": "X", "ts": 9, "dur": 2, "tid": 0, "pid": "CUDA functions", "args": {}},
    ]
    raw = read(written(tmp_path / "trace.json", json.dumps(events)))
    assert [raw.strings[i] for i in raw.ops["name"]] == ["aten::add"]
    assert [raw.strings[i] for i in raw.gpu["name"]] == ["add_kernel"]
    assert raw.skipped == {"cpu_to_cuda": 1}


def test_keys_stand_before_and_behind_the_events(tmp_path: Path) -> None:
    text = document(
        [kernel(1)], head='{"a": {"b": [1, "]"]},', tail='], "c": "\\"x", "d": null, "baseTimeNanoseconds": 5}'
    )
    raw = read(written(tmp_path / "trace.json", text))
    assert raw.header == {"a": {"b": [1, "]"]}, "c": '"x', "d": None, "baseTimeNanoseconds": 5}
    assert raw.gpu["start_ns"].tolist() == [1_001_001 + 5]


def test_a_byte_order_mark_blank_lines_and_crlf_are_no_obstacle(tmp_path: Path) -> None:
    text = document([kernel(i) for i in range(100)])
    path = written(tmp_path / "trace.json", b"\xef\xbb\xbf\r\n\r\n" + text.replace("\n", "\r\n").encode())
    assert len(read(path, block_bytes=1 << 12).gpu["name"]) == 100


def test_categories_of_torch_1_8_are_read_by_their_old_names(tmp_path: Path) -> None:
    args = {"Input dims": [[2, 3]], "external id": 4, "correlation": 5}
    event = {"ph": "X", "name": "n", "pid": "12", "tid": "stream 7", "ts": 1623142623460230, "dur": 3, "args": args}
    names = ["Operator", "Runtime", "Kernel", "Memcpy", "Memset"]
    path = written(
        tmp_path / "t.json", json.dumps({"schemaVersion": 1, "traceEvents": [event | {"cat": c} for c in names]})
    )
    raw = read(path)
    assert raw.gpu["category"].tolist() == [0, 1, 2]
    assert raw.gpu["stream"].tolist() == [7, 7, 7]
    assert raw.gpu["external_id"].tolist() == [4, 4, 4]
    assert raw.gpu["start_ns"].tolist() == [1623142623460230000] * 3
    assert raw.ops["pid"].tolist() == [12]
    assert raw.strings[raw.ops["input_dims"][0]] == "[[2, 3]]"
    assert raw.time_resolution_ns == 1000
    assert raw.events == dict.fromkeys(names, 1)


def test_what_is_not_recorded_is_missing_not_zero(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 2, "ts": 0, "dur": 1}
    raw = read(written(tmp_path / "t.json", json.dumps([event])))
    assert {raw.ops[c][0] for c in ("external_id", "sequence_number", "event_index")} == {MISSING}
    assert {raw.ops[c][0] for c in ("input_dims", "call_stack", "kernel_backend")} == {ABSENT}


def test_an_argument_may_come_late_in_the_file_or_at_times(tmp_path: Path) -> None:
    events = [kernel(i, extra=', "graph id": 7' if i % 3 == 0 else "") for i in range(30)]
    raw = read(written(tmp_path / "t.json", document(events)), block_bytes=1 << 12)
    assert raw.gpu["graph_id"].tolist() == [7 if i % 3 == 0 else MISSING for i in range(30)]


def test_a_category_met_for_the_first_time_costs_nothing_and_is_counted(tmp_path: Path) -> None:
    events = [kernel(i).replace('"kernel"', f'"strange {i % 2}"') if i % 3 else kernel(i) for i in range(300)]
    raw = read(written(tmp_path / "t.json", document(events)), block_bytes=1 << 12)
    assert raw.events == {"kernel": 100, "strange 0": 100, "strange 1": 100}
    assert raw.skipped == {"strange 0": 100, "strange 1": 100}


def test_of_two_metadata_events_the_last_holds(tmp_path: Path) -> None:
    label = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0}
    events = [label | {"args": {"labels": text}} for text in ("CPU", "GPU 0")]
    raw = read(written(tmp_path / "t.json", json.dumps({"schemaVersion": 1, "traceEvents": events})))
    assert raw.metadata == [("process_labels", 0, 0, {"labels": "GPU 0"})]


@settings(max_examples=300)
@given(us=st.integers(-(2**43) + 1, 2**43 - 1), ns=st.integers(0, 999))
def test_three_decimals_below_2_to_the_43_are_exact(us: int, ns: int) -> None:
    text = f"{us}.{ns:03d}"
    assert numbers_to_ns([float(text)]).tolist() == [int(Decimal(text) * 1000)] == [exact_ns(text.encode())]


def test_the_times_that_float64_makes_hardest_are_exact() -> None:
    # Just above 2⁴², where the literal's own error nears half a nanosecond and a product would be rounded to 0.5.
    texts = [f"{us}.{ns:03d}" for us in (2**42, 2**42 + 1, 4_503_599_627_369, 2**43 - 1) for ns in range(1000)]
    assert numbers_to_ns([float(t) for t in texts]).tolist() == [int(Decimal(t) * 1000) for t in texts]


@pytest.mark.parametrize("block_bytes", [1 << 12, 1 << 18])
@pytest.mark.parametrize("first", ["12.500", "1712195495519761.132"])
def test_microseconds_since_1970_with_decimals_are_exact(tmp_path: Path, first: str, block_bytes: int) -> None:
    rest = [f"1712195495{i:06d}.{i % 1000:03d}" for i in range(200)]
    events = [kernel(i, ts=ts) for i, ts in enumerate([first, *rest])]
    raw = assert_as_reference(written(tmp_path / "t.json", document(events)), block_bytes=block_bytes)
    assert raw.time_resolution_ns == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.just(1.5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(
    st.sampled_from(["correlation", "External id", "stream", "device", "grid", "Input Dims", "bytes", "odd"]),
    json_values,
    max_size=5,
)
events = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "s", "i", "B"]),
        "cat": st.sampled_from(["kernel", "cuda_runtime", "cpu_op", "python_function", "ac2g", "Memcpy", "other"]),
        "name": st.text(max_size=12),
        "ts": st.integers(0, 10**12).map(lambda n: n / 1000) | st.integers(0, 2 * 10**15),
        "dur": st.integers(-5, 10**6),
    },
    optional={"pid": st.integers(0, 9) | st.just("Spans"), "tid": st.integers(0, 9), "args": arguments},
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(events, min_size=1, max_size=12), indent=st.sampled_from([None, 1, 2, 4]), ascii_=st.booleans())
def test_any_valid_document_keeps_times_names_and_counts(
    tmp_path: Path, events: list[dict[str, object]], indent: int | None, ascii_: bool
) -> None:
    text = json.dumps({"traceEvents": events, "schemaVersion": 1}, indent=indent, ensure_ascii=ascii_)
    path = written(tmp_path / "t.json", text.encode("utf-8", "replace"))
    raw = read(path, block_bytes=256)
    rows, expected = reference_reader.rows_of(raw), reference_reader.read(path)
    for name in expected:
        for column in ("start_ns", "dur_ns", "name"):
            assert [row[column] for row in rows[name]] == [row[column] for row in expected[name]]
    assert raw.events.total() == len(events)
    assert not raw.dropped


def test_the_collector_runs_again_after_a_scan(tmp_path: Path) -> None:
    assert gc.isenabled()
    read(written(tmp_path / "t.json", document([kernel(1)])))
    assert gc.isenabled()


def test_progress_is_told_in_bytes_of_the_file_and_ends_with_all_of_them() -> None:
    path = FIXTURES / "convnet_train.json.gz"
    told: list[tuple[int, int]] = []
    with FileSource(path) as source:
        scan(source, progress=lambda done, total: told.append((done, total)), block_bytes=1 << 14)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_whole_microseconds_since_1970_are_exact_without_being_read_as_text() -> None:
    microseconds: list[int | float] = [1689180448593393, 1689180448593396, 4]
    assert numbers_to_ns(microseconds).tolist() == [us * 1000 for us in microseconds]


@pytest.mark.parametrize("times", [[1689180448593393, 2.5], [1 << 62], [1 << 70]])
def test_times_that_a_float_may_not_hold_are_left_to_the_exact_reader(times: list[int | float]) -> None:
    with pytest.raises(InexactTimes):
        numbers_to_ns(times)
