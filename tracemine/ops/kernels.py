"""Kernel families: what a kernel does, inferred from its name alone. The table is kernels.toml, written by hand.

A row's `regex` is searched in the kernel's head (its qualified name without return type, template arguments and
parameters), its `within` in the whole name as well. Heads are few and short, so a trace with thousands of distinct
names is classed in milliseconds. Names come from strangers: only their first 4,096 characters are looked at, and no
pattern nests quantifiers, so a hostile name costs no more than a long one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from tracemine.ops.facts import CLASSES
from tracemine.ops.patterns import LatePattern, PatternRow, document, pattern_rows
from tracemine.patterns import deferred

_LONGEST_NAME = 4096
_LONGEST_HEAD = 512


class KernelFamily(NamedTuple):
    """Who wrote the kernel and how (family), and what it does (a name of CLASSES; `other` where nothing knows)."""

    family: str
    op_class: str


UNKNOWN = KernelFamily("other", "other")


class FamilyRow(NamedTuple):
    """One row of kernels.toml."""

    family: KernelFamily
    head: LatePattern
    within: LatePattern | None
    examples: tuple[str, ...]
    note: str


def classify(names: Iterable[str]) -> list[KernelFamily]:
    """Return family and class of each kernel, copy or set. Meant for a column's dictionary: once a distinct name.

    >>> classify(["volta_sgemm_64x64_tn", "Memcpy DtoD (Device -> Device)", "mystery"])[0:2]
    [KernelFamily(family='cublas', op_class='gemm'), KernelFamily(family='memcpy', op_class='copy')]
    >>> classify(["mystery"])
    [KernelFamily(family='other', op_class='other')]
    """
    return [_classify(name[:_LONGEST_NAME]) for name in names]


def functor(name: str) -> str | None:
    """Return the operation that an elementwise kernel's name shows; None where it shows none.

    >>> functor("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)")
    'add'
    """
    name = name[:_LONGEST_NAME]
    for row in functor_rows():
        if found := row.pattern.search(name):
            return row.says or found.group(1)
    return None


def head(name: str) -> str:
    """Return the kernel's qualified name without return type, template arguments, parameters and anonymous namespaces.

    >>> head("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int>(float*, int)")
    'at::native::CatArrayBatchedCopy'
    >>> head("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int>(T13)")
    'internal::gemvx::kernel'
    """
    name = name[:_LONGEST_NAME]
    if name.startswith(("_Z", "[CUDA ", "Memcpy ", "Memset ")):  # mangled names and titles have no such parts
        return name[:_LONGEST_HEAD]
    name = _ANONYMOUS.sub("", name)
    if name.startswith("std::enable_if<"):
        name = name.partition("::type ")[2] or name
    start = _ENDS_HEAD.split(name, maxsplit=1)[0].rstrip()
    return start.rpartition(" ")[2][:_LONGEST_HEAD]


_ANONYMOUS = deferred(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N__\w{1,200}::")
_ENDS_HEAD = deferred(r"[<(]")


@cache
def family_rows() -> tuple[FamilyRow, ...]:
    """Return every row of the kernel table, in its order: the first that fits decides."""
    rows = []
    for row in document("kernels.toml")["kernel"]:
        family = KernelFamily(row["family"], row["op_class"])
        assert family.op_class in CLASSES  # noqa: S101  (our own data; tests check it too)
        within = LatePattern(row["within"]) if "within" in row else None
        rows.append(FamilyRow(family, LatePattern(row["regex"]), within, tuple(row["examples"]), row.get("note", "")))
    return tuple(rows)


def functor_rows() -> tuple[PatternRow, ...]:
    """Return every row of the functor table: an operation and the words in a kernel's name that show it."""
    return pattern_rows("kernels.toml", "functor", "operation")


@lru_cache(maxsize=1 << 14)
def _classify(name: str) -> KernelFamily:
    for row in _rows_of_head(head(name)):
        if row.within is None or row.within.search(name):
            return row.family
    return UNKNOWN


@lru_cache(maxsize=1 << 12)
def _rows_of_head(text: str) -> tuple[FamilyRow, ...]:
    """Return the rows whose regex is found in the head, up to and with the first that asks for nothing more."""
    rows = []
    for row in family_rows():
        if row.head.search(text):
            rows.append(row)
            if row.within is None:
                break
    return tuple(rows)
