"""What XLA could have compiled otherwise, among few instructions: and what looks like it and is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tracemine.causes.xla_attention_unfused.detect import Case, LeftWork, cases
from tracemine.causes.xla_attention_unfused.reading import Array, ModuleInstruction
from tracemine.ops.dtypes import itemsize

SCORES, HEADS = (32, 512, 512), (32, 512, 64)


def array(shape: tuple[int, ...], *makers: int, dtype: str = "bfloat16") -> Array:
    return Array(shape, dtype, math.prod(shape) * (itemsize(dtype) or 1), makers)


def made(*rows: dict[str, Any]) -> list[ModuleInstruction]:
    """Instructions, in order: what is not said of one is nothing."""
    found = [
        ModuleInstruction(
            number=at,
            name=f"i{at}",
            kind=row["kind"],
            body=frozenset(row.get("body", "").split()),
            library=row.get("library", ""),
            precision=row.get("precision", ""),
            dtypes=frozenset(row.get("dtypes", "").split()),
            multiplies=row.get("multiplies", ""),
            trains=row.get("trains", False),
            flops=row.get("flops", 0),
            loop=row.get("loop", ""),
            trips=row.get("trips", 0),
            needs_turn=row.get("needs_turn", True),
            gives_result=row.get("gives_result", False),
            takes=tuple(row.get("takes", ())),
            gives=tuple(row.get("gives", ())),
        )
        for at, row in enumerate(rows)
    ]
    for each in found:
        for maker in {maker for taken in each.takes for maker in taken.makers}:
            found[maker].readers.append(each.number)
    return found


def found(*rows: dict[str, Any]) -> list[Case]:
    return [*cases(made(*rows))]


def product(*takes: Array, gives: Array, width: int = 64, **more: Any) -> dict[str, Any]:
    return {"kind": "product", "takes": takes, "gives": [gives], "flops": 2 * gives.elements * width, **more}


def attention(
    width: int = 64, dtype: str = "bfloat16", body: str = "exponential reduce", scores: tuple[int, ...] = SCORES
) -> list[dict[str, Any]]:
    given = [array((*scores[:-1], width), dtype=dtype) for _ in range(2)]
    return [
        product(*given, gives=array(scores, dtype=dtype), width=width),
        {
            "kind": "reduction",
            "body": body,
            "takes": [array(scores, 0, dtype=dtype)],
            "gives": [array(scores, dtype=dtype)],
        },
        product(
            array(scores, 1, dtype=dtype), given[0], gives=array((*scores[:-1], width), dtype=dtype), width=scores[-1]
        ),
    ]


def test_a_softmax_between_two_products_is_attention() -> None:
    (case,) = found(*attention())
    assert (case.finding, case.count, sorted(case.parts)) == ("attention", 1, [0, 1, 2])
    assert case.parts[0].flops == 4 * 32 * 512 * 512 * 64
    assert case.parts[0].rate == "attention half"


def test_a_mask_made_of_two_counters_halves_the_work() -> None:
    rows = attention()
    rows[1]["body"] += " iota compare select"
    (case,) = found(*rows)
    assert case.parts[0].flops == 2 * 32 * 512 * 512 * 64


def test_the_backward_pass_goes_with_its_layer_and_is_none_of_its_own() -> None:
    weights, gradient = array(SCORES, 1), array(HEADS)
    rows = [
        *attention(),
        product(gradient, array(HEADS), gives=array(SCORES)),  # 3: of the weights
        {
            "kind": "reduction",
            "body": "exponential reduce",
            "takes": [array(SCORES, 3), array(SCORES, 0)],
            "gives": [array(SCORES)],
        },
        product(weights, gradient, gives=array(HEADS), width=512),
        product(array(SCORES, 4), array(HEADS), gives=array(HEADS), width=512),
    ]
    (case,) = found(*rows)
    assert (case.count, sorted(case.parts)) == (1, [0, 1, 2, 3, 4, 5, 6])
    assert case.parts[2].rate == "attention_backward half"


@pytest.mark.parametrize(
    "rows",
    [
        attention(dtype="float32"),  # the fused kernel takes half precision
        attention(width=256),  # and heads of 128 at most
        attention(body="exponential"),  # no sum over a row: no softmax
        attention(body="reduce maximum"),
        attention(scores=(32, 64, 64)),  # too short to matter
        attention(scores=(512, 512)),  # one matrix: no heads
        attention()[:2],  # nothing takes the weights
        [*attention()[:2], product(array(SCORES, 0), array(HEADS), gives=array(HEADS))],  # it takes the scores
    ],
)
def test_what_only_looks_like_attention_is_left_alone(rows: list[dict[str, Any]]) -> None:
    assert not [case for case in found(*rows) if case.finding == "attention"]


def scattered(zeros: tuple[int, ...] = (8192, 8192), few: int = 8192, **maker: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "movement", "body": "broadcast constant", "gives": [array(zeros, dtype="float32")], **maker},
        {
            "kind": "reduction",
            "body": "scatter",
            "takes": [array((few,), 0, dtype="float32"), array((few,), dtype="int32")],
            "gives": [array((few,), dtype="float32")],
        },
        {"kind": "elementwise", "takes": [array(zeros, 0, 1, dtype="float32"), array(zeros)], "gives": [array(zeros)]},
    ]


def test_a_reader_of_scattered_zeros_keeps_what_else_it_moves() -> None:
    (case,) = found(*scattered())
    assert case.finding == "dense scatter"
    assert {at: left.nbytes for at, left in case.parts.items()} == {0: 0, 1: 0, 2: 4 * 8192 * 8192}


@pytest.mark.parametrize(
    "rows",
    [
        scattered(few=8192 * 1024),  # an eighth of it: a table's gradient
        scattered(zeros=(1024, 1024), few=1024),  # 4 MB stay in the cache
        scattered(takes=[array((8192, 8192), dtype="float32")]),  # no zeros: it comes from something
    ],
)
def test_other_scatters_are_left_alone(rows: list[dict[str, Any]]) -> None:
    assert not found(*rows)


def turning(needs: bool, kind: str = "product", trips: int = 256) -> list[dict[str, Any]]:
    inside = {"loop": "while.1", "trips": trips, "flops": 1 << 27}
    return [
        {"kind": "movement", "gives": [array((64, 512))], **inside, "needs_turn": False, "flops": 0},
        {"kind": kind, "takes": [array((64, 512), 0)], "gives": [array((64, 2048))], **inside, "needs_turn": needs},
        {"kind": "elementwise", "takes": [array((64, 2048), 1)], "gives": [array((64, 512))], **inside},
        {"kind": "elementwise", "body": "add", "gives": [array((), dtype="int32")], **inside, "needs_turn": False},
    ]


def test_a_product_that_needs_no_turn_is_found_with_what_only_it_reads() -> None:
    (case,) = found(*turning(needs=False))
    assert (case.finding, sorted(case.parts), case.count) == ("loop work", [0, 1], 1)


@pytest.mark.parametrize(
    "rows", [turning(needs=True), turning(needs=False, kind="movement"), turning(needs=False, trips=2)]
)
def test_loops_whose_work_needs_each_turn_are_left_alone(rows: list[dict[str, Any]]) -> None:
    assert not found(*rows)


def wide(precision: str, dtype: str = "float32") -> dict[str, Any]:
    given = [array((2048, 2048), dtype=dtype) for _ in range(3)]
    return product(*given[:2], gives=given[2], width=2048, precision=precision)


@pytest.mark.parametrize(
    ("precision", "dtype", "count"),
    [("HIGHEST", "float32", 1), ("DEFAULT", "float32", 0), ("", "float32", 0), ("HIGHEST", "bfloat16", 0)],
)
def test_only_full_precision_that_was_asked_for_is_found(precision: str, dtype: str, count: int) -> None:
    assert len(found(wide(precision, dtype))) == count


@pytest.mark.parametrize(("words", "count"), [(50_257, 1), (50_304, 0), (50_264, 0)])
def test_a_vocabulary_that_is_no_multiple_of_eight_is_found(words: int, count: int) -> None:
    assert len(found(product(array((512, 1024)), array((1024, words)), gives=array((512, words)), width=1024))) == count


def split(parts: int, reader: Sequence[int], body: str = "add reduce") -> list[dict[str, Any]]:
    sums = array((parts, 256, 256), dtype="float32")
    return [
        product(array((parts, 256, 512)), array((parts, 512, 256)), gives=sums, width=512),
        {
            "kind": "reduction",
            "body": body,
            "takes": [array(sums.shape, 0, dtype="float32")],
            "gives": [array((*reader,))],
        },
    ]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (split(16, (256, 256)), 1),
        (split(16, (16, 256)), 0),  # a sum over another axis
        (split(128, (256, 256)), 0),  # a batch, and no split
        (split(16, (256, 256), body="add"), 0),
    ],
)
def test_partial_sums_are_added_up_over_their_first_axis(rows: list[dict[str, Any]], count: int) -> None:
    assert len(found(*rows)) == count


def copied(body: str, reader: str) -> list[dict[str, Any]]:
    return [
        {"kind": "movement", "body": body, "takes": [array((8, 64, 56, 56))], "gives": [array((8, 56, 56, 64))]},
        {"kind": reader, "takes": [array((8, 56, 56, 64), 0)], "gives": [array((8, 56, 56, 64))]},
    ]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (copied("parameter bitcast transpose", "convolution"), 1),
        (copied("parameter transpose convert", "convolution"), 0),  # it casts as well
        (copied("parameter bitcast transpose", "product"), 0),
    ],
)
def test_copies_around_convolutions_alone_are_found(rows: list[dict[str, Any]], count: int) -> None:
    assert len(found(*rows)) == count


def two_passes(size: tuple[int, ...] = (2, 2048, 8192), body: str = "reduce", **maker: Any) -> list[dict[str, Any]]:
    whole = array(size, 0, dtype="float32")
    return [
        {"kind": "reduction", "body": "reduce", "gives": [array(size, dtype="float32")], **maker},
        {"kind": "reduction", "body": body, "takes": [whole], "gives": [array(size[1:], dtype="float32")]},
    ]


def test_a_pass_over_what_only_it_reads_is_a_boundary() -> None:
    (case,) = found(*two_passes())
    assert (case.finding, case.parts[1].nbytes, [*case.parts]) == ("fusion boundary", 4 * 2048 * 8192, [1])


@pytest.mark.parametrize(
    "rows",
    [
        two_passes(size=(2, 1024, 512)),  # 4 MB stay in the cache: a sum in two stages
        two_passes(kind="attention"),  # a library made it
        two_passes(gives_result=True),  # it has to be written anyhow
        two_passes(body="dynamic-slice"),  # it reads a part
        two_passes(loop="while.1", trips=8),  # and one of many
        [*two_passes(), {"kind": "elementwise", "takes": [array((2, 2048, 8192), 0)], "gives": [array((8,))]}],
    ],
)
def test_other_passes_are_left_alone(rows: list[dict[str, Any]]) -> None:
    assert not found(*rows)


def epilogue(library: str = "__cublas$lt$matmul", besides: int = 4096, **reader: Any) -> list[dict[str, Any]]:
    result = array((8192, 4096))
    return [
        product(array((8192, 1024)), array((1024, 4096)), gives=result, width=1024, library=library),
        {"kind": "elementwise", "takes": [array((8192, 4096), 0), array((besides,))], "gives": [result], **reader},
    ]


def test_a_pass_behind_a_product_of_cublas_is_found() -> None:
    (case,) = found(*epilogue())
    assert (case.finding, case.parts) == ("epilogue outside", {1: LeftWork()})


@pytest.mark.parametrize(
    "rows",
    [
        epilogue(library="__triton_gemm"),  # XLA left it out itself
        epilogue(besides=8192 * 4096),  # a residual
        epilogue(gives=[array((8192, 2048))]),  # a gate
        [*epilogue(), {"kind": "elementwise", "takes": [array((8192, 4096), 0)], "gives": [array((8,))]}],
    ],
)
def test_other_passes_behind_products_are_left_alone(rows: list[dict[str, Any]]) -> None:
    assert not found(*rows)


CODES, ROWS = (2048, 2048), (512, 2048)


def widened(codes: Array, *more: Array, body: str = "convert multiply broadcast") -> dict[str, Any]:
    return {"kind": "elementwise", "body": body, "takes": [codes, *more], "gives": [array(codes.shape)]}


def in_half(*takes: Array, multiplies: str = "bfloat16", **more: Any) -> dict[str, Any]:
    return product(*takes, gives=array(ROWS), width=2048, multiplies=multiplies, **more)


def test_operands_that_are_both_dequantised_want_a_product_of_8_bits() -> None:
    x, w = array(ROWS, dtype="int8"), array(CODES, dtype="int8")
    (apart,) = found(widened(x), widened(w), in_half(array(ROWS, 0), array(CODES, 1)))
    assert (apart.finding, sorted(apart.parts)) == ("wide product", [0, 1, 2])
    (inside,) = found(in_half(x, w, array((1, 2048))))
    assert inside.parts == {
        0: LeftWork(2 * 512 * 2048 * 2048, "product int8", x.nbytes + w.nbytes + array(ROWS).nbytes)
    }
    assert found(in_half(x, w, multiplies="int8")) == []
    assert len(found(in_half(w, w))) == 1  # two of one size
    (eight,) = found(in_half(*(array(each, dtype="float8_e4m3fn") for each in (ROWS, CODES))))
    assert next(iter(eight.parts.values())).rate == "product fp8"


def test_one_dequantised_operand_falls_back_where_most_products_are_of_8_bits() -> None:
    x, w = array(ROWS, dtype="int8"), array(CODES, dtype="int8")
    narrow, back = in_half(x, w, multiplies="int8"), in_half(array(ROWS), w)
    assert found(back) == []  # weights alone are quantised, and its own kernel widens them
    (case,) = found(narrow, narrow, back)
    assert (case.finding, [*case.parts]) == ("wide product", [2])
    assert found(narrow, back, in_half(array(ROWS), array(CODES))) == []  # not most


def test_weights_that_a_pass_dequantises_in_each_step() -> None:
    w, x = array(CODES, dtype="int8"), array(ROWS)
    (case,) = found(widened(w), in_half(x, array(CODES, 0)), in_half(x, array(CODES, 0)))
    assert (case.finding, case.parts) == ("dequantised weight", {0: LeftWork()})


@pytest.mark.parametrize(
    "rows",
    [
        [widened(array(CODES, dtype="uint8")), in_half(array(ROWS), array(CODES, 0))],  # a picture
        [widened(array((64, 2048), dtype="int8")), in_half(array(ROWS), array((64, 2048), 0))],  # little
        [
            widened(array(CODES, dtype="int8"), body="convert tanh"),
            in_half(array(ROWS), array(CODES, 0)),
        ],  # more than that
        [
            widened(array(CODES, dtype="int8")),
            {"kind": "reduction", "takes": [array(CODES, 0)], "gives": [array((2048,))]},
        ],
    ],
)
def test_what_is_no_dequantised_weight(rows: list[dict[str, Any]]) -> None:
    assert not [case for case in found(*rows) if case.finding == "dequantised weight"]


def test_what_is_rounded_and_widened_at_once_for_a_product() -> None:
    pass_ = {
        "kind": "elementwise", "body": "round-nearest-even clamp convert multiply", "dtypes": "bfloat16 float32 int8",
        "takes": [array(CODES)], "gives": [array(CODES)],
    }  # fmt: skip
    reader = in_half(array(ROWS), array(CODES, 0))
    (case,) = found(pass_, reader)
    assert (case.finding, [*case.parts]) == ("round trip", [0])
    assert found(pass_, {**reader, "trains": True}) == []  # there the model learns by it
    assert found({**pass_, "body": "round-nearest-even convert tanh"}, reader) == []
    assert found({**pass_, "dtypes": "bfloat16 float32"}, reader) == []


def test_weights_that_are_turned_in_each_step_for_a_product() -> None:
    w = array(CODES, dtype="int8")
    turned = {"kind": "movement", "body": "parameter transpose", "takes": [w], "gives": [w]}
    reader = in_half(array(ROWS, dtype="int8"), array(CODES, 0, dtype="int8"), multiplies="int8")
    (case,) = found(turned, reader)
    assert (case.finding, case.parts) == ("transposed weight", {0: LeftWork()})
    assert found(turned, {**reader, "trains": True}) == []  # another weight in each step
    assert found({**turned, "body": "parameter slice"}, reader) == []
    assert found({"kind": "other", "body": "tuple", "takes": [w]}) == []
    assert found(product(w, w, gives=w, multiplies="int8"), {**turned, "takes": [array(CODES, 0)]}, reader) == []
