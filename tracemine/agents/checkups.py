"""Whether a recording can be trusted, for an agent: what `tracemine doctor` says."""

from __future__ import annotations

from tracemine.agents.asked import Answer, TracePath
from tracemine.agents.quoted import SENTENCE, lines, maybe, quoted, some, word
from tracemine.agents.reading import Reader
from tracemine.doctor import check_up

_MOST_PARTS, _MOST_DOUBTS = 6, 4


def doctor(reader: Reader, *, path: TracePath) -> Answer:
    """Return whether a recording can be trusted, what it lacks, and how to record it right.

    verdict: `fine`, `limited` or `serious`. missing: each with the switch that records it. serious, of a doubt: figures
    cannot be taken as they are.
    """
    read, analysis = reader.analysed(path, None)
    found = check_up(analysis.timeline, read.scan)
    lacks = [part for part in found.parts if not part.recorded]
    missing = [f"{part.name}: {part.says}{f' ({part.switch})' if part.switch else ''}" for part in lacks]
    return {
        "verdict": found.verdict,
        "recorded": tuple(word(part.name.replace(" ", "_")) for part in found.parts if part.recorded),
        "next": "record it again as `record` says" if found.serious else "scan it",
        "untrusted": {
            "trace": quoted(reader.shown(read)),
            "missing": some(missing, _MOST_PARTS, SENTENCE // 2),
            "doubts": tuple(
                {"serious": one.serious, "says": quoted(one.says, SENTENCE), "do": maybe(one.do, SENTENCE)}
                for one in found.doubts[:_MOST_DOUBTS]
            ),
            "record": lines(found.recipe.command if found.verdict == "fine" else found.recipe.code),
        },
    }
