"""One transformer block that eager PyTorch, torch.compile and JAX ran on an H200: counts and sums by class, by hand."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest

from tracemine.comparison import Difference, diff
from tracemine.findings import Scan
from tracemine.pipeline import scan

FOLDER = Path(__file__).parents[2] / "fixtures" / "producers"
FILES = {"eager": "block_eager.json.gz", "compiled": "block_compiled.json.gz", "jax": "block_jax.xplane.pb.gz"}
MADE_BY = {"eager": "PyTorch", "compiled": "torch.compile", "jax": "JAX 0.11.2"}
STEPS = 3
PRODUCTS, COPIES = r"nvjet|gemm_fusion", r"Memset|copy_kernel|FillFunctor|input_transpose|wrapped_transpose|_clone_"
# As jax.profiler.ProfileData reads the profile: a step's kernels and µs.
OF_JAX = {"products": (6, 430.153), "copies": (8, 43.019), "memory_bound": (7, 569.013)}


@cache
def scanned(name: str) -> Scan:
    return scan(FOLDER / FILES[name])


def difference(before: str, after: str) -> Difference:
    return diff(scanned(before), scanned(after))


def by_hand(name: str) -> dict[str, tuple[float, float]]:
    """Of each class a step's kernels and µs, by kernels' names alone."""
    if name == "jax":
        return {kind: (float(count), us) for kind, (count, us) in OF_JAX.items()}
    found: dict[str, tuple[float, float]] = {}
    for event in json.loads(gzip.decompress((FOLDER / FILES[name]).read_bytes()))["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            copies = re.search(COPIES, event["name"])
            kind = "products" if re.match(PRODUCTS, event["name"]) else "copies" if copies else "memory_bound"
            count, us = found.get(kind, (0.0, 0.0))
            found[kind] = (count + 1 / STEPS, us + event["dur"] / STEPS)
    return found


@pytest.mark.parametrize(("before", "after"), [*permutations(FILES, 2)])
def test_classes_have_the_kernels_and_the_time_counted_by_hand(before: str, after: str) -> None:
    found = difference(before, after).by_class
    assert found is not None
    assert found.made_by == (MADE_BY[before], MADE_BY[after])
    for at, name in enumerate((before, after)):
        own = by_hand(name)
        sides = {one.name: (one.before, one.after)[at] for one in found.classes}
        assert {kind for kind, one in sides.items() if one is not None} == own.keys()
        for kind, one in sides.items():
            assert one is not None
            assert one.kernels == pytest.approx(own[kind][0], abs=0.01)
            assert one.gpu_ns / 1000 == pytest.approx(own[kind][1], rel=1e-3, abs=0.05)


def fused(name: str) -> Iterator[str]:
    spent = scanned(name).spent
    for one in () if spent is None else spent.work:
        yield from one.operations


def test_what_each_fuses() -> None:
    assert not [*fused("eager")]
    assert {"_softmax", "prepare_softmax_online"} <= {*fused("compiled")}
    assert {"exponential", "reduce"} <= {*fused("jax")}


def test_the_gpus_work_changes_as_steps_did_that_nothing_recorded() -> None:
    """Steps one behind the other, of which none is waited for: the GPU paces them."""
    rows = json.loads((FOLDER / "producers.json").read_text())
    step_ns = {row["producer"]: 1e6 * row["step_ms"] for row in rows if row["program"] == "forward"}
    for before, after in permutations(FILES, 2):
        change = difference(before, after).gpu_work.change_ns.mid
        assert change == pytest.approx(step_ns[after] - step_ns[before], rel=0.15)


def test_all_three_compute_the_same() -> None:
    """To what bfloat16 rounds differently where it is summed in another order."""
    rows = json.loads((FOLDER / "producers.json").read_text())
    for program in ("forward", "train"):
        values = [row["mean_of_squares"] for row in rows if row["program"] == program]
        assert len(values) == len(FILES)
        assert max(values) == pytest.approx(min(values), rel=1e-3)
