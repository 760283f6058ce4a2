"""Least traffic of a loop over tensors in passes over lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tracemine.causes.optimizer_unfused.passes import ListWork, firsts, moved_bytes
from tracemine.findings.lists import ListedCall, Lists
from tracemine.perfmodel import Pass


def loop_work(lists: Lists, calls: Sequence[ListedCall], kind: str) -> ListWork | None:
    """Return what is left of a loop over tensors in passes over lists; None where no sizes are known."""
    if any(call.sizes is None or not call.sizes or call.item_bytes is None for call in calls):
        return None
    before = sum(moved_bytes(call) for call in calls)
    turns: dict[str, list[ListedCall]] = defaultdict(list)
    for call in calls:
        turns[call.name].append(call)
    last = turns[calls[-1].name]
    own, item = firsts(last), last[0].item_bytes or 4
    if kind == "average":
        nbytes = item * sum(own)
        return ListWork(passes=(Pass(reads=2 * nbytes, writes=nbytes, sizes=own, lists=2),), before=before, sure=True)
    if kind == "norm":
        return ListWork(passes=(Pass(reads=item * sum(own), writes=0, sizes=own, lists=1),), before=before, sure=True)
    passes = []
    for each in turns.values():
        sizes, item = firsts(each), each[0].item_bytes or 4
        taken = each[0].moved - 1
        nbytes = item * sum(sizes)
        one = Pass(reads=taken * nbytes, writes=nbytes, sizes=sizes, lists=max(taken, 1))
        passes += [one] * _operators_over_lists(lists, each[0])
    return ListWork(passes=tuple(passes), before=before, sure=True)


def _operators_over_lists(lists: Lists, call: ListedCall) -> int:
    """Return how many list operators replace a loop over such calls: clamping has one for each bound."""
    return max(lists.types(call.row).count("Scalar"), 1) if call.name in ("clamp", "clamp_") else 1
