"""tracemine doctor: what a recording holds, what distorts it, on one screen, and how to record it right."""

from __future__ import annotations

import ast
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.timelines import Trace
from tracemine.cli import main
from tracemine.doctor import COLUMNS, LINES, Checkup, check_up, recipe_for, render
from tracemine.doctor.doubts import SAID
from tracemine.pipeline import analysed, mined

ROOT = Path(__file__).parents[2]
EAGER = ROOT / "fixtures/kineto/decoder_prefill.json.gz"
CAPTURE = ROOT / "fixtures/captures/decoder_prefill"
NSYS = ROOT / "fixtures/nsys/block_train.sqlite"


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Checkup]:
    code = main(["doctor", "-q", "--format", "json", *map(str, arguments)])
    return code, msgspec.json.decode(capsys.readouterr().out, type=Checkup)


def of(trace: Trace) -> Checkup:
    analysis = analysed(trace.timeline(), "here.json")
    return check_up(analysis.timeline, mined(analysis))


def missing(found: Checkup) -> set[str]:
    return {part.name for part in found.parts if not part.recorded}


def names(found: Checkup) -> dict[str, bool]:
    return {doubt.name: doubt.serious for doubt in found.doubts}


def changed(path: Path, target: Path, change: Any) -> Path:
    """A trace with something changed in it."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    change(trace)
    target.write_text(json.dumps(trace))
    return target


def steps(count: int, **meta: Any) -> Trace:
    """So many steps of one kernel each, with everything that can be recorded of an operator."""
    trace = Trace(**meta)
    frame = trace.frame("model.py(3): forward")
    for at in range(0, count * 1_000_000, 1_000_000):
        trace.step(at, 900_000)
        trace.kernel(
            "add", at + 20_000, 400_000, launch=(at + 5_000, 1_000), op="aten::neg", shapes=[[4]], dtypes=["float"],
            module="Model_0", stack=frame,
        )  # fmt: skip
    return trace


@pytest.mark.parametrize("path", [EAGER, CAPTURE, NSYS])
def test_a_recording_fits_one_screen_whatever_it_lacks(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-q", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert "This recording can be used" in lines[0]


def test_what_is_missing_is_said_with_its_cost_and_its_switch(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, EAGER)
    assert code == 0
    assert missing(found) == {"execution trace", "memory", "unprofiled step"}
    switches = {part.name: part.switch for part in found.parts}
    assert switches["memory"] == "profile_memory=True"
    assert switches["shapes"] is None
    assert names(found) == {"few_steps": False, "slowed": False}


def test_an_execution_trace_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = asked(capsys, CAPTURE)
    assert "execution trace" not in missing(found)


def test_switches_are_those_of_the_profiler(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = asked(capsys, NSYS)
    assert found.recipe.code.startswith("nsys profile ")
    assert "with_stack=True" not in {part.switch for part in found.parts}


def test_without_stacks_findings_name_operators(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def without(trace: dict[str, Any]) -> None:
        trace["with_stack"] = 0
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") != "python_function"]

    _, found = asked(capsys, changed(EAGER, tmp_path / "plain.json", without))
    assert {"stacks", "modules", "Python frames"} <= missing(found)
    assert "findings name operators, not lines  → with_stack=True" in render(found)


def test_three_steps_raise_no_doubt_and_two_do() -> None:
    assert "few_steps" not in names(of(steps(3)))
    assert names(of(steps(2)))["few_steps"] is False
    assert "a single step" in render(of(steps(1)))


def test_a_recording_that_measured_its_own_cost_says_so() -> None:
    slow = of(steps(3, alone_step_ns=500_000, recorded_step_ns=900_000))
    assert [doubt.says for doubt in slow.doubts if doubt.name == "slowed"] == [
        "recording made the step 1.8 times as long: 500 µs alone, 900 µs recorded"
    ]
    assert "slowed" not in names(of(steps(3, alone_step_ns=880_000, recorded_step_ns=900_000)))


def test_a_step_unlike_the_others_is_named() -> None:
    trace = steps(5)
    trace.step(5_000_000, 9_000_000)
    trace.kernel("add", 5_020_000, 8_000_000, launch=(5_005_000, 1_000), op="aten::neg", shapes=[[4]], dtypes=["float"])
    assert names(of(trace))["warm_up"] is False


def test_no_gpu_activity_is_serious_and_said_once() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.op("aten::neg", 10, 20, [[4]], ["float"])
    found = of(trace)
    assert [doubt.name for doubt in found.doubts if doubt.serious] == ["no_gpu"]
    assert found.verdict == "serious"


def test_an_empty_timeline_is_looked_at_too() -> None:
    found = of(Trace())
    assert len(missing(found)) == len(found.parts)
    assert len(render(found).splitlines()) <= LINES


def test_lost_records_end_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def lost(trace: dict[str, Any]) -> None:
        gpu = {"kernel", "gpu_memset", "gpu_memcpy"}
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") not in gpu]

    code, found = asked(capsys, changed(EAGER, tmp_path / "lost.json", lost))
    assert code == 1
    assert names(found)["impossible"] is True
    assert render(found).startswith("Do not take this recording's figures as they stand:")


def test_a_file_that_is_cut_off_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = gzip.decompress(EAGER.read_bytes())
    (tmp_path / "cut.json").write_bytes(text[: len(text) * 2 // 3])
    code, found = asked(capsys, tmp_path / "cut.json")
    assert (code, names(found)["cut_off"]) == (1, True)


@pytest.mark.parametrize(("late", "serious"), [(1, False), (20, True)])
def test_clocks_that_disagree_are_serious_where_many_activities_show_it(late: int, serious: bool) -> None:
    trace = steps(40)
    for launch in trace.rows["api"][:late]:
        launch["start_ns"] += 100_000
    said = {"warnings": (f"The trace's clocks disagree: {late} activities began before being launched.",)}
    trace.meta = msgspec.structs.replace(trace.meta, ingest=msgspec.structs.replace(trace.meta.ingest, **said))
    assert names(of(trace))["clocks"] is serious


def test_two_processes_in_one_file_end_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def twice(trace: dict[str, Any]) -> None:
        again = [
            one | {"ts": one["ts"] + 1.5, "dur": one["dur"]}
            for one in trace["traceEvents"]
            if one.get("cat") == "kernel"
        ]
        trace["traceEvents"] += again

    code, found = asked(capsys, changed(EAGER, tmp_path / "two.json", twice))
    assert (code, names(found)["processes"]) == (1, True)


def test_records_that_were_left_out_are_counted() -> None:
    trace = steps(3)
    dropped = {"without a time": 7, "the same event once more": 90}
    trace.meta = msgspec.structs.replace(trace.meta, ingest=msgspec.structs.replace(trace.meta.ingest, dropped=dropped))
    assert [doubt.says for doubt in of(trace).doubts if doubt.name == "dropped"] == [
        "7 records left out, most often: without a time"
    ]


def test_many_doubts_are_counted_and_the_code_is_never_cut() -> None:
    trace = steps(1)
    doubts = tuple(f"{number} records of a kind that cannot be. " * 5 for number in range(9))
    trace.meta = msgspec.structs.replace(trace.meta, ingest=msgspec.structs.replace(trace.meta.ingest, doubts=doubts))
    text = render(of(trace))
    assert len(text.splitlines()) <= LINES
    assert " more: --format json" in text
    assert all(each in text for each in recipe_for("kineto").code.splitlines())


def test_names_from_a_trace_do_nothing_to_a_terminal() -> None:
    trace = steps(3, producer="evil\x1b[2J\nline", execution_trace="et\x1b]0;x\x07.json")
    text = render(of(trace))
    assert "\x1b" not in text
    assert len(text.splitlines()) <= LINES


@pytest.mark.parametrize("trace_format", ["kineto", "nsys"])
def test_what_is_to_be_pasted_is_whole(trace_format: str) -> None:
    recipe = recipe_for(trace_format)
    if trace_format == "kineto":
        ast.parse(recipe.code)
    ast.parse(recipe.capture or "")
    assert max(map(len, recipe.code.splitlines())) <= COLUMNS - 4


@cache
def sentences() -> str:
    """Every text in the code of the stages that say something of a recording, whatever stands between its parts."""
    texts = []
    for folder in ("formats", "findings"):
        for path in sorted((ROOT / "tracemine" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    texts.append("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return "\n".join([*texts, (ROOT / "tracemine/devices.py").read_text("utf-8")])


@pytest.mark.parametrize("words", SAID)
def test_each_sentence_that_is_known_is_one_that_a_stage_says(words: str) -> None:
    assert words in sentences()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.json"], "nothing.json"),
        ([str(ROOT / "README.md")], "README.md"),
        ([str(ROOT / "fixtures/kineto")], "one is looked at"),
        ([str(EAGER), "--format", "html"], "there is no report 'html'"),
    ],
)
def test_what_is_wrong_is_said_and_ends_with_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "-q", *arguments]) == 2
    assert says in capsys.readouterr().err
