"""Choose among rules by name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tracemine.errors import UsageError
from tracemine.matching.nearest import RULE_NAMES, nearest
from tracemine.matching.rule import Rule


def selected(rules: Sequence[Rule], only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Return the rules that `only` names, all where it is empty, without those that `skip` names; names or patterns.

    Raises UsageError for a name that is no rule's, a pattern that fits none, and where nothing is left.

    >>> from tracemine.causes import load_rules
    >>> [rule.id for rule in selected(load_rules(), ["host_*", "launch_gap"], ["host_stall"])]
    ['host_sync', 'launch_gap']
    """
    wanted = _fitting(rules, only, "--rule") if only else {rule.id for rule in rules}
    left = wanted - _fitting(rules, skip, "--skip")
    if not left:
        raise UsageError("--skip: no rule is left to look for", hint=RULE_NAMES)
    return tuple(rule for rule in rules if rule.id in left)


def of_producer(rules: Sequence[Rule], producer: str) -> tuple[Rule, ...]:
    """Return the rules that hold for recordings of a producer, one of PRODUCERS.

    >>> from tracemine.causes import load_rules
    >>> any(rule.id == "optimizer_unfused" for rule in of_producer(load_rules(), "xla"))
    False
    """
    return tuple(rule for rule in rules if producer in rule.producers)


def _fitting(rules: Sequence[Rule], patterns: Sequence[str], option: str) -> set[str]:
    ids = [rule.id for rule in rules]
    fitting: set[str] = set()
    for pattern in patterns:
        named = {name for name in ids if fnmatchcase(name, pattern)}
        if not named:
            raise UsageError(f"{option}: there is no rule {pattern[:100]!a}", hint=nearest(pattern, ids, RULE_NAMES))
        fitting |= named
    return fitting
