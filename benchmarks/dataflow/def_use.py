"""What an execution trace proves of a recording: which operators must run before which, by the storages they touch.

    recording = Recording.of(trace, execution_trace)      # plain JSON; nothing of tracemine is imported here
    recording.faults([[3, 4], [7, 9]])                    # why such groups of units are no single kernels

A unit is the outermost operator with a schema that launches work itself, with all that is inside it. Units are walked
in the order in which they began; a unit reads when it begins and writes when it ends. Storages' ids are used again:
each allocation, and each new output, is a new buffer. Two tensors of a buffer meet where they share an element,
strides and all. Of each two accesses that meet and of which one writes, the earlier must come first. What nobody says
counts as a path: work that no operator with a schema owns, and graphs' replays, stand behind all before them and before
all after them; what the host reads stands before all after it.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_GPU_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_MAKES = re.compile(r"aten::\w*[a-z0-9]")  # ATen's operators that write in place end in an underscore, or take `out`
_GRAPH = "GraphLaunch"
_TO_HOST = "DtoH"
_MOST_ELEMENTS = 1 << 22  # of two tensors that are compared element by element; larger ones are taken to meet

# Inputs that no schema marks and that are written where the argument `training` is true.
_RUNNING = {"aten::native_batch_norm": (3, 4), "aten::cudnn_batch_norm": (3, 4), "aten::miopen_batch_norm": (3, 4)}
_OVERWRITES = frozenset({"copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential"})
_LIBRARY = re.compile(
    r"mm$|matmul|^linear$|conv|attention|^sort|topk|argsort|_rnn|lstm|gru|"
    r"embedding_bag|multinomial|^(linalg|fft)_(?!vector_norm)|nccl|c10d"
)
_SCATTERS = re.compile(
    r"^(index_add|scatter|index_put|_index_put_impl|index_copy|index_reduce|embedding_dense_backward)"
)
_LOOKS_UP = re.compile(r"^(index|index_select|gather|embedding|take|take_along_dim|masked_select)$")
_NORMALIZED = frozenset({"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "rms_norm"})
_ALONG_DIM = frozenset({"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"})
_REDUCES = frozenset(
    {
        *("sum", "mean", "amax", "amin", "prod", "max", "min", "argmax", "argmin", "any", "all", "norm", "logsumexp"),
        *("linalg_vector_norm", "var", "std", "var_mean", "std_mean", "nansum", "aminmax"),
    }
)

Space = tuple[int, int]  # rows that are reduced, and their length


@dataclass(frozen=True, slots=True)
class Tensor:
    """Elements of a storage. `offset` and `strides` are in elements."""

    storage: tuple[str, int]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def on_gpu(self) -> bool:
        return self.storage[0].partition(":")[0] not in ("cpu", "meta")

    @property
    def layout(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of its axes, those that are one run of elements as one, those of one element left out.

        >>> Tensor(("cuda:0", 1), 0, (2, 3, 4), (12, 4, 1), 4).layout
        ((24, 1),)
        """
        axes: list[tuple[int, int]] = []
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size == 1:
                continue
            if axes and axes[-1][1] == size * stride:
                axes[-1] = axes[-1][0] * size, stride
            else:
                axes.append((size, stride))
        return tuple(axes)

    @property
    def view(self) -> tuple[int, tuple[tuple[int, int], ...], int]:
        """The same of two tensors of a buffer that name the same elements in the same order."""
        return self.offset, self.layout, self.item_bytes


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an execution trace."""

    number: int
    name: str
    parent: int
    record_function: int
    schema: str
    inputs: tuple[Any, ...]  # a Tensor, a tuple of these, or a plain value
    outputs: tuple[Any, ...]

    @property
    def base(self) -> str:
        """Its name without namespace and trailing underscore."""
        name = self.name.rpartition("::")[2]
        return name if name.endswith("__") else name.rstrip("_")

    def argument(self, *names: str) -> Any:
        """The value of the first of these that its schema has; None: it has none of them."""
        for position, text in enumerate(_arguments(self.schema)):
            if text.partition("=")[0].split()[-1:] and text.partition("=")[0].split()[-1] in names:
                return self.inputs[position] if position < len(self.inputs) else None
        return None


@dataclass(slots=True)
class Unit:
    """Work that stands or falls together."""

    name: str
    node: Node | None  # None: nobody says what it reads and writes
    makes: bool = False  # but by its name it writes nothing that was there before
    to_host: bool = False
    reads: list[tuple[int, Tensor]] = field(default_factory=list)  # buffer, tensor
    writes: list[tuple[int, Tensor]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a group is no single kernel. `path` are units, from a member to a member."""

    group: int
    kind: str
    path: tuple[int, ...]
    says: str


