"""What rules of lowering share: the registry that they enter, and the state of one graph while it is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tracemine.codegen import tensor_ir as tir
from tracemine.codegen.axes import Axes, Dims
from tracemine.codegen.graph import Graph, GraphCall, Ref, Refs, Unsupported, mutated
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.operators import PointwiseRow, pointwise_rows, ulp_of
from tracemine.codegen.tensor_ir import NARROW, TYPE_OF, NumElements, Pointwise, ScalarArg, Tensor
from tracemine.ops.infer.promotion import result_type
from tracemine.ops.infer.tensor import broadcast, overlaps

COMPLEX_DTYPE = "complex64"
Rule = Callable[["Lowering", CallArgs], tuple[Tensor, ...]]
Behind = Callable[["Lowering", Tensor, Tensor, Tensor], Tensor]
RULES: dict[str, Rule] = {}
COMPLEX: dict[str, Rule] = {}  # of calls that take complex numbers


def rule(*names: str, of: dict[str, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Register how operators of these names (without namespace, without the `_` of in-place) are lowered."""

    def register(function: Rule) -> Rule:
        of.update(dict.fromkeys(names, function))
        return function

    return register


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """Expressions for all that the graph's kernels must write."""

    axes: Axes
    inputs: tuple[tir.Input, ...]
    values: tuple[Tensor, ...]  # of the graph, by number, as they are at its end
    live: tuple[Tensor, ...]
    written: Mapping[int, Tensor]  # inputs that are written in place, and with what
    drawn: tuple[tuple[int, Tensor], ...]  # of each call that drops elements: its number, and what it kept
    operations: tuple[str, ...]  # names of the expressions used
    reduces: bool  # whether anything is summed: then the order of summing may differ from eager's

    @property
    def ulp(self) -> float:
        """Return by how much the expressions may be off in all, in units in the last place of float32."""
        return ulp_of(self.operations)


