"""What costs a job its time: the one record that all who look for it give, and the table of causes.toml: what each is
called, by what it is known, and what to do.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct, convert

from tracemine.ranks.record import Interval, JobFinding, named
from tracemine.rows.table import IntArray


class CauseText(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule's text."""

    cause: str
    evidence: str
    title: str
    fix: str
    parts: tuple[str, ...] = ()  # of collectives that need not be


@cache
def cause_texts() -> dict[str, CauseText]:
    """Return the text of each rule."""
    text = Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), dict[str, CauseText])


@cache
def rule_of_part(part: str) -> str:
    """Return the rule of collectives of a part.

    >>> rule_of_part("sliced")
    'reduce_then_slice'
    """
    return next(rule for rule, text in cause_texts().items() if part in text.parts)


class JobCause(Struct, frozen=True, kw_only=True):
    """What costs a job its time: by which rule, whose it is, what a step gains, and what is known of it."""

    rule: str
    ranks: tuple[int, ...]
    saving: Interval | None  # None: it cannot be said
    facts: tuple[str, ...]
    evidence: str = ""  # other than the table's
    costs_ns: float = 0  # a step, by which it is ordered where it saves less
    kind: str = ""  # of collectives
    count: str = ""
    jobs: IntArray = np.zeros(0, np.int64)  # collectives of the job that it claims
    waited_for_ns: int = 0  # a step, by which others would idle less, if they idle for want of this rank

    @property
    def weight(self) -> float:
        """By what it is ordered."""
        return max(self.saving.mid if self.saving else 0, self.costs_ns)

    def finding(self) -> JobFinding:
        """Return it as the job's report has it."""
        text = cause_texts()[self.rule]
        kind = self.kind.replace("_", "-") + "s"  # all_to_all: all-to-alls
        title = text.title.format(
            rank=next(iter(self.ranks), None), kind=kind, count=self.count, ranks=named(self.ranks, 4)
        )
        return JobFinding(
            rule=self.rule, cause=text.cause, title=title[:1].upper() + title[1:], ranks=self.ranks,
            step_saving_ns=self.saving, evidence=self.evidence or text.evidence, facts=self.facts, fix=text.fix,
        )  # fmt: skip