class Recording:
    """The units of a recording in order, which must run before which, and whose unit each launch is."""

    def __init__(self, nodes: Sequence[Node], launches: Iterable[Launch]) -> None:
        self.units: list[Unit] = []
        self.of_launch: dict[int, int] = {}  # by correlation
        self.after: list[dict[int, str]] = []  # of each unit those that must run after it, and why
        self.before: list[dict[int, str]] = []
        places = self._make_units(nodes, launches)
        self._walk(nodes, places)

    @staticmethod
    def of(trace: Path, execution_trace: Path) -> Recording:
        """Of a Kineto trace and the execution trace of the same window."""
        nodes = read_nodes(execution_trace)
        return Recording(nodes, launches(read_json(trace)["traceEvents"]))

    # --- units -------------------------------------------------------------------------------------------------------

    def _make_units(self, nodes: Sequence[Node], found: Iterable[Launch]) -> dict[int, list[int]]:
        """The units that begin at each node, by its number; those that no node stands for behind the one before."""
        by_number = {node.number: node for node in nodes}
        by_function = {node.record_function: node for node in nodes if node.record_function > 0}
        owned: list[tuple[Launch, Node | None]] = []
        for launch in found:
            around = (by_function.get(function) for function in launch.functions)
            owned.append((launch, None if launch.replays else next((one for one in around if one is not None), None)))
        launching = {node.number for _, node in owned if node is not None}
        unit_of: dict[int, Unit] = {}
        places: list[tuple[int, int, Unit]] = []
        of_launch: dict[int, Unit] = {}
        for launch, node in owned:
            outermost = None if node is None else _outermost(node, by_number, launching)
            if node is None or outermost is None or not outermost.schema:
                place = _last_begun(launch, by_function) if node is None else node.number
                makes = bool(launch.within) and _MAKES.fullmatch(launch.within) is not None
                unit = Unit(launch.within or launch.says if node is None or makes else node.name, None, makes)
                places.append((place, 1, unit))
            elif outermost.number in unit_of:
                unit = unit_of[outermost.number]
            else:
                unit = unit_of[outermost.number] = Unit(outermost.name, outermost)
                places.append((outermost.number, 0, unit))
            unit.to_host |= launch.to_host
            of_launch[launch.correlation] = unit
        places.sort(key=lambda place: place[:2])
        begins: dict[int, list[int]] = defaultdict(list)
        number_of: dict[int, int] = {}
        for at, _, unit in places:
            number_of[id(unit)] = len(self.units)
            begins[at].append(len(self.units))
            self.units.append(unit)
        self.of_launch = {correlation: number_of[id(unit)] for correlation, unit in of_launch.items()}
        self.after = [{} for _ in self.units]
        self.before = [{} for _ in self.units]
        return begins

    # --- dataflow ----------------------------------------------------------------------------------------------------

    def _walk(self, nodes: Sequence[Node], begins: Mapping[int, list[int]]) -> None:
        in_order = sorted(nodes, key=lambda node: node.number)
        parents = {node.parent for node in nodes}
        by_number = {node.number: node for node in nodes}
        last = _last_inside(in_order)
        memory = _Memory()
        made: set[tuple[int, tuple[str, int]]] = set()  # by operator, storages that were allocated inside it
        ending: dict[int, list[int]] = defaultdict(list)
        unknown, host, since = -1, -1, list[int]()
        for node in in_order:
            for number in begins.get(node.number, ()):
                unit = self.units[number]
                for earlier, kind in ((unknown, "unknown"), (host, "host")):
                    if earlier >= 0:
                        self._edge(earlier, number, kind)
                if unit.node is None:
                    for earlier in since:
                        self._edge(earlier, number, "unknown")
                    if unit.makes:
                        continue
                    unknown, since = number, []
                else:
                    since.append(number)
                    for tensor in _allocated_around(unit.node, by_number, made):
                        memory.allocate(tensor)
                    for tensor in _read(unit.node):
                        buffer = memory.buffer(tensor)
                        unit.reads.append((buffer, tensor))
                        for earlier in memory.read(buffer, tensor, number):
                            self._edge(earlier, number, "data")
                    ending[last[node.number]].append(number)
                if unit.to_host:
                    host = number
            if node.schema and node.number not in parents and node.number not in begins:
                for tensor in _fresh(node):
                    memory.allocate(tensor)
                    made.update((around.number, tensor.storage) for around in _around_node(node, by_number))
            for number in reversed(ending.pop(node.number, [])):
                self._writes(number, memory)

    def _writes(self, number: int, memory: _Memory) -> None:
        unit = self.units[number]
        assert unit.node is not None
        fresh = list(_fresh(unit.node))
        for tensor in fresh:
            memory.allocate(tensor)
        for tensor in dict.fromkeys((*_mutated(unit.node), *_handed_back(unit.node), *fresh)):
            buffer = memory.buffer(tensor)
            unit.writes.append((buffer, tensor))
            for earlier, kind in memory.write(buffer, tensor, number):
                self._edge(earlier, number, kind)

    def _edge(self, earlier: int, later: int, kind: str) -> None:
        if earlier != later:
            assert earlier < later
            self.after[earlier].setdefault(later, kind)
            self.before[later].setdefault(earlier, kind)

    # --- groups ------------------------------------------------------------------------------------------------------

    def faults(self, groups: Sequence[Sequence[int]]) -> list[Fault]:
        """All that keeps groups of units from being single kernels; nothing where they are."""
        found: list[Fault] = []
        for number, group in enumerate(groups):
            members = sorted(set(group))
            found += self._inside(number, members)
            path = self.path(members)
            if path:
                found.append(Fault(number, self._kind(path), tuple(path), self.text(path)))
        found += self._circles(groups, {fault.group for fault in found if fault.path})
        return found

    def chained(self, members: Sequence[int]) -> bool:
        """Whether members hang together by what is recorded: one writes what another reads, or two read the same."""
        group = sorted(set(members))
        inside = set(group)
        beside: dict[int, set[int]] = {member: set() for member in group}
        readers: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        for member in group:
            for later, kind in self.after[member].items():
                if later in inside and kind == "data":
                    beside[member].add(later)
                    beside[later].add(member)
            for buffer, tensor in self.units[member].reads:
                for other, read in readers[buffer]:
                    if meet(read, tensor):
                        beside[member].add(other)
                        beside[other].add(member)
                readers[buffer].append((member, tensor))
        reached, waiting = set(group[:1]), group[:1]
        while waiting:
            new = beside[waiting.pop()] - reached
            reached |= new
            waiting += new
        return reached == inside

    def path(self, members: Sequence[int]) -> list[int]:
        """A way from one member through others than members to another member; empty: there is none."""
        inside, end = set(members), max(members, default=-1)
        came: dict[int, int] = {}
        waiting = []
        for member in members:
            for later in self.after[member]:
                if later not in inside and later < end and later not in came:
                    came[later] = member
                    waiting.append(later)
        while waiting:
            at = waiting.pop(0)
            for later in self.after[at]:
                if later in inside:
                    way = [later, at]
                    while way[-1] not in inside:
                        way.append(came[way[-1]])
                    return way[::-1]
                if later < end and later not in came:
                    came[later] = at
                    waiting.append(later)
        return []

    def text(self, path: Sequence[int]) -> str:
        """A path in words."""
        parts = [f"{self.units[path[0]].name} #{path[0]}"]
        for earlier, later in itertools.pairwise(path):
            parts.append(f"→{self.after[earlier].get(later, '?')}→ {self.units[later].name} #{later}")
        return " ".join(parts)

    def _kind(self, path: Sequence[int]) -> str:
        kinds = {self.after[earlier].get(later) for earlier, later in itertools.pairwise(path)}
        return next((f"path ({kind})" for kind in ("unknown", "host") if kind in kinds), "path")

    def _inside(self, number: int, members: Sequence[int]) -> Iterator[Fault]:
        """What two members do to each other, and what no kernel takes in."""
        writers: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        spaces: dict[Space, int] = {}
        axes: dict[tuple[int, Any], tuple[Any, int]] = {}
        for member in members:
            unit = self.units[member]
            if unit.makes:
                continue
            if (
                unit.node is None
                or _LIBRARY.search(unit.node.base)
                or not unit.node.name.startswith(("aten::", "prims::"))
            ):
                yield Fault(number, "library", (member,), f"{unit.name} #{member} takes nothing in")
                continue
            for buffer, tensor in unit.writes:
                writers[buffer].append((member, tensor))
            reduced = _reduced(unit.node)
            if reduced is not None:
                space, source, over = reduced
                spaces.setdefault(space, member)
                buffer = next((b for b, tensor in unit.reads if tensor == source), -1)
                other = axes.setdefault((buffer, source.view if source else None), (over, member))
                if other[0] != over:
                    spaces.setdefault((-1, -1), member)
        if len(spaces) > 1:
            says = ", ".join(f"{self.units[m].name} #{m} {s[0]} × {s[1]}" for s, m in spaces.items())
            yield Fault(number, "reductions", tuple(spaces.values()), f"reduce differently: {says}")
        for member in members:
            for buffer, tensor in self.units[member].reads:
                for writer, written in writers.get(buffer, ()):
                    why = self._clash(member, tensor, writer, written)
                    if why:
                        yield Fault(number, "hazard", (member, writer), why)
                        return

    def _clash(self, reader: int, read: Tensor, writer: int, written: Tensor) -> str:
        """Why a member that reads and one that writes the same elements are no single kernel."""
        if reader == writer or not meet(read, written):
            return ""
        one, other = self.units[reader], self.units[writer]
        assert one.node is not None and other.node is not None
        names = f"{one.name} #{reader} reads what {other.name} #{writer}"
        if reader > writer:
            return f"{names} has scattered" if _SCATTERS.match(other.node.base) else ""
        if _LOOKS_UP.match(one.node.base):
            return f"{names} overwrites, at computed places"
        return f"{names} overwrites, elsewhere" if read.view != written.view else ""

    def _circles(self, groups: Sequence[Sequence[int]], broken: set[int]) -> list[Fault]:
        """Groups that wait for each other; those that are broken already stand apart."""
        unit_group = {m: g for g, group in enumerate(groups) if g not in broken for m in group}
        of = [unit_group[unit] + len(self.units) if unit in unit_group else unit for unit in range(len(self.units))]
        after: dict[int, set[int]] = defaultdict(set)
        for unit, later in enumerate(self.after):
            after[of[unit]].update(of[one] for one in later)
        found = []
        for circle in _circles(after):
            waiting = sorted(one - len(self.units) for one in circle if one >= len(self.units))
            says = "wait for each other: groups " + ", ".join(map(str, waiting))
            found.append(Fault(waiting[0], "circle", tuple(sorted(m for g in waiting[:2] for m in groups[g])), says))
        return found


