"""A reproduction stands alone: names nothing twice, imports nothing of ours; what it judges by takes what is right."""

from __future__ import annotations

import ast
import random
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.codegen.catalogue import CATALOGUE
from tests.verify.repro import emitted
from tracemine.codegen.triton.source import generate
from tracemine.verify.rebuild.recorded import kernels_of
from tracemine.verify.repro.harness import harness_text
from tracemine.verify.repro.text import compulsory, repro

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch

from tracemine.verify.gpu.clocks import steady
from tracemine.verify.gpu.correctness import copies, make_inputs, repeats, right, same_bits
from tracemine.verify.gpu.profiling import between_marks
from tracemine.verify.gpu.timing import judged


def reproduction(name: str) -> str:
    graph = CATALOGUE[name]()
    return repro(graph, generate(graph), fingerprint="0" * 16, title="t", ulp=4.0)


def loaded(name: str, folder: Path) -> ModuleType:
    return emitted.loaded(emitted.put(folder, f"{name}.py", reproduction(name)))


@pytest.mark.parametrize("text", ["harness", "add_rms_norm", "adamw_foreach", "token_quant"])
def test_no_name_of_a_file_means_two_things(text: str) -> None:
    tree = ast.parse(harness_text() if text == "harness" else reproduction(text))
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    given = [n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    names += [n.id for one in given for n in ast.walk(one) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not any(module.partition(".")[0] == "tracemine" for module in imported)


def test_a_kernel_of_a_long_name_is_held_against_the_whole_name() -> None:
    """Those that draw random numbers have 5,000 characters; half a name is no kernel's, and no replay would have it."""
    name = "void distribution_elementwise_grid_stride_kernel<" + "float, 4, at::native::templates::cuda::" * 130 + ">"
    activities = pa.table({"name": pa.array([name]).dictionary_encode(), "grid": [[1, 1, 1]]})
    timeline: Any = SimpleNamespace(activities=activities)
    assert kernels_of(timeline, (0,)) == [(name, [1, 1, 1])]


def test_the_rule_takes_what_is_as_good_as_eager_and_nothing_else(tmp_path: Path) -> None:
    module = loaded("add_rms_norm", tmp_path)
    eager, described = module.eager, module.INPUTS

    def wide(x: Any, residual: Any, weight: Any) -> Any:  # as a kernel does it: rounded where it is stored
        total = x.float() + residual.float()
        scale = torch.rsqrt(total.pow(2).mean(-1, True) + 1e-6)
        return (weight.float() * (total * scale)).bfloat16(), total.bfloat16()

    def without_the_last_row(x: Any, residual: Any, weight: Any) -> Any:
        normed, total = wide(x, residual, weight)
        normed[-1, -1] *= 1.05
        return normed, total

    variants = {"eager": eager, "wide": wide, "wrong": without_the_last_row}
    judgement = right(eager, variants, described, 4.0, "cpu")
    assert {name: bool(one["faults"]) for name, one in judgement.items()} == {
        "eager": False,
        "wide": False,
        "wrong": True,
    }
    assert judgement["wide"]["error"] <= judgement["wide"]["eager_error"]
    alone = sys.modules["tracemine_repro"].right(eager, {"wide": wide}, described, 4.0, "cpu")
    assert alone == {"wide": judgement["wide"]}  # the harness judges alike


def test_a_long_recurrence_in_float32_may_err_as_its_roundings_could() -> None:
    """What stays wide between a product and a sum is no worse than eager, though single rows of it are further off."""
    described = [(name, (256, 16), torch.float32, (16, 1), None) for name in "abcdefghijklmnop"]

    def recurrence(add: Any, *given: Any) -> Any:
        found, state = [], given[0]
        for factor, term in zip(given[1::2], given[2::2], strict=False):
            state = add(state, factor, term)
            found.append(state)
        return found

    def eager(*given: Any) -> Any:
        return recurrence(lambda state, factor, term: state * factor + term, *given)

    def contracted(*given: Any) -> Any:
        wide = [t.double() for t in given]
        return [t.float() for t in recurrence(lambda state, factor, term: state * factor + term, *wide)]

    found = right(eager, {"contracted": contracted, "eager": eager}, described, 0.0, "cpu")
    assert not found["contracted"]["faults"]
    assert not found["eager"]["faults"]


def test_repeats_sees_a_bit() -> None:
    described = [("x", (7, 5), torch.float32, (5, 1), None)]
    assert repeats(lambda x: (x + 1,), described, "cpu")
    numbers = iter(range(100))
    assert not repeats(lambda x: (x + 1e-6 * next(numbers),), described, "cpu")


def test_inputs_have_the_recorded_strides_and_copies_their_own_memory() -> None:
    described = [("x", (4, 6), torch.bfloat16, (1, 4), None), ("y", (4, 6), torch.float32, (0, 1), None)]
    inputs = make_inputs([*described, ("ids", (5,), torch.int64, (1,), 3)], device="cpu")
    again = copies(inputs)
    assert [t.stride() for t in again] == [t.stride() for t in inputs] == [(1, 4), (0, 1), (1,)]
    assert all(a.equal(b) and a.data_ptr() != b.data_ptr() for a, b in zip(inputs, again, strict=True))
    assert int(inputs[2].max()) < 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_bits_are_compared_however_a_tensor_lies(dtype: torch.dtype) -> None:
    one = [((), ()), ((1,), (0,)), ((1, 1), (0, 0))]
    for shape, strides in [*one, ((4, 1), (1, 0)), ((4, 3), (0, 1)), ((4, 3), (0, 0)), ((0,), (1,))]:
        inputs = make_inputs([("x", shape, dtype, strides, None)], device="cpu")
        (again,) = copies(inputs)
        assert same_bits(inputs[0], again)
        if again.numel():
            again[(slice(0, 1),) * again.dim()] = 1 if dtype == torch.bool else 7
            assert same_bits(inputs[0], again) == (dtype == torch.bool and bool(inputs[0].flatten()[0]))


def test_what_has_to_be_moved_is_what_the_chain_needs() -> None:
    """Of a table the rows that are looked up, of a joined input the halves that are read, each once."""
    halves = compulsory(CATALOGUE["swiglu"](rows=(2, 3), hidden=8))
    assert halves == (2 * 3 * 16 * 2, 2 * 3 * 8 * 2)
    rows = compulsory(CATALOGUE["embedding_scale_norm"](rows=(2, 3), words=1000, hidden=8))
    assert rows == (2 * 3 * 8 * 2 + 2 * 3 * 8 + 8 * 2, 2 * 3 * 8 * 2)
    in_place = compulsory(CATALOGUE["residual_in_place"](rows=4, hidden=8))
    assert in_place == (2 * 4 * 8 * 2 + 8 * 2, 2 * 4 * 8 * 2)


def test_samples_are_what_lies_between_two_marks() -> None:
    names = ["flush", "spin_kernel", "a", "b", "spin_kernel", "flush", "spin_kernel", "spin_kernel"]
    events = [{"name": name} for name in names]
    assert [[e["name"] for e in sample] for sample in between_marks(events)] == [["a", "b"], []]


def test_blocks_at_other_clocks_are_no_fair_samples() -> None:
    usual, slow, hot = [1980.0, 3201.0, 40.0, 300.0], [1900.0, 3201.0, 60.0, 690.0], [1980.0, 2600.0, 80.0, 300.0]
    assert steady([[usual, usual], [usual, usual], [usual, slow], [hot, hot]]) == [True, True, False, False]


def test_the_same_is_not_called_faster_than_itself() -> None:
    draw = random.Random(0)
    faster = 0
    for _ in range(60):
        samples = {name: {"sum_ns": [round(draw.gauss(20_000, 150)) for _ in range(40)]} for name in ("eager", "fused")}
        faster += judged(samples)["faster_than_eager"]
    assert faster == 0
    samples["fused"]["sum_ns"] = [round(0.97 * ns) for ns in samples["fused"]["sum_ns"]]
    assert judged(samples)["faster_than_eager"]
