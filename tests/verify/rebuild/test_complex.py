"""Complex numbers within a chain, as rotary embeddings have them: real numbers come in and leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.verify.traces import event, launched
from tracemine.codegen import Graph, GraphBuilder, Unsupported, generate
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.verify.rebuild.rebuilder import Rebuilder

WIDE, PAIRS, TURNS = [6, 4, 16], [6, 4, 8], [6, 1, 8]
WHOLE = "c10::complex<float>"


def rotary() -> Graph:
    """Neighbours are turned: a product of complex numbers."""
    b = GraphBuilder("rotary")
    x, angle = b.input("x", (3, 6, 4, 16), "bfloat16"), b.input("angle", (6, 1, 8), "float32")
    pairs = b.call("aten::view", b.call("aten::_to_copy", x, dtype="float32"), (3, 6, 4, 8, 2))
    turns = b.call("aten::mul.Tensor", b.call("aten::polar", b.call("aten::ones_like", angle), angle), 0.5)
    turned = b.call("aten::mul.Tensor", b.call("aten::view_as_complex", pairs), turns)
    parts = b.call("aten::view", b.call("aten::view_as_real", turned), (3, 6, 4, 16))
    return b.done(b.call("aten::_to_copy", parts, dtype="bfloat16"))


def sums() -> Graph:
    """Sums and differences with complex and real numbers, and a product with real ones."""
    b = GraphBuilder("sums")
    x, y, real = b.input("x", (5, 9, 2), "float32"), b.input("y", (9, 2), "float32"), b.input("real", (9,), "float32")
    one, other = b.call("aten::view_as_complex", x), b.call("aten::view_as_complex", y)
    found = b.call("aten::sub.Tensor", real, b.call("aten::add.Tensor", one, other))
    return b.done(b.call("aten::view_as_real", b.call("aten::mul.Tensor", real, found)))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[object]:
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.validate import Interpreter

    with Interpreter() as process:
        yield process


@pytest.mark.parametrize("make", [rotary, sums])
def test_what_is_complex_in_between_is_generated_and_right(interpreter: object, make: object) -> None:
    validation = interpreter.validate(make(), mutants=False)  # type: ignore[attr-defined, operator]
    assert not validation.faults
    assert validation.trials >= 20


def test_complex_numbers_that_come_in_or_leave_are_refused() -> None:
    b = GraphBuilder("leaves")
    with pytest.raises(Unsupported, match="complex"):
        generate(b.done(b.call("aten::view_as_complex", b.input("x", (9, 2), "float32"))))
    b = GraphBuilder("comes")
    with pytest.raises(Unsupported, match="complex64"):
        generate(b.done(b.call("aten::view_as_real", b.input("x", (9,), "complex64"))))


def test_what_nothing_is_said_of_complex_numbers_is_refused() -> None:
    b = GraphBuilder("angles")
    whole = b.call("aten::view_as_complex", b.input("x", (9, 2), "float32"))
    with pytest.raises(Unsupported, match="complex64"):
        generate(b.done(b.call("aten::view_as_real", b.call("aten::exp", whole))))


def test_a_product_of_complex_numbers_is_rebuilt_from_the_memory_of_their_parts(tmp_path: Path) -> None:
    """A cast to float32, looked at as complex, times a table of turns, looked at as real and cast back."""
    floats, pairs, turns = [64, 16, 1], [32, 8, 1], [8, 8, 1]
    half = "c10::BFloat16"
    nothing: list[list[int]] = [[]] * 6
    taken, rest = ["Scalar", *[""] * 5], ["", "", "", "False", ""]
    parts, laid = [[6, 4, 8, 2], []], [[64, 16, 2, 1], []]

    def copied(begin: int, target: str, source: str, name: str) -> list[dict[str, Any]]:
        code = "6" if target == "float" else "15"
        told = ["", code, *rest]
        kinds, lies = [target, source, "Scalar"], [floats, floats, []]
        return [
            event("aten::_to_copy", begin, begin + 30, [WIDE, *nothing], [source, *taken], [floats, *nothing], told),
            event("aten::copy_", begin + 10, begin + 29, [WIDE, WIDE, []], kinds, lies, ["", "", "False"]),
            *launched(begin, begin + 20, name),
        ]

    events = [
        *copied(1, "float", half, "widen"),
        event("aten::view", 42, 44, [WIDE, []], ["float", "ScalarList"], [floats, []], ["", "[6, 4, 8, 2]"]),
        event("aten::view_as_complex", 46, 48, parts[:1], ["float"], laid[:1], [""]),
        event("aten::mul", 50, 60, [PAIRS, TURNS], [WHOLE, WHOLE], [pairs, turns], ["", ""]),
        *launched(50, 55, "turn"),
        event("aten::view_as_real", 62, 64, [PAIRS], [WHOLE], [pairs], [""]),
        event("aten::view", 66, 68, parts, ["float", "ScalarList"], laid, ["", "[6, 4, 16]"]),
        *copied(70, half, "float", "narrow"),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = flow(open_trace(path))
    graph = Rebuilder(found, groups(found)).rebuild([0, 1, 2], "chain").graph
    labels = [call.label.removeprefix("aten::") for call in graph.calls]
    assert [label for label in labels if label != "view"] == [
        "_to_copy", "view_as_complex", "view_as_complex", "mul.Tensor", "view_as_real", "_to_copy"
    ]  # fmt: skip
    assert [(entry.spec.shape, entry.spec.dtype) for entry in graph.inputs] == [
        ((6, 4, 16), "bfloat16"),
        ((6, 1, 8, 2), "float32"),
    ]
    assert generate(graph)