# --- what is recorded -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of GPU work. `functions`: record functions of the operators around it, innermost first."""

    correlation: int
    functions: tuple[int, ...]
    before: tuple[int, ...]  # those that began before it, on any thread, the last one first; a few
    says: str
    within: str = ""  # name of the innermost operator around it, where that has no record function of a node
    to_host: bool = False
    replays: bool = False


def launches(events: Sequence[Mapping[str, Any]]) -> list[Launch]:
    """The launches of a Kineto trace whose call was recorded, in order of time."""
    calls, operators, activities = {}, [], defaultdict(list)
    for event in events:
        kind, args = event.get("cat"), event.get("args") or {}
        if event.get("ph") != "X":
            continue
        if kind in _CALLS and args.get("correlation") is not None:
            calls[args["correlation"]] = event
        elif kind == "cpu_op":
            operators.append(
                (float(event["ts"]), -float(event.get("dur", 0)), args.get("Record function id") or 0, event)
            )
        elif kind in _GPU_WORK and args.get("correlation") is not None:
            activities[args["correlation"]].append(event)
    operators.sort(key=lambda operator: operator[:2])
    starts = [operator[0] for operator in operators]
    threads: dict[Any, list[int]] = defaultdict(list)
    for at, operator in enumerate(operators):
        threads[operator[3].get("pid"), operator[3].get("tid")].append(at)
    around = _around(operators, threads)
    found = []
    for correlation, works in activities.items():
        call = calls.get(correlation)
        if call is None:
            continue
        at, own = float(call["ts"]), threads.get((call.get("pid"), call.get("tid")), [])
        place = bisect_right(own, bisect_right(starts, at) - 1) - 1
        inside: list[int] = []
        names: list[str] = []
        one = own[place] if place >= 0 else -1
        while one >= 0:
            if starts[one] - operators[one][1] >= at:
                inside.append(operators[one][2])
                names.append(str(operators[one][3].get("name")))
            one = around[one]
        last = bisect_right(starts, at)
        found.append((at, Launch(
            correlation,
            tuple(inside),
            tuple(operators[i][2] for i in range(last - 1, max(last - 9, -1), -1)),
            str(works[0].get("name")),
            names[0] if names else "",
            any(_TO_HOST in str(work.get("name")) for work in works),
            _GRAPH in str(call.get("name")),
        )))  # fmt: skip
    return [launch for _, launch in sorted(found, key=lambda one: one[0])]