class Lowering:
    """The state of one graph while it is lowered, and the methods that rules build expressions with.

    lower_call: lowers one call. behind: what a tensor holds after a view of it was written.
    """

    def __init__(self, graph: Graph, lower_call: Rule, behind: Behind) -> None:
        self.graph = graph
        self._lower_call, self._behind = lower_call, behind
        self.axes = Axes()
        self.at = -1
        self.drawn: list[tuple[int, Tensor]] = []
        self.operations: list[str] = []
        self.reduces = False
        self._tensors: list[Tensor] = []
        self._version: dict[int, int] = {}  # of a root: how often it was written
        self._seen: list[tuple[int, int]] = []  # of a value: its root and the root's version

    def run(self) -> Lowered:
        """Raises Unsupported, naming the call, where no kernel can be generated."""
        for number, entry in enumerate(self.graph.inputs):
            self._checked(entry.spec.dtype)
            dims = self._apart(self.axes.dims(entry.spec.shape))
            self._add(tir.Input(dims=dims, dtype=str(entry.spec.dtype), buffer=entry.name), number)
        sources = tuple(t for t in self._tensors if isinstance(t, tir.Input))
        for number, call in enumerate(self.graph.calls):
            self.at = number
            try:
                self._call(number, call)
            except Unsupported as refusal:
                raise Unsupported(f"call {number} ({call.label}): {refusal.message}") from None
        self.axes.pin_all_but(s.dims for s in sources)
        written = {v: self._tensors[v] for v in self.graph.written}
        if overlapping := [e.name for v in written if overlaps((e := self.graph.inputs[v]).spec)]:
            raise Unsupported(f"{overlapping[0]} is written in place, and has elements that share memory")
        live = tuple(self._at_end(v) for v in self.graph.live)
        if any(isinstance(t, tir.Complex) for t in live):
            raise Unsupported("it gives complex numbers as they are")
        return Lowered(
            axes=self.axes,
            inputs=sources,
            values=tuple(self._tensors),
            live=live,
            written=written,
            drawn=tuple(self.drawn),
            operations=tuple(dict.fromkeys(self.operations)),
            reduces=self.reduces,
        )

    def _results(self, number: int, call: GraphCall) -> tuple[Tensor, ...]:
        """Return what a call gives. Raise Unsupported where that is not as it was recorded."""
        for spec in call.outputs:
            if spec.dtype != COMPLEX_DTYPE:
                self._checked(spec.dtype)
        self._fresh_reads(call)
        results = self._lower_call(self, CallArgs(call, call.given(), self._tensors, number))
        for t, spec in zip(results, call.outputs, strict=False):
            if self.shape(t) != spec.shape:
                raise Unsupported("it gives other shapes than recorded")
            if isinstance(t, tir.Complex) != (spec.dtype == COMPLEX_DTYPE):
                raise Unsupported(f"tensors of {COMPLEX_DTYPE} are not supported")
        return results

    def _call(self, number: int, call: GraphCall) -> None:
        results = self._results(number, call)
        targets = mutated(call)
        fresh = not targets or None in call.schema.aliases  # new tensors, and after them what is written in place
        written = results[len(call.outputs) if fresh else 0 :]
        for target, result in zip(targets, written, strict=False):
            self._write(target, result)
        if not fresh and call.outputs:
            for target in targets[: len(call.outputs)]:
                self._add(self._tensors[target], self._seen[target][0])
            return
        shares = call.schema.aliases
        for place, result in enumerate(results[: len(call.outputs)]):
            alias = shares[min(place, len(shares) - 1)] if shares else None
            source = None if alias is None else call.arguments[alias]
            root = self._seen[source.value][0] if isinstance(source, Ref) else len(self._tensors)
            self._add(result, root)

    def _add(self, tensor: Tensor, root: int) -> None:
        self._tensors.append(tensor)
        self._seen.append((root, self._version.setdefault(root, 0)))

    def _write(self, target: int, result: Tensor) -> None:
        root = self._seen[target][0]
        view = self._tensors[target]
        result = self.reshape(result, view.dims)
        whole = self._behind(self, view, self._tensors[root], result)
        self._version[root] += 1
        self._tensors[target], self._tensors[root] = result, whole
        self._seen[target] = self._seen[root] = (root, self._version[root])

    def _at_end(self, value: int) -> Tensor:
        """Return what whoever reads a value outside finds in its memory."""
        root, version = self._seen[value]
        if version == self._version[root]:
            return self._tensors[value]
        if self.graph.specs[value] != self.graph.specs[root]:
            raise Unsupported("a view of a tensor that was written in place since is read outside")
        return self._tensors[root]

    def _fresh_reads(self, call: GraphCall) -> None:
        for value in call.arguments:
            for v in (value.value,) if isinstance(value, Ref) else value.values if isinstance(value, Refs) else ():
                if v is not None and self._seen[v][1] != self._version[self._seen[v][0]]:
                    raise Unsupported("it reads a view of a tensor that was written in place since")

    def _checked(self, dtype: str | None) -> None:
        if dtype not in TYPE_OF:
            raise Unsupported(f"tensors of {dtype} are not supported")

    def _apart(self, dims: Dims) -> Dims:
        self.axes.keep_apart(dims)
        return dims

    # What rules build with.

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return sizes of an expression's dimensions."""
        return tuple(self.axes.size(self.axes.leaves(dim)) for dim in tensor.dims)

    def new_dims(self, shape: Sequence[int], pinned: bool = False) -> Dims:
        """Return dimensions of a tensor that shares none with any yet."""
        dims = self._apart(self.axes.dims(shape))
        if pinned:
            self.axes.pin([a for dim in dims for a in dim])
        return dims

    def pointwise(
        self,
        operation: str,
        args: Sequence[Operand | float],
        compute: str,
        gives: str | None = None,
        as_is: tuple[int, ...] = (),
    ) -> Pointwise:
        """Return an expression over operands, broadcast; its dimensions are joined with theirs."""
        self.operations.append(operation)
        tensors = [a for a in args if isinstance(a, Tensor)]
        try:
            shape = broadcast([self.shape(t) for t in tensors])
        except ValueError as reason:
            raise Unsupported(str(reason)) from None
        return Pointwise(
            dims=self._broadcast(tensors, shape),
            dtype=gives or compute,
            origin=self.at,
            operation=operation,
            args=tuple(ScalarArg(a) if isinstance(a, int | float) else a for a in args),
            compute=compute,
            as_is=as_is,
        )

    def full(self, value: Operand | float, type_: str, dims: Dims = ()) -> Pointwise:
        """Return a tensor whose elements are all one number."""
        arg = ScalarArg(value) if isinstance(value, int | float) else value
        return Pointwise(dims=dims, dtype=type_, origin=self.at, operation="identity", args=(arg,), compute=type_)

    def _broadcast(self, tensors: Sequence[Tensor], shape: Sequence[int]) -> Dims:
        """Return the dimensions of tensors that are broadcast to a shape."""
        dims: list[tuple[int, ...]] = []
        for back in range(len(shape), 0, -1):
            here = [t.dims[-back] for t in tensors if len(t.dims) >= back]
            wide = [d for d in here if self.axes.size(self.axes.leaves(d)) != 1]
            # A vector that meets itself turned: its axis is looped over once already, the second time by one of its
            # own.
            looped_over = set(self.axes.flat(tuple(dims)))
            free = [d for d in wide if looped_over.isdisjoint(self.axes.leaves(d))]
            if len(free) < len(wide):  # of other sizes it would be broadcast
                self.axes.pin([a for d in wide for a in d])
            if wide and not free:
                free = list(self.new_dims((shape[-back],), pinned=True))
            dims.append(free[0] if wide else ())
            for other in free[1:]:
                self.axes.join(free[0], other)
        return self._apart(tuple(dims))

    def op(self, name: str, *args: Operand | float) -> Pointwise:
        """Return a row of the table, in float32."""
        row = pointwise_rows()[name]
        return self.pointwise(row.short if row.short and len(args) < len(row.args) else row.operation, args, FLOAT)

    def cast(self, tensor: Tensor, dtype: str, always: bool | None = None) -> Tensor:
        """Round to a dtype, unless it is that already."""
        if tensor.dtype == dtype and dtype not in NARROW:
            return tensor
        if always is None:
            always = dtype not in NARROW
        return tir.Cast(dims=tensor.dims, dtype=dtype, origin=tensor.origin, arg=tensor, always=always)

    def reshape(self, tensor: Tensor, dims: Dims) -> Tensor:
        """Return the same elements in the same order, in other dimensions."""
        if tensor.dims == dims:
            return tensor
        flat = tuple(a for dim in tensor.dims for a in dim)
        if not self.axes.join(flat, tuple(a for dim in dims for a in dim)):
            raise Unsupported("a view would make two axes of one tensor the same")
        return self.with_dims(tensor, self._apart(dims))

    def with_dims(self, tensor: Tensor, dims: Dims) -> Tensor:
        """Return a tensor with dimensions of one element added or dropped."""
        return tir.Reshape(dims=dims, dtype=tensor.dtype, origin=self.at, arg=tensor)

    def per_channel(self, tensor: Tensor, rank: int) -> Tensor:
        """Return one element a channel, for a tensor whose second dimension they are; as it is for a rank of 0."""
        return self.with_dims(tensor, (tensor.dims[0], *((),) * (rank - 2))) if rank else tensor

    def weighted(self, given: CallArgs, tensor: Tensor, rank: int = 0) -> Tensor:
        """Return a tensor times a call's weight, where it has one. rank: of what has a weight a channel."""
        return self.op("mul", tensor, self.per_channel(given.tensor("weight"), rank)) if "weight" in given else tensor

    def num_elements(self, tensor: Tensor, over: Sequence[int]) -> NumElements:
        """Return how many elements some dimensions of a tensor have."""
        return NumElements(dims=(), dtype=FLOAT, origin=self.at, over=tuple(a for d in over for a in tensor.dims[d]))

    def apply_row(self, row: PointwiseRow, args: Sequence[Operand], out: str, short: bool = False) -> Tensor:
        """Return a row of the table over a call's operands, rounded to the dtype of its result."""
        kinds = row.types or (row.compute,) * len(args)
        common = _common([a for a, kind in zip(args, kinds, strict=False) if kind != BOOL])
        if TYPE_OF[out] in (INT, LONG) and all(a.type != FLOAT for a in args if isinstance(a, Tensor)):
            common = TYPE_OF[out]  # a float that integers are filled with makes them floats
        if common == INT:
            args = [_wrapped(low=self, arg=a, among=args) for a in args]
        compute = {"float": FLOAT, "common": common, "bool": BOOL}[row.compute]
        args = [_as_bool(self, a) if kind == BOOL else a for a, kind in zip(args, kinds, strict=False)]
        as_is = tuple(at for at, kind in enumerate(kinds) if kind == BOOL != compute)
        found = self.pointwise(row.short if short and row.short else row.operation, args, compute, row.gives, as_is)
        return self.cast(found, out)


