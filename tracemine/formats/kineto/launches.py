"""Which host call launched an activity, and which operator owns it; or why that cannot be said."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tracemine.columns import Array, codes
from tracemine.formats.kineto.scan import Columns
from tracemine.timeline.arrow import MISSING, take

EVIDENCE = ("nesting", "external_id")
REASONS = ("before_window", "no_host_events", "no_launch_call", "outside_any_op", "graph_replay")

_BEFORE_WINDOW, _NO_HOST_EVENTS, _NO_LAUNCH_CALL, _OUTSIDE_ANY_OP, _GRAPH_REPLAY = range(len(REASONS))
_NESTING, _EXTERNAL_ID = range(len(EVIDENCE))

_LAUNCHES = re.compile("LaunchKernel|GraphLaunch|LaunchCooperative|Memcpy|Memset", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile("GraphLaunch", re.IGNORECASE)


def named(ids: Array, strings: list[str], pattern: re.Pattern[str]) -> Array:
    """For each id whether `pattern` is found in its string; each distinct string is searched once.

    >>> named(np.array([1, 0, -1]), ["cudaMalloc", "cudaGraphLaunch"], _GRAPH_LAUNCH).tolist()
    [True, False, False]
    """
    found = np.zeros(len(strings) + 1, np.bool_)
    used = np.zeros(len(strings) + 1, np.bool_)
    used[ids] = True
    for i in np.flatnonzero(used[:-1]).tolist():
        found[i] = pattern.search(strings[i]) is not None
    return found[ids]


def launch_rows(activity_correlation: Array, call_correlation: Array, call_name: Array, strings: list[str]) -> Array:
    """For each activity the row of the call with its correlation id, -1 where there is none (int32).

    Calls stand in time order. Where several share an id (a runtime call and the driver call within it), one that
    launches by its name is preferred, then the innermost. An id of 0, or none, joins nothing. One call may launch
    many activities: that is what the replay of a CUDA graph looks like.
    """
    by_preference = np.argsort(named(call_name, strings, _LAUNCHES), kind="stable")
    by_preference = by_preference[call_correlation[by_preference] > 0]
    by_id = by_preference[np.argsort(call_correlation[by_preference], kind="stable")]
    ids = call_correlation[by_id]
    last = np.searchsorted(ids, activity_correlation, "right") - 1
    if not len(ids):
        return np.full(len(activity_correlation), -1, np.int32)
    found = (last >= 0) & (activity_correlation > 0) & (ids[last] == activity_correlation)
    return np.where(found, by_id[last], -1).astype(np.int32)


def launches_of(gpu: Columns, calls: Columns, strings: list[str]) -> Array:
    """Return for each activity the row of the call that launched it, -1 where that is not known (int32).

    ROCm's older recordings have no correlation ids: there activities and calls repeat the External id.
    """
    if (gpu["correlation"] > 0).any() or not len(gpu["correlation"]):
        return launch_rows(gpu["correlation"], calls["launch_correlation"], calls["name"], strings)
    launching = np.flatnonzero((calls["external_id"] > 0) & named(calls["name"], strings, _LAUNCHES))
    launch = _in_turn(gpu["external_id"], calls["external_id"][launching])
    launch = np.where(launch >= 0, take(launching, launch), -1)
    earlier = take(calls["start_ns"], launch, MISSING) <= gpu["start_ns"]
    return np.where((launch >= 0) & earlier, launch, -1).astype(np.int32)


def _in_turn(activity_id: Array, call_id: Array) -> Array:
    """Return for each activity the place of the call with its id: of several the first for the first, and so on.

    What is beyond the last call has the last: a graph's replay is one call for all its activities.

    >>> _in_turn(np.array([5, 9, 5, 5, 7, MISSING]), np.array([5, 5, 7])).tolist()
    [0, -1, 1, 1, 2, -1]
    """
    order = np.argsort(call_id, kind="stable")
    ids = call_id[order]
    first, last = np.searchsorted(ids, activity_id, "left"), np.searchsorted(ids, activity_id, "right") - 1
    by_id = np.argsort(activity_id, kind="stable")
    turn = np.empty(len(activity_id), np.int64)
    turn[by_id] = np.arange(len(by_id)) - np.searchsorted(activity_id[by_id], activity_id[by_id], "left")
    known = (last >= first) & (activity_id > 0)
    return np.where(known, np.append(order, -1)[np.where(known, np.minimum(first + turn, last), -1)], -1)


def operators_by_external_id(external_id: Array, launch: Array, calls: Columns, ops: Columns, is_op: Array) -> Array:
    """For each activity the operator that its External id names, where that can be believed; else -1 (int32).

    The id alone is not safe: some exports repeat an unrelated number there. It is believed only where the operator
    encloses the launch call in time, and where that call's thread has no operators of its own, so that its thread
    number evidently comes from another numbering than the operators'. (On a thread with operators, nesting decides.)
    """
    owners = np.full(len(external_id), -1, np.int32)
    threads = 1 + max((int(t["thread"].max()) for t in (calls, ops) if len(t["thread"])), default=0)
    has_ops = np.zeros(threads, np.bool_)
    has_ops[ops["thread"][is_op]] = True
    asked = np.flatnonzero((launch >= 0) & (external_id > 0))
    asked = asked[~has_ops[calls["thread"][launch[asked]]]]
    known = np.flatnonzero(is_op & (ops["external_id"] > 0))
    if not len(asked) or not len(known):
        return owners
    by_id = known[np.argsort(ops["external_id"][known], kind="stable")]
    ids = ops["external_id"][by_id]
    place = np.minimum(np.searchsorted(ids, external_id[asked]), len(ids) - 1)
    op, call = by_id[place], launch[asked]
    believed = (
        (ids[place] == external_id[asked])
        & (ops["start_ns"][op] <= calls["start_ns"][call])
        & (ops["end_ns"][op] >= calls["end_ns"][call])
    )
    owners[asked[believed]] = op[believed]
    return owners


class Owners(Struct, frozen=True):
    """For each activity the operator's row, and how it was found (a code in EVIDENCE) or why not (one in REASONS).

    What there is not is -1: either `op` and `evidence` are set or `reason` is.
    """

    op: Array
    evidence: Array
    reason: Array


def owners(gpu: Columns, launch: Array, calls: Columns, ops: Columns, is_op: Array, strings: list[str]) -> Owners:
    """Say of every activity who owns it, or why that is not known.

    A kernel of a graph replay has no owner even where an operator encloses the launch: that operator replayed the
    graph, it did not say what the kernel computes, and its shapes are not the kernel's. It can still be had by way of
    the launch call.
    """
    by_nesting = take(calls["op_row"], launch)
    external_id = np.where(gpu["external_id"] > 0, gpu["external_id"], take(calls["external_id"], launch, MISSING))
    external_id = np.where(external_id == gpu["correlation"], MISSING, external_id)  # torch 2.0 and 2.1 filled in that
    by_id = operators_by_external_id(external_id, launch, calls, ops, is_op)
    replayed = take(named(calls["name"], strings, _GRAPH_LAUNCH), launch, nothing=False)
    op = np.where(replayed, -1, np.where(by_nesting >= 0, by_nesting, by_id))
    evidence = np.where(op < 0, -1, np.where(by_nesting >= 0, _NESTING, _EXTERNAL_ID))

    early = np.zeros(len(launch), np.bool_)
    launching = calls["launch_correlation"] > 0
    if launching.any():
        early |= (gpu["correlation"] > 0) & (gpu["correlation"] < calls["launch_correlation"][launching].min())
        early |= gpu["start_ns"] < calls["start_ns"][launching].min()
    reason = np.select(
        [op >= 0, replayed, (launch < 0) & early, np.full(len(op), not is_op.any()), launch < 0],
        [-1, _GRAPH_REPLAY, _BEFORE_WINDOW, _NO_HOST_EVENTS, _NO_LAUNCH_CALL],
        _OUTSIDE_ANY_OP,
    )
    return Owners(op.astype(np.int32), evidence.astype(np.int8), reason.astype(np.int8))


def step_rows(launched_ns: Array, start: Array, end: Array, processes: tuple[Array, Array] | None = None) -> Array:
    """Return the step whose host span holds each launch, -1 where none does or the launch is not known.

    processes: of launches and of steps, where a step is one of the process that launched.
    """
    last = np.searchsorted(start, launched_ns, "right") - 1
    if processes is not None:
        last = _last_of_process(launched_ns, start, *processes)
    return np.where((last >= 0) & (launched_ns < take(end, last, MISSING)), last, -1)


def _last_of_process(launched_ns: Array, start: Array, launcher: Array, owner: Array) -> Array:
    """Return the step of the launching process that began last, -1 where none has."""
    rank = codes(np.concatenate((launched_ns, start)))
    rank += codes(np.concatenate((launcher, owner))) * (int(rank.max(initial=0)) + 1)
    launched, begun = rank[: len(launched_ns)], rank[len(launched_ns) :]
    order = np.argsort(begun, kind="stable")
    last = take(order, np.searchsorted(begun[order], launched, "right") - 1)
    return np.where(take(owner, last, MISSING) == launcher, last, -1)
