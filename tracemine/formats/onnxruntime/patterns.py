"""Nodes that one node could be, along a model's dataflow: what a higher level of optimisation joins, and pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tracemine.formats.onnxruntime.model import Model

_SCALE, _ADD = ("Mul", "Div"), ("Add",)
_MEAN = ("ReduceMean",)
_TO_FLOAT = ("DequantizeLinear", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
_TO_INTEGER = ("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul")
_ANY: tuple[str, ...] = ()
_MOST_TRIED = 1_000  # ways from one node

# What ONNX Runtime fuses from ORT_ENABLE_EXTENDED on: the operators along a path. The longest come first.
FUSED: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("LayerNorm", (_MEAN, ("Sub",), ("Pow", "Mul"), _MEAN, _ADD, ("Sqrt",), ("Div",), ("Mul",), _ADD)),
    ("RMSNorm", (("Pow", "Mul"), _MEAN, _ADD, ("Sqrt",), ("Div", "Reciprocal"), ("Mul",), ("Mul",))),
    ("Gelu", (_SCALE, ("Erf",), _ADD, ("Mul",), ("Mul",))),
    ("masked softmax", (_SCALE, _ADD, ("Softmax",))),
    ("scale and softmax", (_SCALE, ("Softmax",))),
)
ISLAND = ("float island", (_TO_FLOAT, _ANY, _TO_INTEGER))
# Computed element by element, or along rows: two of them in a row could be one kernel.
_WORDS = """
Abs Add BiasGelu Cast Clip Div Elu Erf Exp FastGelu Gelu LayerNormalization LeakyRelu Log LogSoftmax Max Min Mul Neg Pow
QuickGelu Reciprocal ReduceMax ReduceMean ReduceSum Relu Sigmoid SimplifiedLayerNormalization SkipLayerNormalization
SkipSimplifiedLayerNormalization Softmax Softplus Sqrt Sub Tanh Where"""
_JOINED = frozenset(_WORDS.split())


class FoundNodes(Struct, frozen=True):
    """Nodes, by name, that are one thing."""

    what: str
    nodes: tuple[str, ...]


class Graph:
    """The nodes of a model that were profiled, joined by tensors."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.types = {name: model.nodes[name].op_type for name in names if name in model.nodes}
        readers: dict[str, list[str]] = defaultdict(list)
        for name in self.types:
            for tensor in dict.fromkeys(model.nodes[name].reads):
                readers[tensor].append(name)
        writes = {name: model.nodes[name].writes for name in self.types}
        self.after = {name: [reader for tensor in writes[name] for reader in readers[tensor]] for name in self.types}
        self._only = {
            name: len(writes[name]) == 1 and writes[name][0] not in model.outputs and len(self.after[name]) == 1
            for name in self.types
        }

    def fused(self) -> Iterator[FoundNodes]:
        """Yield what ONNX Runtime would fuse, no node twice."""
        taken: set[str] = set()
        for what, path in FUSED:
            for name in self.types:
                nodes = self._along(name, path, taken)
                if nodes:
                    taken.update(nodes)
                    yield FoundNodes(what, nodes)

    def islands(self) -> Iterator[FoundNodes]:
        """Yield nodes that compute in floating point between two of integers."""
        what, path = ISLAND
        for name in self.types:
            if nodes := self._along(name, path, set()):
                yield FoundNodes(what, nodes)

    def pairs(self) -> list[tuple[str, str]]:
        """Return nodes that alone read what another gives, where both could be one kernel."""
        return [
            (name, self.after[name][0])
            for name, kind in self.types.items()
            if kind in _JOINED and self._only[name] and self.types[self.after[name][0]] in _JOINED
        ]

    def _along(self, begin: str, path: Sequence[tuple[str, ...]], taken: set[str]) -> tuple[str, ...]:
        """Return the first nodes along a path of these operators that are free; none: there are none."""
        left: list[tuple[str, ...]] = [(begin,)]
        for _ in range(_MOST_TRIED):
            if not left:
                break
            nodes = left.pop()
            wanted, kind = path[len(nodes) - 1], self.types[nodes[-1]]
            fits = kind in wanted if wanted else kind not in (*_TO_FLOAT, *_TO_INTEGER)
            if not fits or nodes[-1] in taken or nodes[-1] in nodes[:-1]:
                continue
            if len(nodes) == len(path):
                return nodes
            left += [(*nodes, reader) for reader in reversed(self.after[nodes[-1]])]
        return ()
