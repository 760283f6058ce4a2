"""Every report, on scans made by hand."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from io import StringIO

import msgspec
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.text import Text

from tests.report.scans import EMPTY, GAP, HOSTILE_STRINGS, NORM, QUIET, SCAN, VERIFIED, hostile, hostile_verdicts
from tracemine.documents.words import of_finding
from tracemine.findings.record import NOTHING, Finding, Payback, Scan, Variant
from tracemine.report import REPORTS, Drawing, explain, render
from tracemine.tickets import Figures, findings_of
from tracemine.tickets.markdown import markdown
from tracemine.units import percent_text

Golden = Callable[[str, str], None]


def drawn(report: str, scan: Scan, **options: object) -> str:
    out = StringIO()
    render(report, scan, out, Drawing(**options))  # type: ignore[arg-type]
    return out.getvalue()


# --- the empty case first ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_a_trace_without_gpu_activity_says_how_to_record_one(report: str) -> None:
    text = drawn(report, EMPTY)
    assert "There is nothing to judge: no GPU activity was recorded." in text
    assert "ProfilerActivity.CUDA" in text.replace("\\", "")


def test_the_empty_report_is_as_it_is(golden: Golden) -> None:
    golden("report_empty.txt", drawn("text", EMPTY))
    golden("report_empty.md", drawn("markdown", EMPTY))


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_a_busy_gpu_is_given_as_the_reason_for_finding_nothing(report: str) -> None:
    assert "The GPU was busy for 99.0% of the time, and no rule matched." in drawn(report, QUIET)


def test_what_was_left_out_is_given_as_the_reason_for_finding_nothing() -> None:
    scan = msgspec.structs.replace(QUIET, dropped={"below_threshold": 2, "a_new_reason": 3})
    text = drawn("text", scan)
    assert "and 5 matches of a rule were left out." in text
    assert "skipped   3 matches a new reason, 2 below --min-saving" in text


def test_where_nothing_is_found_one_share_of_busy_time_is_stated_and_no_payback() -> None:
    hidden = [msgspec.structs.replace(one, reported=False) for one in SCAN.findings]
    paid = Payback(compile_low_ns=1, compile_high_ns=2, step_saving_ns=1, low_steps=7, high_steps=9, source="")
    summary = msgspec.structs.replace(SCAN.summary, payback=paid)
    assert "regained after 7–9 steps" in drawn("markdown", msgspec.structs.replace(SCAN, summary=summary))
    scan = msgspec.structs.replace(SCAN, summary=summary, findings=tuple(hidden))
    assert summary.parts is not None
    text = drawn("text", scan)
    assert "The GPU was busy for" not in text
    assert "of a rule were left out." in text
    assert "regained after" not in drawn("markdown", scan)


@pytest.mark.parametrize("report", ["text", "html"])
def test_how_to_get_source_lines_is_said_on_top_and_once_where_no_finding_has_one(report: str) -> None:
    said = "so no source line can be named: profile with with_stack=True."
    without = tuple(msgspec.structs.replace(one, source=()) for one in SCAN.findings)
    scan = msgspec.structs.replace(SCAN, findings=without, warnings=(f"Stacks were not recorded, {said}",))
    text, first = drawn(report, scan).partition('<script type="application/json"')[0], SCAN.findings[0].title
    assert text.count(said) == 1
    assert text.index(said) < text.index(first)
    scan = msgspec.structs.replace(scan, findings=SCAN.findings)
    text = drawn(report, scan).partition('<script type="application/json"')[0]
    assert text.index(said) > text.index(first)


# --- as they are ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "width"), [("report_80.txt", 80), ("report_120.txt", 120)])
def test_the_terminal_report_is_as_it_is(name: str, width: int, golden: Golden) -> None:
    golden(name, drawn("text", SCAN, width=width))


@pytest.mark.parametrize(("name", "width"), [("report_verdicts_80.txt", 80), ("report_verdicts_120.txt", 120)])
def test_the_terminal_report_with_verdicts_is_as_it_is(name: str, width: int, golden: Golden) -> None:
    golden(name, drawn("text", VERIFIED, width=width))


def test_the_tickets_with_verdicts_are_as_they_are(golden: Golden) -> None:
    golden("report_verdicts.md", drawn("markdown", VERIFIED))


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_measured_stands_beside_predicted_and_what_is_refuted_is_listed_whatever_top_says(report: str) -> None:
    text = drawn(report, VERIFIED, top=2).replace("\\", "")
    assert "predicted 412 µs over the trace (310–520 µs), off by −20.0 µs: within its interval" in " ".join(
        text.split()
    )
    assert "this fusion loses" in text
    assert "verdicts not used: 2 repeated on the same finding, 3 of another GPU, 40 on no finding" in " ".join(
        text.split()
    )
    assert "2 of 3 findings shown" in text


def test_the_terminal_report_in_colour_is_as_it_is(golden: Golden) -> None:
    golden("report_color.txt", drawn("text", SCAN, width=80, color=True).replace("\x1b", "␛"))


@pytest.mark.parametrize("report", REPORTS)
def test_every_report_is_as_it_is(report: str, golden: Golden) -> None:
    text = drawn(report, SCAN)
    if report == "json":
        text = json.dumps(json.loads(text), indent=1) + "\n"
    if report == "html":  # without our own files, and the findings, which are JSON
        text = re.sub(r"(<(style|script)[^>]*>).*?(</\2>)|sha256-[\w+/=]+", r"\1\3", text, flags=re.DOTALL)
    golden(f"report.{report}", text)


# --- what holds for all -----------------------------------------------------------------------------------------------


def test_colour_changes_nothing_but_colour() -> None:
    colored = Text.from_ansi(drawn("text", SCAN, color=True)).plain
    plain = drawn("text", SCAN, color=False)
    assert [one.rstrip() for one in colored.splitlines()] == plain.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize(
    "scan", [SCAN, EMPTY, QUIET, VERIFIED, *map(hostile, HOSTILE_STRINGS), *map(hostile_verdicts, HOSTILE_STRINGS)]
)
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(scan: Scan, width: int) -> None:
    for one in drawn("text", scan, width=width).splitlines():
        assert Text(one).cell_len <= width or one.strip() in NORM.fix  # code is whole, so that it can be pasted
        assert one == one.rstrip()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_code_is_never_cut(width: int) -> None:
    assert "return F.rms_norm(x, (x.shape[-1],), self.weight)\n" in drawn("text", SCAN, width=width).replace(
        "  # torch 2.4", ""
    )


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_a_finding_says_its_savings_a_step_its_fingerprint_and_its_rule(report: str) -> None:
    text = drawn(report, SCAN)
    assert {"text": "19.0 µs", "markdown": "206 µs"}[report] in text
    assert "412 µs" not in text.partition("## 3.")[0].partition("  3 ")[0]  # in two steps
    assert "0123456789abcdef" in text
    assert "rmsnorm_unfused" in text.replace("\\", "")


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_what_is_not_shown_is_one_counted_line(report: str) -> None:
    text = " ".join(drawn(report, SCAN).replace("\\", "").split())
    assert "1 smaller finding hidden (1.00 µs per step together): --min-saving 0ns" in text
    assert "00000000000000ee" not in text
    without = msgspec.structs.replace(SCAN, findings=SCAN.findings[:3])
    assert "hidden (" not in drawn(report, without)


def test_the_line_that_profilers_record_is_called_the_one_where_the_function_starts() -> None:
    text = drawn("markdown", SCAN)
    assert "modeling_llama.py:71 forward() (line of def)" in text
    assert "train.py:9 step()" in text


def test_the_list_names_the_users_own_line() -> None:
    library = msgspec.structs.replace(NORM.source[0], file="/venv/lib/site-packages/transformers/modeling_llama.py")
    finding = msgspec.structs.replace(NORM, source=(library, *NORM.source[1:]))
    text = drawn("text", msgspec.structs.replace(SCAN, findings=(finding,)), width=120)
    assert "train.py:9 step()" in text
    assert "modeling_llama.py" not in text


def test_variants_are_rows_with_how_often_they_occur_a_step() -> None:
    text = drawn("markdown", SCAN)
    assert "16 × per step, 480 µs per step" in text
    assert "1 × per step, 30.0 µs per step" in text


def test_top_limits_what_people_read_and_says_so() -> None:
    assert "2 of 3 findings shown: --top 0 shows all" in drawn("text", SCAN, top=2)
    assert "2 of 3 findings shown: `--top 0` shows all" in drawn("markdown", SCAN, top=2)
    assert "findings shown" not in drawn("text", SCAN, top=None)


def test_json_has_all_findings_whatever_top_says() -> None:
    found = json.loads(drawn("json", SCAN, top=1))
    assert len(found["findings"]) == 4
    assert sum(one["gpu_saving_ns"]["mid"] for one in found["findings"]) == found["summary"]["gpu_saving_ns"]["mid"]


def test_json_has_the_keys_of_the_contract() -> None:
    found = json.loads(drawn("json", SCAN))
    assert list(found) == [
        "schema_version",
        "trace",
        "summary",
        "findings",
        "dropped",
        "warnings",
        "refused",
        "evidence",
        "recorded",
        "spent",
    ]
    finding = found["findings"][0]
    for key in (
        *(
            "fingerprint",
            "rule",
            "title",
            "evidence",
            "severity",
            "occurrences",
            "activities",
            "ops",
            "shapes",
            "dtype",
        ),
        *("module", "source", "measured_ns", "fused_ns", "traffic_bytes", "flops", "arithmetic_intensity"),
        *("intermediate_bytes", "gpu_saving_ns", "step_saving_ns", "fix", "verdict"),
    ):
        assert key in finding
    assert finding["verdict"] is None
    assert finding["fused_ns"] is None


def test_json_is_one_line_a_trace() -> None:
    assert drawn("json", SCAN).count("\n") == 1


def test_json_says_exactly_what_the_scan_says() -> None:
    for text in HOSTILE_STRINGS:
        for scan in (hostile(text), hostile_verdicts(text)):
            assert msgspec.json.decode(drawn("json", scan), type=Scan) == scan


# --- a trace is something a stranger mails you ------------------------------------------------------------------------


def acts(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("made", [hostile, hostile_verdicts])
@pytest.mark.parametrize("text", HOSTILE_STRINGS)
@pytest.mark.parametrize("report", REPORTS)
def test_no_character_of_the_trace_acts_on_the_terminal(report: str, text: str, made: Callable[[str], Scan]) -> None:
    assert acting(drawn(report, made(text))) <= acting_of_an_ordinary(report, made)  # which may have tabs of its own


def acting(shown: str) -> Counter[str]:
    return Counter({character: count for character, count in Counter(shown).items() if acts(character)})


@cache
def acting_of_an_ordinary(report: str, made: Callable[[str], Scan]) -> Counter[str]:
    return acting(drawn(report, made("name")))


def test_rich_markup_in_a_name_is_shown_not_obeyed() -> None:
    text = drawn("text", hostile("[red]x[/red]"), color=True)
    assert "[red]x[/red]" in text
    assert "\x1b[31m" not in text


@pytest.mark.parametrize("text", HOSTILE_STRINGS)
def test_a_name_adds_no_lines_to_the_terminal_report(text: str) -> None:
    ordinary = drawn("text", hostile("name"), width=10_000)
    assert abs(drawn("text", hostile(text), width=10_000).count("\n") - ordinary.count("\n")) <= 15


@pytest.mark.parametrize("made", [hostile, hostile_verdicts])
@pytest.mark.parametrize("text", HOSTILE_STRINGS)
def test_a_name_adds_no_markup_to_the_ticket(text: str, made: Callable[[str], Scan]) -> None:
    tokens = parsed(made, text)
    leaves = [leaf for token in tokens for leaf in [token, *(token.children or [])]]
    kinds = {leaf.type for leaf in leaves}
    assert not kinds & {"html_inline", "link_open", "image", "blockquote_open", "s_open", "hr"}
    html = {token.content.strip() for token in tokens if token.type == "html_block"}
    assert all(re.fullmatch(r"<details>\n<summary>(The step|Finding \d+)</summary>|</details>", one) for one in html)
    headings = [token for token in tokens if token.type == "heading_open"]
    ordinary = [t for t in parsed(made, "name") if t.type == "heading_open"]
    assert [h.tag for h in headings] == [h.tag for h in ordinary]
    tables = [token.type for token in tokens if token.type in ("table_open", "tr_open", "td_open")]
    assert tables == [t.type for t in parsed(made, "name") if t.type in ("table_open", "tr_open", "td_open")]


@cache
def parsed(made: Callable[[str], Scan], text: str) -> Sequence[Token]:
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True}).enable(["table", "strikethrough"])
    return parser.parse(drawn("markdown", made(text)))


@pytest.mark.parametrize("trigger", ["@everyone", "#1", "GH-2", "https://", "www.evil", "mailto:a", "xmpp:a"])
def test_nobody_is_mentioned_and_nothing_is_linked_outside_code(trigger: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(drawn("markdown", hostile(f"see {trigger} now")))
    texts = [leaf.content for token in tokens for leaf in token.children or [] if leaf.type.startswith("text")]
    assert trigger not in "\n".join(texts)


def test_what_is_pasted_into_a_shell_holds_nothing_of_the_trace() -> None:
    text = drawn("markdown", hostile("'; rm -rf ~; echo '"))
    shell = [one.strip() for one in text.splitlines() if one.strip().startswith("tracemine ")]
    assert shell
    assert {*shell} == {"tracemine diff BEFORE AFTER"}  # its format is none that is known


def test_a_gap_without_a_source_says_how_to_record_one() -> None:
    scan = msgspec.structs.replace(SCAN, findings=(GAP,))
    assert "record with `with_stack=True`" in drawn("markdown", scan)


def test_a_verdict_of_what_was_not_timed_is_not_said_to_be_as_predicted() -> None:
    text = " ".join(drawn("text", VERIFIED).split())
    assert "1 as predicted" not in text
    assert "1 not timed: 1 L2" in text


def test_a_verdict_of_what_was_timed_and_not_settled_says_so() -> None:
    settled = [f for f in VERIFIED.findings if f.verdict is None or f.verdict.basis != "predicted"]
    (validated,) = [f for f in VERIFIED.findings if f not in settled]
    assert validated.verdict is not None
    timed = msgspec.structs.replace(validated.verdict, level="L3", eager_ns=30_000, says="unstable: two clocks differ")
    findings = [*settled, msgspec.structs.replace(validated, verdict=timed)]
    text = " ".join(drawn("text", msgspec.structs.replace(VERIFIED, findings=tuple(findings))).split())
    assert "1 timed, and not settled: 1 L3" in text
    assert "not timed" not in text


# --- amounts and their shares -----------------------------------------------------------------------------------------


def outside(finding: Finding) -> Finding:
    """The same, all of it outside of the steps."""
    assert finding.per_step is not None
    none = msgspec.structs.replace(
        finding.per_step, measured_ns=0, gpu_saving_ns=NOTHING, step_saving_ns=NOTHING, share_of_unprofiled=0.0
    )
    return msgspec.structs.replace(finding, per_step=none, severity="low")


def test_the_share_beside_a_saving_a_step_is_of_a_step() -> None:
    step = SCAN.summary.per_step
    assert step is not None
    elsewhere = msgspec.structs.replace(SCAN.summary, gpu_time_ns=1000 * SCAN.summary.gpu_time_ns)
    text = " ".join(drawn("markdown", msgspec.structs.replace(SCAN, summary=elsewhere)).split())
    share = percent_text(of_finding(NORM, "gpu_saving_ns").mid, step.gpu_busy_ns)
    assert f"{share} of the step's GPU time" in text


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_a_finding_outside_of_the_steps_says_so_and_is_never_of_nothing_a_step(report: str) -> None:
    scan = msgspec.structs.replace(SCAN, findings=(outside(NORM),))
    text = " ".join(drawn(report, scan).split())
    assert "over the trace, outside of the steps" in text
    assert "34 times, 1.02 ms in all, outside of the steps" in text
    assert "0 ns per step" not in text
    assert "outside of the steps" not in drawn(report, SCAN)


def test_a_finding_outside_of_the_steps_is_explained_and_filed_over_the_trace() -> None:
    finding = outside(NORM)
    scan, out = msgspec.structs.replace(SCAN, findings=(finding,)), StringIO()
    explain.render(finding, scan, out, Drawing())
    assert "after the fix 608 µs (500–710 µs) over the trace" in " ".join(out.getvalue().split())
    assert " per step" not in out.getvalue().partition("cost ")[2].partition("fix ")[0]
    (draft,) = findings_of(scan, "decoder").drafts
    assert draft.mark.figures == Figures(38_000, 1_020_000, "trace")
    assert draft.title.endswith(": −38.0 µs in the trace")
    assert "per step" not in markdown(draft.blocks).partition("**Where")[0]


@pytest.mark.parametrize(
    ("format_", "says"), [("kineto", "with_stack=True"), ("nsys", "--python-backtrace"), ("x", "")]
)
def test_the_advice_to_record_lines_is_of_the_profiler_that_recorded(format_: str, says: str) -> None:
    bare = msgspec.structs.replace(NORM, module=None, source=())
    trace = msgspec.structs.replace(SCAN.trace, format=format_)
    text = drawn("markdown", msgspec.structs.replace(SCAN, findings=(bare,), trace=trace))
    (line,) = [each for each in text.splitlines() if "no module or source line was recorded" in each]
    assert says in line
    assert ("with_stack" in line) is (format_ == "kineto")


@pytest.mark.parametrize(
    ("gpu", "says"), [("NVIDIA H100", "NVIDIA H100 is not in the device table"), (None, "the trace names no GPU")]
)
def test_a_scan_without_estimates_says_whether_the_trace_names_a_gpu(gpu: str | None, says: str) -> None:
    trace = msgspec.structs.replace(QUIET.trace, gpu=gpu, estimated_for=None)
    text = " ".join(drawn("text", msgspec.structs.replace(QUIET, trace=trace)).split())
    assert f"Savings of GPU time are not estimated: {says}." in text


def test_variants_of_other_operators_show_their_operators() -> None:
    one, two = (msgspec.structs.replace(variant, shapes="[7, 7]") for variant in NORM.variants[:2])
    other = msgspec.structs.replace(two, ops=("aten::add", "aten::native_layer_norm"))

    def text(*variants: Variant) -> str:
        finding = msgspec.structs.replace(NORM, shapes=None, variants=variants)
        return drawn("markdown", msgspec.structs.replace(SCAN, findings=(finding,)))

    assert "add → native_layer_norm [7, 7]" in text(msgspec.structs.replace(one, ops=NORM.ops), other)
    same = text(one, msgspec.structs.replace(two, ops=one.ops))
    assert ": [7, 7]" in same