def _around(operators: Sequence[tuple[float, float, int, Any]], threads: Mapping[Any, list[int]]) -> list[int]:
    """For each operator the one around it on its thread, −1: none."""
    around = [-1] * len(operators)
    for own in threads.values():
        open_ones: list[int] = []
        for at in own:
            while open_ones and operators[open_ones[-1]][0] - operators[open_ones[-1]][1] <= operators[at][0]:
                open_ones.pop()
            around[at] = open_ones[-1] if open_ones else -1
            open_ones.append(at)
    return around


def read_json(path: Path) -> Any:
    """A JSON file, perhaps gzipped."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode(errors="replace")
    return json.loads(text, strict=False)


def read_nodes(path: Path) -> list[Node]:
    """The nodes of an execution trace in Chakra's layout (schema 1.0.2 and later)."""
    found = []
    for node in read_json(path)["nodes"]:
        attributes = {one["name"]: one["value"] for one in node["attrs"]}
        inputs, outputs = (_values(node[side]) for side in ("inputs", "outputs"))
        function, schema = int(attributes.get("rf_id") or 0), str(attributes.get("op_schema") or "")
        found.append(Node(node["id"], str(node["name"]), node["ctrl_deps"], function, schema, inputs, outputs))
    return found


def _values(side: Mapping[str, Any]) -> tuple[Any, ...]:
    strides = side.get("strides") or [None] * len(side["values"])
    return tuple(_value(*each) for each in zip(side["values"], side["shapes"], side["types"], strides, strict=False))


