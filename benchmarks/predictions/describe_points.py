"""Add to recorded points what their kernels do: bytes, rows and steps, as one kernel and operator by operator.

    python -m benchmarks describe_points [FILE...]          (default: benchmarks/results/h200/points_*.json)

`fused` is the pattern as one kernel: its inputs read once and its results written once; of a matrix product what
follows it. `unfused` is each operator
that launches something, in order. Needs torch and no GPU: the pattern runs on tensors without data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.patterns import PATTERNS
from tracemine.fusion.kernel import REDUCTIONS
from tracemine.fusion.roles import online_softmax, steps_of

LOOK_UPS = {"aten::embedding", "aten::gather", "aten::index_select", "aten::index"}
PRODUCTS = {"aten::mm", "aten::addmm"}
LIBRARY = {"aten::topk"}  # what a compiler calls a library for, too: a pattern with one of these is no one kernel
FINAL = ("aten::mean", "aten::sum")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One aten operator as it ran."""

    name: str
    args: tuple[Any, ...]
    taken: list[torch.Tensor]
    given: list[torch.Tensor]

    @property
    def moves_nothing(self) -> bool:
        """A view; or it makes something of nothing."""
        return not self.taken or storage(self.given[0]) in {storage(t) for t in self.taken}

    @property
    def moved(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(elements, tensor) of what it takes and gives; a table is read as far as it is looked up."""
        for at, tensor in enumerate(self.taken):
            yield (self.given[0].numel() if at == 0 and self.name in LOOK_UPS else distinct(tensor)), tensor
        for tensor in self.given:
            yield distinct(tensor), tensor

    @property
    def elements(self) -> int:
        """Of the largest tensor; of all of them where the operator is one on lists."""
        lists = len(self.given) if self.name.startswith("aten::_foreach") else 1
        return max(count for count, _ in self.moved) * lists


class Calls(TorchDispatchMode):
    """Records the aten operators that run, with the tensors they take and give."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        taken = [t for a in args for t in (a if isinstance(a, list | tuple) else (a,)) if is_tensor(t)]
        given = [t for t in (out if isinstance(out, tuple | list) else (out,)) if is_tensor(t)]
        self.seen.append(Call(func.overloadpacket._qualified_op_name, args, taken, given))
        return out


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def distinct(tensor: torch.Tensor) -> int:
    """Elements in memory: one that is broadcast counts once."""
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 1)


def transposed(tensor: torch.Tensor) -> bool:
    """Another axis than the last is the contiguous one."""
    axes = [(stride, axis) for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))]
    axes = [(stride, axis) for stride, axis in axes if tensor.shape[axis] > 1 and stride]
    return len(axes) > 1 and min(axes)[1] != max(axis for _, axis in axes)


def depth(calls: Sequence[Call], full: int) -> int | None:
    """The most reductions of which each needs the one before; None: there is none."""
    level: dict[int, int] = {}
    for call in calls:
        own = max((level.get(storage(t), 0) for t in call.taken), default=0)
        own += call.elements == full and steps_of(call.name)[0] in REDUCTIONS
        level.update((storage(t), own) for t in call.given)
    return max(level.values()) or None


