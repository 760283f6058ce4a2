"""Rooms of causes: each is of a rule, and the engine gets from them what it asks for."""

from __future__ import annotations

import pytest

from tracemine.causes import CAUSES, Cause, load_rules

IDS = {rule.id for rule in load_rules()}


def test_every_cause_is_of_a_rule_and_once() -> None:
    named = [cause.rule for cause in CAUSES]
    assert set(named) <= IDS
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.rule)
def test_what_a_cause_names_is_there(cause: Cause) -> None:
    rule = next(rule for rule in load_rules() if rule.id == cause.rule)
    assert not cause.savings or [*cause.savings] == [rule.saving]
    assert (cause.fix_at is None and cause.ways is None) == (cause.fix is None)
    assert cause.fix_at is None or cause.ways is None
