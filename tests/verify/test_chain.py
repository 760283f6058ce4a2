"""A chain says what reads what, and nothing in it can name code."""

from __future__ import annotations

import msgspec
import pytest

from tests.verify.catalogue import CATALOGUE
from tracemine.ops.infer import TensorSpec
from tracemine.verify import Builder, Chain, ChainError, Unsupported, generate
from tracemine.verify.chain import Call, Input, Ref, check


def scaled(shape: tuple[int, ...] = (4, 8), dtype: str = "bfloat16") -> Chain:
    b = Builder("scaled")
    return b.done(b.call("aten::mul.Tensor", b.input("x", shape, dtype), 0.5))


def test_a_number_where_a_tensor_could_be_is_an_argument() -> None:
    (scalar,) = scaled().scalars
    assert (scalar.name, scalar.value, scalar.recorded) == ("other", 0.5, True)
    assert "other=0.5" in generate(scaled()).text


def test_a_chain_survives_json() -> None:
    for make in CATALOGUE.values():
        chain = make()
        assert msgspec.json.decode(msgspec.json.encode(chain), type=Chain) == chain


@pytest.mark.parametrize("name", ["x; import os", "import", "X", "tl", "n3", "max", "", "a" * 40])
def test_names_that_could_be_code_or_clash_are_refused(name: str) -> None:
    chain = scaled()
    bad = Chain(chain.name, (Input(name, chain.inputs[0].spec),), chain.calls, chain.live)
    with pytest.raises(ChainError, match="no name for an argument"):
        check(bad)


def test_the_chain_s_name_is_text_and_no_code() -> None:
    chain = scaled()
    text = generate(Chain("x\nimport os  # rm", chain.inputs, chain.calls, chain.live)).text
    assert "import os" not in text
    assert "def x_import_os_rm_kernel(" in text


def test_a_call_must_be_in_the_operator_table() -> None:
    chain = scaled()
    call = chain.calls[0]
    for operator, overload in (("aten::system", ""), ("aten::mul", "Tensor; import os"), ("os::remove", "")):
        bad = Call(operator, overload, call.arguments, call.outputs)
        with pytest.raises(ChainError, match="not in the operator table"):
            check(Chain(chain.name, chain.inputs, (bad,), chain.live))


def test_a_call_reads_only_what_came_before_it() -> None:
    chain = scaled()
    call = chain.calls[0]
    late = Call(call.operator, call.overload, (Ref(1), call.arguments[1]), call.outputs)
    with pytest.raises(ChainError, match="no earlier call gives"):
        check(Chain(chain.name, chain.inputs, (late,), chain.live))


def test_nothing_wanted_is_no_chain() -> None:
    chain = scaled()
    with pytest.raises(ChainError, match="nothing that it computes is wanted"):
        check(Chain(chain.name, chain.inputs, chain.calls, ()))


def test_dtypes_and_strides_must_be_known() -> None:
    chain = scaled()
    unknown = Input("x", TensorSpec((4, 8), None, (8, 1)))
    with pytest.raises(ChainError, match="not known"):
        check(Chain(chain.name, (unknown,), chain.calls, chain.live))


@pytest.mark.parametrize(
    ("operator", "arguments", "dtype", "reason"),
    [
        ("aten::mul.Tensor", (2.0,), "float64", "float64"),
        ("aten::pow.Tensor_Scalar", (2.5,), "float32", "no row in the table"),
        ("aten::erfinv", (), "float32", "not in the table of those that can be generated"),
        ("aten::max.dim", (-1, False), "float32", "maximum with its place"),
    ],
)
def test_what_cannot_be_generated_is_refused_with_a_reason(operator: str, arguments, dtype: str, reason: str) -> None:
    b = Builder("refused")
    found = b.call(operator, b.input("x", (4, 8), dtype), *arguments)
    with pytest.raises(Unsupported, match=reason):
        generate(b.done(found if not isinstance(found, tuple) else found[0]))


def test_a_view_that_mixes_axes_is_refused() -> None:
    b = Builder("mixed")
    x = b.input("x", (6, 4), "float32")
    with pytest.raises(Unsupported, match="regroups axes"):
        generate(b.done(b.call("aten::neg", b.call("aten::view", x, [8, 3]))))


def test_writing_in_place_what_another_program_reads_is_refused() -> None:
    b = Builder("shifted")
    x = b.input("x", (4, 8), "float32")
    turned = b.call("aten::flip", x, [1])
    b.call("aten::add_.Tensor", x, turned)
    with pytest.raises(Unsupported, match="writes in place what another program still reads"):
        generate(b.done())


def test_reading_a_view_of_what_was_written_in_place_is_refused() -> None:
    b = Builder("stale")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 4), "float32")
    part = b.call("aten::slice.Tensor", x, 1, 0, 4, 1)
    b.call("aten::relu_", x)
    with pytest.raises(Unsupported, match="written in place since"):
        generate(b.done(b.call("aten::add.Tensor", part, y)))