def _value(value: Any, shape: Any, kind: str, strides: Any) -> Any:
    if kind.startswith("Tensor(") and isinstance(value, list) and len(value) == 6:
        sizes = tuple(shape)
        steps = tuple(strides) if strides is not None and len(strides) == len(sizes) else _contiguous(sizes)
        return Tensor((str(value[5]), int(value[1])), int(value[2]), sizes, steps, int(value[4]))
    if isinstance(value, list) and kind.startswith("GenericList[Tensor("):
        parts = strides if isinstance(strides, list) and len(strides) == len(value) else [None] * len(value)
        return tuple(_value(one, size, "Tensor()", step) for one, size, step in zip(value, shape, parts, strict=False))
    return tuple(value) if isinstance(value, list) else value


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


# --- what a node does to its tensors ----------------------------------------------------------------------------------


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Tensor) and one.on_gpu and all(one.shape):
                yield one


def _mutated_positions(node: Node) -> set[int]:
    found = {at for at, text in enumerate(_arguments(node.schema)) if re.match(r"Tensor\([^()!]*!", text)}
    if node.name in _RUNNING and node.argument("training", "train") is True:
        found.update(_RUNNING[node.name])
    return found


def _overwritten(node: Node) -> set[int]:
    """Positions of what is written whole and not read."""
    texts = list(_arguments(node.schema))
    outs = {at for at in _mutated_positions(node) if texts[at].split()[-1].startswith("out") and "out" in node.schema}
    return outs | ({0} if node.base in _OVERWRITES else set())


def _read(node: Node) -> Iterator[Tensor]:
    skipped = _overwritten(node)
    yield from _tensors(value for at, value in enumerate(node.inputs) if at not in skipped)


def _mutated(node: Node) -> Iterator[Tensor]:
    positions = _mutated_positions(node)
    yield from _tensors(value for at, value in enumerate(node.inputs) if at in positions)


def _fresh(node: Node) -> Iterator[Tensor]:
    taken = {tensor.storage for tensor in _tensors(node.inputs)}
    yield from (tensor for tensor in _tensors(node.outputs) if tensor.storage not in taken)


