"""Whatever way views are put together, every element is found: the fused copy has eager's bits."""

from __future__ import annotations

import random
from math import prod

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tracemine.codegen import Graph, GraphBuilder, Unsupported, generate
from tracemine.validate import Interpreter


def random_layouts(seed: int) -> Graph:
    """Six layout calls drawn at random, and a negation so that there is something to compute."""
    draw = random.Random(seed)
    b = GraphBuilder(f"layouts_{seed}")
    shape = [draw.choice((2, 3, 4, 6)) for _ in range(draw.randint(2, 4))]
    value = b.input("x", shape, "float32")
    for _ in range(6):
        kind = draw.choice(("permute", "split", "merge", "slice", "flip", "cat", "unsqueeze"))
        at = draw.randrange(len(shape))
        if kind == "permute":
            order = draw.sample(range(len(shape)), len(shape))
            value, shape = b.call("aten::permute", value, order), [shape[d] for d in order]
        elif kind == "split" and shape[at] % 2 == 0 and len(shape) < 6:
            shape = [*shape[:at], shape[at] // 2, 2, *shape[at + 1 :]]
            value = b.call("aten::reshape", value, shape)
        elif kind == "merge" and at + 1 < len(shape):
            shape = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
            value = b.call("aten::reshape", value, shape)
        elif kind == "slice" and shape[at] > 2:
            value = b.call("aten::slice.Tensor", value, at, 1, shape[at], 1)
            shape[at] -= 1
        elif kind == "flip":
            value = b.call("aten::flip", value, [at])
        elif kind == "cat" and prod(shape) < 500:
            value = b.call("aten::cat", [value, b.call("aten::neg", value)], at)
            shape[at] *= 2
        elif kind == "unsqueeze" and len(shape) < 6:
            value = b.call("aten::unsqueeze", value, at)
            shape.insert(at, 1)
    return b.done(b.call("aten::neg", value))


def test_random_layouts_have_eager_s_bits() -> None:
    proved = 0
    with Interpreter() as process:
        for seed in range(40):
            chain = random_layouts(seed)
            try:
                generate(chain)
            except Unsupported as refusal:  # views that mix axes: refused, never wrong
                assert "regroups axes" in refusal.message or "two axes of one tensor" in refusal.message
                continue
            proof = process.validate(chain, mutants=False)
            assert not proof.faults, (seed, proof.faults[0])
            assert proof.exact
            assert proof.equal_share == 1.0
            proved += 1
            if proved == 6:
                break
    assert proved == 6
