"""Collectives, sends and receives as torch records them: on their kernels, and on the host's `record_param_comms`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, sorted_unique
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.names import compact_json
from tracemine.formats.kineto.scan import ABSENT, Columns
from tracemine.timeline.arrow import MISSING, table_of, take, texts

_WAIT = re.compile(r"^wait$")  # of an asynchronous one: nothing is sent
_PEER = re.compile(r"^(send|recv)")
_COALESCED = re.compile(r"^nccl:coalesced$")
_CUT = "..."  # what stands in a long list of ranks for the rest
_TEXTS = ("group_name", "group_description", "group_ranks", "sent_dtype")
_NUMBERS = ("group_size", "elements_in")
_KERNELS_OWN = ("elements_out", "sequence", "splits_in", "splits_out")  # these are read of kernels alone


def collectives_table(
    gpu: Columns,
    ops: Columns,
    owner: Array,
    launch: Array,
    api: Columns,
    strings: list[str],
    listed_ranks: Mapping[str, str],
) -> pa.Table:
    """Return the table `collectives`, and take the columns that it is made of out of `gpu` and `ops`.

    owner, launch: of each activity the rows of its operator and its call, -1 where there is none. listed_ranks: those
    of each group in the file's header, for where an event holds no whole list.
    """
    kernel, record = np.flatnonzero(gpu["collective"] >= 0), np.flatnonzero(ops["collective"] >= 0)
    record = record[~named(ops["collective"][record], strings, _WAIT)]
    record = record[~np.isin(record, owner[kernel])]
    activity = np.concatenate((kernel, _coalesced(gpu, ops, launch, api, record, strings)))
    op = np.concatenate((owner[kernel].astype(np.int64), record))
    both = {name: np.concatenate((gpu[name][kernel], ops[name][record])) for name in ("collective", *_TEXTS, *_NUMBERS)}
    absent = {"splits_in": ABSENT, "splits_out": ABSENT}
    for name in _KERNELS_OWN:
        both[name] = np.concatenate((gpu.pop(name)[kernel], np.full(len(record), absent.get(name, MISSING))))
    has_peer = named(both["collective"], strings, _PEER)
    peer = np.where(has_peer, take(ops.pop("peer"), op, MISSING), MISSING)
    for name in (*_TEXTS, "elements_in"):
        gpu.pop(name)
        ops.pop(name)
    for name in ("collective", "group_size"):  # those of kernels are columns of activities as well
        ops.pop(name)
    order = np.lexsort((op, np.where(activity < 0, len(gpu["start_ns"]), activity)))
    activity, op, peer = activity[order], op[order], peer[order]
    both = {name: values[order] for name, values in both.items()}
    columns = {
        "activity_row": activity,
        "op_row": op,
        "name": texts(both["collective"], strings),
        **{name: texts(both[name], strings) for name in ("group_name", "group_description")},
        "ranks": _ranks(both["group_ranks"], both["group_name"], strings, listed_ranks),
        **{name: both[name] for name in ("group_size", "sequence", "elements_in", "elements_out")},
        "peer": peer,
        "dtype": texts(both["sent_dtype"], strings),
        **{name: texts(both[name], strings, compact_json) for name in ("splits_in", "splits_out")},
    }
    return table_of("collectives", columns, len(op))


def _coalesced(gpu: Columns, ops: Columns, launch: Array, api: Columns, record: Array, strings: list[str]) -> Array:
    """Return the kernel of each of these records that a group of calls launched at once, -1 of the others.

    The group's kernel says nothing of what it sends. It is launched within `nccl:coalesced`, before which the records
    of its thread stand since the one before.
    """
    kernel_of = np.full(len(record), -1, np.int64)
    group = np.flatnonzero(named(ops["name"], strings, _COALESCED))
    if not len(group) or not len(record):
        return kernel_of
    unnamed = np.flatnonzero((launch >= 0) & (gpu["collective"] < 0))
    thread = take(api["thread"], launch[unnamed])
    for number in sorted_unique(ops["thread"][group]).tolist():
        groups = group[ops["thread"][group] == number]  # by their starts: they do not overlap
        mine = unnamed[thread == number]
        called = api["start_ns"][launch[mine]]
        at = np.searchsorted(ops["start_ns"][groups], called, "right") - 1
        inside = (at >= 0) & (called <= take(ops["end_ns"][groups], at, MISSING))
        kernel = np.full(len(groups), -1, np.int64)
        kernel[at[inside][::-1]] = mine[inside][::-1]  # its first
        records = np.flatnonzero(ops["thread"][record] == number)
        following = np.searchsorted(ops["start_ns"][groups], ops["end_ns"][record[records]], "left")
        kernel_of[records] = take(kernel, np.where(following < len(groups), following, -1))
    return kernel_of


def _ranks(ranks: Array, name: Array, strings: list[str], listed: Mapping[str, str]) -> pa.Array:
    """Return the ranks of each row's group: as recorded with it, where that is whole, else as the header lists them."""
    pairs, codes = np.unique(np.stack((ranks, name)), axis=1, return_inverse=True)
    whole = [
        _whole(strings[at] if at >= 0 else "", strings[of] if of >= 0 else "", listed) for at, of in pairs.T.tolist()
    ]
    known = np.array([bool(text) for text in whole] or [False])
    return texts(np.where(known[codes], codes, -1), whole, compact_json)


def _whole(ranks: str, name: str, listed: Mapping[str, str]) -> str:
    """Return a list of ranks that nothing is cut off of, "" where there is none.

    >>> _whole("[0, 1, ...]", "2", {"2": "[0, 1, 2]"}), _whole("[]", "2", {}), _whole("[0, 1]", "", {})
    ('[0, 1, 2]', '', '[0, 1]')
    """
    return ranks if ranks.strip("[] ") and _CUT not in ranks else listed.get(name, "")
