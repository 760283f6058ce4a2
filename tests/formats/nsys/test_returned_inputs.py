"""Composites that hand back what they were given: a decoder with a residual stream, as NVTX ranges tell of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.formats.nsys.make import Export, timeline
from tracemine.flow import flow
from tracemine.fusion import groups
from tracemine.timeline import Timeline

Shape = tuple[int, ...]


@dataclass(eq=False)
class Tensor:
    """A tensor object: PyTorch finds the operator that gave it by the object's address."""

    shape: Shape
    content: set[int]  # op_ids of the operators with kernels whose results it holds
    maker: tuple[int, int] = (0, -1)


@dataclass
class Recorded:
    """Operators as `emit_nvtx(record_shapes=True)` writes them; and what each that launches really reads."""

    export: Export = field(default_factory=Export)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    now: int = 0
    needs: dict[int, set[int]] = field(default_factory=dict)  # of each operator that launches: those that it reads

    def op(self, name: str, *inputs: Tensor | None, out: Shape | None = None, scalars: int = 0) -> Tensor:
        """One that launches a kernel."""
        number = self._said(name, inputs, scalars, kernels=1)
        self.needs[number] = {each for tensor in inputs if tensor is not None for each in tensor.content}
        first = inputs[0]
        assert first is not None
        return Tensor(first.shape if out is None else out, {number}, (number, 0))

    def view(self, name: str, source: Tensor, out: Shape, scalars: int = 1) -> Tensor:
        """One that launches nothing and gives another look at its input."""
        number = self._said(name, (source,), scalars, kernels=0)
        return Tensor(out, source.content, (number, 0))

    def same(self, name: str, source: Tensor, scalars: int) -> Tensor:
        """One that finds nothing to do: its result is its input, the same object."""
        number = self._said(name, (source,), scalars, kernels=0)
        source.maker = (number, 0)
        return source

    def _said(self, name: str, inputs: tuple[Tensor | None, ...], scalars: int, kernels: int) -> int:
        number = next(self.ids)
        sizes = [list(t.shape) if t is not None else [] for t in inputs] + [[]] * scalars
        makers = [t.maker if t is not None else (0, -1) for t in inputs] + [(0, -1)] * scalars
        self.now += 100
        text = "[" + ", ".join(f"({a},{b})" for a, b in makers) + "]"
        self.export.op(number, name, self.now, str(sizes), text, kernels=kernels)
        return number


def decoder(layers: int, *, dropout: str = "same") -> Recorded:
    """Attention spelled out, and a residual stream; evaluation: dropout, `to` and `contiguous` find nothing to do."""
    made = Recorded()
    tokens, width = 16, 64
    weight, square = Tensor((width,), set()), Tensor((width, width), set())
    mask = made.op("aten::neg", Tensor((tokens, tokens), set()))  # one for all layers, as are the angles
    cos, sin = (made.op(f"aten::{name}", Tensor((tokens, width), set())) for name in ("cos", "sin"))
    x = made.op("aten::neg", Tensor((tokens, width), set()))
    for _ in range(layers):
        h = norm(made, x, weight)
        q, k, v = (made.op("aten::mm", h, square) for _ in range(3))
        q, k = (rotated(made, each, cos, sin) for each in (q, k))
        scores = made.op("aten::mm", q, made.view("aten::t", k, (width, tokens), 0), out=(tokens, tokens))
        scores = made.op("aten::mul", scores, None)
        scores = made.op("aten::add", scores, mask, scalars=1)
        weights = made.op("aten::_softmax", scores, scalars=2)
        weights = made.same("aten::to", weights, 4)
        weights = (made.same if dropout == "same" else made.op)("aten::dropout", weights, scalars=2)
        out = made.same("aten::contiguous", made.op("aten::mm", weights, v, out=(tokens, width)), 1)
        x = made.op("aten::add", x, made.op("aten::mm", out, square), scalars=1)
        h = made.op("aten::mm", norm(made, x, weight), square)
        x = made.op("aten::add", x, made.op("aten::mm", made.op("aten::silu", h), square), scalars=1)
    made.op("aten::abs", x)
    return made


