"""Whether a recording can be trusted, for an agent: what `tracemine doctor` says."""

from __future__ import annotations

import msgspec

from tracemine.agents.answers import AskDoctor
from tracemine.agents.quoted import SENTENCE, lines, maybe, quoted, some, word
from tracemine.agents.reading import Reader
from tracemine.doctor import check_up

_MOST_PARTS, _MOST_DOUBTS = 6, 4


class DoubtRow(msgspec.Struct, frozen=True, kw_only=True):
    """What makes figures differ from how the program runs, and what to do. `serious`: they cannot be taken so."""

    serious: bool
    says: str
    do: str | None


class DoctorTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording lacks, each with the switch that records it, and what distorts it."""

    trace: str
    missing: tuple[str, ...]
    doubts: tuple[DoubtRow, ...]
    record: str


class DoctorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a recording can be trusted: `fine`, `limited` or `serious`."""

    verdict: str
    recorded: tuple[str, ...]
    next: str
    untrusted: DoctorTexts


def doctor(reader: Reader, ask: AskDoctor) -> DoctorAnswer:
    """Return whether a recording can be trusted, what it lacks, and how to record it right."""
    read, analysis = reader.analysed(ask.path, None)
    found = check_up(analysis.timeline, read.scan)
    lacks = [part for part in found.parts if not part.recorded]
    missing = [f"{part.name}: {part.says}{f' ({part.switch})' if part.switch else ''}" for part in lacks]
    return DoctorAnswer(
        verdict=found.verdict,
        recorded=tuple(word(part.name.replace(" ", "_")) for part in found.parts if part.recorded),
        next="record it again as `record` says" if found.serious else "scan it",
        untrusted=DoctorTexts(
            trace=quoted(reader.shown(read)),
            missing=some(missing, _MOST_PARTS, SENTENCE // 2),
            doubts=tuple(
                DoubtRow(serious=one.serious, says=quoted(one.says, SENTENCE), do=maybe(one.do, SENTENCE))
                for one in found.doubts[:_MOST_DOUBTS]
            ),
            record=lines(found.recipe.command if found.verdict == "fine" else found.recipe.code),
        ),
    )
