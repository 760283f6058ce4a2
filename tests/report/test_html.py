"""The HTML report: one file in which nothing of a trace is markup, and whose findings can be read back."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracemine
from tests.report.scans import EMPTY, HOSTILE_STRINGS, NORM, QUIET, SCAN, VERIFIED, hostile, hostile_verdicts
from tracemine.errors import InputError
from tracemine.findings.record import Scan
from tracemine.findings.stored import findings_files, load_scans
from tracemine.report import Drawing, html, render
from tracemine.report.html.data import MOST_ACTIVITIES
from tracemine.report.html.flow_figure import flow_figure
from tracemine.report.html.host_tables import host_tables
from tracemine.report.picture import Activities, HostLane, Picture
from tracemine.report.picture.dataflow import Box, DataflowPicture, DrawnTensor
from tracemine.verdicts.verdict import VERDICTS_SCHEMA_VERSION

FIXTURES = Path(__file__).parents[2] / "fixtures"
ATTACKS = (
    *HOSTILE_STRINGS,
    "</script><script>alert(1)</script>",
    "--><!--<script>",
    "\"'><img src=x onerror=alert(1)>",
)


def drawn(scan: Scan, picture: Picture | None = None) -> str:
    out = StringIO()
    render("html", scan, out, Drawing(picture=picture))
    return out.getvalue()


def activities(*names: str, count: int = 8) -> Activities:
    return Activities(
        begin_ns=1_000,
        base_ns=0,
        start_ns=np.arange(count, dtype=np.int64) * 100,
        dur_ns=np.full(count, 60, np.int64),
        lane=np.zeros(count, np.int64),
        lanes=((0, 7),),
        name=np.arange(count, dtype=np.int64) % len(names),
        names=names,
        part=np.zeros(count, np.int64),
        step=np.full(count, -1, np.int64),
        steps=(),
    )


def picture(*names: str, count: int = 8) -> Picture:
    return Picture(activities=activities(*names, count=count), dataflow={}, roofline=None)


def host_lane(title: str, count: int) -> HostLane:
    start = np.arange(count, dtype=np.int64) * 100
    name = np.zeros(count, np.int64)
    return HostLane(title=title, start_ns=start, dur_ns=np.full(count, 60), name=name, names=("aten::mul",))


class Parsed(HTMLParser):
    """Elements and attributes of a page, its texts, and the data in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.values: set[tuple[str, str]] = set()
        self.data: dict[str, str] = {}
        self.texts: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":  # the page's own: where a name may break
            return
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, tuple(sorted(given))))
        self.values |= set(given.items())
        self._open = given.get("id", tag) if tag in ("script", "style") else ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.data[self._open] = self.data.get(self._open, "") + data
        else:
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def policy(text: str) -> str:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    return found[1].replace("&#39;", "'").replace("&#43;", "+")


