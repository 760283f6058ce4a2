"""What a collective is: one word for the many names that torch, NCCL, RCCL and engines give it."""

from __future__ import annotations

import re
from functools import cache

from tracemine.ops.dtypes import itemsize, scalar_type
from tracemine.patterns import deferred

# What is waited for by all members at once: their shortest time is the transfer, and they end together.
SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
PAIRED = frozenset({"send", "recv", "send_recv"})
_FULL_IS_OUTPUT = frozenset({"all_gather"})
_LARGEST = 1 << 62  # bytes beyond are damage

# As recorded with a kernel or its call, without blanks, underscores and case.
_RECORDED = {
    "allreduce": "all_reduce", "allreducecoalesced": "all_reduce", "allreducesparse": "all_reduce",
    "allgather": "all_gather", "allgatherbase": "all_gather", "allgathercoalesced": "all_gather",
    "allgatherintotensorcoalesced": "all_gather", "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter", "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoallbase": "all_to_all",
    "broadcast": "broadcast", "bcast": "broadcast", "broadcastoop": "broadcast", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "send": "send", "recv": "recv", "barrier": "barrier",
}  # fmt: skip

# Of kernels that were recorded without: the first that is found.
_KERNELS = (
    (deferred(r"(?i)reduce_?scatter"), "reduce_scatter"),
    (deferred(r"(?i)all_?gather|fcollect"), "all_gather"),
    (deferred(r"(?i)all_?reduce|cross_device_reduce|multimem_reduce|\breduce_on_stream"), "all_reduce"),
    (
        deferred(
            r"(?i)all_?to_?all|deep_?ep|(inter|intra)node(_ll)?::(dispatch|combine)|moea2a|::ep(dispatch|combine)"
        ),
        "all_to_all",
    ),
    (deferred(r"(?i)send_?recv"), "send_recv"),
    (deferred(r"(?i)broadcast"), "broadcast"),
    (deferred(r"barrier|sync_all"), "barrier"),
    (deferred(r"(?i)nccl\w*_reduce"), "reduce"),
)


@cache
def kind_of(recorded: str | None, kernel: str | None) -> str | None:
    """Return the kind of a collective by its recorded name, else by its kernel's; None where neither tells.

    >>> kind_of("_allgather_base", None), kind_of(None, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)")
    ('all_gather', 'all_reduce')
    >>> kind_of(None, "void deep_ep::internode_ll::combine<true>()"), kind_of(None, "sync_all_on_stream_kernel")
    ('all_to_all', 'barrier')
    >>> kind_of(None, "void vllm::cross_device_reduce_1stage<bf16, 4>(...)"), kind_of(None, "ncclDevKernel_Generic_4")
    ('all_reduce', None)
    """
    known = None if recorded is None else _RECORDED.get(re.sub(r"^nccl|[\W_]", "", recorded).lower())
    if known is not None or kernel is None:
        return known
    return next((kind for pattern, kind in _KERNELS if pattern.search(kernel)), None)


def bus_factor(kind: str, size: int) -> float:
    """Return how many bytes each link carries for a byte of the message, by the arithmetic of nccl-tests.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    share = (size - 1) / max(size, 1)
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "all_to_all": share}.get(kind, 1.0)


def message_bytes(kind: str, elements_in: int, elements_out: int, size: int | None, dtype: str | None) -> int:
    """Return the bytes of the full message: of an all-gather what comes out, else what goes in; -1: not known.

    Elements are -1 where they are not recorded.

    >>> message_bytes("all_reduce", 8, -1, 4, "Float"), message_bytes("all_gather", 8, -1, 4, "BFloat16")
    (32, 64)
    >>> message_bytes("all_reduce", -1, -1, 4, "Float")
    -1
    """
    canonical = None if dtype is None else scalar_type(dtype)
    item = canonical and itemsize(canonical)
    elements = elements_in
    if kind in _FULL_IS_OUTPUT:
        elements = elements_out if elements_out >= 0 else elements_in * (size or -1) if elements_in >= 0 else -1
    elif kind == "broadcast":
        elements = max(elements_in, elements_out)
    nbytes = -1 if not item or elements < 0 else elements * item
    return nbytes if -1 <= nbytes < _LARGEST else -1
