"""Library calls run on a CPU: right ones pass every trial, wrong ones beside them are found out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch

from tests.examples import examples
from tests.verify.library.test_replace import MOVES, adamw, attention, layer, norm, product
from tests.verify.repro.emitted import loaded, put
from tracemine.codegen.graph import Graph, settled
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import Sandbox
from tracemine.verdicts.candidate import LIBRARY, Candidate
from tracemine.verdicts.levels import Measured
from tracemine.verdicts.verdict import CallVerdict, best, call_verdict
from tracemine.verify.library import Replacement, find
from tracemine.verify.library.source import function
from tracemine.verify.library.terms import Opaque, terms
from tracemine.verify.library.validation_job import WORKER, CallJob, job
from tracemine.verify.library.worker import validate
from tracemine.verify.repro.eager import eager_text
from tracemine.verify.repro.text import repro


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: threads would wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def validated(graph: Graph) -> Validation:
    return validate(msgspec.json.decode(job(graph), type=CallJob))


@cache
def validated_of(name: str) -> Validation:
    return validated(CHAINS[name]())


def replaced(graph: Graph) -> Replacement:
    found = find(graph).replacement
    assert found is not None
    return found


def gemma() -> Graph:
    b = GraphBuilder("gemma")
    x, w = b.input("x", (8, 64), "bfloat16"), b.input("w", (64,), "bfloat16")
    wide = b.call("aten::_to_copy", x, dtype="float32")
    power = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), [-1], True)
    normal = b.call("aten::mul.Tensor", wide, b.call("aten::rsqrt", b.call("aten::add.Tensor", power, 1e-6)))
    gain = b.call("aten::add.Tensor", b.call("aten::_to_copy", w, dtype="float32"), 1.0)
    return b.done(b.call("aten::_to_copy", b.call("aten::mul.Tensor", normal, gain), dtype="bfloat16"))


def momentum() -> Graph:
    b = GraphBuilder("sgd")
    p, g, m = (b.input(n, (40, 6), "float32") for n in "pgm")
    b.call("aten::add_.Tensor", b.call("aten::mul_.Tensor", m, 0.9), b.call("aten::add.Tensor", g, p, alpha=0.01))
    b.call("aten::add_.Tensor", p, m, alpha=-0.1)
    return b.done()


BFLOAT16: dict[str, Any] = {f"{name}_dtype": "bfloat16" for name in "pgmv"}
CHAINS: dict[str, Callable[[], Graph]] = {
    "a norm": norm,
    "a norm in float32": lambda: norm(dtype="float32"),
    "a gain off by one": gemma,
    "a layer norm": layer,
    "attention with a mask": attention,
    "attention": lambda: attention(mask=None),
    "a product with ReLU": product,
    "a step of AdamW": lambda: adamw(**MOVES),
    "a step of AdamW in bfloat16": lambda: adamw(3, **MOVES, **BFLOAT16),
    "a step of SGD": momentum,
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_call_passes_and_every_wrong_one_is_caught(name: str) -> None:
    validation = validated_of(name)
    assert [f"{f.trial}: {f.says}" for f in validation.faults] == []
    assert [m.line for m in validation.mutants if m.killed_by is None] == []
    assert len(validation.mutants) >= 2
    assert validation.trials >= 20
    assert validation.error <= 1.25 * validation.eager_error + 1e-7


def test_a_mask_of_one_number_may_be_left_out_and_that_is_no_fault() -> None:
    b = GraphBuilder("zeros")
    q, k, value = (b.input(n, s, "bfloat16") for n, s in (("q", (6, 5, 8)), ("k", (6, 8, 7)), ("v", (6, 7, 8))))
    mask = b.call("aten::full", [1, 3, 5, 7], 0, dtype="bfloat16")
    scores = b.call("aten::add.Tensor", b.call("aten::view", b.call("aten::bmm", q, k), [2, 3, 5, 7]), mask)
    probs = b.call("aten::view", b.call("aten::_softmax", scores, -1, False), [6, 5, 7])
    validation = validated(b.done(b.call("aten::bmm", probs, value)))
    assert validation.passed
    assert {m.equivalent for m in validation.mutants if m.killed_by is None} == {"the mask is one number"}


def test_the_order_of_beta_is_known() -> None:
    """The control that matters most of an optimizer: its two betas changed places."""
    swapped = next(m for m in validated_of("a step of AdamW").mutants if m.name.startswith("beta1=beta1"))
    assert swapped.killed_by is not None


def test_what_a_cpu_computes_otherwise_is_left_to_the_gpu() -> None:
    graph = product(activation="aten::gelu", approximate="tanh")
    assert validated(graph).faults  # by the error function, where the graph has a tangent
    assert "on a GPU" in (replaced(graph).gpu_only or "")


def test_a_row_that_sees_nothing_is_said_to_differ_and_left_out() -> None:
    """eager: softmax of −inf alone is NaN; the call gives 0. Neither is an answer that a model lives on."""
    validation = validated_of("attention with a mask")
    assert any("eager makes NaN, the call makes 0" in text for text in validation.skipped)


def test_lists_with_gaps_are_not_given_to_fused_optimizers() -> None:
    """They walk memory, not axes: with gaps they would write between the elements."""
    b = GraphBuilder("gaps")
    p, g, m = (b.input(n, (8, 3), "float32", (6, 1)) for n in "pgm")
    b.call("aten::add_.Tensor", b.call("aten::mul_.Tensor", m, 0.9), g)
    b.call("aten::add_.Tensor", p, m, alpha=-0.1)
    assert "densely" in find(b.done()).refused[0]


def test_a_process_of_its_own_validates(tmp_path: Path) -> None:
    with Sandbox(command=WORKER) as sandbox:
        answer = sandbox.answer(job(norm()))
        assert isinstance(answer, Validation)
        assert answer.passed
        assert isinstance(sandbox.answer(job(layer())), Validation)


# Property: wherever casts stand, in whatever order operands are, the function says what the graph says.


def spelled(draw: random.Random) -> Graph:
    """A chain with a norm in it, in one of many spellings, with calls before and after."""
    b = GraphBuilder("spelled")
    dtype = draw.choice(["float32", "bfloat16", "float16"])
    x, y = b.input("x", (5, 24), dtype), b.input("y", (5, 24), dtype)
    w = b.input("w", (24,), draw.choice([dtype, "float32"]))
    ahead = b.call("aten::add.Tensor", x, y) if draw.choice((False, True)) else x
    casts = dtype != "float32" and draw.choice((False, True))
    wide = b.call("aten::_to_copy", ahead, dtype="float32") if casts else ahead

    def times(one: Any, other: Any) -> Any:
        return b.call("aten::mul.Tensor", *((one, other) if draw.choice((False, True)) else (other, one)))

    square = times(wide, wide) if draw.choice((False, True)) else b.call("aten::pow.Tensor_Scalar", wide, 2)
    mean = b.call("aten::mean.dim", square, [draw.choice([-1, 1])], draw.choice([True] * 3 + [False]))
    mean = mean if len(b.specs[mean.value].shape) == 2 else b.call("aten::unsqueeze", mean, -1)
    inside = b.call("aten::add.Tensor", mean, draw.choice([1e-6, 1e-3]))
    if draw.choice((False, True)):
        normal = b.call("aten::div.Tensor", wide, b.call("aten::sqrt", inside))
    else:
        normal = times(wide, b.call("aten::rsqrt", inside))
    if draw.choice((False, True)):
        normal = b.call("aten::_to_copy", normal, dtype=dtype)
    out = times(w, normal) if draw.choice((False, True)) else normal
    after = b.call("aten::silu", out) if draw.choice((False, True)) else out
    return b.done(after, *((ahead,) if draw.choice((False, True)) and ahead is not x else ()))


@examples(80)
def test_the_function_gives_what_eager_gives(draw: random.Random) -> None:
    graph = spelled(draw)
    found = find(graph).replacement
    if found is None:
        return
    from tracemine.validate.reference import run

    generator = torch.Generator().manual_seed(draw.randint(0, 100))
    inputs = [
        torch.randn(e.spec.shape, generator=generator).to(getattr(torch, str(e.spec.dtype))) for e in graph.inputs
    ]
    scalars = {s.name: s.value for s in graph.scalars}
    space: dict[str, Any] = {"torch": torch}
    exec(found.text, space)  # noqa: S102
    given_back = space["library"](*inputs, **scalars)
    truth = run(graph, inputs, scalars, {}, double=True).live
    eager = run(graph, inputs, scalars, {}).live
    for ours, right, theirs in zip(given_back, truth, eager, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        error, its = ((t.double() - right).abs().max().item() for t in (ours, theirs))
        assert error <= 2 * its + 2 * torch.finfo(ours.dtype).eps * right.abs().max().item()


def in_place(draw: random.Random) -> Graph:
    """Calls in place and not, on tensors and on views of them."""
    b = GraphBuilder("in_place")
    tensors: list[Any] = [b.input("x", (2, 6), "float32"), b.input("y", (2, 6), "float32")]
    tensors.append(b.call("aten::neg", tensors[0]))
    for _ in range(draw.randint(1, 9)):
        of = draw.choice(tensors)
        shape = b.specs[of.value].shape
        alike = [t for t in tensors if b.specs[t.value].shape == shape]
        kind = draw.choice(["add", "mul_", "view", "slice", "clone", "add_"])
        if kind == "view":
            tensors.append(b.call("aten::view", of, [12] if len(shape) == 2 else [2, 6]))
        elif kind == "slice" and shape == (12,):
            tensors.append(b.call("aten::slice.Tensor", of, 0, 0, 12))
        elif kind in ("add", "mul_", "add_"):
            tensors.append(b.call(f"aten::{kind}.Tensor", of, draw.choice(alike)))
        else:
            tensors.append(b.call("aten::clone", of))
    return b.done(*draw.choices(tensors[2:], k=draw.randint(1, 4)))


@examples(300)
def test_terms_hold_what_memory_holds_whatever_is_written_in_place(draw: random.Random) -> None:
    graph = in_place(draw)
    try:
        found = terms(graph)
    except Opaque:
        return
    inputs = [torch.randn(e.spec.shape, generator=torch.Generator().manual_seed(k)) for k, e in enumerate(graph.inputs)]
    space: dict[str, Any] = {"torch": torch}
    exec(function(found, []), space)  # noqa: S102
    by_terms = space["library"](*(t.clone() for t in inputs))
    exec(eager_text(graph), space)  # noqa: S102
    for ours, theirs in zip(by_terms, space["eager"](*inputs), strict=True):
        assert torch.equal(ours, theirs)


# A reproduction.


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[Graph], ModuleType]]:
    def make(graph: Graph) -> ModuleType:
        found = replaced(graph)
        known: dict[str, Any] = {"fingerprint": "0" * 16, "title": "t", "ulp": 8.0}
        text = repro(settled(graph, found.at), None, **known, library=found.text, positive=found.positive)
        return loaded(put(tmp_path, "repro.py", text))

    yield make


@pytest.mark.parametrize("name", ["a norm", "attention with a mask", "a step of SGD", "a step of AdamW"])
def test_a_reproduction_finds_the_call_right_and_a_wrong_one_wrong(
    module: Callable[[Graph], ModuleType], name: str
) -> None:
    pytest.importorskip("triton")
    from tracemine.verify.gpu.correctness import right

    made = module(CHAINS[name]())
    mutant: dict[str, Any] = {"torch": torch}
    exec(replaced(CHAINS[name]()).mutants[0][1], mutant)  # noqa: S102
    variants = {"fused": made.library, "library": mutant["library"]}
    found = right(made.eager, variants, made.INPUTS, 8.0, device="cpu")
    assert found["fused"]["faults"] == []
    assert found["library"]["faults"]


# What it comes to.

SAMPLES = {name: {"sum_ns": [ns] * 10, "span_ns": [ns] * 10} for name, ns in
           (("eager", 1000), ("fused", 500), ("library", 250), ("copy", 200), ("compiled", 400))}  # fmt: skip


def ratio(value: float) -> dict[str, float]:
    return {"ratio": value, "low": value, "high": value}


def ran(**changed: Any) -> dict[str, Any]:
    """What a reproduction says on a GPU, the call twice as fast as the kernel."""
    judged = {
        "eager_against_itself": ratio(1.0), "eager": ratio(2.0), "compiled": ratio(0.8), "library": ratio(0.5),
        "faster_than_eager": True, "slower_than_eager": False, "not_slower_than_compile": False,
        "to_library": {"eager": ratio(4.0), "compiled": ratio(1.6)}, "library_faster_than_eager": True,
        "library_slower_than_eager": False, "library_not_slower_than_compile": True,
    }  # fmt: skip
    times = {
        "samples": {"cold": SAMPLES, "warm": SAMPLES}, "judged": {"cold": judged, "warm": judged}, "device": "GPU",
        "too_fast": [], "unstable": [], "least_ns": 1, "left_out": {}, "compile_failed": None,
    }  # fmt: skip
    replay = {"same_names": True, "same_grids": True, "same_count": True, "kernels": []}
    base = {"replay": replay, "right": {"faults": []}, "right_others": {"library": {"faults": []}}, "times": times}
    return {**base, **changed}


def came_to(said: Any, validation: Validation | str | None = None) -> CallVerdict:
    made = replaced(norm())
    call = Candidate(
        by=LIBRARY, variant=LIBRARY, call=made.call, says=made.says, calls=8, traced_ns=1000.0,
        assumptions=made.assumptions, validation=validation, ran=said,
    )  # fmt: skip
    return call_verdict(call)


def test_a_call_is_judged_as_a_kernel_is() -> None:
    found = came_to(ran())
    assert (found.level, found.says) == ("L5", "not slower than torch.compile")
    assert found.measured is not None
    assert (found.measured.eager_ns, found.measured.fused_ns, found.ratio) == (1000, 250, 4.0)
    assert came_to(None, validated_of("a norm")).says == "right on a CPU, by the same call"


def test_a_call_that_is_wrong_or_cannot_be_made_says_so() -> None:
    wrong = came_to(ran(right_others={"library": {"faults": ["seed 0, output 0: error 1"]}}))
    assert wrong.level == "L1"
    assert wrong.says.startswith("wrong on the GPU")
    times = {**ran()["times"], "left_out": {"library": "AttributeError: no rms_norm"}}
    missing = came_to(ran(times=times, right_others={}))
    assert "could not be made: AttributeError" in missing.says
    losing = {**ran()["times"]["judged"]["cold"], "library_faster_than_eager": False, "library_slower_than_eager": True}
    times = {**ran()["times"], "judged": {"cold": losing, "warm": losing}}
    assert came_to(ran(times=times)).says == "this call loses"
    assert came_to(ran(times={**ran()["times"], "unstable": ["library"]})).says.startswith("unstable")
    assert came_to(ran(times={**ran()["times"], "too_fast": ["library"]})).says.startswith("not believed")
    assert came_to(ran(times={**ran()["times"], "too_fast": ["fused"]})).level == "L5"  # the kernel's, not the call's


def test_the_faster_of_kernel_and_call_is_named_where_it_beats_eager() -> None:
    call = came_to(ran())
    kernel = Measured(
        device="GPU", state="cold", eager_ns=1000, fused_ns=500, compiled_ns=None, copy_ns=200, saving_ns=500,
        eager_to_fused=ratio(2.0), compiled_to_fused=None, noise=0.0,
    )  # fmt: skip
    assert best("L4", kernel, library=call) == "library"
    assert best("L5", msgspec.structs.replace(kernel, fused_ns=100), library=call) == "kernel"
    assert best("L3", kernel, library=None) is None
    assert best("L3", kernel, library=call) == "library"
    assert best("L2", None, library=came_to(None)) is None


def test_ratios_of_reproductions_are_taken_against_the_call_too() -> None:
    from tracemine.verify.gpu.timing import judged

    found = judged(
        {name: {"sum_ns": list(range(ns, ns + 40))} for name, ns in (("eager", 900), ("fused", 600), ("library", 300))}
    )
    assert math.isclose(found["to_library"]["eager"]["ratio"], 919.5 / 319.5, rel_tol=1e-3)
    assert found["library_faster_than_eager"]
    assert not found["library_slower_than_eager"]


def test_a_terminal_says_which_call_and_how_it_did() -> None:
    from tests.verdicts.test_verdict import judged as verdict_of
    from tracemine.report.verdicts import call_texts

    plain = verdict_of()
    assert call_texts(plain) == []
    call = came_to(ran())
    (text,) = call_texts(msgspec.structs.replace(plain, library=call))
    assert text == "or F.rms_norm(x, (64,), weight, 1e-06): 4.0 times as fast as eager, L5"
    around = msgspec.structs.replace(came_to(None, validated_of("a norm")), products=True)
    (text,) = call_texts(msgspec.structs.replace(plain, with_products=around))
    assert text.endswith("L2, right on a CPU, by the same call (another algorithm, no fusion)")