def _handed_back(node: Node) -> Iterator[Tensor]:
    """Outputs in a storage that it took: what launches work and gives that back has written it, but ATen marks all that
    it writes."""
    if node.name.startswith("aten::"):
        return
    taken = {tensor.storage for tensor in _tensors(node.inputs)}
    yield from (tensor for tensor in _tensors(node.outputs) if tensor.storage in taken)


def _around_node(node: Node, by_number: Mapping[int, Node]) -> Iterator[Node]:
    """The operators around a node, the nearest first."""
    at = by_number.get(node.parent)
    while at is not None:
        yield at
        at = by_number.get(at.parent) if at.parent != at.number else None


def _allocated_around(
    node: Node, by_number: Mapping[int, Node], made: set[tuple[int, tuple[str, int]]]
) -> Iterator[Tensor]:
    """What a node overwrites that an operator of ATen around it gives and did not take: that has allocated it, with no
    operator that says so (`pow` with an exponent of 1 copies)."""
    overwritten = [tensor for at in _overwritten(node) for tensor in _tensors(node.inputs[at : at + 1])]
    for around in _around_node(node, by_number):
        if around.schema and around.name.startswith("aten::"):
            given = {tensor.storage for tensor in _fresh(around)}
            for tensor in overwritten:
                if tensor.storage in given and (around.number, tensor.storage) not in made:
                    made.update((each.number, tensor.storage) for each in _around_node(node, by_number))
                    yield tensor


