"""Lower pointwise operators that are no plain expression: powers by their exponent, copies, constants."""

from __future__ import annotations

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG
from tracemine.codegen.lowering.args import CallArgs
from tracemine.codegen.lowering.context import Lowering, result_dtype, rule
from tracemine.codegen.lowering.views import concat, slice_dim
from tracemine.codegen.operators import pointwise_rows, table
from tracemine.codegen.tensor_ir import TYPE_OF, Iota, Pointwise, ScalarArg, Tensor
from tracemine.ops.facts import base_name


@rule("pow")
def _pow(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    base, exponent = given.operand("self"), given.operand("exponent")
    power = table().powers.get(f"{exponent.value:g}") if isinstance(exponent, ScalarArg) else None
    if power is None:
        if TYPE_OF[result_dtype(given)] != FLOAT:
            raise Unsupported("a power of integers with no row in the table")
        if isinstance(base, ScalarArg):  # eager makes a tensor of the exponent's type of it
            base = low.cast(low.full(base, FLOAT), result_dtype(given), always=True)
        return (low.cast(low.op("power", base, exponent), result_dtype(given)),)
    whole = isinstance(base, Tensor) and base.type != FLOAT
    counts = isinstance(exponent, ScalarArg) and type(exponent.value) is int and exponent.value > 0
    compute = base.type if whole and counts and isinstance(base, Tensor) else FLOAT
    return (low.cast(low.pointwise(power, [base], compute), result_dtype(given)),)


@rule("floor_divide")
def _floor_divide(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Compute on integers as such: float32 does not hold large ones."""
    args, dtype = [given.operand("self"), given.operand("other")], result_dtype(given)
    if TYPE_OF[dtype] == FLOAT:
        return (low.apply_row(pointwise_rows()["floor_divide"], args, dtype),)
    return (low.cast(low.pointwise("floor_divide_integers", args, TYPE_OF[dtype]), dtype),)


@rule("gelu", "gelu_backward")
def _gelu(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    names = [name for name in ("grad_output", "self") if name in given]
    row = pointwise_rows()[f"gelu_{given.literal('approximate', 'none')}{'_backward' * (len(names) > 1)}"]
    return (low.apply_row(row, [given.tensor(name) for name in names], result_dtype(given)),)


@rule("glu")
def _glu(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    value, gate = _halves(low, given)
    return (low.cast(low.op("mul", value, low.op("sigmoid", gate)), result_dtype(given)),)


@rule("glu_backward")
def _glu_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, grad = given.tensor("self"), given.tensor("grad_output")
    value, gate = _halves(low, given)
    share = low.op("sigmoid", gate)
    first = low.op("mul", share, grad)
    second = low.op("mul", low.op("mul", low.op("rsub", share, 1.0), first), value)
    dim = given.integer("dim", -1) % len(source.dims)
    return (concat(low, [first, second], dim, low.shape(source), result_dtype(given)),)


def _halves(low: Lowering, given: CallArgs) -> tuple[Tensor, Tensor]:
    source = given.tensor("self")
    dim = given.integer("dim", -1) % len(source.dims)
    half = low.shape(source)[dim] // 2
    return slice_dim(low, source, dim, 0, half), slice_dim(low, source, dim, half, half)


@rule("_prelu_kernel_backward")
def _prelu_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return gradients of the tensor and, for each element, of the weight."""
    grad, source = given.tensor("grad_output"), given.tensor("self")
    found = low.op("_prelu_slope", source, grad, given.tensor("weight")), low.op("_prelu_weights_slope", source, grad)
    return tuple(low.cast(tensor, result_dtype(given, at)) for at, tensor in enumerate(found))


@rule("elu_backward")
def _elu_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    row = "elu_slope_by_result" if given.literal("is_result", False) else "elu_slope"
    numbers = (given.operand(name, 1.0) for name in ("alpha", "scale", "input_scale"))
    found = low.op(row, given.tensor("grad_output"), given.tensor("self_or_result"), *numbers)
    return (low.cast(found, result_dtype(given)),)


@rule("log_sigmoid_forward")
def _log_sigmoid(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return the second result is what a CPU's backward pass reads; a GPU's has no elements."""
    source, dtype = given.tensor("self"), result_dtype(given)
    found = low.cast(low.op("log_sigmoid_forward", source), dtype)
    kept: Tensor = low.op("exp", low.op("neg", low.op("abs", source)))
    if len(given.call.outputs) > 1 and not given.call.outputs[1].elements:
        none = low.new_dims(given.call.outputs[1].shape, pinned=True)
        kept = low.full(0.0, FLOAT, none)
    return (found, low.cast(kept, dtype))[: len(given.call.outputs)]


@rule("linspace")
def _linspace(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Compute from both ends, as eager does, so that the last number is the end."""
    start, end, count = given.operand("start"), given.operand("end"), given.output.shape[0]
    if not isinstance(start, ScalarArg) or not isinstance(end, ScalarArg) or TYPE_OF[result_dtype(given)] != FLOAT:
        raise Unsupported("ends that are tensors, or integers")
    step = (end.value - start.value) / max(count - 1, 1)
    place = Iota(dims=low.new_dims(given.output.shape, pinned=True), dtype=LONG, origin=low.at, along=0)
    args = (place, start, end, step, count // 2, count - 1)
    return (low.cast(low.pointwise("linspace", args, FLOAT, as_is=(4, 5)), result_dtype(given)),)


_LARGEST = {"float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38, "float16": 65504.0}


@rule("nan_to_num")
def _nan_to_num(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, most = given.tensor("self"), _LARGEST.get(result_dtype(given))
    if most is None:
        return (low.pointwise("identity", [source], source.type),)
    numbers = [given.operand(n, d) for n, d in (("nan", 0.0), ("posinf", most), ("neginf", -most))]
    return (low.cast(low.pointwise("nan_to_num", [source, *numbers], FLOAT), result_dtype(given)),)


@rule("bitwise_not")
def _bitwise_not(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    if source.type == BOOL:
        return (low.pointwise("logical_not", [source], INT, BOOL),)
    return (low.cast(low.pointwise("bitwise_not", [source], source.type), source.dtype),)


@rule("arange")
def _arange(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    dtype = result_dtype(given)
    place: Tensor = Iota(dims=low.new_dims(given.output.shape), dtype=LONG, origin=low.at, along=0)
    if TYPE_OF[dtype] != FLOAT:  # a place has as many bits as indices need, mostly 32: too few for what is made of it
        place = low.pointwise("to_int64", [place], LONG)
    start, step = given.operand("start", 0), given.operand("step", 1)
    if (start, step) == (ScalarArg(0), ScalarArg(1)):
        return (low.cast(place, dtype),)
    kind = FLOAT if TYPE_OF[dtype] == FLOAT else LONG
    return (low.cast(low.pointwise("arange", [place, start, step], kind), dtype),)


@rule("_to_copy", "clone", "contiguous", "to", "alias", "detach", "lift_fresh", "copy")
def _copy(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.operand("src" if "src" in given else "self")
    if isinstance(source, ScalarArg):
        raise Unsupported("a copy of a number")
    copied = low.pointwise("identity", [source], source.type)
    if "src" in given:  # broadcast to what it is written to
        target = given.tensor("self")
        copied = low.pointwise("identity", [source, target], source.type)
    return (low.cast(copied, result_dtype(given)),)


_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "fill", "zero"})


@rule("zeros_like", "ones_like", "full_like", "zeros", "ones", "full", "fill", "zero")
@rule("new_zeros", "new_ones", "new_full", "scalar_tensor")
def _fill(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    name = given.call.operator.removeprefix("aten::")
    plain: dict[str, float] = {"ones_like": 1, "ones": 1, "new_ones": 1}
    value = next((given.operand(n) for n in ("fill_value", "value", "s") if n in given), ScalarArg(plain.get(name, 0)))
    dtype = result_dtype(given)
    dims = given.tensor("self").dims if base_name(name) in _LIKE else low.new_dims(given.output.shape)
    kind, operation = TYPE_OF[dtype], "identity"
    compute = kind
    if kind == BOOL and isinstance(value, ScalarArg) and value.name is not None:
        operation, compute = "is_nonzero", FLOAT
    if kind in (INT, LONG) and isinstance(value, ScalarArg) and isinstance(value.value, float):
        kind = compute = FLOAT  # what is behind its point is cut off
    filled = Pointwise(dims=dims, dtype=kind, origin=low.at, operation=operation, args=(value,), compute=compute)
    return (low.cast(filled, dtype),)
