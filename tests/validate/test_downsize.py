"""How a chain is proved on a CPU: at sizes that the interpreter gets through, and that this is said."""

from __future__ import annotations

import msgspec
import pytest

from tests.codegen.catalogue import adamw_foreach
from tracemine.codegen.graph import Graph
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.validate.downsize import tried


def doubled(rows: int) -> Graph:
    b = GraphBuilder("doubled")
    x = b.input("x", (rows, 64), "float32")
    return b.done(b.call("aten::add.Tensor", x, x))


def test_a_small_chain_is_proved_as_it_is_and_nothing_is_said() -> None:
    chain = doubled(8)
    assert tried(chain) == (chain, chain, ())
    assert tried(chain).too_large is None


def test_a_large_chain_is_proved_at_smaller_sizes_and_that_is_said() -> None:
    chain = doubled(1 << 20)
    found = tried(chain)
    assert found.recorded == chain
    assert found.small != chain
    assert found.says == ("the CPU validated the same source at smaller sizes",)
    assert found.too_large is None
    assert found._replace(small=chain).too_large == (
        "the graph has 67,108,864 elements that no size of an argument makes fewer"
    )


@pytest.mark.parametrize("columns", [97, 512, 3136, 16_384])
def test_rows_are_walked_in_several_steps_and_never_in_dozens(columns: int) -> None:
    """Each step costs an interpreter as much, and 16 show what 49 do."""
    triton = pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.codegen.triton.tiling import STEP

    assert 4 <= -(-columns // eval(STEP, {"triton": triton, "columns": columns})) <= 16  # noqa: S307  (our own text)


def test_tokens_of_a_window_are_made_fewer_with_its_sides() -> None:
    """How far the tokens of a window are apart: an axis of 1,024 that is one of 32 × 32, and one of its own beside."""
    b = GraphBuilder("windows")
    x, y = b.input("x", (1024,), "float32"), b.input("y", (1024, 1024), "float32")
    grid = b.call("aten::view", x, (32, 32))
    turned = b.call("aten::clone", b.call("aten::permute", grid, (1, 0)), memory_format=0)
    across, down = (b.call("aten::view", turned, shape) for shape in ((1, 1024), (1024, 1)))
    apart = b.call("aten::sub.Tensor", across, down)
    found = tried(b.done(b.call("aten::add.Tensor", y, apart)))
    assert found.too_large is None
    assert found.small.inputs[0].spec.shape == (256,)


def test_each_tensor_of_an_optimizer_lies_otherwise_alone_once() -> None:
    """Only there a plan shows that is kept whatever its strides, or the strides of another in their place."""
    pytest.importorskip("torch")
    from tracemine.validate.trials import trials

    layouts = {trial.layout for trial in trials(adamw_foreach(((4, 3),) * 9), {})}
    assert {f"padding in {name}{k}" for name in "pgmv" for k in range(9)} <= layouts


def test_what_a_trace_records_of_a_call_is_all_that_it_gives_at_other_sizes() -> None:
    b = GraphBuilder("normed")
    x, *rows = (b.input(n, s, "float32") for n, s in (("x", (64, 32, 64, 64)), *((n, (32,)) for n in "wbmv")))
    normed = b.call("aten::cudnn_batch_norm", x, *rows, True, 0.1, 1e-5)
    whole = b.done(b.call("aten::relu", normed[0]))
    norm, relu = whole.calls
    cut = msgspec.structs.replace(norm, outputs=norm.outputs[:3])
    found = tried(msgspec.structs.replace(whole, calls=(cut, relu), live=(whole.live[0] - 1,))).small
    assert [len(call.outputs) for call in found.calls] == [3, 1]
    assert found.specs[found.live[0]].shape == found.inputs[0].spec.shape
