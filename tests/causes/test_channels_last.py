"""Copies between NCHW and NHWC next to convolutions."""

from __future__ import annotations

import pytest

from tests.flow.programs import ADD, ADD_, COPY_, Program, T
from tracemine.causes.channels_last import permuting
from tracemine.pipeline import analysed
from tracemine.rows.table import category

N, C, H, W = 2, 8, 5, 7
CONV = "aten::cudnn_convolution(Tensor self, Tensor weight) -> Tensor"
TANH = "aten::tanh(Tensor self) -> Tensor"
NORM = "aten::native_group_norm(Tensor input, Tensor? weight) -> Tensor"
STRAIGHT = (C * H * W, W, 1, H * W)  # NHWC, as NCHW lies


def found(*, order: tuple[int, ...] = STRAIGHT, behind: str = CONV, converts: bool = True) -> set[tuple[str, str]]:
    """Return the copies that serve a convolution, and which one, of two blocks of a network of layers over channels.

    order: strides of what the first copy reads; behind: what reads the sum with the copy back.
    """
    p = Program()
    image, bias, weight = p.tensor("image", N, C, H, W), p.tensor("bias", C, 1, 1), p.tensor("weight", C, C, 3, 3)
    made, ordered, turned, back, total = (
        p.tensor("made", N, C, H, W), p.tensor("ordered", N, H, W, C), p.tensor("turned", N, H, W, C),
        p.tensor("back", N, C, H, W), p.tensor("total", N, C, H, W),
    )  # fmt: skip
    p.call(CONV, [image, weight], [made])
    p.call(ADD_, [made, bias], [made])
    p.call(COPY_, [ordered, T("made", (N, H, W, C), order)], [ordered])
    p.call(TANH, [ordered], [turned])
    p.call(COPY_, [back, T("turned", (N, C, H, W), (H * W * C, 1, W * C, C))], [back])
    p.call(ADD, [image, back], [total])
    p.call(behind, [total, weight], [p.tensor("next", N, C, H, W)])
    analysis = analysed(p.timeline())
    rows = analysis.rows["activities"]
    graph = rows.graph
    assert graph is not None
    names = p.labels(p.timeline(), p.flow())
    converting = graph.activity_node[category(rows, "op").among("aten::cudnn_convolution")]
    kinds = category(rows, "op_class"), category(rows, "operation")
    served = permuting(graph, *kinds, converting if converts else converting[:0])
    return {(names[copy], names[of]) for copy, of in served.items()}


def test_copies_to_nhwc_serve_the_convolution_above_and_those_back_the_one_below() -> None:
    assert found() == {("copy_", "cudnn_convolution"), ("copy_#1", "cudnn_convolution#1")}


def test_convolutions_that_convert_nothing_have_no_copies() -> None:
    assert not found(converts=False)


def test_a_copy_back_for_what_wants_nchw_stays() -> None:
    assert found(behind=NORM) == {("copy_", "cudnn_convolution")}


@pytest.mark.parametrize("order", [(C * H * W, W * C, C, 1), (C * H * W, 1, H, H * W)])
def test_a_copy_of_what_lies_otherwise_is_another_s(order: tuple[int, ...]) -> None:
    assert found(order=order) == {("copy_#1", "cudnn_convolution#1")}
