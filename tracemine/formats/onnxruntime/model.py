"""The optimised model next to a profile: its nodes by name, joined by tensors, and which of them one node could be:
what a higher level of optimisation joins, and pairs; and what of a quantised model is computed in floating point.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.files import read_file
from tracemine.formats.xla.wire import TEXT, read, table

_NODE = table(input=(1, [TEXT]), output=(2, [TEXT]), name=(3, TEXT), op_type=(4, TEXT))
_CONSTANT, _VALUE = table(name=(8, TEXT)), table(name=(1, TEXT))
_MODEL = table(graph=(7, table(node=(1, [_NODE]), initializer=(5, [_CONSTANT]), output=(12, [_VALUE]))))
_LARGEST_BYTES = 1 << 29  # a model with weights inside; larger ones keep them in files of their own
_MOST_FILES = 50
_LEAST_KNOWN = 0.9  # of the profiled nodes that a model has, to be the one that ran


_SCALE, _ADD = ("Mul", "Div"), ("Add",)
_MEAN = ("ReduceMean",)
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
_TO_FLOAT = frozenset((_DQ, "MatMulIntegerToFloat", "DynamicQuantizeMatMul"))
_TO_INTEGER = frozenset((_Q, "DynamicQuantizeLinear", "DynamicQuantizeMatMul"))
_PRODUCTS = frozenset(["MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "FusedGemm", "FusedConv"])
NARROW_PRODUCTS = frozenset(
    ["QLinearMatMul", "QLinearConv", "QGemm", "QAttention", "MatMulInteger", "ConvInteger", "MatMulNBits"]
) | (_TO_FLOAT - {_DQ})
_MOST_TRIED = 1_000  # ways from one node

# What ONNX Runtime fuses from ORT_ENABLE_EXTENDED on: the operators along a path. The longest come first.
FUSED: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("LayerNorm", (_MEAN, ("Sub",), ("Pow", "Mul"), _MEAN, _ADD, ("Sqrt",), ("Div",), ("Mul",), _ADD)),
    ("RMSNorm", (("Pow", "Mul"), _MEAN, _ADD, ("Sqrt",), ("Div", "Reciprocal"), ("Mul",), ("Mul",))),
    ("Gelu", (_SCALE, ("Erf",), _ADD, ("Mul",), ("Mul",))),
    ("masked softmax", (_SCALE, _ADD, ("Softmax",))),
    ("scale and softmax", (_SCALE, ("Softmax",))),
)
# Nodes that only fusing makes, from that level on.
_FUSIONS = """
Attention BiasGelu BiasSoftmax DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul
MatMulIntegerToFloat SkipLayerNormalization"""
_AT_EXTENDED = frozenset(_FUSIONS.split())
# What of a quantised model is none: of a product, of the conversions around it, and of what lies between.
IN_FLOAT, WEIGHT, APART, ISLAND = "product in float", "weight dequantised", "Q/DQ apart", "float island"
CONVERSIONS = (WEIGHT, APART)  # which go where what is around them is computed in integers, or all of it in float
# Computed element by element, or along rows: two of them in a row could be one kernel.
_WORDS = """
Abs Add BiasGelu Cast Clip Div Elu Erf Exp FastGelu Gelu LayerNormalization LeakyRelu Log LogSoftmax Max Min Mul Neg Pow
QuickGelu Reciprocal ReduceMax ReduceMean ReduceSum Relu Sigmoid SimplifiedLayerNormalization SkipLayerNormalization
SkipSimplifiedLayerNormalization Softmax Softplus Sqrt Sub Tanh Where"""
_JOINED = frozenset(_WORDS.split())


class ModelNode(Struct, frozen=True):
    """A node of a model."""

    op_type: str
    reads: list[str]
    writes: list[str]


class Model(Struct, frozen=True):
    """A model's nodes by name, what it gives, and its weights."""

    nodes: dict[str, ModelNode]
    outputs: frozenset[str]
    constants: frozenset[str]


def model_beside(path: Path, part: Path | None, names: Collection[str]) -> tuple[Model | None, list[str]]:
    """Return the model that has the profiled nodes, and what to say of those that have not.

    part: a model, or the folder that holds it; None: it lies in the profile's.
    """
    fitting, notes = list[tuple[int, Model]](), list[str]()
    folder = path.parent if part is None else part
    for file in sorted(folder.glob("*.onnx"))[:_MOST_FILES] if folder.is_dir() else [folder]:
        try:
            model = read_model(file)
        except TracemineError as error:
            notes.append(f"{file.name} {error.message}: its dataflow is not known.")
            continue
        known = sum(name in model.nodes for name in names)
        if known >= _LEAST_KNOWN * len(names):
            fitting.append((known, model))
        else:
            notes.append(
                f"{file.name} has {known} of the {len(names)} nodes that were profiled: it is not the model that ran, "
                "which optimized_model_filepath saves."
            )
    return (max(fitting, key=lambda pair: pair[0])[1], []) if fitting else (None, notes)


