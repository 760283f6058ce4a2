"""Identities of findings and variants across recordings: hashes of what they are, never of figures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from msgspec import Struct

from tracemine.findings.facts import activity_facts
from tracemine.findings.labels import Label, label_of, short
from tracemine.findings.record import Finding, Identity
from tracemine.matching.rule import Rule
from tracemine.rows.table import Rows
from tracemine.timeline import Timeline

# Facets of a match that tell variants of a finding apart; the others of a rule's `group_by` tell findings apart.
_OF_VARIANT = ("ops", "shapes")


class Place(Struct, frozen=True):
    """Where a cause is: findings with equal places are one."""

    mark: str  # the finding's identity
    aliases: tuple[str, ...]
    name: str | None  # class of the module or of the optimizer, or the function; "": not known; None: it is everywhere


def fingerprint(parts: dict[str, object]) -> str:
    """Return sixteen hex digits that depend on the given parts alone, whatever their order.

    >>> fingerprint({"rule": "x", "ops": ["aten::mul"]}) == fingerprint({"ops": ["aten::mul"], "rule": "x"})
    True
    """
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def place_of(rule: Rule, label: Label) -> Place:
    """Return the place of a match: its module's class, or, where none is known, what its operators are."""
    facets = {name: label.facet(name) for name in rule.group_by if name not in (*_OF_VARIANT, "module")}
    function = "" if not label.source else short(label.source[0]).rpartition("/")[2].replace(":", "")
    if "module" not in rule.group_by:
        name = function if facets.keys() & {"source", "line"} else None
        return Place(fingerprint({"cause": rule.id} | facets), (), name)
    unplaced = fingerprint({"cause": rule.id, "signature": label.core} | facets)
    if label.owner is None:
        return Place(unplaced, (), function)
    return Place(fingerprint({"cause": rule.id, "module": label.owner} | facets), (unplaced,), label.owner)


def variant_of(rule: Rule, label: Label) -> Identity:
    """Return the identity of a match's variant. Its alias is the fingerprint that schema version 1 gave."""
    facets = {name: label.facet(name) for name in _OF_VARIANT if name in rule.group_by}
    before = {name: label.facet(name) for name in rule.group_by} | {"rule": rule.id}
    if "module" in before:
        before["module"] = label.enclosing
    return Identity(fingerprint({"finding": place_of(rule, label).mark} | facets), (fingerprint(before),))


def identities(timeline: Timeline, rows: Rows, rules: Iterable[Rule]) -> Callable[[Finding], tuple[str, ...] | None]:
    """Return a function that gives the identity and the aliases of a variant in this trace, by its first occurrence.

    `rows` is the row set "activities". None: its rule is not among `rules`, or is about gaps.
    """
    facts = activity_facts(timeline, rows)
    known = {rule.id: rule for rule in rules if rule.rows == "activities"}

    def of(finding: Finding) -> tuple[str, ...] | None:
        rule = known.get(finding.rule)
        if rule is None:
            return None
        found = variant_of(rule, label_of(timeline, facts, np.array(finding.activities[0])))
        return (found.finding, *found.aliases)

    return of
