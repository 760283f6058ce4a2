"""`tracemine rules why`: the nearest miss of a trace, and what became of matches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
TRACE = FIXTURES / "decoder_prefill.json.gz"
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("rmsnorm_unfused", "matches 10 in 186 rows of activities findings 10bb3930e730d027 · 10 occurrences"),
        ("host_sync", "104 matches but for waited.cause is synchronisation: there waited.cause is host_bound"),
        ("attention_unfused", "no row is product: kind is kernel and operation is bmm"),
        ("library_below_rate", "left out 4 matches of library kernels near roofline"),
        ("memory_bound_chain", "other rules claim them"),
    ],
)
def test_it_says_what_is_in_the_way_or_what_became_of_matches(run: Run, rule: str, said: str) -> None:
    code, out, err = run("rules", "why", rule, TRACE)
    assert (code, err) == (0, "")
    assert said in " ".join(out.split())


def test_a_rule_of_ones_own_is_explained(run: Run, tmp_path: Path) -> None:
    assert run("rules", "new", "norm_then_add", "--in", tmp_path)[0] == 0
    file = tmp_path / "norm_then_add" / "rule.toml"
    text = file.read_text().replace("TODO_first", "pow").replace("TODO_second", "mean").replace("20_000", "1")
    file.write_text(text)
    out = " ".join(run("rules", "why", "norm_then_add", TRACE, "--rules", tmp_path)[1].split())
    assert "nearest 10 matches but for second.gap_ns < 1: there second.gap_ns is" in out


def test_a_rule_or_a_trace_that_is_none_is_an_error(run: Run) -> None:
    assert run("rules", "why", "rmsnorm", TRACE)[2].startswith("there is no rule 'rmsnorm'\n  hint: did you mean")
    assert run("rules", "why", "launch_gap", "nothing.json")[2] == "nothing.json: there is no such file\n"
