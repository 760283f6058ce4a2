"""Titles tell tickets apart, and a ticket is short: over every fixture."""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.scans import NORM
from tests.tickets.build import named, scan_of
from tracemine import pipeline
from tracemine.causes import load_rules
from tracemine.errors import InputError
from tracemine.findings.record import Scan
from tracemine.tickets import TicketDraft, findings_of
from tracemine.tickets.markdown import markdown, title
from tracemine.tickets.titles import LONGEST, distinct_titles, ways_to_say

ENDINGS = (".json.gz", ".sqlite")
MOST_WORDS = 210  # in the median; what the folded part holds counts too
BEFORE = 507  # in the median, when a ticket held all that `explain` says
ROOT = Path(__file__).parents[2] / "fixtures"


@cache
def scans() -> dict[str, Scan]:
    """The scan of every fixture that is a trace."""
    found = {}
    for path in sorted(ROOT.rglob("*")):
        if path.name.endswith(ENDINGS) and "et.json" not in path.name:
            try:
                found[str(path.relative_to(ROOT))] = pipeline.scan(path)
            except InputError:
                continue
    return found


def drafts(scan: Scan) -> tuple[TicketDraft, ...]:
    return findings_of(scan, "decoder").drafts


def test_no_two_titles_of_one_trace_are_the_same_and_none_is_too_long() -> None:
    count = 0
    for name, scan in scans().items():
        titles = [one.title.rpartition(": −")[0] or one.title for one in drafts(scan)]
        assert len(set(titles)) == len(titles), (name, titles)
        assert all(len(one.title) <= LONGEST for one in drafts(scan)), name
        count += len(titles)
    assert count > 80


def test_half_of_the_tickets_have_no_more_words_than_a_reader_takes_in() -> None:
    words = [len(markdown(one.blocks).split()) for scan in scans().values() for one in drafts(scan)]
    shown = [len(markdown(one.blocks[:-1]).split()) for scan in scans().values() for one in drafts(scan)]
    now, unfolded = statistics.median(words), statistics.median(shown)
    print(f"{len(words)} tickets: median of words {BEFORE} before, {now} now, {unfolded} without what is folded")
    assert now <= MOST_WORDS
    assert unfolded <= now - 20


def test_every_title_of_a_rule_is_something_to_do_that_fits() -> None:
    titled: list[Any] = [one for rule in load_rules() for one in (rule, *(one for one in rule.advice if one.title))]
    tasks = [one.task or "" for one in titled]
    assert all(0 < len(task) <= 36 for task in tasks), dict(zip(tasks, titled, strict=True))
    assert len(set(tasks)) > 0.9 * len(tasks)


def test_findings_alike_are_distinct_titles_by_module_line_operators_and_last_by_identity() -> None:
    one = msgspec.structs.replace(NORM, variants=(), source=())
    module = msgspec.structs.replace(named(one, "1" * 16), module="Net_*.Decoder_*.input_layernorm")
    deeper = msgspec.structs.replace(named(one, "2" * 16), module="Net_*.Encoder_*.input_layernorm")
    ops = msgspec.structs.replace(named(deeper, "3" * 16), ops=("aten::rsqrt",))
    twin = named(ops, "4" * 16)
    titles = [found.title.partition(": −")[0] for found in drafts(scan_of(module, deeper, ops, twin))]
    assert titles == [
        "Fuse RMSNorm in Net.Decoder.input_layernorm",
        "Fuse RMSNorm in input_layernorm: pow, mean, add …",
        "Fuse RMSNorm in input_layernorm (33333333)",
        "Fuse RMSNorm in input_layernorm (44444444)",
    ]


NAMES = st.text(max_size=90)


@given(st.lists(st.tuples(NAMES, NAMES, st.none() | NAMES, NAMES, st.lists(NAMES, max_size=4)), max_size=8), NAMES)
def test_whatever_a_trace_says_titles_differ_and_are_short(each: list[tuple[object, ...]], saves: str) -> None:
    ways = [
        tuple(ways_to_say(task, tail, module=module, line=line, ops=ops, mark=f"{number:08x}", saves=saves[:30]))  # type: ignore[arg-type]
        for number, (task, tail, module, line, ops) in enumerate(each)
    ]
    titles = distinct_titles(ways)
    assert all(len(one) <= LONGEST - len(saves[:30]) for one in titles)
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("text", ["@all", "#12", "a\nb", "<!-- tracemine: a/0000000000000000 -->"])
def test_a_module_is_text_in_a_title(text: str) -> None:
    (one,) = drafts(scan_of(msgspec.structs.replace(NORM, module=text, variants=())))
    shown = title(one.title)
    assert "\n" not in shown and "@all" not in shown and "#12" not in shown