def read_model(path: Path) -> Model:
    """Return the nodes of a model. Raises InputError where it is damaged or too large."""
    data = memoryview(read_file(path, _LARGEST_BYTES))
    ((found, *named),) = read(data, (0, len(data)), _MODEL)
    nodes = {}
    for reads, writes, name, op_type in found:
        nodes[name] = ModelNode(op_type, [each for each in reads if each], [each for each in writes if each])
    constants, outputs = (frozenset(name for (name,) in each) for each in named)
    return Model(nodes, outputs, constants)


class Graph:
    """The nodes of a model that were profiled, joined by tensors."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self._nodes = {name: model.nodes[name] for name in names if name in model.nodes}
        self.types = {name: node.op_type for name, node in self._nodes.items()}
        self._outputs, self._constants = model.outputs, model.constants
        self._makers = {tensor: name for name, node in self._nodes.items() for tensor in node.writes}
        readers: dict[str, list[str]] = defaultdict(list)
        for name, node in self._nodes.items():
            for tensor in dict.fromkeys(node.reads):
                readers[tensor].append(name)
        self.after = {
            name: [r for tensor in node.writes for r in readers[tensor]] for name, node in self._nodes.items()
        }

    def fused(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what ONNX Runtime would fuse, and of which nodes, none twice; nothing where it has fused already."""
        taken: set[str] = set()
        for what, path in () if _AT_EXTENDED & set(self.types.values()) else FUSED:
            for name in self.types:
                nodes = self._along(name, path, taken)
                if nodes:
                    taken.update(nodes)
                    yield what, nodes

    def quantised(self) -> dict[str, str]:
        """Return what of a quantised model each node is that nothing computes in integers."""
        return {name: what for name in self.types if (what := self._in_float(name))}

    def _in_float(self, name: str) -> str | None:
        kind, reads = self.types[name], self._nodes[name].reads
        if kind in (_Q, _DQ):
            return self._conversion(name, *reads[:1])
        before = {self.types[self._makers[tensor]] for tensor in reads if tensor in self._makers}
        if kind in _PRODUCTS:
            return IN_FLOAT if _DQ in before else None
        between = before & _TO_FLOAT and self._types_after(name) & _TO_INTEGER
        return ISLAND if between and kind not in _TO_FLOAT | _TO_INTEGER | NARROW_PRODUCTS else None

    def _conversion(self, name: str, tensor: str = "") -> str | None:
        """Return what a conversion of a tensor is: of a weight, or to integers and back with nothing between."""
        if self.types[name] == _DQ and tensor in self._constants:
            return WEIGHT
        begin = name if self.types[name] == _Q else self._makers.get(tensor, "")
        return APART if self.types.get(begin) == _Q and self._types_after(begin) == {_DQ} else None

    def _types_after(self, name: str) -> set[str]:
        return {self.types[reader] for reader in self.after[name]}

    def pairs(self) -> list[tuple[str, str]]:
        """Return nodes that alone read what another gives, and nothing else does, where both could be one kernel."""
        alone = [
            (name, self.after[name][0])
            for name, node in self._nodes.items()
            if len(self.after[name]) == len(node.writes) == 1 and node.writes[0] not in self._outputs
        ]
        return [pair for pair in alone if all(self.types[name] in _JOINED for name in pair)]

    def _along(self, begin: str, path: Sequence[tuple[str, ...]], taken: set[str]) -> tuple[str, ...]:
        """Return the first nodes along a path of these operators that are free; none: there are none."""
        left: list[tuple[str, ...]] = [(begin,)]
        for _ in range(_MOST_TRIED):
            if not left:
                break
            nodes = left.pop()
            wanted, kind = path[len(nodes) - 1], self.types[nodes[-1]]
            if kind not in wanted or nodes[-1] in taken or nodes[-1] in nodes[:-1]:
                continue
            if len(nodes) == len(path):
                return nodes
            left += [(*nodes, reader) for reader in reversed(self.after[nodes[-1]])]
        return ()
