"""Programs of PyTorch, run on this machine, as timelines of a GPU: each operator that computes has a kernel.

    timeline = dispatched(lambda x, y: torch.relu(x + y), x, y)

Shapes, dtypes, strides and storages are those that PyTorch made; times are made up, and go by the bytes that are moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.timelines import Trace
from tracemine.timeline import RecordedDevice, Timeline

H100 = RecordedDevice(
    ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_capability="9.0", memory_bytes=85_000_000_000
)
_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.bool: "bool",
}
# Operators as the profiler names what launches their kernel.
_LAUNCHED_BY = {"aten::_to_copy": "aten::copy_", "aten::clone": "aten::copy_"}
_EMPTY = "aten::empty_strided(SymInt[] size, SymInt[] stride) -> Tensor"
_COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
_BYTES_A_NS, _LEAST_NS = 2_000, 2_000
_LONG = 1 << 30  # multiplications of a product whose numbers are left out


def dispatched(program: Callable[..., Any], *inputs: Any, steps: int = 3, **columns: Any) -> Timeline:
    """The timeline of so many runs of a program without gradients: of one nothing tells when memory is used again.

    columns: of each operator, such as its module.
    """
    recorder = _Recorder(columns)
    with torch.no_grad():
        for number in range(steps):
            recorder.begin(number)
            with recorder:
                recorder.kept.append(program(*inputs))
            recorder.end()
    return recorder.trace.timeline()


def _made(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives; of a long product zeros, as no recording has its numbers."""
    if func.name() == "aten::mm" and args[0].numel() * args[1].shape[1] >= _LONG:
        return args[0].new_zeros(args[0].shape[0], args[1].shape[1])
    return func(*args, **kwargs)


class _Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    """Writes each operator down, with its tensors and a kernel."""

    def __init__(self, columns: dict[str, Any]) -> None:
        super().__init__()
        self.trace = Trace(devices=(H100,))
        self.kept: list[Any] = []  # a storage's address names it: none is used again
        self._columns = columns
        self._now = self._gpu = self._first = 0
        self._ids = itertools.count(10)
        self._storages: dict[int, int] = {}
        self._step: dict[str, Any] | None = None

    def begin(self, number: int) -> None:
        self._first = self._now
        self._step = self.trace.step(self._now, 1, number)

    def end(self) -> None:
        self._now = max(self._now, self._gpu) + 1_000
        assert self._step is not None
        self._step["dur_ns"] = self._now - self._first

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = _made(func, args, kwargs or {})
        self.kept += [args, made]
        if not func.is_view and not func.name().startswith(("aten::_unsafe_view", "aten::empty", "aten::detach")):
            self._write(func, args, kwargs or {}, made)
        return made

    def _write(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        name = func.name().partition(".")[0]
        schema = str(func._schema)
        given = [*args, *(kwargs.get(each.name) for each in func._schema.arguments[len(args) :])]
        if name in _LAUNCHED_BY:
            self._op("aten::empty_strided", _EMPTY, [list(made.shape), list(made.stride())], [made])
            name, schema, given = _LAUNCHED_BY[name], _COPY, [made, args[0], False]
        op, moved = self._op(name, schema, given, _results(made))
        dur = _LEAST_NS + moved // _BYTES_A_NS
        self._gpu = max(self._gpu, self._now + 5_000)
        self.trace.kernel(name, self._gpu, dur, op=op, step_row=self._step)
        self._gpu += dur + 500

    def _op(self, name: str, schema: str, given: list[Any], made: Iterable[Any]) -> tuple[dict[str, Any], int]:
        """The operator's row, and the bytes of its tensors."""
        self._now += 1_000
        op = self.trace.op(
            name,
            self._now,
            900,
            shapes=[_of(each, lambda one: list(one.shape)) for each in given],
            dtypes=[_type(each) for each in given],
            strides=[_of(each, lambda one: list(one.stride())) for each in given],
            concrete=["" if isinstance(each, torch.Tensor | list) or each is None else str(each) for each in given],
            execution_node_id=next(self._ids),
            op_schema=schema,
            **self._columns,
        )
        moved = 0
        for is_output, side in ((False, given), (True, made)):
            for position, index, tensor in _tensors(side):
                self._tensor(op, is_output, position, index, tensor)
                moved += tensor.numel() * tensor.itemsize
        return op, moved

    def _tensor(self, op: dict[str, Any], is_output: bool, position: int, index: int | None, one: torch.Tensor) -> None:
        address = one.untyped_storage().data_ptr()
        self.trace.add(
            "tensors",
            op_row=op,
            is_output=is_output,
            position=position,
            list_index=index,
            tensor_id=0,
            storage_id=self._storages.setdefault(address, len(self._storages) + 100),
            offset_elements=one.storage_offset(),
            numel=one.numel(),
            itemsize_bytes=one.itemsize,
            device="cuda:0",
            dtype=_TYPES[one.dtype],
            shape=list(one.shape),
            strides=list(one.stride()),
        )


def _results(made: Any) -> list[Any]:
    """What an operator gave, without numbers that it fetched."""
    return [made] if isinstance(made, torch.Tensor) else list(made) if isinstance(made, list | tuple) else []


def _tensors(side: Iterable[Any]) -> Iterator[tuple[int, int | None, torch.Tensor]]:
    for position, each in enumerate(side):
        if isinstance(each, torch.Tensor):
            yield position, None, each
        elif isinstance(each, list):
            yield from (
                (position, at, one) for at, one in enumerate(tree_leaves(each)) if isinstance(one, torch.Tensor)
            )


def _of(given: Any, told: Callable[[torch.Tensor], list[int]]) -> list[Any]:
    if isinstance(given, torch.Tensor):
        return told(given)
    if isinstance(given, list) and any(isinstance(one, torch.Tensor) for one in given):
        return [told(one) for one in given]
    return []


def _type(given: Any) -> str:
    if isinstance(given, torch.Tensor):
        return _TYPES[given.dtype]
    if isinstance(given, list):
        return "TensorList" if any(isinstance(one, torch.Tensor) for one in given) else "ScalarList"
    return "" if given is None else "Scalar"