def test_the_policy_allows_our_script_and_style_and_nothing_else() -> None:
    text = drawn(SCAN, picture("kernel"))
    parsed = Parsed(text)
    hashes = {
        name: base64.b64encode(hashlib.sha256(parsed.data[name].encode()).digest()).decode()
        for name in ("script", "style")
    }
    assert policy(text) == (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_no_attribute_runs_loads_or_styles_anything() -> None:
    parsed = Parsed(drawn(VERIFIED, picture("kernel")))
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcdoc", "style", "action", "ping")}
    assert {value[:1] for name, value in parsed.values if name in ("href", "xlink:href")} == {"#"}


@pytest.mark.parametrize("made", [hostile, hostile_verdicts])
@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_of_a_trace_is_markup(text: str, made: Callable[[str], Scan]) -> None:
    found, ordinary = Parsed(drawn(made(text), picture(text))), Parsed(drawn(made("name"), picture("name")))
    assert set(found.elements) <= set(ordinary.elements)
    assert found.data["script"] == ordinary.data["script"]
    assert json.loads(found.data["tracemine-findings"])["findings"]


@given(st.text(max_size=60))
def test_no_text_at_all_is_markup_or_breaks_the_data(text: str) -> None:
    kernel = msgspec.structs.replace(NORM, title=text, kernels=(text,), module=text, rule=text, variants=())
    found = Parsed(drawn(msgspec.structs.replace(SCAN, findings=(kernel,)), picture(text or "x")))
    ordinary = msgspec.structs.replace(NORM, title="t", kernels=("k",), module="m", rule="r", variants=())
    assert set(found.elements) <= set(
        Parsed(drawn(msgspec.structs.replace(SCAN, findings=(ordinary,)), picture("x"))).elements
    )
    assert json.loads(found.data["tracemine-findings"])["findings"][0]["title"] == text
    assert len(json.loads(found.data["tracemine-trace"])["names"]) == 1


def test_the_test_of_markup_sees_a_text_that_is_put_in_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = html._environment.__wrapped__()
    careless.autoescape = False
    monkeypatch.setattr("tracemine.report.html._environment", lambda: careless)
    with pytest.raises(AssertionError):
        test_nothing_of_a_trace_is_markup("<script>alert(1)</script><img src=x onerror=alert(1)>", hostile)


@pytest.mark.parametrize("scan", [SCAN, VERIFIED, EMPTY, QUIET])
def test_the_findings_are_read_back_as_they_were(scan: Scan, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(drawn(scan, picture("kernel")), encoding="utf-8")
    if scan in (EMPTY, QUIET):
        assert tracemine.load(file).scan == scan
    else:
        assert load_or_impossible(file, scan)


def load_or_impossible(file: Path, scan: Scan) -> bool:
    """Scans made by hand need not add up; then the same is said of them as of JSON."""
    beside = file.with_name("findings.json")
    beside.write_bytes(msgspec.json.encode(scan))
    try:
        return load_scans(file) == load_scans(beside) == [scan]
    except InputError as error:
        with pytest.raises(InputError, match=re.escape(error.message)):
            load_scans(beside)
        return True


def test_a_page_without_findings_or_with_broken_ones_is_an_error(tmp_path: Path) -> None:
    for content in ("<!doctype html><p>hello", drawn(SCAN).replace('{"schema_version"', '{"schema')):
        (tmp_path / "report.html").write_text(content)
        with pytest.raises(InputError, match="findings"):
            tracemine.load(tmp_path / "report.html")


def test_a_folder_of_findings_counts_no_page_twice(tmp_path: Path) -> None:
    report = tracemine.scan(FIXTURES / "captures" / "chain")
    report.to_json(tmp_path / "findings.json")
    report.to_html(tmp_path / "findings.html")
    assert [path.name for path in findings_files(tmp_path)] == ["findings.json"]


def test_a_report_of_a_scan_draws_the_trace_and_one_that_was_loaded_says_why_not(tmp_path: Path) -> None:
    report = tracemine.scan(FIXTURES / "captures" / "decoder_prefill")
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == text
    assert {"tracemine-findings", "tracemine-trace"} <= set(Parsed(text).data)
    again = tracemine.load(tmp_path / "report.html")
    assert again.scan == report.scan
    loaded = Parsed(again.to_html())
    assert "tracemine-trace" not in loaded.data
    assert "scan the trace itself" in " ".join(loaded.texts)


def test_a_page_says_what_the_host_does_where_it_waits_and_in_which_loops() -> None:
    report = tracemine.scan(FIXTURES / "captures" / "convnet_train")
    assert report.picture is not None
    tops = report.picture.asked
    assert tops is not None
    tree, waits, loops = host_tables(report.picture, report.findings, {})
    top = tops.host("tree")
    shown = [row for row in top.rows if row.share >= 0.001]
    assert [float(row[1].sorts) * top.steps for row in tree.rows] == [row.host_ns for row in shown]
    assert tree.depths == tuple(row.depth for row in shown)
    assert [float(row[4].sorts) * top.steps for row in waits.rows] == [row.wait_ns for row in tops.waits().rows]
    turns = {one.loop.turns for one in report.findings if one.loop is not None}
    assert {int(row[1].sorts) for row in loops.rows} == turns
    assert "Waits for the device" in " ".join(Parsed(report.to_html()).texts)
    assert list(host_tables(None, [], {})) == []


def test_activities_are_packed_as_they_are() -> None:
    made = activities("a", "b")
    packed = json.loads(Parsed(drawn(SCAN, picture("a", "b"))).data["tracemine-trace"])
    for name, kind in (("start_ns", "<f8"), ("dur_ns", "<f4"), ("lane", "<i2"), ("name", "<u2"), ("part", "<u1")):
        assert np.frombuffer(base64.b64decode(packed[name]), kind).tolist() == getattr(made, name).tolist()
    assert packed["lanes"] == ["GPU 0 · stream 7"]


def test_the_longest_page_is_small_enough() -> None:
    count = MOST_ACTIVITIES
    lanes = tuple(host_lane(f"lane {number}", count) for number in range(8))
    finding = msgspec.structs.replace(NORM, activities=tuple((row, row + 1) for row in range(0, count, 2)), variants=())
    drawn_ = msgspec.structs.replace(picture(*(f"kernel {number}" for number in range(200)), count=count), host=lanes)
    assert len(drawn(msgspec.structs.replace(SCAN, findings=(finding,)), drawn_)) <= 15_000_000


def test_of_a_lane_with_too_many_spans_the_longest_are_drawn() -> None:
    lane = msgspec.structs.replace(host_lane("operators", 100_001), dur_ns=np.arange(100_001))
    page = Parsed(drawn(SCAN, msgspec.structs.replace(picture("a"), host=(lane,))))
    (packed,) = json.loads(page.data["tracemine-trace"])["host"]
    assert np.frombuffer(base64.b64decode(packed["dur_ns"]), "<f4").tolist() == list(range(1, 100_001))


def test_too_many_activities_are_not_drawn_and_the_page_says_so() -> None:
    parsed = Parsed(drawn(SCAN, picture("a", count=MOST_ACTIVITIES + 1)))
    assert "tracemine-trace" not in parsed.data
    assert "300,001 activities are too many for a page" in " ".join(parsed.texts)


def test_dataflow_is_drawn_or_said_to_be_unknown() -> None:
    known = Parsed(tracemine.scan(FIXTURES / "captures" / "decoder_prefill").to_html())
    assert ("class", "flow") in known.values
    unknown = Parsed(drawn(SCAN, picture("a")))
    assert ("class", "flow") not in unknown.values
    assert "What these kernels read and write is not known" in " ".join(unknown.texts)


def test_what_verdicts_say_stands_beside_what_was_predicted() -> None:
    text = " ".join(Parsed(drawn(VERIFIED)).texts)
    assert "Predicted and measured" in text
    assert "eager 30.0 µs, one kernel 18.0 µs" in text
    assert "this fusion loses" in text


def test_the_kernel_that_a_verdict_came_with_can_be_copied(tmp_path: Path) -> None:
    path = FIXTURES / "captures" / "chain"
    variant = tracemine.scan(path)[0].variants[0].identity.finding
    code = "import triton\n\n\n@triton.jit\ndef kernel(x, n: tl.constexpr):  # a < b\n    pass"
    verdict = {"fingerprint": variant, "level": "L2", "says": "right in the interpreter, on a CPU", "source": code}
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_text(
        json.dumps({"schema_version": VERDICTS_SCHEMA_VERSION, "trace": "t", "gpu": None, "verdicts": [verdict]})
    )
    text = tracemine.scan(path, evidence=[verdicts]).to_html()
    assert code in " ".join(Parsed(text).texts)
    assert "The kernel that was tried" in text
    assert "The kernel that was tried" not in tracemine.scan(path).to_html()


def test_equal_kernels_are_counted() -> None:
    kernels = ("void first<1>(int)",) * 3 + tuple(f"void kernel_{number}<2>(int)" for number in range(60))
    finding = msgspec.structs.replace(NORM, kernels=kernels)
    text = drawn(msgspec.structs.replace(SCAN, findings=(finding,)))
    assert "first ×3" in text
    assert "kernel_59" in text


def test_a_class_of_kernels_is_in_the_roofline_where_its_bytes_and_flops_are_known() -> None:
    made = tracemine.scan(FIXTURES / "captures" / "decoder_prefill").picture
    assert made is not None and made.roofline is not None
    kinds = {(one.op_class, one.dtype): one for one in made.roofline.kernels}
    products = kinds["gemm", "bfloat16"]
    assert products.flops_per_s is not None
    assert 0.5e15 < products.flops_per_s < 0.9894e15  # the data sheet's peak
    norms = kinds["reduction", "float32"]
    assert norms.bytes_per_s is not None and made.roofline.bytes_per_s is not None
    assert 1e12 < norms.bytes_per_s < made.roofline.bytes_per_s
    assert kinds["copy", "bfloat16"].flops_per_s is None
    assert (
        sum(one.ns for one in made.roofline.kernels)
        == tracemine.scan(FIXTURES / "captures" / "decoder_prefill").summary.gpu_time_ns
    )
    for _, before, after in made.roofline.moved:
        assert after[0] > before[0] and after[1] > before[1]


def test_a_roofline_that_nothing_is_known_for_is_said_and_not_drawn() -> None:
    text = tracemine.scan(FIXTURES / "nsys" / "block_graph_whole.sqlite").to_html()
    assert "there is nothing to draw" in text
    assert '<svg class="roofline"' not in text
    assert '<svg class="roofline"' in tracemine.scan(FIXTURES / "captures" / "chain").to_html()


def test_a_step_is_said_to_be_as_recorded_where_the_profilers_cost_is_not_known() -> None:
    recorded = tracemine.scan(FIXTURES / "nsys" / "block_train.sqlite").to_html()
    assert "per step as recorded" in recorded
    assert "per step unprofiled" not in recorded
    assert "per step unprofiled" in tracemine.scan(FIXTURES / "captures" / "chain").to_html()


def test_no_fact_is_labelled_twice() -> None:
    facts = re.search(r'<dl class="facts">(.*?)</dl>', drawn(SCAN), re.DOTALL)
    assert facts is not None
    labels = re.findall(r"<dt>(.*?)</dt>", facts[1])
    assert "step" in labels
    assert len(labels) == len(set(labels))


def test_no_two_texts_of_a_dataflow_lie_on_one_another() -> None:
    """A box with more tensors beside it than are drawn, and one between it and the next."""
    common: dict[str, Any] = {"shape": (256,), "dtype": "float32", "bytes": 1_024, "evidence": None}
    beside = [DrawnTensor(producer=None, consumer=0, **common) for _ in range(6)]
    between = DrawnTensor(producer=0, consumer=1, **common)
    boxes = Box(name="aten::norm", ns=5), Box(name="aten::add", ns=5)
    figure = flow_figure(DataflowPicture(boxes=boxes, tensors=(between, *beside), boxes_left_out=0))
    lines = sorted(arrow.y for arrow in figure.arrows)
    assert len(lines) == 6
    assert min(after - before for before, after in pairwise(lines)) >= 11


def test_dataflow_adds_up_to_what_the_finding_says() -> None:
    report = tracemine.scan(FIXTURES / "captures" / "chain")
    assert report.picture is not None
    drawn_ = report.picture.dataflow[report[0].fingerprint]
    inside = [one for one in drawn_.tensors if one.producer is not None and one.consumer is not None]
    assert sum(one.bytes or 0 for one in inside) == report[0].intermediate_bytes
    assert {one.evidence for one in inside} == {"proven"}
