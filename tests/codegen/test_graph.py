"""A chain says what reads what, and nothing in it can name code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import Graph, GraphBuilder, GraphError, Unsupported, generate
from tracemine.codegen.graph import GraphCall, GraphInput, Ref
from tracemine.codegen.graph_builder import check
from tracemine.ops.infer import TensorSpec


def scaled(shape: tuple[int, ...] = (4, 8), dtype: str = "bfloat16") -> Graph:
    b = GraphBuilder("scaled")
    return b.done(b.call("aten::mul.Tensor", b.input("x", shape, dtype), 0.5))


def test_a_number_where_a_tensor_could_be_is_an_argument() -> None:
    (scalar,) = scaled().scalars
    assert (scalar.name, scalar.value, scalar.recorded) == ("other", 0.5, True)
    assert "other=0.5" in generate(scaled()).text


def test_a_chain_survives_json() -> None:
    for make in CATALOGUE.values():
        chain = make()
        assert msgspec.json.decode(msgspec.json.encode(chain), type=Graph) == chain


@pytest.mark.parametrize("name", ["x; import os", "import", "X", "tl", "n3", "max", "", "a" * 40])
def test_names_that_could_be_code_or_clash_are_refused(name: str) -> None:
    chain = scaled()
    bad = Graph(chain.name, (GraphInput(name, chain.inputs[0].spec),), chain.calls, chain.live)
    with pytest.raises(GraphError, match="no name for an argument"):
        check(bad)


def test_the_chain_s_name_is_text_and_no_code() -> None:
    chain = scaled()
    text = generate(Graph("x\nimport os  # rm", chain.inputs, chain.calls, chain.live)).text
    assert "import os" not in text
    assert "def x_import_os_rm_kernel(" in text


def test_a_call_must_be_in_the_operator_table() -> None:
    chain = scaled()
    call = chain.calls[0]
    for operator, overload in (("aten::system", ""), ("aten::mul", "Tensor; import os"), ("os::remove", "")):
        bad = GraphCall(operator, overload, call.arguments, call.outputs)
        with pytest.raises(GraphError, match="not in the operator table"):
            check(Graph(chain.name, chain.inputs, (bad,), chain.live))


def test_a_call_reads_only_what_came_before_it() -> None:
    chain = scaled()
    call = chain.calls[0]
    late = GraphCall(call.operator, call.overload, (Ref(1), call.arguments[1]), call.outputs)
    with pytest.raises(GraphError, match="no earlier call gives"):
        check(Graph(chain.name, chain.inputs, (late,), chain.live))


def test_nothing_wanted_is_no_chain() -> None:
    chain = scaled()
    with pytest.raises(GraphError, match="nothing that it computes is wanted"):
        check(Graph(chain.name, chain.inputs, chain.calls, ()))


def test_dtypes_and_strides_must_be_known() -> None:
    chain = scaled()
    unknown = GraphInput("x", TensorSpec((4, 8), None, (8, 1)))
    with pytest.raises(GraphError, match="not known"):
        check(Graph(chain.name, (unknown,), chain.calls, chain.live))


@pytest.mark.parametrize(
    ("operator", "arguments", "dtype", "reason"),
    [
        ("aten::mul.Tensor", (2.0,), "float64", "float64"),
        ("aten::pow.Tensor_Scalar", (5,), "int64", "no row in the table"),
        ("aten::digamma", (), "float32", "not in the table of those that can be generated"),
        ("aten::argmax", (None, False), "float32", "the index of a maximum"),
        ("aten::sort", (-1, False), "float32", "sorting"),
        ("aten::roll", ([3], []), "float32", "a roll over all elements"),
        ("aten::constant_pad_nd", ([-1, 1], 0.0), "float32", "padding that cuts"),
        ("aten::max.dim", (-1, False), "bool", "the index of a maximum of booleans"),
    ],
)
def test_what_cannot_be_generated_is_refused_with_a_reason(
    operator: str, arguments: tuple[Any, ...], dtype: str, reason: str
) -> None:
    b = GraphBuilder("refused")
    found = b.call(operator, b.input("x", (4, 8), dtype), *arguments)
    with pytest.raises(Unsupported, match=reason):
        generate(b.done(found if not isinstance(found, tuple) else found[0]))


def test_a_view_that_mixes_axes_of_no_elements_is_refused() -> None:
    b = GraphBuilder("mixed")
    x = b.input("x", (6, 4, 0), "float32")
    with pytest.raises(Unsupported, match="regroups axes"):
        generate(b.done(b.call("aten::neg", b.call("aten::view", x, [0, 8, 3]))))


def test_writing_in_place_what_another_program_reads_is_refused() -> None:
    b = GraphBuilder("shifted")
    x = b.input("x", (4, 8), "float32")
    turned = b.call("aten::flip", x, [1])
    b.call("aten::add_.Tensor", x, turned)
    with pytest.raises(Unsupported, match="writes in place what another program still reads"):
        generate(b.done())


def test_reading_a_view_of_what_was_written_in_place_is_refused() -> None:
    b = GraphBuilder("stale")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 4), "float32")
    part = b.call("aten::slice.Tensor", x, 1, 0, 4, 1)
    b.call("aten::relu_", x)
    with pytest.raises(Unsupported, match="written in place since"):
        generate(b.done(b.call("aten::add.Tensor", part, y)))


def test_writing_in_place_into_a_part_of_an_input_is_refused() -> None:
    b = GraphBuilder("part")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 4), "float32")
    b.call("aten::copy_", b.call("aten::slice.Tensor", x, 1, 0, 4, 1), y)
    with pytest.raises(Unsupported, match="in place into a part of an input"):
        generate(b.done())


def test_rows_that_are_added_up_where_indices_say_are_refused() -> None:
    b = GraphBuilder("embedding")
    grad, index = b.input("grad", (9, 8), "float32"), b.input("index_1", (9,), "int64", below=5)
    with pytest.raises(Unsupported, match="in a fixed order each element would have to look at all"):
        generate(b.done(b.call("aten::embedding_dense_backward", grad, index, 5, -1, False)))


def test_two_kernels_that_each_write_what_the_other_reads_are_refused() -> None:
    b = GraphBuilder("swapped")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 8), "float32")
    old = b.call("aten::clone", x)
    b.call("aten::copy_", x, b.call("aten::flip", y, [0]))
    b.call("aten::copy_", y, b.call("aten::flip", old, [0]))
    with pytest.raises(Unsupported, match="still reads"):
        generate(b.done())


def test_adding_up_an_enlargement_by_no_whole_number_is_refused() -> None:
    b = GraphBuilder("enlarged")
    grad = b.input("grad", (1, 2, 6, 6), "float32")
    with pytest.raises(Unsupported, match="no integer"):
        generate(b.done(b.call("aten::upsample_nearest2d_backward", grad, [6, 6], [1, 2, 4, 4])))


def test_several_values_written_where_indices_say_are_refused() -> None:
    b = GraphBuilder("written")
    x, y = b.input("x", (4, 9), "float32"), b.input("y", (4, 2), "float32")
    places = b.input("places", (4, 2), "int64", below=9)
    with pytest.raises(Unsupported, match="no two are the same"):
        generate(b.done(b.call("aten::scatter.src", x, 1, places, y)))


def test_a_batch_norm_with_a_reserve_is_refused() -> None:
    b = GraphBuilder("reserved")
    x = b.input("x", (2, 3, 4, 4), "float16")
    rest = [b.input(name, (3,), "float32") for name in ("weight", "bias", "mean", "spread")]
    b.call("aten::cudnn_batch_norm", x, *rest, True, 0.1, 1e-5)
    chain = b.done(Ref(5))
    call = chain.calls[0]
    kept = (*call.outputs[:3], TensorSpec((96,), "uint8", (1,)))
    reserved = GraphCall(call.operator, call.overload, call.arguments, kept)
    with pytest.raises(Unsupported, match="reserves"):
        generate(check(Graph("reserved", chain.inputs, (reserved,), (5,))))


def test_a_batch_norm_writes_what_it_keeps_only_where_it_trains() -> None:
    for trains in (False, True):
        b = GraphBuilder("kept")
        x = b.input("x", (2, 3, 4, 4), "float32")
        rest = [b.input(name, (3,), "float32") for name in ("weight", "bias", "mean", "spread")]
        chain = b.done(b.call("aten::native_batch_norm", x, *rest, trains, 0.1, 1e-5)[0])
        assert chain.written == ((3, 4) if trains else ())
        assert ("tl.store(mean_ptr" in generate(chain).text) == trains
