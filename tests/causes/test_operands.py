"""What the operands of an operator say: weights that autocast casts, caches that grow, widths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.calls.records import call_of
from tests.timelines import Trace
from tracemine.causes.batch_norm_evaluated import in_evaluation
from tracemine.causes.cache_grown import appended
from tracemine.causes.embedding_bags_apart import bag_of
from tracemine.causes.weight_cast import weight_cast
from tracemine.pipeline import analysed
from tracemine.rows.table import Column, Flags, Numbers

LINEAR = ("aten::linear", "[[8,64],[32,64],[32]]", '["float","float","float"]')
ADDMM = ("aten::addmm", "[[32],[8,64],[64,32],[],[]]", '["float","float","float","Scalar","Scalar"]')
HALF = '["c10::Half","float","Scalar"]'


def copied(shape: str) -> str:
    return f"[{shape},{shape},[]]"


@pytest.mark.parametrize(
    ("call", "shape"), [(LINEAR, "[32,64]"), (LINEAR, "[32]"), (ADDMM, "[64,32]"), (ADDMM, "[32]")], ids=str
)
def test_a_weight_or_bias_is_told_by_its_shape(call: tuple[str, str, str], shape: str) -> None:
    assert weight_cast(call_of(*call), call_of("aten::copy_", copied(shape), HALF))


@pytest.mark.parametrize(
    ("why", "call", "shape", "types"),
    [
        ("the input", LINEAR, "[8,64]", HALF),
        ("the input, of a convolution's kind", ADDMM, "[8,64]", HALF),
        ("as large as the input", ("aten::linear", "[[32,64],[32,64],[32]]", LINEAR[2]), "[32,64]", HALF),
        ("back to full width", LINEAR, "[32,64]", '["float","c10::Half","Scalar"]'),
        ("another operator", ("aten::softmax", *LINEAR[1:]), "[32,64]", HALF),
        ("a weight at half width already", (*LINEAR[:2], '["float","c10::Half","float"]'), "[32,64]", HALF),
        ("nothing recorded", ("aten::linear", "[]", "[]"), "[32,64]", HALF),
        ("damaged", ("aten::linear", "{", "7"), "[32,64]", HALF),
    ],
)  # fmt: skip
def test_any_other_copy_is_none(why: str, call: tuple[str, str, str], shape: str, types: str) -> None:
    assert not weight_cast(call_of(*call), call_of("aten::copy_", copied(shape), types)), why


def test_a_cast_counts_within_its_operator_only() -> None:
    trace = Trace()
    shapes, types = [[8, 64], [32, 64], [32]], ["float"] * 3
    for at, outer in enumerate(("aten::linear", "aten::neg")):
        begin = 1_000 * at
        parent: Any = trace.op(outer, begin, 900, shapes, types)
        for name in ("aten::to", "aten::_to_copy"):
            begin += 1
            parent = trace.op(name, begin, 800, parent_row=parent)
        weight = [[32, 64], [32, 64], []]
        copy = trace.op("aten::copy_", begin + 1, 700, weight, ["c10::Half", "float", "Scalar"], parent_row=parent)
        trace.kernel("k", begin + 500, 100, launch=(begin + 10, 10), op=copy)
    column = columns(trace)["weight_cast"]
    assert isinstance(column, Flags)
    assert column.values.tolist() == [True, False]


@pytest.mark.parametrize(
    ("shapes", "grows"),
    [
        ("[[[4,8,256,64],[4,8,1,64]],[]]", True),
        ("[[[32,256,64],[32,8,64]],[]]", True),
        ("[[[4,8,1,64],[4,8,256,64]],[]]", False),  # in front
        ("[[[4,8,256,64],[4,8,9,64]],[]]", False),
        ("[[[4,8,15,64],[4,8,1,64]],[]]", False),
        ("[[[32,512,7,7],[32,4,7,7]],[]]", False),  # channels
        ("[[[2,8,128,128],[2,8,128,1]],[]]", False),
        ("[[[4,8,256,64],[4,8,1,64],[4,8,1,64]],[]]", False),
        ("[[[256,64],[1,64]],[]]", False),
        ('[[["x",8],[1]],[]]', False),
        ("[[],[]]", False),
        ("[", False),
    ],
)
def test_a_few_rows_appended_to_many_are_told_by_their_shapes(shapes: str, grows: bool) -> None:
    assert appended(call_of("aten::cat", shapes)) is grows


def test_the_width_is_the_last_extent_of_the_first_tensor() -> None:
    trace = Trace()
    for at, shape in enumerate(([20_000, 64], None, [])):
        shapes = None if shape is None else [shape]
        trace.kernel(
            "k", 1_000 * at + 500, 100, launch=(1_000 * at, 10), op="aten::neg", shapes=shapes, dtypes=["float"]
        )
    column = columns(trace)["width"]
    assert isinstance(column, Numbers)
    assert column.valid is not None
    assert column.valid.tolist() == [True, False, False]
    assert column.values[0] == 64


def columns(trace: Trace) -> dict[str, Column]:
    return analysed(trace.timeline()).rows["activities"].columns


@pytest.mark.parametrize(("name", "training", "evaluated"), [
    ("native_batch_norm", "False", True),
    ("cudnn_batch_norm", "False", True),
    ("native_batch_norm", "True", False),
    ("native_batch_norm", "", False),
    ("native_layer_norm", "False", False),
])  # fmt: skip
def test_a_batch_norm_says_whether_it_is_in_training(name: str, training: str, evaluated: bool) -> None:
    trace = Trace()
    shapes, types = [[2, 8, 4, 4], *[[8]] * 4, [], [], []], [*["float"] * 5, *["Scalar"] * 3]
    concrete = ["", "", "", "", "", training, "0.1", "1e-05"]
    op = trace.op(f"aten::{name}", 0, 900, shapes, types, concrete=concrete)
    trace.kernel("k", 500, 100, launch=(10, 10), op=op)
    column = columns(trace)["running_statistics"]
    assert isinstance(column, Flags)
    assert column.values.tolist() == [evaluated]


@pytest.mark.parametrize("text", ["", "7", "{", "[]", '["False"]'])
def test_arguments_that_do_not_say_are_not_in_evaluation(text: str) -> None:
    assert not in_evaluation(call_of("aten::native_batch_norm", values=text))


TABLE = '["float","long int","long int","Scalar","Scalar","Scalar","float"]'
SUM, MEAN = (f'["","","","False","{mode}","False",""]' for mode in (0, 1))


def bag(shapes: str, types: str, values: str) -> tuple[object, ...] | None:
    return bag_of(call_of("aten::_embedding_bag", shapes, types, None, values))


def test_bags_are_alike_by_width_type_mode_and_weights() -> None:
    shapes = "[[1000,64],[640],[64],[],[],[],[]]"
    own = bag(shapes, TABLE, SUM)
    assert own == bag("[[20,64],[640],[64],[],[],[],[]]", TABLE, SUM)
    assert own is not None
    assert own != bag(shapes, TABLE, MEAN)
    assert own != bag("[[1000,32],[640],[64],[],[],[],[]]", TABLE, SUM)
    assert own != bag(shapes, TABLE.replace("float", "c10::Half", 1), SUM)
    assert own != bag("[[1000,64],[640],[64],[],[],[],[640]]", TABLE, SUM)


@pytest.mark.parametrize("shapes", ['[[1000,"x"],[640]]', "[[1000],[640]]", "[]", "["])
def test_a_damaged_table_is_like_no_other(shapes: str) -> None:
    assert bag(shapes, TABLE, SUM) is None


def test_a_damaged_mode_can_still_be_told_from_others() -> None:
    found = bag("[[1000,64]]", TABLE, '["","","","False",[[1]]]')
    assert found is not None
    assert hash(found) != hash(bag("[[1000,64]]", TABLE, SUM))
