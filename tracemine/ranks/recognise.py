"""Which of a folder's traces are the ranks of one job, and which do not belong to it.

Several files are a job where at least two of them communicate, they agree in how many ranks there are, and their ranks
differ. The rank is what the profiler recorded, else what the file's name says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.formats.nsys import holds_ranks
from tracemine.formats.source import FileSource
from tracemine.ranks.reading import Outcome, rank_in, read_each
from tracemine.ranks.summary import RankSummary

_WORLD, _RANK = (re.compile(b'"' + key + rb'"\s*:\s*(\d{1,9})\b') for key in (b"world_size", b"rank"))


class RanksRead(Struct, frozen=True):
    """The ranks of a job, one summary each, and what of the files is none of them, by file."""

    ranks: tuple[RankSummary, ...]
    left_out: dict[str, str]

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has; None where no file says."""
        return next((rank.world_size for rank in self.ranks if rank.world_size is not None), None)

    @property
    def is_job(self) -> bool:
        """Whether there are several ranks that communicate."""
        return len(self.ranks) > 1 and sum(len(rank.start) > 0 for rank in self.ranks) > 1


def may_be_job(paths: Sequence[Path]) -> bool:
    """Return whether files seem to be different ranks of one job, by how they begin and what they are called.

    One file alone may be an export of nsys with several processes that communicate.

    >>> may_be_job([Path("fixtures/kineto/chain.json.gz"), Path("fixtures/kineto/norms.json.gz")])
    False
    """
    if len(paths) == 1:
        return holds_ranks(paths[0])
    ranks = [announced(path) for path in paths]
    known = [rank for rank in ranks if rank is not None]
    return len(set(known)) > 1 and 2 * len(known) > len(ranks)


def jobs_in_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of files that each hold a job of their own, if several do and have a rank in common."""
    ranks: dict[Path, set[int]] = {}
    for path in paths:
        rank = announced(path)
        if rank is not None:
            ranks.setdefault(path.parent, set()).add(rank)
    jobs = [folder for folder, of in ranks.items() if len(of) > 1]
    has_common = len(jobs) > 1 and len(set().union(*(ranks[each] for each in jobs))) < sum(
        len(ranks[each]) for each in jobs
    )
    return jobs if has_common else []


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


def read_ranks(
    paths: Iterable[Path],
    note: Callable[[str], None] | None = None,
    processes: int | None = None,
    read: Callable[..., Iterator[Outcome]] | None = None,
) -> RanksRead:
    """Read each file to the summary of its rank; what cannot be one is left out, with the reason. Where ranks recorded
    other steps than the rest, those count that all of them did.

    note: called with what is left out. processes: as of `read_each`. read: yields what each file holds in its place.
    """
    left_out: dict[str, str] = {}
    summaries: list[tuple[Path, RankSummary]] = []
    named, read = list(paths), read or partial(read_each, processes=processes)
    for path, found in zip(named, read(named), strict=True):
        if isinstance(found, TracemineError):
            left_out[path.name] = found.message
        else:
            summaries += ((path, summary) for summary in found)
    ranks = _distinct(summaries, left_out)
    for file, reason in left_out.items():
        if note is not None:
            note(f"{file}: left out: {reason}")
    found_by = {number: summary for number, (_, summary) in ranks.items()} | _again(ranks, read)
    return RanksRead(tuple(found_by[number] for number in sorted(found_by)), left_out)


def _again(
    ranks: dict[int, tuple[Path, RankSummary]], read: Callable[..., Iterator[Outcome]]
) -> dict[int, RankSummary]:
    """Return ranks that recorded other steps than the rest, read again with those that all recorded."""
    only = _common_steps([summary for _, summary in ranks.values()])
    if only is None:
        return {}
    others = dict.fromkeys(path for path, summary in ranks.values() if summary.numbers != tuple(only))
    again = chain(*(found for found in read(list(others), only=only) if not isinstance(found, TracemineError)))
    return {summary.rank: summary for summary in again if summary.rank in ranks}


def _distinct(
    summaries: Sequence[tuple[Path, RankSummary]], left_out: dict[str, str]
) -> dict[int, tuple[Path, RankSummary]]:
    """Return one recording of each rank, the latest; what is left out with the reason is added to that."""
    size = _world([summary for _, summary in summaries])
    ranks: dict[int, tuple[Path, RankSummary]] = {}
    for path, summary in sorted(summaries, key=lambda one: one[1].window[0]):
        if summary.world_size not in (None, size):
            left_out[summary.file] = f"is of a job of {summary.world_size} ranks, the others of {size}"
            continue
        if summary.rank in ranks:
            earlier = ranks[summary.rank][1].file
            left_out[earlier] = f"rank {summary.rank} is recorded in {summary.file} as well, later"
        ranks[summary.rank] = path, summary
    return ranks


def _common_steps(ranks: Sequence[RankSummary]) -> range | None:
    """Return the numbers of the steps that all ranks recorded; None where that is all of each, or nothing is known."""
    each = {rank.numbers for rank in ranks}
    common = sorted(set.intersection(*map(set, each))) if each else []
    if len(each) < 2 or not common or common[0] < 0 or common[-1] - common[0] >= len(common):
        return None
    return range(common[0], common[-1] + 1)


def _world(summaries: Sequence[RankSummary]) -> int | None:
    """Return how many ranks the job has, by what most of the files say."""
    sizes = Counter(summary.world_size for summary in summaries if summary.world_size is not None)
    return max(sizes, key=lambda size: sizes[size]) if sizes else None
