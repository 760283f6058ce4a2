"""Tile configs of kernels: what ptxas says of each without a GPU, and which one a GPU finds fastest."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.graph import Graph
from tracemine.codegen.triton.resources import Compiler, fitting
from tracemine.verify.gpu import tuning
from tracemine.verify.repro.harness import NAME, harness_text
from tracemine.verify.repro.text import repro

TileConfig = tuple[int, int]


def _softmax(columns: int) -> Graph:
    b = GraphBuilder("rows")
    return b.done(b.call("aten::_softmax", b.input("x", (65536, columns), "bfloat16"), -1, False))


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with closing(Compiler({NAME: harness_text()})) as process:
        yield process


def _text(chain: Graph) -> str:
    return repro(chain, generate(chain), fingerprint="0", title="rows", ulp=1.0)


def test_every_tile_config_is_compiled_without_a_gpu_and_none_spills(compiler: Compiler) -> None:
    text = _text(_softmax(512))
    found = compiler.resources(text)
    assert [r.tile_config for r in found] == [(1024, 32), (1024, 16), (2048, 32), (1024, 64)]
    assert [r.warps for r in found] == [1, 2, 2, 1]
    assert all(16 <= r.registers <= 128 and r.stack_bytes == 0 for r in found)
    assert "registers on sm_90" in fitting(text, found)


def test_a_long_recurrence_of_many_inputs_spills_nothing(compiler: Compiler) -> None:
    b = GraphBuilder("recurrence")
    state, *inputs = (b.input(f"x_{at}", (8, 1536, 16), "float32") for at in range(1 + 2 * 24))
    live = []
    for decay, fresh in zip(inputs[::2], inputs[1::2], strict=True):
        state = b.call("aten::add.Tensor", b.call("aten::mul.Tensor", decay, state), fresh)
        live.append(state)
    found = compiler.resources(_text(b.done(*live)))
    assert found
    assert all(r.stack_bytes == 0 for r in found)


def test_a_tile_config_that_spills_is_left_out(compiler: Compiler) -> None:
    text = _text(_softmax(512))
    found = compiler.resources(text.replace("(1024, 32), (1024, 16)", "(16384, 512), (1024, 16)"))
    wide = next(r for r in found if r.tile_config == (16384, 512))
    assert wide.stack_bytes > 0
    kept = re.search(r'"rows_kernel": (\[.*?\])', fitting(text.replace("(1024, 32)", "(16384, 512)"), found))
    assert kept is not None
    assert "(16384, 512)" not in kept[1]
    assert "(1024, 16)" in kept[1]


def test_what_is_compiled_next_is_distinguished_from_what_was_before(compiler: Compiler) -> None:
    first, second = (_text(_softmax(columns)) for columns in (512, 4096))
    apart = [compiler.resources(text) for text in (first, second, first)]
    assert apart[0] == apart[2] != apart[1]
    assert all(apart)


def test_where_nothing_can_be_compiled_a_text_stays_as_it_is(compiler: Compiler) -> None:
    assert compiler.resources("raise ValueError") == []
    assert compiler.resources("import os; os._exit(1)") == []
    assert fitting("BLOCKS = {\n}\n", []) == "BLOCKS = {\n}\n"


@pytest.mark.parametrize(
    ("took", "first"),
    [
        ({(1024, 8): 1000, (2048, 8): 900, (512, 8): 950}, (2048, 8)),
        ({(1024, 8): 1000, (2048, 8): 990, (512, 8): 1200}, (1024, 8)),  # by less than noise: the default stays
        ({(1024, 8): 1000, (2048, 8): 0, (512, 8): 900}, (512, 8)),  # 0: it cannot be launched
    ],
)
def test_the_fastest_tile_config_comes_first(
    monkeypatch: pytest.MonkeyPatch, took: dict[TileConfig, int], first: TileConfig
) -> None:
    blocks = {"kernel": list(took)}
    launched: list[TileConfig] = []

    def fused(x: torch.Tensor) -> None:
        if took[blocks["kernel"][0]] == 0:
            raise RuntimeError("out of resources")
        launched.append(blocks["kernel"][0])

    def traced(work: Callable[[], object]) -> list[dict[str, Any]]:
        launched.clear()
        work()
        mark = {"name": "spin_kernel"}
        kernels = [{"name": "kernel", "dur_ns": took[tile_config]} for tile_config in launched]
        return [event for kernel in kernels for event in (mark, kernel, mark)]

    monkeypatch.setattr(tuning, "traced", traced)
    monkeypatch.setattr(tuning, "flusher", lambda: lambda: None)
    monkeypatch.setattr(tuning, "make_inputs", lambda described: [torch.zeros(4)])
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    found = tuning.tuned(fused, blocks, [])
    assert blocks["kernel"][0] == first
    assert sorted(blocks["kernel"]) == sorted(took)
    assert dict(found["kernel"]) == took


def test_what_draws_random_numbers_begins_with_more_warps() -> None:
    drawn, plain = (generate(CATALOGUE[name]()).text for name in ("bias_dropout_residual_norm", "rms_norm"))
    assert '_kernel": [(1024, 8), (1024, 32)' in drawn
    assert '_kernel": [(1024, 8)' not in plain
