"""Which of a folder's traces are the ranks of one job, and which do not belong to it.

Several files are a job where at least two of them communicate, they agree in how many ranks there are, and their ranks
differ. The rank is what the profiler recorded, else what the file's name says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.formats import open_trace
from tracemine.formats.source import FileSource
from tracemine.ranks.summary import RankSummary, summarise
from tracemine.timeline import Timeline

_WORLD, _RANK = (re.compile(b'"' + key + rb'"\s*:\s*(\d{1,9})\b') for key in (b"world_size", b"rank"))
# Names of files that hold a rank: rank-3, rank_3, worker3, TP-3.
_NAMED = re.compile(r"(?i)(?<![a-z])(?:rank|worker|tp|dp|pp|ep)[-_]?(\d{1,6})(?!\d)")


class Read(Struct, frozen=True):
    """The ranks of a job, one summary each, and what of the files is none of them, by file."""

    ranks: tuple[RankSummary, ...]
    left_out: dict[str, str]

    @property
    def is_job(self) -> bool:
        """Whether there are several ranks that communicate."""
        return len(self.ranks) > 1 and sum(len(rank.start) > 0 for rank in self.ranks) > 1


def rank_in(name: str) -> int | None:
    """Return the rank that a file's name says.

    >>> [rank_in(name) for name in ("rank-5.json", "run-TP-3.trace.json.gz", "worker2_step_1.json", "frank1.json")]
    [5, 3, 2, None]
    """
    named = _NAMED.search(name)
    return None if named is None else int(named[1])


def may_be_job(paths: Sequence[Path]) -> bool:
    """Return whether files seem to be different ranks of one job, by how they begin and what they are called.

    >>> may_be_job([Path("fixtures/kineto/chain.json.gz"), Path("fixtures/kineto/norms.json.gz")])
    False
    """
    if len(paths) < 2:
        return False
    ranks = [announced(path) for path in paths]
    known = [rank for rank in ranks if rank is not None]
    return len(set(known)) > 1 and 2 * len(known) > len(ranks)


def announced(path: Path) -> int | None:
    """Return the rank of a job of several that a file's beginning tells, else its name; None where neither does."""
    try:
        with FileSource(path) as source:
            head = source.head
    except TracemineError:
        return None
    world, rank = (pattern.search(head) for pattern in (_WORLD, _RANK))
    if rank is not None and world is not None:
        return int(rank[1]) if int(world[1]) > 1 else None
    return rank_in(path.name)


def read_ranks(paths: Iterable[Path], note: Callable[[str], None] | None = None) -> Read:
    """Read each file to the summary of its rank, one at a time; what cannot be one is left out, with the reason.

    note: is told what is left out.
    """
    ranks: dict[int, RankSummary] = {}
    left_out: dict[str, str] = {}
    for path in paths:
        try:
            timeline = open_trace(path)
        except TracemineError as error:
            left_out[path.name] = error.message
            continue
        rank = timeline.meta.rank if timeline.meta.rank is not None else rank_in(path.name)
        reason = _refused(timeline, rank)
        if reason is not None or rank is None:
            left_out[path.name] = reason or ""
            continue
        summary = summarise(timeline, str(path), rank)
        earlier = ranks.get(rank)
        if earlier is not None:  # of two recordings of a rank the later is kept
            kept, gone = (summary, earlier) if summary.window[0] > earlier.window[0] else (earlier, summary)
            left_out[gone.file] = f"rank {rank} is recorded in {kept.file} as well, later"
            summary = kept
        ranks[rank] = summary
    sizes = {rank.world_size for rank in ranks.values() if rank.world_size is not None}
    if len(sizes) > 1:
        most = max(sizes, key=lambda size: sum(rank.world_size == size for rank in ranks.values()))
        for number, summarised in list(ranks.items()):
            if summarised.world_size not in (None, most):
                left_out[summarised.file] = f"is of a job of {summarised.world_size} ranks, the others of {most}"
                del ranks[number]
    for file, reason in left_out.items():
        if note is not None:
            note(f"{file}: left out: {reason}")
    return Read(tuple(ranks[number] for number in sorted(ranks)), left_out)


def _refused(timeline: Timeline, rank: int | None) -> str | None:
    if timeline.activities.num_rows == 0:
        return "no GPU activity was recorded"
    return "neither the trace nor the file's name says which rank it is" if rank is None else None
