"""Whatever kernels a chain becomes, they write what the calls give: random programs against eager, and chosen plans."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tests.codegen.catalogue import CATALOGUE, LONGEST_ROW  # noqa: E402
from tracemine.codegen import Graph, GraphBuilder, generate  # noqa: E402
from tracemine.codegen.graph import Unsupported  # noqa: E402
from tracemine.codegen.options import CodegenOptions  # noqa: E402
from tracemine.codegen.partition import plan  # noqa: E402
from tracemine.validate.reference import run  # noqa: E402
from tracemine.validate.trials import Trial, tensors  # noqa: E402

# Warnings are numpy's, from inside the interpreter.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("interpreted")]

_ROWS, _COLUMNS = 6, 12
_STEPS = ("add", "mul", "neg", "cos", "turn", "rotate", "widen", "sum 0", "sum 1", "amax 0", "softmax", "norm", "mean")


def _step(b: GraphBuilder, name: str, x: Any, y: Any) -> Any:
    """One call or a few on matrices of one shape; they give another of it."""
    if name in ("add", "mul"):
        return b.call(f"aten::{name}.Tensor", x, y)
    if name == "turn":  # through another layout in memory
        return b.call("aten::t", b.call("aten::clone", b.call("aten::t", x), memory_format=0))
    if name == "rotate":
        first, second = (b.call("aten::slice.Tensor", x, 1, k * 6, k * 6 + 6, 1) for k in (0, 1))
        return b.call("aten::cat", [b.call("aten::neg", second), first], 1)
    if name == "widen":  # pieces of other lengths
        first, second = b.call("aten::slice.Tensor", x, 1, 0, 4, 1), b.call("aten::slice.Tensor", y, 1, 4, 12, 1)
        return b.call("aten::cat", [first, second], 1)
    if name.startswith("sum"):
        return b.call("aten::sub.Tensor", y, b.call("aten::sum.dim_IntList", x, [int(name[-1])], True))
    if name.startswith("amax"):
        return b.call("aten::sub.Tensor", y, b.call("aten::amax", x, [int(name[-1])], True))
    if name == "softmax":
        return b.call("aten::_softmax", x, 0, False)
    if name == "norm":
        return b.call("aten::native_layer_norm", x, [_COLUMNS], None, None, 1e-3)[0]
    if name == "mean":
        return b.call("aten::add.Tensor", x, b.call("aten::mean", y))
    return b.call(f"aten::{name}", x)


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Up to five steps on two matrices, one of which may lie turned; some of what they give is wanted."""
    b = GraphBuilder("program")
    turned = (1, _ROWS) if draw(st.booleans()) else (_COLUMNS, 1)
    values = [b.input("x", (_ROWS, _COLUMNS), "float32"), b.input("y", (_ROWS, _COLUMNS), "float32", turned)]
    made = []
    for name in draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=5)):
        x, y = (draw(st.sampled_from(values[-3:])) for _ in range(2))
        values.append(_step(b, name, x, y))
        made.append(values[-1])
    return b.done(*draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique_by=id)))


def _loaded(text: str, folder: Path) -> ModuleType:
    path = folder / "fused.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(max_examples=40)
@given(programs(), st.sampled_from([4, 16_384]))
def test_random_programs_give_what_eager_gives(chain: Graph, longest_row: int) -> None:
    try:
        text = generate(chain, CodegenOptions(longest_row=longest_row)).text
    except Unsupported:  # none is no wrong one
        reject()
    with tempfile.TemporaryDirectory() as folder:
        module = _loaded(text, Path(folder))
        inputs = tensors(chain, Trial())
        scalars = {s.name: s.value for s in chain.scalars}
        wanted = run(chain, inputs, scalars, {}, double=True).live
        found = module.fused(*inputs)
    for ours, truth in zip(found, wanted, strict=True):
        assert ours.shape == truth.shape
        assert torch.allclose(ours.double(), truth.double(), rtol=1e-3, atol=1e-4)