def result_dtype(given: CallArgs, place: int = 0) -> str:
    """Return the spec of an output; of the tensor that is written where the call gives none."""
    if given.call.outputs:
        return str(given.call.outputs[place].dtype)
    return given.tensors[mutated(given.call)[place]].dtype


ADDS_UP = "rows are added up where indices say: in a fixed order each element would have to look at all of them"
WRITES_ANYWHERE = "it writes where indices say, and nothing tells that no two are the same"


def _common(args: Sequence[Operand]) -> str:
    """Return what operands are computed in together. Python numbers count by kind alone."""
    dtypes = [a.dtype for a in args if isinstance(a, Tensor)]
    types = {TYPE_OF[d] for d in dtypes}
    numbers = [a.value for a in args if isinstance(a, ScalarArg)]
    if FLOAT in types or any(isinstance(n, float) for n in numbers):
        return FLOAT
    return LONG if LONG in types else INT


_RANGES: Mapping[str, range] = {"uint8": range(256), "int8": range(-128, 128), "int16": range(-(2**15), 2**15)}


def _wrapped(low: Lowering, arg: Operand, among: Sequence[Operand]) -> Operand:
    """Return a number that the tensors' dtype does not hold goes round, as eager's does: −1 among bytes is 255."""
    dtype = result_type(a.dtype for a in among if isinstance(a, Tensor)) if isinstance(arg, ScalarArg) else ""
    if dtype not in _RANGES or not isinstance(arg, ScalarArg) or arg.value in _RANGES[dtype]:
        return arg
    return low.cast(low.full(arg, INT), dtype)


def _as_bool(low: Lowering, arg: Operand) -> Operand:
    if isinstance(arg, ScalarArg) or arg.dtype == BOOL:
        return arg
    return low.pointwise("is_nonzero", [arg], arg.type, BOOL)
