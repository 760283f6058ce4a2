"""Kernels around matrix products: what is made one kernel, what is left to the library, and why."""

from __future__ import annotations

import re

import pytest

from tests.codegen.products import added, codes, gate, head, largest, linear
from tracemine.codegen import Graph, GraphBuilder, Unsupported, generate
from tracemine.codegen.options import WHATEVER, CodegenOptions
from tracemine.codegen.partition import plan
from tracemine.codegen.products import predicted, product_tiles


def kernels(graph: Graph, options: CodegenOptions = WHATEVER) -> list[str]:
    """The kernels of a graph, each as its lines."""
    text = generate(graph, options).text
    return re.findall(r"^def \w+_kernel.*?(?=^\S*\n\n)", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("graph", [codes(16), head(), gate(2048, 14336, 4096), head(masked=True)])
def test_it_is_one_kernel_and_stores_no_product(graph: Graph) -> None:
    source = generate(graph, WHATEVER)
    assert len(source.kernels) == 1
    assert re.search(r"\bscratch\d", source.text) is None
    assert source.text.count("tl.dot(") == (2 if graph.name == "gate" else 1)


def test_scales_are_taken_out_of_the_sum() -> None:
    (kernel,) = kernels(codes(16))
    inside, behind = kernel.split("tl.dot(")
    assert "scale_1" not in inside
    assert "product_1 * scale_1" in behind


def test_what_never_falls_is_computed_of_the_largest_alone() -> None:
    (kernel,) = kernels(head())
    assert kernel.index("_row_max(") < kernel.index("_log1p(")


def test_but_not_where_a_mask_changes_along_what_is_reduced() -> None:
    (kernel,) = kernels(head(masked=True))
    assert kernel.index("_log1p(") < kernel.index("_row_max(")


def test_a_logarithm_is_left_inside_where_it_may_be_none() -> None:
    b = GraphBuilder("logs")
    found = b.call("aten::log1p", linear(b, 64, 128, 64))
    (kernel,) = kernels(b.done(b.call("aten::amax", found, [1])))
    assert kernel.index("_log1p(") < kernel.index("_row_max(")


@pytest.mark.parametrize("operator", ["aten::logsumexp", "aten::argmax"])
def test_long_rows_are_reduced_in_flight(operator: str) -> None:
    first, *_ = kernels(largest(operator, 8192, 32768, 512))
    assert "for walked in range(" in first
    assert "tl.dot(" in first


def test_what_waits_for_a_whole_row_has_the_product_stored() -> None:
    b = GraphBuilder("shares")
    found = b.call("aten::_softmax", linear(b, 512, 32768, 64), 1, False)
    assert sum("tl.dot(" in kernel for kernel in kernels(b.done(found))) == 1


def test_few_rows_of_few_columns_are_summed_in_parts() -> None:
    first, second = kernels(codes(16, 4096, 14336))
    assert "range(part * KBLOCK" in first
    assert "tl.dot(" not in second


def test_an_operand_that_is_read_elsewhere_is_read_by_no_descriptor() -> None:
    b = GraphBuilder("beside")
    x, w = b.input("x", (512, 512), "bfloat16"), b.input("w", (512, 512), "bfloat16")
    (kernel,) = kernels(b.done(b.call("aten::add.Tensor", b.call("aten::linear", x, w), x)))
    assert "x_ptr.load(" not in kernel
    assert "w_ptr.load(" in kernel


def test_sums_that_are_spelled_out_are_products_where_that_is_asked_for() -> None:
    b = GraphBuilder("spelled")
    x, y = b.input("x", (64, 1, 96), "float32"), b.input("y", (128, 96), "float32")
    graph = b.done(b.call("aten::sum.dim_IntList", b.call("aten::mul.Tensor", x, y), [2]))
    assert "tl.dot(" not in generate(graph).text
    assert 'input_precision="ieee"' in generate(graph, CodegenOptions(spelled_out=True)).text


# Which are made.


@pytest.mark.parametrize("graph", [codes(1), codes(16), codes(32), head(), head(64, 64), gate(16384, 4864, 896)])
def test_it_is_made_where_its_class_measured_faster(graph: Graph) -> None:
    assert generate(graph).kernels


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (added("gelu", 2048), "own epilogue"),
        (added("residual", 2048), "own epilogue"),
        (added("residual", 16), "as fast"),
        (codes(2048), "works the codes out again"),
        (gate(2048, 14336, 4096), r"it would take \d+ µs, the library's product .* \d+ µs"),
        (head(48, 32), r"it would take \d+ µs"),
        (largest("aten::logsumexp", 8192, 128256, 2048), "strips of rows"),
    ],
)
def test_it_is_refused_with_the_reason(graph: Graph, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        generate(graph)


def test_a_tile_that_would_spill_is_left_out() -> None:
    text = generate(largest("aten::argmax", 8192, 32768, 512), WHATEVER).text
    assert "(128, 256, " not in text  # 128 accumulators of a thread, and as many numbers to compare
    assert "(64, 256, " in text


def test_what_a_tile_takes_is_foretold() -> None:
    """ptxas made 160 registers and 197,152 bytes of the head's first tile, 173 and 196,672 of the gate's."""
    for graph, registers, shared in ((head(), 160, 197_152), (gate(2048, 14336, 4096), 173, 196_672)):
        program = plan(graph, WHATEVER)
        (kernel,) = program.kernels
        tile = product_tiles(program.buffers, kernel, WHATEVER)[0]
        told = predicted(program.buffers, kernel, tile)
        assert told[0] == pytest.approx(registers, rel=0.1)
        assert told[1] == pytest.approx(shared, rel=0.01)
