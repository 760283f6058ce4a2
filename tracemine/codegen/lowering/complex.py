"""Lower complex numbers, as pairs of real ones.

No memory of a kernel holds one: a complex tensor is the pair of expressions for its real and its imaginary parts. What
is not said here of complex numbers is refused.
"""

from __future__ import annotations

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import COMPLEX, Lowering, rule
from tracemine.codegen.lowering.views import concat, slice_dim, squeeze_dim
from tracemine.codegen.tensor_ir import Complex, ScalarArg, Tensor


def _parts(operand: Operand) -> tuple[Operand, Operand]:
    """Return both parts: eager takes a real number for one whose imaginary part is 0."""
    return (operand.real, operand.imaginary) if isinstance(operand, Complex) else (operand, ScalarArg(0.0))


def _whole(low: Lowering, real: Tensor, imaginary: Tensor) -> Complex:
    """Return both parts, broadcast to one another already."""
    return Complex(dims=real.dims, dtype="complex64", origin=low.at, real=real, imaginary=imaginary)


@rule("view_as_complex")
def _view_as_complex(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    last = len(source.dims) - 1
    if source.dtype != "float32":
        raise Unsupported(f"complex numbers of {source.dtype}")
    real, imaginary = (squeeze_dim(low, slice_dim(low, source, last, place, 1), last) for place in (0, 1))
    return (_whole(low, real, imaginary),)


@rule("view_as_real", of=COMPLEX)
def _view_as_real(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    assert isinstance(source, Complex)  # noqa: S101  (else another table would be asked)
    members = [low.with_dims(part, (*part.dims, ())) for part in (source.real, source.imaginary)]
    return (concat(low, members, len(source.dims), given.output.shape, "float32"),)


@rule("polar")
def _polar(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    size, angle = given.tensor("abs"), given.tensor("angle")
    if {size.dtype, angle.dtype} != {"float32"}:
        raise Unsupported(f"complex numbers of {size.dtype}")
    return (_whole(low, *(low.op("mul", size, low.op(turn, angle)) for turn in ("cos", "sin"))),)


@rule("mul", of=COMPLEX)
def _product(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return (a + bi)(c + di) = (ac − bd) + (ad + bc)i."""
    (a, b), (c, d) = (_parts(given.operand(name)) for name in ("self", "other"))
    straight, across = ([low.op("mul", *pair) for pair in pairs] for pairs in (((a, c), (b, d)), ((a, d), (b, c))))
    return (_whole(low, low.op("sub", *straight), low.op("add", *across)),)


@rule("add", "sub", of=COMPLEX)
def _sum(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    if given.values.get("alpha") is not None:
        raise Unsupported("a share of a complex number is added")
    name = given.call.operator.removeprefix("aten::")
    pairs = zip(*(_parts(given.operand(n)) for n in ("self", "other")), strict=True)
    return (_whole(low, *(low.op(name, *pair) for pair in pairs)),)


@rule("clone", "contiguous", "alias", "detach", of=COMPLEX)
def _copied(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return (given.tensor("self"),)
