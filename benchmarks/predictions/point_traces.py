"""Recorded patterns (record_points.py) written as the traces that a profiler gives of them, for `scan` to read.

A pattern runs on tensors without data; each aten operator becomes an event with its shapes, types and strides, and
what launches gets a kernel that takes as long as eager's took. With `execution_trace` the tensors are told apart beside
it, as an execution trace does. Three steps back to back, the host far ahead. Needs torch and no GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.patterns import PATTERNS
from benchmarks.predictions.describe_points import Calls, is_tensor, one_kernel_dropout, storage
from tracemine.ops.operators import lookup

STEPS = 3
ABOVE, BEFORE = 3, 10  # nodes of an execution trace: what is around all, and so many come first
OPERATOR_US = 12.0  # of the host, for an operator that launches
SILENT = frozenset(("view", "allocate", "metadata"))  # classes of operators that launch nothing
COPIES = frozenset(("aten::_to_copy", "aten::clone"))
TYPES = {torch.bfloat16: "c10::BFloat16", torch.float16: "c10::Half", torch.float32: "float", torch.int64: "long int"}
TYPES |= {torch.bool: "bool", torch.int8: "signed char", torch.float64: "double", torch.int32: "int"}
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::{}_kernel_cuda>(int)"
DEVICES = {
    "NVIDIA H200": {"totalGlobalMem": 150109880320, "numSms": 132},
    "NVIDIA H100 80GB HBM3": {"totalGlobalMem": 85017624576, "numSms": 132},
}
DEVICE = {"id": 0, "computeMajor": 9, "computeMinor": 0, "warpSize": 32}
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """One aten operator as it ran: its arguments in the schema's order, and what it gave."""

    name: str
    schema: str
    args: tuple[Any, ...]
    given: tuple[torch.Tensor, ...]
    inside: tuple[Operator, ...] = ()

    @property
    def launches(self) -> bool:
        """Whether it would launch a kernel: a view would not, nor what moves no tensor of the device."""
        if self.inside:
            return any(one.launches for one in self.inside)
        known = lookup(self.name)
        moves = any(t.device.type == "meta" for t in tensors_of(self.args))
        return moves and (known is None or known.op_class not in SILENT)


@dataclass(frozen=True, slots=True)
class Step:
    """What runs in one step, and the tensors that it gives: kept until the next step gives its own."""

    ran: list[Operator]
    gives: tuple[torch.Tensor, ...]

    @property
    def kernels(self) -> int:
        """How many kernels it launches."""
        return sum(one.launches for one in self.ran)