def rotated(made: Recorded, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A rotary embedding without its halves."""
    turned = made.op("aten::mul", made.op("aten::neg", x), sin)
    return made.op("aten::add", made.op("aten::mul", x, cos), turned, scalars=1)


def norm(made: Recorded, x: Tensor, weight: Tensor) -> Tensor:
    """Unfused RMSNorm; its casts find nothing to do."""
    wide = made.same("aten::to", x, 4)
    mean = made.op("aten::mean", made.op("aten::pow", wide, None), out=(x.shape[0], 1), scalars=3)
    scale = made.op("aten::rsqrt", made.op("aten::add", mean, None, scalars=1))
    return made.op("aten::mul", weight, made.same("aten::to", made.op("aten::mul", wide, scale), 4), out=x.shape)


def grouped(t: Timeline) -> list[list[int]]:
    """The op_ids of each fusion group."""
    dataflow = flow(t)
    found, number = groups(dataflow), t.ops["record_function_id"].to_pylist()
    rows = dataflow.nodes.op_row.tolist()
    return [[number[rows[n]] for n in found.node[a:b].tolist()] for a, b in pairwise(found.begin.tolist())]


def illegal(found: list[list[int]], needs: dict[int, set[int]]) -> list[list[int]]:
    """Groups from which a way leads through something else and back."""
    wrong = []
    for members in found:
        group, tainted = set(members), set[int]()
        for number in sorted(needs):  # in the order of launching, which every way keeps
            if number in group:
                if needs[number] & tainted:
                    wrong.append(members)
                    break
            elif needs[number] & (group | tainted):
                tainted.add(number)
    return wrong


@pytest.mark.parametrize("layers", [2, 6])
def test_what_was_handed_back_ends_no_path(tmp_path: Path, layers: int) -> None:
    made = decoder(layers)
    found = grouped(timeline(tmp_path, made.export))
    assert illegal(found, made.needs) == []
    # The legal ones stay: scale, mask and softmax; the norms, the first behind the residual addition.
    names = sorted(len(each) for each in found)
    assert len(found) >= 3 * layers
    assert sum(names) >= 15 * layers


def test_the_check_finds_a_group_that_reaches_over_a_product() -> None:
    assert illegal([[1, 3]], {1: set(), 2: {1}, 3: {2}}) == [[1, 3]]
    assert illegal([[1, 3]], {1: set(), 2: set(), 3: {1, 2}}) == []


def test_an_operator_that_launched_nothing_and_gives_something_ends_the_proof(tmp_path: Path) -> None:
    made = Recorded()
    x = made.op("aten::neg", Tensor((16, 64), set()))
    y = made.same("aten::matmul", made.op("aten::exp", x), 1)  # nobody says what this can have given
    z = made.op("aten::abs", y)
    made.op("aten::add", x, z, scalars=1)
    t = timeline(tmp_path, made.export)
    nodes = flow(t).nodes
    assert [t.ops["name"][row].as_py() for row in nodes.op_row[~nodes.known].tolist()] == ["aten::abs"]
    assert illegal(grouped(t), made.needs) == []


def test_what_reads_something_unknown_and_makes_a_new_tensor_is_in_nobodys_way(tmp_path: Path) -> None:
    made = Recorded()
    x = made.op("aten::neg", Tensor((16, 64), set()))
    made.op("aten::abs", Tensor((9,), set(), maker=x.maker))  # whatever this was, it is not what neg gave
    made.op("aten::exp", x)
    assert grouped(timeline(tmp_path, made.export)) == [[1, 3]]


def test_what_is_made_of_something_unknown_may_be_made_of_what_was_there_before(tmp_path: Path) -> None:
    made = Recorded()
    x = made.op("aten::neg", Tensor((16, 64), set()))
    y = made.op("aten::abs", Tensor((64, 16), set(), maker=x.maker))
    made.op("aten::add", x, made.view("aten::t", y, (16, 64), 0), scalars=1)
    assert grouped(timeline(tmp_path, made.export)) == []


def test_what_a_copy_fills_is_nothing_that_it_reads(tmp_path: Path) -> None:
    made = Recorded()
    x = made.op("aten::neg", Tensor((16, 64), set()))
    target = made.view("aten::empty_like", Tensor((16, 64), set()), (16, 64), 5)
    made.op("aten::copy_", target, x, scalars=1)
    made.op("aten::exp", x)
    assert grouped(timeline(tmp_path, made.export)) == [[1, 3, 4]]
