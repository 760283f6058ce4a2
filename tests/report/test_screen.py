"""The first screen: 24 lines of 100 columns for any trace, and what stands in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.report.scans import EMPTY, GAP, HOSTILE_STRINGS, NORM, QUIET, SCAN, VERIFIED, hostile, hostile_verdicts
from tests.screens import in_turn, tool
from tracemine.causes import load_rules
from tracemine.documents.at_once import ALSO
from tracemine.documents.finding import where
from tracemine.documents.next_step import next_step
from tracemine.documents.own_code import DeeperFrames
from tracemine.documents.screen import first_screen, sure_of
from tracemine.documents.words import all_of, cause_of
from tracemine.findings.compile_losses import LOSES
from tracemine.findings.grouping import one_kernel_fixes
from tracemine.findings.payback import AS_GRAPH
from tracemine.findings.record import NOTHING, Range, Scan, Share, Source
from tracemine.pipeline import analyse, mined
from tracemine.report import Drawing, render

ROOT = Path(__file__).parents[2]
COMPAT = os.environ.get("TRACEMINE_COMPAT_TRACES")
WIDE = "/data/" + "a_very_long_folder/" * 20 + "trace.json.gz"
MANY = tuple(f"Warning {n}: {'something that takes many words to say of this trace, ' * 6}" for n in range(40))


def screen(scan: Scan, **options: object) -> list[str]:
    out = StringIO()
    render("text", scan, out, Drawing(whole=False, **options))  # type: ignore[arg-type]
    return out.getvalue().splitlines()


def with_trace(scan: Scan, **fields: object) -> Scan:
    return msgspec.structs.replace(scan, trace=msgspec.structs.replace(scan.trace, **fields))


WITHOUT_STEPS = msgspec.structs.replace(
    SCAN,
    summary=msgspec.structs.replace(SCAN.summary, per_step=None),
    findings=tuple(msgspec.structs.replace(one, per_step=None) for one in SCAN.findings),
)
LONG = "Wörter, die 長い説明 sind, " * 20
WORST = msgspec.structs.replace(
    with_trace(SCAN, path=WIDE, gpu="長い" * 60),
    warnings=MANY,
    recorded=None,
    findings=tuple(
        msgspec.structs.replace(one, title=LONG, fix=LONG, module=f"長い.{'x' * 200}", fingerprint=f"{n:016x}")
        for n, one in enumerate((NORM, GAP, NORM, GAP))
    ),
)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize(
    "scan",
    [
        *(SCAN, EMPTY, QUIET, VERIFIED, WITHOUT_STEPS, WORST),
        *(with_trace(SCAN, path=WIDE), with_trace(SCAN, path="模型/跟踪.json"), with_trace(SCAN, gpu=None)),
        msgspec.structs.replace(SCAN, warnings=MANY),
        msgspec.structs.replace(SCAN, findings=()),
        *map(hostile, HOSTILE_STRINGS),
        *map(hostile_verdicts, HOSTILE_STRINGS),
    ],
)
def test_no_screen_is_over(scan: Scan, width: int) -> None:
    lines = screen(scan, width=width)
    assert len(lines) <= 24
    for line in lines:
        assert cell_len(line) <= min(width, 100)
        assert line == line.rstrip()


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=2_000))
@settings(max_examples=60)
def test_no_text_of_a_trace_makes_a_screen_over(path: str, title: str, fix: str) -> None:
    finding = msgspec.structs.replace(NORM, title=title, fix=fix, module=path, source=())
    scan = msgspec.structs.replace(with_trace(SCAN, path=path), findings=(finding,), warnings=(title, fix))
    lines = screen(scan, width=80)
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80


def test_the_screen_of_every_fixture_is_one(measured: Callable[[Path], Any]) -> None:
    found = [measured(path) for path in tool().every([str(ROOT / "fixtures")])]
    assert len(found) > 20
    assert not [one.path for one in found if one.over]
    assert [one.path.name for one in found if one.lineless] == ["decoder_decode_graph.json.gz"]  # replayed: no stacks


@pytest.mark.skipif(COMPAT is None, reason="TRACEMINE_COMPAT_TRACES is not set")
def test_the_screen_of_every_shared_trace_is_one(
    measured: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool(), "measured", measured)
    paths = in_turn(tool().every([str(COMPAT)]))
    monkeypatch.setattr(tool(), "every", lambda places: paths)
    assert tool().main(["--brief"]) == 0


def test_it_says_bound_step_bar_findings_rest_and_next(golden: object) -> None:
    golden("screen_100.txt", "\n".join(screen(SCAN)) + "\n")  # type: ignore[operator]
    golden("screen_60.txt", "\n".join(screen(SCAN, width=60)) + "\n")  # type: ignore[operator]


def test_the_headline_has_the_figures_of_the_bar() -> None:
    found = first_screen(SCAN)
    shares = {part.title: part.share for part in found.bar}
    idle, memory = shares["idle"], shares["memory-bound"]
    assert found.headline == f"Host-bound: the GPU idles {idle} of the step; memory-bound {memory}"


def test_notes_are_two_and_the_rest_is_counted() -> None:
    lines = screen(msgspec.structs.replace(SCAN, warnings=MANY))
    first, second = (at for at, line in enumerate(lines) if line.startswith("Note: "))
    assert (second - first, lines[-1][:5]) == (2, "Next:")
    assert lines[-2].endswith("(+38 more: --all)")


def test_the_users_own_line_is_shown_and_never_a_librarys() -> None:
    library = (Source(file="transformers/models/llama/modeling_llama.py", line=71, function="forward", begins=True),)
    gap = msgspec.structs.replace(GAP, source=library, module="Llama.LlamaMLP")
    scan = msgspec.structs.replace(SCAN, findings=(gap,))
    assert first_screen(scan).rows[0].place == "Llama.LlamaMLP"
    deeper = {gap.fingerprint: Source(file="train.py", line=9, function="step")}
    assert first_screen(scan, deeper).rows[0].place == "train.py:9 → LlamaMLP"
    own = msgspec.structs.replace(gap, source=(*library, Source(file="/home/me/run.py", line=3, function="main")))
    assert first_screen(msgspec.structs.replace(scan, findings=(own,))).rows[0].place == "run.py:3 → LlamaMLP"


def test_certainty_is_one_scale() -> None:
    narrow, wide = Range(80, 100, 120), Range(0, 100, 300)
    proven, near = msgspec.structs.replace(GAP, evidence="proven"), msgspec.structs.replace(GAP, evidence="adjacent")
    assert [sure_of(*each) for each in ((proven, narrow), (proven, wide), (near, narrow), (near, wide))] == [
        *("high", "medium", "medium", "low")
    ]


def test_rows_save_a_hundredth_at_least_and_the_rest_is_counted() -> None:
    found = first_screen(SCAN)
    assert all(not row.share.startswith("<") and row.share != "0%" for row in found.rows)
    assert found.total.startswith(f"Together with {3 - len(found.rows)} smaller (--all): ")


def test_what_is_hidden_is_in_no_sum() -> None:
    scan = fixed("Call it once.", "Call it so.", 1_000_000, 500_000)
    one, other = scan.findings
    hidden = msgspec.structs.replace(other, fingerprint="hidden", reported=False)
    found = msgspec.structs.replace(scan, findings=(one, other, hidden))
    for each in (scan, found):
        assert first_screen(each).total.startswith("Both findings together: 1,500 µs (30%)")
        assert all_of(each, "step_saving_ns").mid == 1_500_000


NORM_BY_COMPILE = "Compile it:\n\n    block.forward = torch.compile(block.forward)"
GRAPH = 'Compile it as a graph:\n\n    model = torch.compile(model, mode="reduce-overhead")'
CHAIN = "Compile it:\n\n    chain = torch.compile(chain)"
LAYOUT = f"Keep it so:\n\n    model = model.to(memory_format=torch.channels_last)\n\n{ALSO}."


def fixed(first: str, second: str, *saves_ns: int) -> Scan:
    findings = []
    for one, fix, ns in zip((NORM, GAP), (first, second), saves_ns, strict=True):
        assert one.per_step is not None
        saving = {"step_saving_ns": Range(ns, ns, ns), "step_saving_alone_ns": Range(ns, ns, ns)}
        per_step = msgspec.structs.replace(one.per_step, **saving)
        findings.append(msgspec.structs.replace(one, fix=fix, per_step=per_step, module=None))
    return msgspec.structs.replace(SCAN, findings=tuple(findings))


@pytest.mark.parametrize(
    ("first", "second", "edit"),
    [
        (NORM_BY_COMPILE, GRAPH, 'model = torch.compile(model, mode="reduce-overhead")'),
        (GRAPH, NORM_BY_COMPILE, 'model = torch.compile(model, mode="reduce-overhead")'),
        (NORM_BY_COMPILE, NORM_BY_COMPILE, "model = torch.compile(model)"),
        (NORM_BY_COMPILE, LAYOUT, "model = torch.compile(model)"),
        (NORM_BY_COMPILE, "So:\n\n    loss = torch.compile(loss)", "step = torch.compile(step)  # what calls them all"),
    ],
)
def test_rows_that_one_compilation_does_are_said_to_be_one_edit(first: str, second: str, edit: str) -> None:
    found = first_screen(fixed(first, second, 1_000_000, 500_000))
    assert found.at_once == f"First: 1 and 2 in one edit (1,500 µs, 30%, sure: medium): {edit}"


@pytest.mark.parametrize(
    ("first", "second", "saves_ns"),
    [
        (NORM_BY_COMPILE, "Call `f` once.", (1_000_000, 500_000)),  # the second is no compiler's
        (LAYOUT, LAYOUT, (1_000_000, 500_000)),  # nothing says that it can be compiled
        (NORM_BY_COMPILE, GRAPH, (1_000_000, 60_000)),  # the first alone is about as much
        (CHAIN, CHAIN, (1_000_000, 500_000)),  # a stand-in for two functions
        (NORM_BY_COMPILE, "So:\n\n    optimizer.step = torch.compile(optimizer.step)", (1_000_000, 500_000)),
    ],
)
def test_rows_that_no_compilation_does_are_not(first: str, second: str, saves_ns: tuple[int, int]) -> None:
    assert first_screen(fixed(first, second, *saves_ns)).at_once == ""


def test_one_edit_is_as_sure_as_the_least_sure_row_and_has_a_line_of_its_own_where_it_is_long() -> None:
    loss = f"So:\n\n    loss = torch.compile(loss)\n\n{AS_GRAPH}."
    scan = fixed(NORM_BY_COMPILE, loss, 1_000_000, 500_000)
    edit = 'step = torch.compile(step, mode="reduce-overhead")  # what calls them all'
    assert first_screen(scan).at_once.endswith(f"sure: medium): {edit}")
    lines = screen(scan, width=100)
    assert lines[lines.index(f"  {edit}") - 1].endswith("sure: medium):")


def test_derivatives_that_a_compiler_refuses_are_no_edit_of_the_model() -> None:
    twice = "So:\n\n    loss_of = torch.compile(lambda x: loss(torch.func.vmap(derivative)(x)))"
    assert first_screen(fixed(NORM_BY_COMPILE, twice, 1_000_000, 500_000)).at_once == ""


def test_what_to_do_is_cut_only_where_there_is_no_room() -> None:
    long = (
        "Call it once for all of them, which takes as many words as this has, more than one line holds, and some more"
    )
    scan = fixed(long, GRAPH, 1_000_000, 500_000)
    assert not any(line.endswith("…") for line in screen(scan, width=140) if "Call it once" in line)
    assert len(screen(msgspec.structs.replace(scan, warnings=MANY), width=100)) <= 24


def test_an_idle_step_without_a_finding_leads_to_the_host() -> None:
    bound = SCAN.summary.bound
    assert bound is not None
    for low, by, first in (
        (0.4, bound.by, "top FILE --host"),
        (0.0, bound.by, "top FILE"),
        (0.4, "unknown", "top FILE"),
    ):
        idle = msgspec.structs.replace(bound, unprofiled_idle_share=Share(low, 0.5, 0.6), by=by, held=None)
        summary = msgspec.structs.replace(SCAN.summary, bound=idle)
        assert first_screen(msgspec.structs.replace(SCAN, findings=(), summary=summary)).commands[0] == first


def test_the_same_edit_is_said_once() -> None:
    first, second = first_screen(fixed(GRAPH, GRAPH, 1_000_000, 500_000)).rows
    assert first.todo.endswith('model = torch.compile(model, mode="reduce-overhead")')
    assert second.todo == "Done by the edit of 1"
    first, second = first_screen(fixed(NORM_BY_COMPILE, NORM_BY_COMPILE, 1_000_000, 500_000)).rows
    assert first.todo == second.todo  # of two blocks


def test_a_word_or_two_before_code_is_not_what_to_do() -> None:
    fix = "Make it a multiple of 8 where it is chosen.\n\nA vocabulary:\n\n    a = 1\n    b = 2\n    c = 3"
    assert next_step(fix, 90) == "Make it a multiple of 8 where it is chosen"


def test_a_statement_that_compiles_says_more_than_a_setting_before_it() -> None:
    fix = "Freeze the weights:\n\n    config.freezing = True\n    model = torch.compile(model)   # in eval mode"
    assert next_step(fix, 90) == "Freeze the weights: model = torch.compile(model)"
    assert next_step(fix, 45) == "model = torch.compile(model)  # in eval mode"


def test_a_finding_that_saves_once_others_are_done_is_not_called_small() -> None:
    scan = fixed(GRAPH, "Call `f` once.", 1_000_000, 500_000)
    first, second = scan.findings
    assert second.per_step is not None
    later = msgspec.structs.replace(second.per_step, step_saving_alone_ns=NOTHING)
    scan = msgspec.structs.replace(scan, findings=(first, msgspec.structs.replace(second, per_step=later)))
    assert first_screen(scan).total.startswith("Together with 1 more, worth doing after these (--all): ")


def test_where_the_step_gains_nothing_gpu_time_is_said_to_be_saved() -> None:
    assert NORM.per_step is not None
    per_step = msgspec.structs.replace(NORM.per_step, step_saving_ns=NOTHING)
    finding = msgspec.structs.replace(NORM, per_step=per_step, step_saving_ns=NOTHING)
    found = first_screen(msgspec.structs.replace(SCAN, findings=(finding,)))
    assert (found.whole, [row.saves for row in found.rows]) == ("GPU time", ["206"])
    assert "of GPU time; the step gains it once nothing else sets its pace" in found.total


def test_every_title_of_a_rule_fits_and_ends_where_the_place_begins() -> None:
    titles = {title for rule in load_rules() for title in (rule.title, *(a.title for a in rule.advice if a.title))}
    for title in titles:
        assert len(title) <= 40
        assert cause_of(msgspec.structs.replace(NORM, title=f"{title}: Llama_*, LlamaMLP_* · mul, add")) == title


def test_a_loss_of_compiling_is_said_where_a_row_asks_for_it() -> None:
    loss = f"{LOSES} a `cat` of 24 computed tensors: write into one."
    for fix, is_said in ((NORM_BY_COMPILE, True), ("Call it once:\n\n    f()", False)):
        scan = fixed(fix, fix, 1_000_000, 500_000)
        noted = msgspec.structs.replace(scan, warnings=(loss,))
        assert (loss in first_screen(noted).notes) == is_said


def test_a_finding_of_a_backward_pass_is_at_the_line_of_its_forward_operator() -> None:
    analysis = analyse(ROOT / "fixtures" / "kineto" / "convnet_train.json.gz")
    scan = mined(analysis)
    frames = DeeperFrames(scan, analysis.timeline)
    rows = first_screen(scan, frames).rows
    assert [row.place for row in rows] == ["record.py:215 step", *["record.py:138 (backward)"] * 2]
    behind = scan.reported[rows[1].number - 1]
    assert behind.source == () and "backward" in behind.ops[0]
    (line,) = where(behind, scan, frames)
    assert line.text == "record.py:138 forward() (line of def), whose backward pass this is"
    assert [line.text.partition(":")[0] for line in where(behind, scan)] == ["no module or source line was recorded"]


@pytest.mark.parametrize(
    ("name", "offered"), [("nsys/block_train.sqlite", [2]), ("kineto/compiled_breaks.json.gz", [])]
)
def test_verify_is_offered_for_the_first_row_that_a_kernel_fixes_alone(name: str, offered: list[int]) -> None:
    scan = mined(analyse(ROOT / "fixtures" / name))
    shown = first_screen(scan)
    assert [row.number for row in shown.rows if one_kernel_fixes(scan.reported[row.number - 1])][:1] == offered
    commands = [one for one in shown.commands if "verify" in one]
    assert commands == [f"verify FILE --finding {number}" for number in offered]


def test_the_users_own_line_comes_before_a_librarys_in_every_list() -> None:
    library = Source(file="/x/site-packages/lib/norm.py", line=3, function="forward")
    own = Source(file="train.py", line=7, function="step")
    finding = msgspec.structs.replace(NORM, source=(library, own), module=None)
    assert [line.text for line in where(finding, SCAN)] == ["train.py:7 step()", f"{library.file}:3 forward()"]
    finding = msgspec.structs.replace(finding, source=(library,))
    assert next(where(finding, SCAN, {finding.fingerprint: own})).text == "train.py:7 step()"


def test_a_place_gives_way_before_a_cause_is_cut() -> None:
    own = Source(file="/home/ann/a_file_of_a_long_name.py", line=7, function="a_function_of_a_long_name")
    title = "Launch-bound, GPU idle between kernels"
    found = msgspec.structs.replace(NORM, title=title, source=(own,))
    rows = [text for text in screen(msgspec.structs.replace(SCAN, findings=(found,))) if title in text]
    assert len(rows) == 1
    assert "a_file_of_a_long_name.py:7  " in rows[0]
    assert "…" not in rows[0]