def as_one_kernel(
    calls: Sequence[Call], reads: dict[Any, int], writes: list[int], outside: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """The operators as one kernel: see tracemine.fusion.FusedKernel."""
    full = max(call.elements for call in calls)
    size = max(count for call in calls for count, _ in call.moved)
    rows, length, columns, steps = full, 1, False, []
    for call in calls:
        own = steps_of(call.name)
        if call.elements != full:
            continue
        if own[0] in REDUCTIONS:
            keeps = own[0] in ("softmax", "scan") or (len(call.given) > 1 and call.given[0].numel() == size)
            axis = call.args[1] if own[0] in ("softmax", "scan") else None
            length = call.taken[0].shape[axis] if axis is not None else size // call.given[-1 if keeps else 0].numel()
            rows = full // length
            axes = call.args[1] if len(call.args) > 1 and isinstance(call.args[1], list) else [-1]
            dims = call.taken[0].dim()
            columns = columns or (not keeps and dims > 1 and len(axes) == 1 and axes[0] % dims == 0)
        steps += own
    return {
        "reads": list(reads.values()),
        "writes": writes,
        "rows": rows,
        "length": length,
        "item_bytes": max((t.element_size() for t in outside if t.numel() * 2 > size), default=4),
        "steps": list(online_softmax(tuple(steps))),
        "columns": columns,
        "depth": depth(calls, full),
        "strided": any(transposed(t) for call in calls for t in (*call.taken, *call.given) if t.numel() * 2 > size),
    }


def one_operator(call: Call) -> dict[str, Any]:
    reads = {at: n * t.element_size() for at, (n, t) in enumerate(call.moved) if at < len(call.taken)}
    writes = [distinct(t) * t.element_size() for t in call.given]
    return as_one_kernel([call], reads, writes, [*call.taken, *call.given])


def outside_bytes(call: Call, own: set[int]) -> int:
    """Bytes that it reads of the pattern's inputs."""
    reads = list(call.moved)[: len(call.taken)]
    return sum(count * t.element_size() for count, t in reads if storage(t) in own)


def describe(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """`fused` (empty where a part of the pattern is a library's kernel) and `unfused`."""
    with Calls() as recorded, torch.no_grad(), patch("torch.nn.functional.dropout", one_kernel_dropout):
        result = function(*inputs)
    calls = [call for call in recorded.seen if not call.moves_nothing]
    own = {storage(t) for t in inputs}
    unfused = [
        {"op": call.name.removeprefix("aten::"), "outside": outside_bytes(call, own), **one_operator(call)}
        for call in calls
    ]
    products = [call for call in calls if call.name in PRODUCTS]
    if products:  # what follows the product, as one kernel
        after = calls[calls.index(products[0]) + 1 :]
        out = products[0].given[0]
        point = {"product_bytes": out.numel() * out.element_size(), "unfused": unfused}
        return {"fused": [one_kernel(after, [out, *inputs], result)] if after else [], **point}
    if any(call.name in LIBRARY for call in calls):
        return {"fused": [], "unfused": unfused}
    results = result if isinstance(result, tuple) else (result,)
    full = max(call.elements for call in calls)
    first = [call for call in calls if not is_second_stage(call, full)]
    given = {storage(t) for call in first for t in call.given}
    taken_later = {storage(t): t for call in calls if call not in first for t in call.taken if storage(t) in given}
    written = {storage(t): t for t in results if storage(t) in given} | taken_later
    reads = inputs_read(first, inputs)
    writes = [t.numel() * t.element_size() for t in written.values()]
    fused = [as_one_kernel(first, reads, writes, [*inputs, *results])]
    fused += [one_operator(call) for call in calls if call not in first and call.name.startswith(FINAL)]
    return {"fused": fused, "unfused": unfused}


def one_kernel(calls: Sequence[Call], inputs: Sequence[torch.Tensor], result: torch.Tensor) -> dict[str, Any]:
    return as_one_kernel(calls, inputs_read(calls, inputs), [result.numel() * result.element_size()], [*inputs, result])


def is_second_stage(call: Call, full: int) -> bool:
    """It reduces the results of rows to one number (or comes after that): another kernel."""
    return call.elements < full and (
        (steps_of(call.name)[0] in REDUCTIONS and call.given[0].numel() == 1 and call.elements > 1)
        or max(count for count, _ in call.moved) == 1
    )


def inputs_read(calls: Sequence[Call], inputs: Sequence[torch.Tensor]) -> dict[Any, int]:
    """Bytes of each tensor that one kernel reads: a looked-up table and the same tensor read in order are two."""
    own = {storage(t) for t in inputs}
    reads: dict[Any, int] = {}
    for call in calls:
        for at, (count, tensor) in enumerate(call.moved):
            if at < len(call.taken) and storage(tensor) in own:
                key = (storage(tensor), at == 0 and call.name in LOOK_UPS)
                whole = tensor.untyped_storage().nbytes()
                reads[key] = min(max(reads.get(key, 0), count * tensor.element_size()), whole)
    for tensor in inputs:  # halves of one tensor: all of it
        key = (storage(tensor), False)
        if key in reads and reads[key] * 2 == tensor.untyped_storage().nbytes():
            reads[key] *= 2
    return reads


def one_kernel_dropout(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """What dropout is on a GPU: one operator."""
    return torch.native_dropout(x, p, training)[0]


def described(point: dict[str, Any]) -> dict[str, Any]:
    """The point with the pattern's description put in, or put anew."""
    _, function, makers = PATTERNS[point["pattern"]]
    with torch.device("meta"):
        inputs = [make(*point["size"], getattr(torch, point["dtype"])) for make in makers]
    return {**point, **describe(function, inputs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    chosen = parser.parse_args()
    for path in chosen.files or sorted((Path(__file__).parents[1] / "results" / "h200").glob("points_*.json")):
        recorded = json.loads(path.read_text("utf-8"))
        points = [described(point) for point in recorded.pop("points")]
        lines = ",\n".join(json.dumps(point, separators=(",", ":")) for point in points)
        path.write_text(f'{json.dumps(recorded)[:-1]}, "points": [\n{lines}\n]}}\n', "utf-8")
        print(f"{path}: {len(points)} points")


if __name__ == "__main__":
    main()
