"""The last step of a job as a Chrome trace for Perfetto: a process a rank, on clocks that were put together, and arrows
from the rank that came last to a collective to those that waited for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracemine.report.escape import json_text
from tracemine.report.overlay import json_event, microseconds

if TYPE_CHECKING:
    from tracemine.ranks.picture import DrawnCollective, DrawnRank, JobPicture

_COMPUTES, _COMMUNICATES = 1, 2
_LEAST_WAIT_NS = 1_000  # an arrow for less says nothing


def overlay(picture: JobPicture) -> str:
    """Return the trace as text."""
    events = b",\n".join(_events(picture)).decode()
    return json_text(f'{{"displayTimeUnit": "ns", "traceEvents": [\n{events}\n]}}\n')


def _events(picture: JobPicture) -> Iterator[bytes]:
    members: dict[int, list[tuple[DrawnRank, DrawnCollective]]] = defaultdict(list)
    for rank in picture.ranks:
        yield json_event({"ph": "M", "name": "process_name", "pid": rank.rank, "args": {"name": f"rank {rank.rank}"}})
        yield json_event({"ph": "M", "name": "process_sort_index", "pid": rank.rank, "args": {"sort_index": rank.rank}})
        for thread, name in ((_COMPUTES, "computes"), (_COMMUNICATES, "communicates")):
            yield json_event(
                {"ph": "M", "name": "thread_name", "pid": rank.rank, "tid": thread, "args": {"name": name}}
            )
        for begin, end in rank.computing_ns:
            yield _slice("computes", rank, _COMPUTES, begin, end)
        for sent in rank.collectives:
            yield _slice(sent.kind, rank, _COMMUNICATES, sent.begin_ns, sent.end_ns, collective=sent.number)
            if sent.waits_until_ns > sent.begin_ns:
                yield _slice("waits for other ranks", rank, _COMMUNICATES, sent.begin_ns, sent.waits_until_ns)
            members[sent.number].append((rank, sent))
    for number, joined in members.items():
        last, late = max(joined, key=lambda pair: pair[1].begin_ns)
        for rank, sent in joined:
            if rank is not last and sent.waits_until_ns - sent.begin_ns >= _LEAST_WAIT_NS:
                end = min(max(sent.waits_until_ns - 1, late.begin_ns), sent.end_ns)
                if end >= late.begin_ns:  # else clocks are off by more than the collective takes
                    yield _arrow("s", f"{number}.{rank.rank}", last, late.begin_ns)
                    yield _arrow("f", f"{number}.{rank.rank}", rank, end)


def _slice(name: str, rank: DrawnRank, thread: int, begin: int, end: int, **more: Any) -> bytes:
    return json_event(
        {
            "ph": "X", "cat": "tracemine", "name": name, "pid": rank.rank, "tid": thread, "ts": microseconds(begin),
            "dur": microseconds(end - begin), "args": more,
        }
    )  # fmt: skip


def _arrow(phase: str, name: str, rank: DrawnRank, at: int) -> bytes:
    event = {"ph": phase, "cat": "waits", "name": "was waited for", "id": name, "pid": rank.rank, "tid": _COMMUNICATES}
    return json_event({**event, "ts": microseconds(at), **({"bp": "e"} if phase == "f" else {})})
