"""A kernel's module: what it survives in a program, item by item, and which graphs get none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import tracemine
from benchmarks.fixes import checked
from tests import forked
from tracemine.codegen import GraphBuilder
from tracemine.codegen.graph import Graph, Unsupported
from tracemine.fix.kernel import MOST_INPUTS, drop_in, function_name
from tracemine.programs import environment

WHOLE = {"right", "opcheck", "fake, meta", "torch.compile", "autocast", "other strides", "other shapes, types"}


def norm(rows: int = 6) -> Graph:
    b = GraphBuilder("norm")
    x, weight = b.input("x", (rows, 40), "bfloat16"), b.input("weight", (40,), "bfloat16")
    wide = b.call("aten::_to_copy", x, "float32")
    mean = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), (1,), True)
    scale = b.call("aten::rsqrt", b.call("aten::add.Tensor", mean, 1e-5))
    narrow = b.call("aten::_to_copy", b.call("aten::mul.Tensor", wide, scale), "bfloat16")
    return b.done(b.call("aten::mul.Tensor", narrow, weight), scale)


def in_place() -> Graph:
    b = GraphBuilder("average")
    old, new = b.input("old", (300,), "float32"), b.input("new_", (300,), "float32")
    b.call("aten::lerp_.Scalar", old, new, 0.1)
    return b.done()


def items(text: str, path: Path, *asked: str) -> dict[str, str]:
    path.write_text(text)
    checker = Path(checked.__file__)
    ran = forked.run(
        forked.TORCH,
        [str(path), *(f"--item={item}" for item in asked)],
        file=checker,
        cwd=path.parent,
        env=environment(),
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("graph", [norm(), in_place()], ids=["several results", "in place"])
def test_a_module_survives_what_programs_do(tmp_path: Path, graph: Graph) -> None:
    found = items(drop_in(graph, title="Norm", name="norm"), tmp_path / "norm.py")
    assert set(found) == {"imports alone", *checked.ITEMS}
    assert not {item: text for item, text in found.items() if text and not text.startswith("not here")}
    assert {item for item, text in found.items() if not text} >= WHOLE


@pytest.mark.parametrize(
    ("was", "became", "item"),
    [
        (".to(tl.bfloat16), mask=mask)", " .to(tl.bfloat16) * 0, mask=mask)", "right"),
        ("    plan = () if watched else _taken(x, weight, eps=eps)", "    plan = ()", "right"),
        ("torch.empty_like(t) for t in _eager(", "torch.empty_like(t).double() for t in _eager(", "opcheck"),
        ("    if torch.compiler.is_compiling():", "    if False:", "torch.compile"),
        ("type(t) in plain and ", "", "subclasses"),
        ("now != before or not guard(*inputs)", "now != before", "other shapes, types"),
        ("    if torch.is_grad_enabled() and (x.", "    if False and (x.", "DDP"),
        ("import os\n", "import os\nimport tracemine\n", "imports alone"),
    ],
)
def test_a_planted_fault_is_named(tmp_path: Path, was: str, became: str, item: str) -> None:
    text = drop_in(norm(), title="Norm", name="norm")
    assert was in text
    assert items(text.replace(was, became), tmp_path / "norm.py", item)[item]


def test_what_is_written_and_shares_memory_is_left_to_the_calls(tmp_path: Path) -> None:
    text = drop_in(in_place(), title="Average", name="average")
    assert items(text, tmp_path / "average.py", "shared memory")["shared memory"] == ""
    broken = text.replace("WRITES and plan and _overlap(places, reach)", "False")
    assert items(broken, tmp_path / "broken.py", "shared memory")["shared memory"]


def test_graphs_that_get_no_module_say_why() -> None:
    b = GraphBuilder("many")
    inputs = [b.input(f"a{k}", (8,), "float32") for k in range(MOST_INPUTS + 1)]
    total = inputs[0]
    for each in inputs[1:]:
        total = b.call("aten::add.Tensor", total, each)
    with pytest.raises(Unsupported, match="13 inputs"):
        drop_in(b.done(total), title="Many", name="many")
    b = GraphBuilder("sized")
    view = b.call("aten::view", b.call("aten::exp", b.input("x", (64, 64), "float32")), (64 * 64,))
    with pytest.raises(Unsupported, match="names sizes"):
        drop_in(b.done(view), title="Sized", name="sized")


def test_calls_that_hold_sizes_are_not_made_at_others(tmp_path: Path) -> None:
    b = GraphBuilder("halves")
    x = b.input("x", (6, 2, 64), "float32")
    upper, lower = b.call("aten::slice.Tensor", x, 2, 32, 64, 1), b.call("aten::slice.Tensor", x, 2, 0, 32, 1)
    text = drop_in(b.done(b.call("aten::mul.Tensor", upper, lower)), title="Halves", name="halves")
    path = tmp_path / "halves.py"
    path.write_text(text)
    module = checked.loaded(str(path))
    assert sys.modules["tracemine"] is tracemine  # another would lack the packages that are loaded
    assert module.halves(torch.ones(3, 5, 64)).shape == (3, 5, 32)
    for shape in ((3, 5, 65), (3, 64)):
        with pytest.raises(ValueError, match="made for inputs of"):
            module.halves(torch.ones(shape))


def test_nothing_of_a_title_is_code(tmp_path: Path) -> None:
    text = drop_in(norm(), title='""" + boom() + """\x1b[2J', name="norm", says=['Where     """\nboom()'])
    assert "\x1b" not in text
    assert '"""' not in text[text.index('"""') + 3 : text.index("Written by")]
    assert function_name("a_rule", "Net.$(rm -rf)_*") == "a_rule_rmrf"