def _reduced(node: Node) -> tuple[Space, Tensor | None, Any] | None:
    """The rows that a node reduces, of which tensor, along which axes; None: it is not known to reduce."""
    source = next((value for value in node.inputs if isinstance(value, Tensor)), None)
    if source is None or not source.shape:
        return None
    rank, over = len(source.shape), None
    if node.base in _REDUCES:
        over = node.argument("dim", "axis")
        over = [over] if isinstance(over, int) else over if isinstance(over, tuple) and over else range(rank)
    elif node.base in _ALONG_DIM:
        over = [node.argument("dim")]
    elif node.base in _NORMALIZED:
        over = range(rank - len(node.argument("normalized_shape") or ()), rank)
    elif "batch_norm" in node.base and (node.argument("training", "train") is True or "backward" in node.base):
        over = [axis for axis in range(rank) if axis != 1]
    if over is None or not all(isinstance(axis, int) for axis in over):
        return None
    axes = frozenset(axis % rank for axis in over)
    length = 1
    for axis in axes:
        length *= source.shape[axis]
    elements = int(np.prod(source.shape))
    return None if length <= 1 else ((elements // length, length), source, axes)


def _arguments(schema: str) -> Iterator[str]:
    """The arguments of a schema."""
    depth, begin = 0, 0
    text = schema.partition("(")[2]
    for at, letter in enumerate(text):
        if depth == 0 and letter in ",)":
            if (one := text[begin:at].strip()) and one != "*":
                yield one
            begin = at + 1
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            return


def _outermost(node: Node, by_number: Mapping[int, Node], launching: set[int]) -> Node:
    """The outermost node around this one that launches work itself and has a schema; or this one, or where that has
    none (what communicates), the nearest one around it that has."""
    found, at = node, by_number.get(node.parent)
    while at is not None:
        if at.schema and (at.number in launching or not found.schema):
            found = at
        at = by_number.get(at.parent) if at.parent != at.number else None
    return found


def _last_begun(launch: Launch, by_function: Mapping[int, Node]) -> int:
    return max((by_function[one].number for one in launch.before if one in by_function), default=-1)


def _last_inside(in_order: Sequence[Node]) -> dict[int, int]:
    """For each node the highest number inside it, or its own."""
    last = {node.number: node.number for node in in_order}
    for node in reversed(in_order):
        if node.parent in last and node.parent < node.number:
            last[node.parent] = max(last[node.parent], last[node.number])
    return last


# --- memory -----------------------------------------------------------------------------------------------------------


class _Memory:
    """Buffers by storage, and who touched them."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, int], int] = {}
        self._made = 0
        self._written: defaultdict[int, list[tuple[Tensor, int]]] = defaultdict(list)
        self._been_read: defaultdict[int, list[tuple[Tensor, int]]] = defaultdict(list)

    def buffer(self, tensor: Tensor) -> int:
        """The buffer that a storage means now."""
        if tensor.storage not in self._buffers:
            self.allocate(tensor)
        return self._buffers[tensor.storage]

    def allocate(self, tensor: Tensor) -> None:
        """The storage means new memory from now on."""
        self._buffers[tensor.storage] = self._made
        self._made += 1

    def read(self, buffer: int, tensor: Tensor, unit: int) -> list[int]:
        """Who wrote what is read."""
        self._been_read[buffer].append((tensor, unit))
        return [writer for written, writer in self._written[buffer] if meet(written, tensor)]

    def write(self, buffer: int, tensor: Tensor, unit: int) -> list[tuple[int, str]]:
        """Who has read or written what is written now."""
        found = []
        for kind, held in (("overwrites what it reads", self._been_read), ("overwrites", self._written)):
            kept = []
            for other, who in held[buffer]:
                if meet(other, tensor):
                    found.append((who, kind))
                    if covers(tensor, other):
                        continue
                kept.append((other, who))
            held[buffer] = kept
        self._written[buffer].append((tensor, unit))
        return found


@lru_cache(maxsize=1 << 16)
def covers(one: Tensor, other: Tensor) -> bool:
    """Whether all elements of the other are certainly among those of one."""
    if one.view == other.view:
        return True
    if len(one.layout) > 1 or (one.layout and one.layout[0][1] != 1):
        return False
    begin, end = _extent(other)
    return _extent(one)[0] <= begin and end <= _extent(one)[1]


def meet(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of a buffer have an element in common.

    >>> rows = [Tensor(("cuda:0", 1), at, (8, 4), (8, 1), 4) for at in (0, 4, 2)]
    >>> meet(rows[0], rows[1]), meet(rows[0], rows[2])
    (False, True)
    """
    (begin, end), (its_begin, its_end) = _extent(one), _extent(other)
    if begin >= its_end or its_begin >= end:
        return False
    low = min(one.offset * one.item_bytes, other.offset * other.item_bytes)
    parts = [(t.offset * t.item_bytes - low, t.layout, t.item_bytes) for t in (one, other)]
    return _meet(*sorted(parts))


@lru_cache(maxsize=1 << 16)
def _meet(one: tuple[int, Any, int], other: tuple[int, Any, int]) -> bool:
    runs = [_runs(*part) for part in (one, other)]
    if any(run is None for run in runs):
        return True
    (starts, length), (its_starts, its_length) = runs  # type: ignore[misc]
    at = np.searchsorted(its_starts, starts, "right")
    left = its_starts[np.maximum(at - 1, 0)]
    right = its_starts[np.minimum(at, len(its_starts) - 1)]
    return bool(
        (((at > 0) & (left + its_length > starts)) | ((at < len(its_starts)) & (right < starts + length))).any()
    )


def _runs(begin: int, layout: tuple[tuple[int, int], ...], item: int) -> tuple[npt.NDArray[np.int64], int] | None:
    """Where runs of elements begin, sorted, and how long each is, in bytes."""
    axes, length = list(layout), item
    if axes and axes[-1][1] == 1:
        length = axes.pop()[0] * item
    if int(np.prod([size for size, _ in axes] or [1])) > _MOST_ELEMENTS:
        return None
    starts = np.array([begin], np.int64)
    for size, stride in axes:
        if stride:
            starts = (starts[:, None] + np.arange(size) * stride * item).ravel()
    starts.sort()  # np.unique hashes, which takes ten times as long
    return starts[np.append(True, starts[1:] != starts[:-1])], length


def _extent(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.offset * tensor.item_bytes
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    return begin, begin + (reach + 1) * tensor.item_bytes


def _circles(after: Mapping[int, set[int]]) -> list[list[int]]:
    """Strongly connected parts of more than one (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in list(after):
        if root in number:
            continue
        work = [(root, iter(after.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            at, rest = work[-1]
            for later in rest:
                if later == at:
                    continue
                if later not in number:
                    number[later] = low[later] = len(number)
                    stack.append(later)
                    on_stack.add(later)
                    work.append((later, iter(after.get(later, ()))))
                    break
                if later in on_stack:
                    low[at] = min(low[at], number[later])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == number[at]:
                    part = []
                    while True:
                        one = stack.pop()
                        on_stack.discard(one)
                        part.append(one)
                        if one == at:
                            break
                    if len(part) > 1:
                        found.append(part)
    return found