class Operators(Calls):
    """Records what runs, with all arguments of each schema."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Operator] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        named = kwargs or {}
        full = [
            args[at] if at < len(args) else named.get(one.name, one.default_value)
            for at, one in enumerate(func._schema.arguments)
        ]
        given = tuple(t for t in (out if isinstance(out, tuple | list) else (out,)) if is_tensor(t))
        name = func.overloadpacket._qualified_op_name
        one = Operator(name, str(func._schema), tuple(full), given)
        before = self.ran[-1] if self.ran else None
        if name in COPIES:
            one = replace(one, inside=copying(one))
        if name == "aten::_unsafe_view" and before is not None and before.given[0] is one.args[0]:
            whole = str(torch.ops.aten.reshape.default._schema)
            self.ran.pop()
            one = Operator("aten::reshape", whole, (before.args[0], one.args[1]), given, (before, one))
        self.ran.append(one)
        return out


def copying(one: Operator) -> tuple[Operator, ...]:
    """What a copy calls: room for what it gives, and what fills it."""
    out, given = one.given[0], (list(one.given[0].shape), list(one.given[0].stride()))
    room = (*given, out.dtype, 0, None, False)
    schemas = [str(getattr(torch.ops.aten, name).default._schema) for name in ("empty_strided", "copy_")]
    return (
        Operator("aten::empty_strided", schemas[0], room, one.given),
        Operator("aten::copy_", schemas[1], (out, one.args[0], False), one.given),
    )


def operators_of(pattern: str, size: Sequence[int], dtype: str) -> list[Step]:
    """What runs in each step; the inputs are the same in all."""
    _, function, makers = PATTERNS[pattern]
    with torch.device("meta"):
        inputs = [make(*size, getattr(torch, dtype)) for make in makers]
    return steps_of(function, inputs)


def steps_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[Step]:
    """What runs when the function is called in each step."""
    steps = []
    for _ in range(STEPS):
        with Operators() as recorded, torch.no_grad(), patch("torch.nn.functional.dropout", one_kernel_dropout):
            result = function(*inputs)
        gives = result if isinstance(result, tuple | list) else (result,)
        steps.append(Step(recorded.ran, tuple(t for t in gives if is_tensor(t))))
    return steps


def write_trace(folder: Path, gpu: str, steps: Sequence[Step], durations_ns: Sequence[int], tensors: bool) -> Path:
    """Write the trace into the folder, with an execution trace beside it where `tensors`. Returns what to scan."""
    folder.mkdir(parents=True, exist_ok=True)
    written = Written(steps)
    for number, one in enumerate(steps, 1):
        written.step(number, one, durations_ns)
    device = DEVICE | {"name": gpu} | DEVICES[gpu]
    head = {"schemaVersion": 1, "deviceProperties": [device], "record_shapes": 1, "displayTimeUnit": "ms"}
    head |= {"cuda_runtime_version": 13000, "cuda_driver_version": 13000, "baseTimeNanoseconds": 10**18}
    (folder / "trace.json").write_text(json.dumps(head | {"traceEvents": written.events}))
    if not tensors:
        return folder / "trace.json"
    nodes = [*roots(), *written.nodes]
    (folder / "et.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    about = {"schema_version": 1, "trace": "trace.json", "execution_trace": "et.json", "gpus": [gpu], "steps": STEPS}
    (folder / "capture.json").write_text(json.dumps(about | {"torch": "2.11.0+cu130", "cuda": "13.0"}))
    return folder


class Written:
    """The events and nodes of steps one after another; the host runs ahead of the device."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.events: list[Event] = []
        self.nodes: list[Event] = []
        self._ids = Ids(steps)
        self._number = 2
        self._host = 1000.0
        self._device = 1000.0 + 40 * OPERATOR_US * len(steps[0].ran)  # µs

    def step(self, number: int, step: Step, durations_ns: Sequence[int]) -> None:
        """Write one step, whose kernels take so long."""
        begin, left = self._host, iter(durations_ns)
        for one in step.ran:
            self._operator(one, ABOVE, left)
        name = f"ProfilerStep#{number}"
        self.events.append(span("user_annotation", name, 1, 1, begin - 0.5, self._host - begin, {}))

    def _operator(self, one: Operator, above: int, left: Iterator[int]) -> None:
        own, start, at = self._number, self._host, len(self.events)
        self._number += 1
        self._host += 1
        self.nodes.append(node(one, own, above, self._ids))
        if not one.inside and one.launches:
            self._kernel(one, own, next(left) / 1000)
        for each in one.inside:
            self._operator(each, own + BEFORE, left)
        self._host += 1
        self.events.insert(at, span("cpu_op", one.name, 1, 1, start, self._host - start - 0.5, described(one, own)))

    def _kernel(self, one: Operator, number: int, took: float) -> None:
        joined = {"External id": number, "correlation": number}
        on = {"device": 0, "context": 1, "stream": 7, "grid": [1024, 1, 1], "block": [128, 1, 1]}
        name = KERNEL.format(one.name.removeprefix("aten::"))
        self.events.append(span("cuda_runtime", "cudaLaunchKernel", 1, 1, self._host, 4.0, joined))
        self.events.append(span("kernel", name, 0, 7, self._device, took, joined | on))
        self._host += OPERATOR_US
        self._device += took + 0.9


def span(category: str, name: str, process: int, thread: int, begin: float, length: float, args: Event) -> Event:
    times = {"ts": round(begin, 3), "dur": round(length, 3)}
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, **times, "args": args}


# -- arguments ---------------------------------------------------------------------------------------------------------


def described(one: Operator, number: int) -> Event:
    """Arguments of the event: shapes, types and strides, as record_shapes gives them."""
    dims, strides, kinds, concrete = [], [], [], []
    for value in one.args:
        dims.append(nested(value, lambda t: list(t.shape)))
        strides.append(nested(value, lambda t: list(t.stride())))
        kinds.append(kind_of(value))
        concrete.append("" if is_tensor(value) or of_tensors(value) or value is None else text_of(value))
    shapes = {"Input Dims": dims, "Input Strides": strides, "Input type": kinds, "Concrete Inputs": concrete}
    return {"External id": number, "Record function id": number, **shapes}


def of_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(is_tensor, value))


def nested(value: Any, of: Callable[[torch.Tensor], list[int]]) -> list[Any]:
    if is_tensor(value):
        return of(value)
    return [of(t) for t in value] if of_tensors(value) else []


def kind_of(value: Any) -> str:
    if is_tensor(value):
        return TYPES[value.dtype]
    if value is None or isinstance(value, str | torch.device):
        return ""
    if isinstance(value, list | tuple):
        return "TensorList" if of_tensors(value) else "ScalarList"
    return "Scalar"


MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last)
DTYPE_NUMBERS = {torch.int8: 1, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}


def text_of(value: Any) -> str:
    if isinstance(value, torch.memory_format):
        return str(MEMORY_FORMATS.index(value))
    if isinstance(value, torch.dtype):
        return str(DTYPE_NUMBERS.get(value, 6))
    return str(list(value) if isinstance(value, tuple) else value)


# -- the execution trace -----------------------------------------------------------------------------------------------


class Ids:
    """Numbers of tensors and storages. What is not used any more gives its storage to the next of its size."""

    def __init__(self, steps: Sequence[Step]) -> None:
        ran = [one for step in steps for one in step.ran]
        touched = [[*tensors_of(one.args), *one.given] for one in ran]
        last = {storage(t): at for at, own in enumerate(touched) for t in own}
        ends = list(accumulate(len(step.ran) for step in steps))
        for step, end in zip(steps, [*ends[1:], len(ran)], strict=True):
            last |= {storage(t): end - 1 for t in step.gives}
        self._kept = touched  # so that no address is taken twice
        self._tensors: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        free: dict[int, list[int]] = {}
        seen: set[int] = set()
        made: set[int] = set()
        for one in ran:
            seen |= {storage(t) for t in tensors_of(one.args)}
            made |= {storage(t) for t in one.given} - seen
        living: dict[int, int] = {}
        for at, own in enumerate(touched):
            for tensor in own:
                key, nbytes = storage(tensor), tensor.untyped_storage().nbytes()
                if key not in self._storages:
                    waiting = free.get(nbytes) if key in made else None
                    self._storages[key] = waiting.pop() if waiting else 1_000_000 + len(self._storages)
                    living[key] = nbytes
            for key in [key for key in living if key in made and last[key] <= at]:
                free.setdefault(living.pop(key), []).append(self._storages[key])

    def of(self, tensor: torch.Tensor) -> list[Any]:
        own = self._tensors.setdefault(id(tensor), len(self._tensors) + 1)
        whole = self._storages[storage(tensor)]
        return [own, whole, tensor.storage_offset(), tensor.numel(), tensor.element_size(), "cuda:0"]


def tensors_of(values: Sequence[Any]) -> list[torch.Tensor]:
    """Tensors among arguments, those in lists too."""
    return [t for value in values for t in (value if isinstance(value, list | tuple) else [value]) if is_tensor(t)]


def node(one: Operator, number: int, above: int, ids: Ids) -> Event:
    attributes = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0}
    attributes |= {"op_schema": one.schema}
    return {
        "id": number + BEFORE,
        "name": one.name,
        "ctrl_deps": above,
        "inputs": ends(one.args, ids),
        "outputs": ends(one.given, ids),
        "attrs": [{"name": name, "type": "uint64", "value": value} for name, value in attributes.items()],
    }


def ends(values: Sequence[Any], ids: Ids) -> Event:
    found: Event = {"values": [], "shapes": [], "types": [], "strides": []}
    for value in values:
        found["values"].append(value_of(value, ids))
        found["shapes"].append(nested(value, lambda t: list(t.shape)))
        found["strides"].append(nested(value, lambda t: list(t.stride())))
        found["types"].append(type_of(value))
    return found


def value_of(value: Any, ids: Ids) -> Any:
    if is_tensor(value):
        return ids.of(value)
    if of_tensors(value):
        return [ids.of(one) for one in value]
    if value is None:
        return "<None>"
    return value if isinstance(value, bool | int | float) else text_of(value)


def type_of(value: Any) -> str:
    if is_tensor(value):
        return f"Tensor({TYPES[value.dtype]})"
    if of_tensors(value):
        return f"GenericList[{','.join(type_of(one) for one in value)}]"
    names = {bool: "Bool", int: "Int", float: "Double", str: "String"}
    return "None" if value is None else names.get(type(value), "Int")


def roots() -> list[Event]:
    empty: Event = {"values": [], "shapes": [], "types": [], "strides": []}
    names = ("[pytorch|profiler|execution_trace|process]", "[pytorch|profiler|execution_trace|thread]", "step")
    return [
        {"id": at, "name": name, "ctrl_deps": max(at - 1, 1), "inputs": empty, "outputs": empty, "attrs": [
            {"name": "rf_id", "type": "uint64", "value": 0}, {"name": "tid", "type": "uint64", "value": 1}]}
        for at, name in enumerate(names, 1)
    ]  # fmt: skip
