"""From GPU time saved to the step's: how much of a saving moves everything behind it, and how much waits for the host.

The timeline is replayed with shorter activities. On a stream each activity starts when the one before it ends, but not
before its launch: so it can start earlier by no more than the time that it waited in the queue, and a shift that is
larger than that is lost there. Where the host itself waited for the device, it goes on earlier by the whole shift, and
so does all that it launches afterwards. Streams are taken one by one. The host's time is taken as recorded; a caller
can say by how much fewer launches shorten it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracemine.findings.facts import category, number, numbers_of
from tracemine.rows.arrow import rows_of, take_numbers
from tracemine.rows.table import BoolArray, IntArray, Numbers, Rows
from tracemine.timeline import Timeline

_UNLIMITED_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Queues:
    """The activities stream by stream, and what each waited for."""

    order: IntArray  # activity rows, stream by stream, in order of start
    bounds: IntArray  # cuts of `order`: streams, and within them where the host had waited for the device
    slack_ns: IntArray  # in that order: how much earlier each could start for all its launch has to do with it
    last_ns: IntArray  # for each piece between bounds: the slack of what follows it

    def queued(self, matrix: IntArray) -> BoolArray:
        """For each match, whether all its activities were queued behind other work."""
        waited = np.zeros(len(self.order), dtype=bool)
        waited[self.order] = self.slack_ns > 0
        found: BoolArray = np.asarray(waited[matrix].all(axis=1), dtype=bool)
        return found

    def gained(self, saved_ns: IntArray, host_ns: IntArray) -> IntArray:
        """Of what each activity is shorter, the part that is still gained at the end. By activity row, nanoseconds.

        `host_ns`: by how much sooner the host is done with what it launches up to each activity. Where not all of
        several savings can be gained, the later ones count.

        >>> queues = Queues(np.arange(3), np.array([0, 3]), np.array([0, 9, 5]), np.array([1 << 62]))
        >>> queues.gained(np.array([4, 4, 4]), np.zeros(3, int)).tolist()
        [1, 4, 4]
        """
        saved, host = saved_ns[self.order], host_ns[self.order]
        total, sooner = np.cumsum(saved), np.cumsum(host)
        # What may be left of the shifts before an activity: its slack, less what was saved in between.
        room = self.slack_ns + (sooner - host) - (total - saved)
        gained = np.zeros_like(saved_ns)
        for (start, stop), last in zip(pairwise(self.bounds.tolist()), self.last_ns.tolist(), strict=True):
            before = sooner[start] - host[start]  # a host that waited for the device gains nothing from before
            behind = np.append(room[start + 1 : stop], last + sooner[stop - 1] - total[stop - 1])
            left = np.minimum.accumulate(behind[::-1])[::-1] + total[start:stop] - before
            gained[self.order[start:stop]] = np.clip(left, 0, saved[start:stop])
        return gained


def queues_of(timeline: Timeline, rows: dict[str, Rows]) -> Queues:
    """What stood in which queue.

    An activity whose launch is not recorded is taken to have waited for nothing; within a graph replay each follows the
    one before it whatever the host does. What would follow the last activity of a stream is taken to wait as long as
    that did: the host is assumed to go on as it did, not to wait for the device at the end of the recording.
    """
    activities = timeline.activities
    launch, start = rows_of(activities["launch_row"]), rows_of(activities["start_ns"])
    returned = take_numbers(Numbers(rows_of(timeline.api["start_ns"]) + rows_of(timeline.api["dur_ns"])), launch)
    gap = numbers_of(rows["activities"], "gap_ns")
    known = (launch >= 0) & (True if gap.valid is None else gap.valid)
    waited = np.where(known, start - returned.values - gap.values.astype(np.int64), 0)
    place = np.stack((rows_of(activities["stream"]), rows_of(activities["device"])))
    order = np.lexsort((np.arange(len(start)), *place))
    begins = _begins(place[:, order])
    replayed = ~begins & (launch[order] >= 0)
    replayed[1:] &= launch[order][1:] == launch[order][:-1]
    slack = np.where(replayed, _UNLIMITED_NS, np.maximum(waited[order], 0))
    causes = category(rows["gaps"], "cause")
    released = np.zeros(len(start), dtype=bool)
    synced = np.array([*(cause == "synchronisation" for cause in causes.values), False], dtype=bool)[causes.codes]
    released[number(rows["gaps"], "next_row")[synced]] = True
    bounds = np.append(np.flatnonzero(begins | released[order]), len(order))
    launched = np.maximum.accumulate(np.where(replayed, 0, np.arange(len(order))))  # what began each replay
    ends_stream = np.append(begins[1:], True)[bounds[1:] - 1] if len(order) else begins
    last = np.where(ends_stream, slack[launched[bounds[1:] - 1]], _UNLIMITED_NS)
    return Queues(order, bounds, slack, last)


def launching_ns(timeline: Timeline, matrix: IntArray) -> IntArray:
    """For each match, the host's time from its first launch to its last; 0 where that is not known.

    One launch in place of all takes none of it.
    """
    api = timeline.api
    if not api.num_rows:
        return np.zeros(len(matrix), dtype=np.int64)
    first, last = (rows_of(timeline.activities["launch_row"])[matrix[:, at]] for at in (0, -1))
    begin, thread = rows_of(api["start_ns"]), rows_of(api["tid"])
    known = (first >= 0) & (last >= 0) & (thread[first] == thread[last])
    return np.where(known, np.maximum(begin[last] - begin[first], 0), 0)


def _begins(place: IntArray) -> BoolArray:
    begins = np.ones(place.shape[1], dtype=bool)
    begins[1:] = (place[:, 1:] != place[:, :-1]).any(axis=0)
    return begins
