"""Chains that nobody would write, drawn at random once: each showed a wrong kernel, or a right one rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tracemine.codegen import Graph, GraphBuilder, Unsupported, generate
from tracemine.validate import Interpreter

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')


Make = Callable[[GraphBuilder], Graph]


def turned(b: GraphBuilder) -> Graph:
    """At a size of 1 the other axis may have any stride, and torch calls the tensor contiguous."""
    return b.done(b.call("aten::neg", b.input("x", (2, 4), "bfloat16", (1, 2))))


def numbers_beside_none(b: GraphBuilder) -> Graph:
    """NaN and a number: fmax and fmin give the number, whichever comes first."""
    x, y = b.input("x", (40,), "float32"), b.input("y", (40,), "float32")
    root = b.call("aten::log2", x)
    return b.done(b.call("aten::fmax", root, y), b.call("aten::fmin", root, y))


def bounds_that_are_none(b: GraphBuilder) -> Graph:
    x, low = b.input("x", (5, 8), "float32"), b.input("low", (8,), "float32")
    return b.done(b.call("aten::clamp_min.Tensor", x, low), b.call("aten::clamp_max.Tensor", x, low))


def signs(b: GraphBuilder) -> Graph:
    """NaN has the sign 0."""
    x = b.input("x", (40,), "float32")
    return b.done(b.call("aten::sign", x), b.call("aten::sign", b.call("aten::_to_copy", x, dtype="int32")))


def roots(b: GraphBuilder) -> Graph:
    """A CPU's own are off by a bit in one element of six; a GPU's are none."""
    return b.done(b.call("aten::sqrt", b.input("x", (400,), "float32")))


def inverse_roots(b: GraphBuilder) -> Graph:
    """Of few elements of 16 bits a CPU rounds the root, too."""
    return b.done(b.call("aten::rsqrt", b.input("x", (9,), "bfloat16")))


def alone(b: GraphBuilder) -> Graph:
    """The norm over an axis of one element is its size, however small."""
    return b.done(b.call("aten::linalg_vector_norm", b.input("x", (6, 1), "float32"), 2, [1], True))


def small_spread(b: GraphBuilder) -> Graph:
    """Squares of denormals are 0 in float32, as in eager on a GPU."""
    return b.done(b.call("aten::std.correction", b.input("x", (6, 8), "float32"), [1], correction=1, keepdim=True))


def joined(b: GraphBuilder) -> Graph:
    """Members promote, also where the first is the narrowest."""
    x, y = b.input("x", (4, 5), "bfloat16"), b.input("y", (4, 5), "float32")
    codes = b.input("codes", (4, 5), "uint8")
    return b.done(b.call("aten::stack", [x, y], 0), b.call("aten::cat", [codes, x], 1))


def factor_of_one(b: GraphBuilder) -> Graph:
    """A number that is the default at one call may be another at the next."""
    x, y = b.input("x", (4, 5), "float32"), b.input("y", (4, 5), "float32")
    return b.done(b.call("aten::add.Tensor", x, y, alpha=1.0))


def squeezed(b: GraphBuilder) -> Graph:
    """An axis that stays as it is, but would go at a size of 1."""
    return b.done(b.call("aten::neg", b.call("aten::squeeze.dim", b.input("x", (5, 3), "float32"), 0)))


def itself_turned(b: GraphBuilder) -> Graph:
    """At other sizes one of the two would be broadcast."""
    x, y = b.input("x", (3, 3), "float32"), b.input("y", (1, 3, 3), "float32")
    twice = b.call("aten::add.Tensor", b.call("aten::unsqueeze", x, 0), b.call("aten::unsqueeze", x, -1))
    return b.done(b.call("aten::add.Tensor", twice, y))


def truths(b: GraphBuilder) -> Graph:
    """Of a row and of a number alone."""
    x, y = b.input("x", (4, 5), "bfloat16"), b.input("y", (), "bfloat16")
    both = b.call("aten::logical_and", b.call("aten::amin", x, [1], False), y)
    code = b.call("aten::_to_copy", b.call("aten::gt.Tensor", x, y), dtype="float8_e4m3fn")
    return b.done(both, code)


def filled(b: GraphBuilder) -> Graph:
    """A whole number where 16 bits of a float are stored."""
    return b.done(b.call("aten::full_like", b.input("x", (6,), "bfloat16"), 3))


def wide_beside_narrow(b: GraphBuilder) -> Graph:
    """What has no 16 bits on its way is judged as that, whatever else the chain gives."""
    x, y = b.input("x", (16,), "float32"), b.input("y", (4,), "bfloat16")
    return b.done(b.call("aten::native_layer_norm", x, [16], None, None, 1e-5)[0], b.call("aten::neg", y))


def joined_twice(b: GraphBuilder) -> Graph:
    """A join of one join with itself: what lies behind its members is not there."""
    x = b.input("x", (5,), "float32")
    both = b.call("aten::cat", [b.call("aten::neg", x), b.call("aten::abs", x)], 0)
    return b.done(b.call("aten::stack", [both, both], 0))


def fractions_among_whole_numbers(b: GraphBuilder) -> Graph:
    """Numbers of 64 bits stay what they are beside the whole part of 1.5."""
    x, chosen = b.input("x", (4, 5), "int64"), b.input("chosen", (4, 5), "bool")
    padded = b.call("aten::constant_pad_nd", x, [1, 2], 1.5)
    return b.done(padded, b.call("aten::masked_fill.Scalar", x, chosen, 2.0))


def beyond_bytes(b: GraphBuilder) -> Graph:
    """−1 among bytes is 255."""
    x = b.input("x", (40,), "uint8")
    return b.done(b.call("aten::le.Scalar", x, -2), b.call("aten::clamp", x, -1))


def functions_of_constants(b: GraphBuilder) -> Graph:
    x = b.input("x", (4, 5), "float32")
    fixed = b.call("aten::round", b.call("aten::ones_like", x))
    first = b.call("aten::relu", b.call("aten::arange", 1, dtype="float32"))
    return b.done(fixed, b.call("aten::minimum", x, first))


def sums_of_exponentials(b: GraphBuilder) -> Graph:
    """Eager rounds each step of it to 16 bits, or computes whole numbers in float32."""
    x, codes = b.input("x", (64, 40), "bfloat16"), b.input("codes", (4, 2), "int16")
    return b.done(b.call("aten::logsumexp", x, [1], True), b.call("aten::logsumexp", codes, [1], True))


def overlapping_rows(b: GraphBuilder) -> Graph:
    """Elements in one place are one number; where they lie apart they are several."""
    x, y = b.input("x", (9, 9), "bfloat16", (4, 1)), b.input("y", (9, 9), "bfloat16")
    return b.done(b.call("aten::add.Tensor", x, y))


def rolled_round(b: GraphBuilder) -> Graph:
    """By as many places as there are; at another size that is another place."""
    return b.done(b.call("aten::neg", b.call("aten::roll", b.input("x", (4, 3), "float32"), [4], [0])))


def filled_codes(b: GraphBuilder) -> Graph:
    x = b.call("aten::fill_.Scalar", b.input("x", (5,), "int64"), -2)
    return b.done(b.call("aten::_to_copy", x, dtype="float8_e4m3fn"))


def written_since(b: GraphBuilder) -> Graph:
    """What a call gave is read outside after another has written there."""
    x = b.call("aten::neg", b.input("x", (4, 5), "float32"))
    return b.done(b.call("aten::relu_", x), b.call("aten::mul_.Scalar", x, 2.0))


def whole_already(b: GraphBuilder) -> Graph:
    x = b.input("x", (40,), "int64")
    return b.done(b.call("aten::ceil", x), b.call("aten::floor", x))


def large_whole_numbers(b: GraphBuilder) -> Graph:
    """Made of 16 bits in eager, of 32 in the kernel: nearer to the truth, and more than 1 off."""
    x, y = b.input("x", (3, 8), "bfloat16"), b.input("y", (3, 8), "bfloat16")
    gap = b.call("aten::sub.Tensor", b.call("aten::square", x), y)
    return b.done(b.call("aten::_to_copy", gap, dtype="int64"))


ODD: tuple[Make, ...] = (
    turned, numbers_beside_none, bounds_that_are_none, signs, roots, inverse_roots, alone, small_spread, joined,
    factor_of_one, squeezed, itself_turned, truths, filled, wide_beside_narrow,
    joined_twice, fractions_among_whole_numbers, beyond_bytes, functions_of_constants, sums_of_exponentials,
    overlapping_rows, rolled_round, filled_codes, written_since, whole_already, large_whole_numbers,
)  # fmt: skip


@pytest.fixture(scope="module")
def process() -> Iterator[Interpreter]:
    with Interpreter() as found:
        yield found


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_it_is_right(process: Interpreter, make: Make) -> None:
    proof = process.validate(make(GraphBuilder(make.__name__)), mutants=False)
    assert proof.refused is None
    assert proof.faults == ()


def test_what_overlaps_itself_is_not_written_in_place() -> None:
    b = GraphBuilder("overlapping")
    x = b.input("x", (4, 8), "float32", (4, 1))
    b.call("aten::mul_.Scalar", x, 2.0)
    with pytest.raises(Unsupported, match="x is written in place, and has elements that share memory"):
        generate(b.done())


def test_a_joined_tensor_has_the_members_common_dtype() -> None:
    chain = joined(GraphBuilder("joined"))
    assert [chain.specs[v].dtype for v in chain.live] == ["float32", "bfloat16"]


def test_a_part_of_what_is_written_since_is_not_given_as_it_was() -> None:
    b = GraphBuilder("stale")
    x = b.call("aten::neg", b.input("x", (4, 5), "float32"))
    part = b.call("aten::slice.Tensor", x, 0, 1, 3, 1)
    with pytest.raises(Unsupported, match="a view of a tensor that was written in place since is read outside"):
        generate(b.done(part, b.call("aten::relu_", x)))
