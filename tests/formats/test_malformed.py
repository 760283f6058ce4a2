"""What profilers, full disks and editors do to a trace file, and what becomes of it: one test for each defect.

Every file is untrusted: whatever is in it, the answer is a trace with its losses counted, or one line of error.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_scanner import FIXTURES, document, kernel, read, read_once, written
from tracemine.errors import InputError
from tracemine.formats import open_trace, source
from tracemine.formats.kineto import repair, scanner
from tracemine.formats.kineto.header import rank
from tracemine.formats.kineto.repair import read_events
from tracemine.formats.kineto.scan import MISSING, RawTrace
from tracemine.formats.kineto.scanner import scan

_GZIP_DAMAGED = "The gzip file is cut off or damaged: what could be inflated was read, what came after is not known."
BLOCK = 1 << 12  # small, so that every defect meets a block's edge somewhere


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., RawTrace]:
    """Scan a text written to a file."""
    return lambda text, block_bytes=BLOCK: read(written(tmp_path / "t.json", text), block_bytes=block_bytes)


def names(raw: RawTrace) -> list[str]:
    return [raw.strings[i] for i in raw.gpu["name"]]


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_trace(path)
    return str(caught.value).replace(str(path), "FILE")


def with_bad(events: int, bad: str, every: int = 10) -> str:
    return document([bad if i % every == 5 else kernel(i) for i in range(events)])


# -- one test for each defect known from real files


def test_truncated_every_complete_event_before_the_cut_is_kept(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(i) for i in range(100)])[:-100])
    assert len(raw.gpu["name"]) == 99
    assert raw.truncated
    assert raw.dropped == {"cut off by the end of the file": 1}
    assert raw.warnings == ("The file is cut off: the events before the cut were read, what came after is not known.",)


def test_truncated_in_the_trailer_no_event_is_lost(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(i) for i in range(100)], tail='\n  ],\n  "traceName": "x'))
    assert (len(raw.gpu["name"]), raw.truncated) == (100, True)
    assert raw.dropped == {"header entry that is not valid JSON": 1}


def test_truncated_before_the_first_complete_event_it_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", document([kernel(1)])[:120])
    assert refusal(path) == (
        "FILE: is cut off before its first complete event\n"
        "  hint: record the trace again, and let the profiler finish writing"
    )


def test_unescaped_quotes_in_names_cost_only_their_events(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(400, kernel(9999, name='"k {"device": "cpu"} x"')))
    assert len(raw.gpu["name"]) == 360
    assert raw.dropped == {"not valid JSON": 40}
    assert not raw.truncated


def test_an_odd_unescaped_quote_costs_only_its_event(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(400, kernel(9999, name='"k "x"')))
    assert len(raw.gpu["name"]) == 360
    assert raw.dropped == {"not valid JSON": 40}


def test_unescaped_quotes_in_argument_strings_cost_only_their_events(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(400, kernel(9999, extra=', "Concrete Inputs": ["", "a "b" c"]')))
    assert len(raw.gpu["name"]) == 360
    assert raw.dropped == {"not valid JSON": 40}


def test_lone_backslashes_are_doubled(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(40, kernel(9999, name=r'"C:\Users\me\x.py(3): f"')))
    assert names(raw).count(r"C:\Users\me\x.py(3): f") == 4
    assert raw.repaired == {"lone backslash doubled": 4}
    assert not raw.dropped


def test_control_characters_in_strings_are_kept(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(40, kernel(9999, name='"a\tb\nc\x01"')))
    assert names(raw).count("a\tb\nc\x01") == 4
    assert raw.repaired == {"control character escaped": 4}
    assert not raw.dropped


def test_invalid_utf8_is_replaced(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(40, kernel(9999, name='"a?b"')).encode().replace(b"a?b", b"a\xff\xfeb"))
    assert names(raw).count("a��b") == 4
    assert raw.repaired == {"invalid UTF-8 replaced": 4}
    assert not raw.dropped


def test_a_lone_surrogate_is_replaced(trace: Callable[..., RawTrace]) -> None:
    raw = trace(with_bad(40, kernel(9999, name=r'"a\ud800b 😀"')))
    assert names(raw).count("a�b 😀") == 4
    assert raw.repaired == {"lone surrogate replaced": 4}
    assert not raw.dropped


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "inf", "-inf", "nan", "-nan", "N/A"])
def test_bare_words_for_no_number_are_not_recorded(trace: Callable[..., RawTrace], word: str) -> None:
    raw = trace(with_bad(40, kernel(9999, extra=f', "est. achieved occupancy %": {word}, "bytes": 5, "s": "nan, inf"')))
    assert len(raw.gpu["name"]) == 40
    assert [math.isnan(v) for v in raw.gpu["occupancy"]] == [True] * 40
    assert raw.gpu["bytes"].tolist().count(5) == 4
    assert raw.repaired == {"NaN, inf or N/A read as not recorded": 4}
    assert not raw.dropped


@pytest.mark.parametrize("word", ["inf", "N/A", "-inf", "nan", ""])
def test_texts_in_place_of_numbers_are_not_recorded(trace: Callable[..., RawTrace], word: str) -> None:
    raw = trace(with_bad(40, kernel(9999, extra=f', "registers per thread": "{word}", "bytes": "512"')))
    assert len(raw.gpu["name"]) == 40
    assert set(raw.gpu["registers"].tolist()) == {MISSING}
    assert raw.gpu["bytes"].tolist().count(512) == 4
    assert raw.repaired == {"text where a number belongs read as not recorded": 4}


def test_trailing_commas_are_removed(trace: Callable[..., RawTrace]) -> None:
    text = document([kernel(i, extra=",") for i in range(100)], tail=',\n  ],\n  "traceName": "x",\n}')
    raw = trace(text)
    assert (len(raw.gpu["name"]), raw.truncated, raw.dropped) == (100, False, {})
    assert raw.repaired == {"trailing comma removed": 100}


def test_of_duplicate_keys_the_last_holds_and_they_are_counted(trace: Callable[..., RawTrace]) -> None:
    head = '{\n  "rank": 1,\n  "rank": 2,\n  "distributedInfo": {"rank": 3, "rank": 4},'
    raw = trace(document([kernel(1)], head=head))
    assert (raw.header["rank"], raw.header["distributedInfo"]) == (2, {"rank": 4})
    assert raw.repaired == {"duplicate key in the header: the last one holds": 2}


def test_of_duplicate_metadata_events_the_last_holds(trace: Callable[..., RawTrace]) -> None:
    label = '{{"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {{"labels": "{}"}}}}'
    raw = trace(document([label.format("CPU"), kernel(1), label.format("GPU 0")]))
    assert raw.metadata == [("process_labels", 0, 0, {"labels": "GPU 0"})]


@pytest.mark.parametrize(
    "text", ['{"schemaVersion": 1, "traceEvents": []}', '{"schemaVersion": 1}', "[]", '{"traceEvents": [ ], "x": 1}']
)
def test_no_events_is_a_trace_without_gpu_activity(trace: Callable[..., RawTrace], text: str) -> None:
    raw = trace(text)
    assert {len(table["start_ns"]) for table in (raw.gpu, raw.calls, raw.ops, raw.frames)} == {0}
    assert raw.warnings == ("The trace holds no GPU activity.",)
    assert not raw.truncated


def test_a_cpu_only_trace_is_valid_and_says_so(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(1).replace('"kernel"', '"cpu_op"')]))
    assert len(raw.ops["name"]) == 1
    assert raw.warnings == ("The trace holds no GPU activity.",)


def test_a_missing_or_negative_duration_is_zero_and_counted(trace: Callable[..., RawTrace]) -> None:
    events = [kernel(0), kernel(1).replace(', "dur": 1.250', ""), kernel(2).replace("1.250", "-3.5")]
    raw = trace(document(events))
    assert raw.gpu["dur_ns"].tolist() == [1250, 0, 0]
    assert raw.repaired == {"missing duration set to 0": 1, "negative duration set to 0": 1}


def test_an_event_without_start_is_dropped_and_counted(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(0), kernel(1).replace('"ts": 1001.001, ', ""), kernel(2, ts='"soon"'), kernel(3)]))
    assert raw.gpu["correlation"].tolist() == [0, 3]
    assert raw.dropped == {"no start time": 2}


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("1.5e3", 1_500_000),
        ('"12.345"', 12_345),
        ("1365627862757.064", 1_365_627_862_757_064),
        ('"1712195495406752.832"', 1_712_195_495_406_752_832),
        ("1.712195495406752832E15", 1_712_195_495_406_752_832),
    ],
)
def test_times_as_text_or_with_exponent_are_exact(trace: Callable[..., RawTrace], ts: str, ns: int) -> None:
    raw = trace(document([kernel(1, ts=ts), kernel(2)]))
    assert raw.gpu["start_ns"].tolist() == [ns, 1_002_002]
    assert not raw.dropped


@pytest.mark.parametrize("ts", ["1e300", "-1e300", "9" * 400, "-9223372036854775808", "1e-400", '"1e999999999"'])
def test_times_beyond_all_bounds_are_dropped_or_zero(trace: Callable[..., RawTrace], ts: str) -> None:
    raw = trace(document([kernel(1, ts=ts), kernel(2)]))
    assert raw.gpu["start_ns"].tolist()[-1] == 1_002_002
    assert raw.dropped == ({} if ts == "1e-400" else {"no start time": 1})


def test_a_record_window_end_far_away_is_no_part_of_the_timeline(tmp_path: Path) -> None:
    end = '{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9e15}'
    timeline = open_trace(written(tmp_path / "t.json", document([kernel(1), end])))
    assert timeline.activities["start_ns"].to_pylist() == [1_001_001]


def test_unescaped_log_lines_are_passed_over_to_the_next_key(trace: Callable[..., RawTrace]) -> None:
    log = '"INFO": ["CUPTI says "x", ] and }", "C:\\new", "[" x"],'
    tail = f'\n  ],\n  {log}\n  "WARNING": ["a "b""],\n  "baseTimeNanoseconds": 7,\n  "traceName": "x"\n}}'
    for head in ('{\n  "schemaVersion": 1,', f'{{\n  "schemaVersion": 1,\n  {log}'):
        raw = trace(document([kernel(i) for i in range(100)], head=head, tail=tail))
        assert len(raw.gpu["name"]) == 100
        assert raw.gpu["start_ns"][0] == 1_000_000 + 7
        assert (raw.header["schemaVersion"], raw.header["traceName"], raw.truncated) == (1, "x", False)
        assert raw.dropped["header entry that is not valid JSON"] == (2 if "INFO" not in head else 3)


def test_without_metadata_events_or_order_it_still_works(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress((FIXTURES / "convnet_train.json.gz").read_bytes()))
    events = [e for e in document["traceEvents"] if e["ph"] != "M" and e.get("cat") not in (None, "Trace")]
    document["traceEvents"] = sorted(events, key=lambda e: (e["ts"], str(e["tid"])))
    edited = open_trace(written(tmp_path / "t.json", json.dumps(document)))
    whole = open_trace(FIXTURES / "convnet_train.json.gz")
    assert edited.activities["start_ns"].equals(whole.activities["start_ns"])
    assert edited.ops.num_rows == whole.ops.num_rows


class _Endless:
    """A source of many events that never lie on a disk."""

    path, truncated, size, position = "made.json", False, 0, 0

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def readinto(self, view: memoryview) -> int:
        if not self.rest:
            self.rest = next(self.pieces, b"")
        count = min(len(view), len(self.rest))
        view[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def test_a_large_file_is_streamed_not_held() -> None:
    piece = ",".join(kernel(i).replace('"kernel"', '"ac2g"') for i in range(1000)).encode() + b","
    pieces = [b'{"schemaVersion": 1, "traceEvents": [', *[piece] * 600, kernel(1).encode() + b"]}"]
    tracemalloc.start()
    try:
        raw = scan(_Endless(iter(pieces)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raw.events == {"ac2g": 600_000, "kernel": 1}
    assert peak < 24_000_000 < 600 * len(piece) // 4


@pytest.mark.parametrize("kept", [0.9, 0.5])
def test_of_a_gzip_file_cut_short_what_can_be_inflated_is_kept(tmp_path: Path, kept: float) -> None:
    packed = (FIXTURES / "convnet_train.json.gz").read_bytes()
    raw = read(written(tmp_path / "t.json.gz", packed[: int(kept * len(packed))]))
    assert raw.truncated
    assert 0 < raw.events.total() < read(FIXTURES / "convnet_train.json.gz").events.total()
    assert raw.warnings[0] == _GZIP_DAMAGED


def test_of_a_gzip_file_that_lost_its_last_bytes_every_event_is_kept(tmp_path: Path) -> None:
    packed = (FIXTURES / "convnet_train.json.gz").read_bytes()
    raw = read(written(tmp_path / "t.json.gz", packed[:-8]))
    assert (len(raw.ops["name"]), raw.truncated) == (492, True)


def test_of_a_damaged_gzip_file_what_can_be_inflated_is_kept(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(document([kernel(i) for i in range(30_000)]).encode()))
    packed[-2000:-1900] = bytes(100)
    raw = read(written(tmp_path / "t.json.gz", bytes(packed)))
    assert raw.truncated
    assert len(raw.gpu["name"]) > 10_000


def test_gzip_data_that_is_whole_is_read_whole_though_its_checksum_is_wrong(tmp_path: Path) -> None:
    for events in (1, 30_000):
        whole = gzip.compress(document([kernel(i) for i in range(events)]).encode(), mtime=0)
        raw = read(written(tmp_path / "t.json.gz", whole[:-8] + b"\0\0\0\0" + whole[-4:]))
        assert (len(raw.gpu["name"]), raw.truncated, raw.dropped) == (events, True, {})
        assert raw.warnings == (_GZIP_DAMAGED,)


def test_a_gzip_members_own_header_may_hold_all_that_it_can(tmp_path: Path) -> None:
    text = document([kernel(1)]).encode()
    plain = gzip.compress(text, mtime=0)
    extra, name, comment = b"\x05\0extra", b"t.json\0", b"recorded\0"
    for flags, fields in ((8, name), (16, comment), (4, extra), (2, b"\0\0"), (30, extra + name + comment + b"\0\0")):
        packed = plain[:3] + bytes([flags]) + plain[4:10] + fields + plain[10:]
        for content in (packed, packed + gzip.compress(b" ")):
            raw = read(written(tmp_path / "t.json", content))
            assert (len(raw.gpu["name"]), raw.truncated, raw.warnings) == (1, False, ())
        assert read(written(tmp_path / "t.json", packed[:-1])).truncated
        endless = packed[:10] + b"x" * (1 << 21)
        assert refusal(written(tmp_path / "t.json", endless)).startswith("FILE: is cut off before any of its content")


# -- more than one document in a file


def ingested(path: Path, content: str | bytes) -> tuple[int, bool, tuple[str, ...]]:
    timeline = open_trace(written(path, content))
    report = timeline.meta.ingest
    return timeline.activities.num_rows, report.truncated, tuple(text for text in report.warnings if "left out" in text)


def behind(count: str) -> tuple[str, ...]:
    return (f"Behind the trace's end the file goes on: {count} of content were left out.",)


@pytest.mark.parametrize("end", ["", "\n", " \n\t \n", " " * 10_000])
def test_blanks_behind_a_trace_are_not_worth_a_word(tmp_path: Path, end: str) -> None:
    assert ingested(tmp_path / "t.json", document([kernel(1)]) + end) == (1, False, ())
    assert ingested(tmp_path / "t.json", "[" + kernel(1) + "]" + end) == (1, False, ())


@pytest.mark.parametrize("other", [document([kernel(i) for i in range(5000)]), "junk", "]", "}"])
def test_what_stands_behind_a_trace_is_counted(tmp_path: Path, other: str) -> None:
    first = document([kernel(i) for i in range(3)])
    said = behind(f"{len(other):,} byte{'s' if len(other) > 1 else ''}")
    assert ingested(tmp_path / "t.json", first + "\n" + other) == (3, False, said)
    packed = gzip.compress(first.encode()) + gzip.compress(other.encode())
    assert ingested(tmp_path / "t.json.gz", packed) == (3, False, said)


def test_a_list_of_events_behind_a_list_of_events_is_counted(tmp_path: Path) -> None:
    events = "[" + kernel(1) + "," + kernel(2) + "]"
    assert ingested(tmp_path / "t.json", events + "\n" + events) == (2, False, behind(f"{len(events)} bytes"))


def test_what_stands_behind_a_document_without_events_is_counted(tmp_path: Path) -> None:
    first, other = '{"schemaVersion": 1}', document([kernel(1)])
    assert ingested(tmp_path / "t.json", first + other) == (0, False, behind(f"{len(other)} bytes"))


def test_what_stands_behind_gzip_data_is_counted(tmp_path: Path) -> None:
    packed = gzip.compress(document([kernel(1)]).encode())
    timeline = open_trace(written(tmp_path / "t.json.gz", packed + b"\0\0" + b"not gzip"))
    said = "Behind the gzip data of t.json.gz stand 8 bytes that are none."
    assert (timeline.meta.ingest.warnings[-1], timeline.meta.ingest.truncated) == (said, False)


@pytest.mark.parametrize("events", [1, 3000])
def test_of_several_lists_of_events_the_first_is_read_and_the_others_are_counted(tmp_path: Path, events: int) -> None:
    more = '\n  "traceEvents": [' + ",".join(kernel(i) for i in range(events)) + "],"
    tail = "\n  ]," + more + more + '\n  "baseTimeNanoseconds": 7\n}'
    raw = read(written(tmp_path / "t.json", document([kernel(i) for i in range(5)], tail=tail)))
    assert (len(raw.gpu["name"]), raw.gpu["start_ns"][0], raw.truncated) == (5, 1_000_007, False)
    assert raw.warnings == ("The file holds 3 lists of traceEvents: the first was read, others were left out.",)


def test_a_second_list_of_events_longer_than_what_is_held_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "MAX_EVENT_BYTES", 20_000)
    more = "[" + ",".join(kernel(i) for i in range(3000)) + "]}"
    text = document([kernel(1)], tail='\n  ],\n"traceEvents": ' + more)
    raw = read(written(tmp_path / "t.json", text), block_bytes=BLOCK)
    assert (len(raw.gpu["name"]), raw.truncated) == (1, False)
    assert raw.warnings == (
        "The file holds 2 lists of traceEvents: the first was read, others were left out.",
        *behind(f"{len(more):,} bytes"),
    )


@pytest.mark.parametrize("value", ["{}", '{"a": [1]}', '"[]"', "null", "5", "true"])
@pytest.mark.parametrize("head", ["", '"schemaVersion": 1, '])
def test_trace_events_that_are_no_list_are_refused(tmp_path: Path, head: str, value: str) -> None:
    message = "FILE: is JSON, but not a trace: traceEvents is no list\n"
    for text in (f'{{{head}"traceEvents": {value}}}', f'{{{head}"traceEvents": {value}, "traceEvents": []}}'):
        assert refusal(written(tmp_path / "t.json", text)).startswith(message)


def test_trace_events_of_which_nothing_is_there_are_cut_off(tmp_path: Path) -> None:
    for text in ('{"schemaVersion": 1, "traceEvents":', '{"schemaVersion": 1, "traceEvents": ', '{"schemaVersion": 1,'):
        assert refusal(written(tmp_path / "t.json", text)).startswith(
            "FILE: is cut off before its first complete event"
        )


@pytest.mark.parametrize(
    "events", ["[1, 2]", '["a", null]', "[" * 9_000, '{"schemaVersion": 1, "traceEvents": ["a", 1]}']
)
def test_a_list_of_other_things_is_not_cut_off(tmp_path: Path, events: str) -> None:
    assert refusal(written(tmp_path / "t.json", events)).startswith("FILE: holds no event that can be read\n")


def test_activities_that_were_left_out_are_not_said_to_be_missing(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(1).replace('"ts": ', '"ts": 1e300, "was": ')]))
    assert raw.warnings == ("The trace holds no GPU activity that can be read: 1 record without a start time.",)


def test_what_another_tool_wrote_is_said_to_be(trace: Callable[..., RawTrace]) -> None:
    blink = '{"ph": "X", "cat": "blink", "name": "layout", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    assert trace(document([blink])).warnings[0].startswith("The trace holds no event that torch.profiler writes")
    assert trace(document([blink, kernel(1)])).warnings == ()


# -- text made to keep the reader busy


@pytest.mark.parametrize(
    ("start", "filling", "times"),
    [
        ('{"traceEvents":[', '},{"ph"', 2_200_000),
        ('{"schemaVersion":1,"traceEvents":[', '{"ph":"X"},{"ph"},', 850_000),
        ('{"schemaVersion":1,"traceEvents":[', '{"x":"},', 2_000_000),
        ('{"schemaVersion":1,"x":', "[", 15_500_000),
        ('{"schemaVersion":1,"x":[', "[],", 5_000_000),
        ('{"schemaVersion":1,', '"x":[\n', 14_000),
        ('{"schemaVersion":1,"traceEvents":[],', '"x":[\n', 14_000),
    ],
    ids=["separators", "every other event", "open strings", "brackets", "lists", "open members", "open members behind"],
)
def test_a_small_file_does_not_keep_the_reader_busy(tmp_path: Path, start: str, filling: str, times: int) -> None:
    path = written(tmp_path / "t.json.gz", gzip.compress((start + filling * times).encode(), 6))
    begun = time.process_time()
    assert refusal(path).startswith(("FILE: is cut off before", "FILE: is JSON, but not a trace: "))
    assert time.process_time() - begun < 6  # a second or two; 5 to 60 before there were bounds


def test_many_events_that_cannot_be_read_cost_only_themselves(
    trace: Callable[..., RawTrace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "MOST_UNREADABLE", 3)
    monkeypatch.setattr(scanner, "MOST_UNREADABLE", 3)
    for block_bytes in (BLOCK, 1 << 20):
        raw = trace(with_bad(400, kernel(9999, name='"k "x"')), block_bytes)
        assert (len(raw.gpu["name"]), raw.dropped, raw.truncated) == (360, {"not valid JSON": 40}, False)


def test_where_every_other_event_cannot_be_read_it_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MOST_UNREADABLE", 3)
    monkeypatch.setattr(scanner, "MOST_UNREADABLE", 3)
    path = written(tmp_path / "t.json", with_bad(100, kernel(9999, name='"k "x"'), every=2 * 3))
    assert len(read(path).gpu["name"]) == 84
    events = [kernel(i, name='"k "x"' if i % 2 else '"k"') for i in range(100)]
    assert refusal(written(path, document(events))).splitlines()[0] == (
        "FILE: is JSON, but not a trace: 4 of its events are not valid JSON, more than one in four"
    )


def test_the_rank_comes_from_the_header_else_from_the_file_name_else_it_is_unknown(tmp_path: Path) -> None:
    raw = read(written(tmp_path / "t.json", document([kernel(1)], head='{"distributedInfo": {"rank": 3},')))
    assert rank(raw.header, "rank-5.json") == 3
    assert (rank({}, "x_rank5.json"), rank({}, "x.json")) == (5, None)


def test_names_are_kept_as_the_file_writes_them(trace: Callable[..., RawTrace]) -> None:
    raw = trace(document([kernel(1, name='"f\'s C:/x <lambda>, aten::\\u0061dd "')]))
    assert names(raw) == ["f's C:/x <lambda>, aten::add "]


# -- cuts and damage anywhere


def test_one_bad_event_makes_one_block_slow_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = []

    def counting(text: bytes, *rest: Any, **options: Any) -> Any:
        strict.append(len(text))
        return read_events(text, *rest, **options)

    monkeypatch.setattr(scanner, "read_events", counting)
    text = document([kernel(i, name='"a"b"' if i == 50 else '"k"') for i in range(2000)])
    raw = read_once(written(tmp_path / "t.json", text), block_bytes=BLOCK)
    assert (len(raw.gpu["name"]), raw.dropped) == (1999, {"not valid JSON": 1})
    assert len(strict) == 2  # the block with the bad event, and the last one, which holds the array's end


def test_a_trace_cut_anywhere_keeps_exactly_its_complete_events(tmp_path: Path) -> None:
    whole = gzip.decompress((FIXTURES / "clean_gemms.json.gz").read_bytes())
    events = json.loads(whole)["traceEvents"]
    first = whole.index(b'"traceEvents"')
    for cut in range(1000, len(whole), 1000):
        path = written(tmp_path / "t.json", whole[:cut])
        complete = _complete_events(whole[:cut].decode("utf-8", "ignore"))
        if cut <= first or not any(e["ph"] == "X" for e in events[:complete]):
            with pytest.raises(InputError):
                read(path)
            continue
        raw = read(path, block_bytes=BLOCK)
        assert raw.truncated
        assert raw.events.total() == complete


def _complete_events(text: str) -> int:
    decoder, count = json.JSONDecoder(), 0
    position = text.find("[", text.find('"traceEvents"')) + 1
    while True:
        while text[position : position + 1] in (" ", "\n", ",") and position < len(text):
            position += 1
        try:
            _, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            return count
        count += 1


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_is_survived_with_every_loss_counted(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    text = bytearray(document([kernel(i, extra=', "grid": [1, 2, 3]') for i in range(300)]).encode())
    damaged = set()
    for _ in range(5):
        at = random_.randrange(200, len(text) - 200)
        damaged.add(at)
        text[at : at + 1] = random_.choice([b'"', b"\\", b"{", b"}", b"]", b"\x00", b"\xff", b"", b",", b"\n"])
    raw = read(written(tmp_path / "t.json", bytes(text)), block_bytes=BLOCK)
    assert len(raw.gpu["name"]) >= 300 - 2 * len(damaged) or raw.truncated
    assert raw.events.total() + raw.dropped.total() >= 300 - len(damaged) or raw.truncated


def test_text_made_to_be_slow_is_read_in_bounded_time(tmp_path: Path) -> None:
    # Each event opens a list of look-alikes and never closes it; following each to its end would be quadratic.
    bad = '{"ph": "X", "cat": "kernel", "ts": 1, "a": [' + '{"ph": "X"}, ' * 3
    text = '{"schemaVersion": 1, "traceEvents": [' + bad * 20_000
    started = time.process_time()
    with pytest.raises(InputError):
        read(written(tmp_path / "t.json", text))
    assert time.process_time() - started < 5


# -- bombs and bounds


def limited(path: Path, megabytes: int) -> str:
    """The error of opening `path` in a process of its own, and that it needed no more memory than that."""
    code = (
        "import resource, sys; from pathlib import Path; from tracemine.formats import open_trace\n"
        "try: open_trace(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    *error, peak = run.stdout.splitlines()
    assert int(peak) < megabytes + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return "\n".join(error).replace(str(path), "FILE")


def packed(path: Path, start: bytes, filling: bytes, times: int, end: bytes) -> Path:
    """A gzip file of many members: the filling is packed once, however often it is repeated."""
    path.write_bytes(gzip.compress(start) + times * gzip.compress(filling) + gzip.compress(end))
    return path


def test_a_string_of_a_gigabyte_is_refused_without_being_held(tmp_path: Path) -> None:
    start = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "name": "'
    path = packed(tmp_path / "t.json.gz", start, b"a" * 1_000_000, 1000, b'"}]}')
    assert limited(path, 250) == (
        "InputError FILE: has an event or header entry of more than 32 MB\n"
        "  hint: no trace has that; see what wrote the file"
    )


def test_a_header_string_of_a_gigabyte_is_refused_without_being_held(tmp_path: Path) -> None:
    path = packed(tmp_path / "t.json.gz", b'{"schemaVersion": 1, "note": "', b"a" * 1_000_000, 1000, b'"}')
    assert limited(path, 250).startswith("InputError FILE: has an event or header entry of more than 32 MB")


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    flow = b'{"ph": "s", "cat": "ac2g"},' * 40_000
    path = packed(tmp_path / "t.json.gz", b'{"schemaVersion": 1, "traceEvents": [', flow, 200, b"]}")
    assert refusal(path) == (
        "FILE: inflates to more than 200 times its size, which no trace does\n"
        "  hint: if it is a trace all the same, gunzip it and pass the result"
    )


_TOO_DEEP = "FILE: is nested more deeply than any trace\n  hint: no profiler writes that; see what wrote the file"


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_nesting_of_100_000_is_refused(tmp_path: Path, opening: str, closing: str) -> None:
    deep = opening * 100_000 + "1" + closing * 100_000
    path = tmp_path / "t.json"
    for text in (
        document([kernel(1)], head='{\n  "x": ' + deep + ","),
        document([kernel(1)], tail='\n  ],\n  "x": ' + deep + "\n}"),
        document([kernel(i, extra=', "x": ' + deep) for i in range(9)]),
        document([kernel(i, extra=', "External id": ' + deep) for i in range(9)]),
    ):
        assert refusal(written(path, text)) == _TOO_DEEP


def test_nothing_but_100_000_brackets_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    assert refusal(written(path, '{"a":' * 100_000)) == (
        "FILE: is JSON, but not a trace: it has no list of traceEvents\n"
        "  hint: pass what torch.profiler's export_chrome_trace wrote"
    )
    assert refusal(written(path, "[" * 100_000)) == (
        "FILE: holds no event that can be read\n  hint: pass what torch.profiler's export_chrome_trace wrote"
    )
    raw = read(written(path, document([kernel(1), "[" * 100_000, kernel(2)])))
    assert (raw.gpu["correlation"].tolist(), raw.dropped) == ([1, 2], {"not valid JSON": 1})


# -- files that are something else

_COUNTERS = "\n  hint: pass the trace of the same program, and this with --ncu; or print it: tracemine top FILE"
_ONE_TABLE = "\n  hint: pass the folder that nsys export --type parquetdir or arrowdir wrote, or a timeline's folder"
_WANTED = "\n  hint: pass the .json or .json.gz that torch.profiler's export_chrome_trace wrote"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b"", "is empty\n  hint: record the trace again"),
        ("t.json", b"\n  \r\n", "is empty\n  hint: record the trace again"),
        ("t.json.gz", gzip.compress(b"", mtime=0), "is empty\n  hint: record the trace again"),
        (
            "t.json.gz",
            gzip.compress(b"{}", mtime=0)[:10],
            "is cut off before any of its content\n  hint: copy or record the trace again, to its end",
        ),
        ("t.json", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is a picture, not a trace" + _WANTED),
        ("t.json", b"\xff\xd8\xff\xe0\0\x10JFIF", "is a picture, not a trace" + _WANTED),
        ("t.json", b"%PDF-1.7\n", "is a PDF document, not a trace" + _WANTED),
        (
            "t.json",
            b"\n<!DOCTYPE html>\n<html>",
            "is HTML or XML, not a trace\n  hint: a download that needs a login often saves a web page instead",
        ),
        (
            "t.json",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "is a Git LFS pointer, not the data it points to\n  hint: fetch the data with: git lfs pull",
        ),
        (
            "t.nsys-rep",
            b"\x01\x02\0\0QuadD",
            "is an Nsight Systems report, which only nsys can open, and no nsys is on PATH\n"
            "  hint: run: nsys export --type sqlite t.nsys-rep   and pass the .sqlite",
        ),
        (
            "t.sqlite",
            b"SQLite format 3\0\x10\0",
            "is a damaged SQLite database (not a database)\n"
            "  hint: it may be cut short: copy it again, or export again with nsys export --type sqlite FILE.nsys-rep",
        ),
        ("t.json", b"NVR\0\1\2", "is a report of Nsight Compute (.ncu-rep), which has no timeline" + _COUNTERS),
        ("t.json", b"PAR1\x15\x04", "is a Parquet file, which says too little alone" + _ONE_TABLE),
        ("t.json", b"ARROW1\0\0", "is an Arrow file, which says too little alone" + _ONE_TABLE),
        (
            "t.json",
            b"\x89HDF\r\n\x1a\n",
            "is an HDF5 file, which is not supported\n"
            "  hint: of a report of Nsight Systems: nsys export --type sqlite FILE.nsys-rep",
        ),
        (
            "t.csv",
            b'==PROF== Connected\n"ID","Process ID","Process Name"\n',
            "is a table of Nsight Compute (CSV), which has no timeline" + _COUNTERS,
        ),
        (
            "t.csv",
            b"Start (ns),Duration (ns)\n1,2\n",
            "is a table (CSV) of nsys stats that is no timeline\n"
            "  hint: pass an export (nsys export --type sqlite), "
            "or the table of nsys stats --report cuda_kern_exec_trace",
        ),
        (
            "model.pt",
            b"PK\x03\x04" + bytes(26) + b"model/data.pklFB",
            "is what torch.save wrote, such as a checkpoint, not a trace" + _WANTED,
        ),
        (
            "t.json",
            b"PK\x03\x04\x14",
            "is packed in a way that is not supported\n  hint: unpack it, or pack it with gzip",
        ),
        (
            "t.json",
            gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
            "is gzip inside gzip\n  hint: gunzip it once and pass the result",
        ),
        (
            "t.json",
            "{}".encode("utf-16"),
            "is UTF-16 text, and a trace is UTF-8\n  hint: convert it: iconv -f UTF-16 -t UTF-8 FILE",
        ),
        ("t.json", b"\x7fELF\0\0\0", "is binary, not a trace" + _WANTED),
        ("t.json", b"hello", "is not JSON, so it is not a trace" + _WANTED),
        (
            "t.json",
            b'{"hello": [1, 2]}',
            "is JSON, but not a trace: it has no list of traceEvents\n"
            "  hint: pass what torch.profiler's export_chrome_trace wrote",
        ),
        (
            "t.json",
            b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}',
            "is a PyTorch execution trace, which has no times\n"
            "  hint: pass the profiler's trace of the same run, and this one with --et",
        ),
        (
            "t.json",
            b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":['
            b'{"args":{"name":"/host:CPU"},"name":"process_name","ph":"M","pid":701},{}]}',
            "is a JAX profile of a CPU\n"
            "  hint: record where jax.devices() names a GPU: with jax.profiler.trace(DIR): step()",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else "",
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    assert refusal(written(tmp_path / name, content)) == f"FILE: {message}"


def test_an_execution_trace_is_told_from_a_trace_by_its_keys() -> None:
    assert refusal(FIXTURES.parent / "captures" / "chain" / "et.json.gz").startswith(
        "FILE: is a PyTorch execution trace, which has no times"
    )


def test_a_path_that_is_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.json") == "FILE: there is no such file"
    with pytest.raises(InputError, match="is a directory, and not one that tracemine wrote"):
        source.FileSource(tmp_path)


def test_gzip_members_are_read_one_after_the_other_and_padding_is_no_data(tmp_path: Path) -> None:
    text = document([kernel(i) for i in range(3000)]).encode()
    middle = len(text) // 2
    data = gzip.compress(text[:middle]) + gzip.compress(b"") + gzip.compress(text[middle:])
    for path in (written(tmp_path / "a.json", data), written(tmp_path / "b.json", data + bytes(1000))):
        raw = read(path)
        assert (len(raw.gpu["name"]), raw.truncated) == (3000, False)


def test_what_a_trace_says_is_never_evaluated(trace: Callable[..., Any]) -> None:
    raw = trace(document([kernel(1, name="\"__import__('os').abort()\"", extra=', "stream": "__import__"')]))
    assert names(raw) == ["__import__('os').abort()"]