def test_a_kernel_that_would_read_what_none_before_it_stores_is_refused() -> None:
    """A sum over turned halves of what another sum gives: joined, it walks other columns than it was planned by."""
    b = GraphBuilder("halves")
    x, y = (b.input(name, (_ROWS, _COLUMNS), "float32") for name in "xy")
    above = b.call("aten::sub.Tensor", y, b.call("aten::sum.dim_IntList", x, [0], True))
    low, high = (b.call("aten::slice.Tensor", above, 1, at, at + 6, 1) for at in (0, 6))
    turned = b.call("aten::cat", [b.call("aten::neg", high), low], 1)
    behind = b.call("aten::sub.Tensor", above, b.call("aten::sum.dim_IntList", turned, [1], True))
    chain = b.done(above, turned, behind)
    with pytest.raises(Unsupported, match="no kernel before it stores"):
        generate(chain, CodegenOptions(longest_row=4))
    assert generate(chain)  # one kernel's rows hold all of it


def _kernels(name: str) -> list[Any]:
    return list(plan(CATALOGUE[name](), CodegenOptions(longest_row=LONGEST_ROW.get(name, 16_384))).kernels)


def test_a_table_of_angles_is_made_before_the_heads_that_load_it() -> None:
    assert sorted(k.level for k in _kernels("rope_of_angles")) == [0, 1, 1]


def test_a_few_elements_are_not_worth_a_table() -> None:
    assert {k.level for k in plan(CATALOGUE["rope_of_angles"]()).kernels} == {0}


def test_halves_that_are_turned_into_each_other_are_walked_together() -> None:
    source = generate(CATALOGUE["rope"](), CodegenOptions(longest_row=LONGEST_ROW["rope"])).text
    assert "tl.where" not in source
    assert all(k.column_tiles == 2 and len(k.stores) == 2 for k in _kernels("rope"))


def test_a_long_sum_of_few_columns_is_cut_into_parts_and_its_terms_are_written_on_the_way() -> None:
    parts, whole = plan(CATALOGUE["bias_gradient"](), CodegenOptions(longest_row=4)).kernels
    assert parts.split is not None
    assert {len(parts.stores), len(whole.stores)} == {2, 1}


def test_columns_are_walked_as_they_lie_in_memory() -> None:
    b = GraphBuilder("channels_last")
    x = b.input("x", (2, 8, 5, 7), "float32", (280, 1, 56, 8))
    (kernel,) = plan(b.done(b.call("aten::sum.dim_IntList", x, [1, 2, 3], False))).kernels
    assert [axis.size for axis in kernel.columns] == [5, 7, 8]


def test_rows_of_many_programs_are_not_cut() -> None:
    assert all(k.split is None for k in _kernels("looped_softmax") + _kernels("column_sum"))


def test_few_rows_that_are_very_long_are_reduced_in_parts_and_written_apart() -> None:
    assert [(k.level, k.split is not None) for k in _kernels("group_norm_in_parts")] == [
        (0, True),
        (1, False),
        (2, False),
    ]
    assert [k.split for k in _kernels("group_norm_silu")] == [None]


def test_a_sum_over_rows_of_which_one_tensor_lies_the_other_way_is_cut_into_parts() -> None:
    b = GraphBuilder("mixed")
    x, y = b.input("x", (64, 196, 512), "bfloat16", (100352, 1, 196)), b.input("y", (64, 196, 512), "bfloat16")
    total = b.call("aten::sum.dim_IntList", b.call("aten::mul.Tensor", x, y), [0, 1], False)
    assert [k.split is not None for k in plan(b.done(total)).kernels] == [True, False]


def test_a_join_of_one_is_walked_with_what_it_joins() -> None:
    b = GraphBuilder("join_of_one")
    x = b.input("x", (8, 6, 16, 16), "float32")
    pooled = b.call("aten::avg_pool2d", x, [2, 2], [2, 2])
    chain = b.done(pooled, b.call("aten::mul.Tensor", b.call("aten::cat", [pooled], 1), 2.0))
    (kernel,) = plan(chain).kernels
    assert len(kernel.stores) == 2


def test_windows_that_stay_inside_an_image_are_not_asked_whether_they_do() -> None:
    b = GraphBuilder("windows")
    source = generate(b.done(b.call("aten::avg_pool2d", b.input("x", (8, 6, 16, 16), "float32"), [2, 2], [2, 2]))).text
    assert "tl.minimum" not in source and "(512, 2)" in source


def test_members_of_a_join_are_not_all_held_at_once() -> None:
    b = GraphBuilder("many")
    members = [b.input(f"x{k}", (256, 8), "float32") for k in range(20)]
    source = generate(b.done(b.call("aten::mul.Tensor", b.call("aten::cat", members, 1), 2.0))).text
    assert "[(1024, 8), " in source
