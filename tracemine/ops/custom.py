"""Operators of other libraries, from custom.toml: what they read, write and give. The file's top explains its lines."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tracemine.patterns import deferred
from tracemine.tables import table_beside

_LINE = deferred(r"(\w+) +([\w.]+::[\w.]+)\((.*)\) -> (.*)")
# Operators whose namespace is torch's own; names without one are torch's, a profiler's or a Python function's.
_OF_TORCH = frozenset(
    (
        *("aten", "prims", "prim", "quantized", "c10d", "c10d_functional", "_c10d_functional", "symm_mem", "inductor"),
        *("torch", "autograd", "profiler", "cuda", "mkldnn", "sparse", "_quantized", "dist", "rpc", "nccl", "xla"),
        *("_test", "profiling", "higher_order"),
    )
)
_OF_CPP_EXTENSIONS = "torch::autograd::CppNode<"


class Signature(NamedTuple):
    """One line of the table. Arguments and outputs as table.json writes them, but for `likes`."""

    op_class: str
    arguments: str  # `type name` joined by commas, `!` and `=` behind the type
    outputs: str  # types joined by commas, `@n`: shares storage with argument n
    likes: tuple[int | None, ...]  # of each output: the argument whose shape and dtype it has


class Library(NamedTuple):
    """One block of the table."""

    name: str
    source: str
    versions: str
    operators: dict[str, tuple[Signature, ...]]


@cache
def libraries() -> tuple[Library, ...]:
    """Return the whole table."""
    blocks = table_beside(__file__, "custom.toml")["library"]
    return tuple(Library(b["name"], b["source"], b["versions"], _operators(b["operators"])) for b in blocks)


@cache
def _by_name() -> dict[str, tuple[Signature, ...]]:
    return {name: signatures for library in libraries() for name, signatures in library.operators.items()}


def custom_signatures(name: str) -> tuple[Signature, ...]:
    """Return the signatures of an operator, one for each version of its arguments; none where the table lacks it.

    >>> [signature.op_class for signature in custom_signatures("_C::fused_add_rms_norm")]
    ['norm']
    """
    return _by_name().get(name, ())


def is_custom(name: str) -> bool:
    """Return whether an operator is another library's: its namespace is not torch's, or it is a C++ extension's node.

    >>> is_custom("fbgemm::permute_2D_sparse_data"), is_custom("torch::autograd::CppNode<Lookup>")
    (True, True)
    >>> is_custom("aten::mul"), is_custom("c10d::allreduce_"), is_custom("autograd::engine::evaluate_function: X")
    (False, False, False)
    """
    namespace, colons, _ = name.partition("::")
    if not colons or name.startswith(_OF_CPP_EXTENSIONS):
        return bool(colons)
    return namespace.partition(".")[0] not in _OF_TORCH and " " not in namespace


def _operators(text: str) -> dict[str, tuple[Signature, ...]]:
    found: dict[str, tuple[Signature, ...]] = {}
    for line in text.strip().splitlines():
        row = _LINE.fullmatch(line)
        assert row is not None, line  # noqa: S101  (our own data; tests check it too)
        op_class, name, arguments, outputs = row.groups()
        found[name] = (*found.get(name, ()), _signature(op_class, arguments, outputs))
    return found


def _signature(op_class: str, arguments: str, outputs: str) -> Signature:
    taken = [argument.strip() for argument in arguments.split(",")] if arguments else []
    place = {argument.rpartition(" ")[2]: at for at, argument in enumerate(taken)}
    given = [] if outputs == "()" else [each.strip() for each in outputs.split(",")]
    likes = tuple(place[each.partition("~")[2]] if "~" in each else None for each in given)
    kinds = [each.partition("~")[0] for each in given]
    shared = [f"{kind.partition('@')[0]}@{place[kind.partition('@')[2]]}" if "@" in kind else kind for kind in kinds]
    return Signature(op_class, ",".join(taken), ",".join(shared), likes)
