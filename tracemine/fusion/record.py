"""Fusion groups as arrays: which nodes one kernel could do, what that kernel would be, and what was refused and why."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.kernel import FusedKernel


class Refusal(Enum):
    """Why two that share data are not one group. The order is the code's; the text is what a user reads."""

    LIBRARY = "a kernel that nothing can be added to"  # the members say which: see Groups.library_reason
    SPACE = "they run over different rows or sizes"
    REDUCTION = "they reduce along different axes"
    CYCLE = "something in between needs the one and is needed by the other"
    HOST = "the host reads in between what the one makes, and what it launches then may depend on that"
    UNSURE = "the dataflow in between is not sure: something there may need the one and be needed by the other"
    FAR = "too much lies in between to be sure that nothing needs the one and is needed by the other"
    HAZARD = "one writes in place what the other reads elsewhere"
    WHOLE = "the second needs all of what the first makes, at computed places"
    SLICE = "the second takes a small slice of what the first makes"
    RECOMPUTED = "the second reads each element several times: the first would be computed again for each"
    SCANNED = "what follows a scan waits for whole rows"
    PLACE = "they run on different streams, threads or steps"
    FULL = "a group of 64 is full"
    BARRIER = "something in between may need the one and be needed by the other: what it reads or writes is not known"


REFUSALS = tuple(Refusal)


class Refusals(Struct, frozen=True, kw_only=True):
    """Pairs of nodes that share data and stay apart: the largest pair of each two groups. Positions of nodes."""

    first: IntArray
    second: IntArray
    first_op_row: IntArray  # rows of `ops`
    second_op_row: IntArray
    reason: npt.NDArray[np.int8]  # position in REFUSALS
    library: tuple[str, ...]  # of each pair refused for LIBRARY, what kind of kernel it is: a key of roles.reason_of
    library_code: npt.NDArray[np.int64]  # −1 for other reasons
    bytes: IntArray  # that stay in memory traffic because of it; −1 where not known

    def count(self, refusal: Refusal) -> int:
        """Return how many were refused for this reason."""
        return int((self.reason == REFUSALS.index(refusal)).sum())


def _none() -> IntArray:
    return np.zeros(0, np.int64)


def of_activities(flow: Flow, node_group: IntArray, count: int) -> dict[str, Any]:
    """Return what `Groups` says of activities. count: of groups."""
    activity_group = np.where(flow.activity_node >= 0, np.append(node_group, -1)[flow.activity_node], -1)
    activity = np.flatnonzero(activity_group >= 0)
    activity = activity[np.argsort(activity_group[activity], kind="stable")]
    return {
        "activity": activity,
        "activity_begin": np.searchsorted(activity_group[activity], np.arange(count + 1)),
        "activity_node": flow.activity_node,
        "activity_group": activity_group,
        "activity_known": np.append(flow.nodes.known, False)[flow.activity_node],
    }


class Groups(Struct, frozen=True, kw_only=True):
    """Fusion groups of two nodes or more, in order of their first node.

    Group i has the nodes `node[begin[i]:begin[i + 1]]`, in order. Bytes are those of one instance; −1 where dtypes were
    not recorded: that one kernel could do it is known then, and what that kernel would move is not.
    """

    node: IntArray
    begin: IntArray
    node_group: IntArray  # for each node its group, −1: it stays alone
    activity: IntArray  # activities, group by group, in order
    activity_begin: IntArray  # group i has activity[activity_begin[i]:activity_begin[i + 1]]
    activity_node: IntArray  # for each activity its node, −1: none owns it
    activity_group: IntArray  # for each activity its group, −1: none
    activity_known: BoolArray  # for each activity whether it is known what it reads and writes
    kernels: tuple[FusedKernel, ...]  # the distinct ones
    kernel: IntArray  # of each group, its position in kernels; −1 where its bytes are not known
    evidence: npt.NDArray[np.int8]  # flow.Evidence: of the weakest read by which the group hangs together
    node_reads: IntArray  # bytes that each node reads, whether in a group or not
    node_writes: IntArray
    bytes_before: IntArray  # read and written by the members as they are
    bytes_after: IntArray  # read and written by one kernel
    more_reads: IntArray  # bytes beyond those, if what is written in place is each time another tensor where that is
    more_writes: IntArray  # a guess; 0 where it is none
    intermediate_bytes: IntArray  # of tensors that need not exist any more
    flops: IntArray  # −1 where a member's are not known
    product_bytes: IntArray  # of the matrix product or convolution whose epilogue it could be: its result; 0: none
    refusals: Refusals
    # Each tensor that need not exist any more, in the order of writing: the group inside which it is, the row of `ops`
    # of the node that makes it, its bytes.
    gone_group: IntArray = field(default_factory=_none)
    gone_op_row: IntArray = field(default_factory=_none)
    gone_bytes: IntArray = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.begin) - 1
