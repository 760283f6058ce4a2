"""One model as two compilers make kernels of it: what each fuses, and what that costs."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from msgspec.structs import replace

from tests.comparison.build import US, item, side
from tracemine.comparison import Difference, compared
from tracemine.comparison.record import ComparedSide
from tracemine.findings.record import WorkOfClass
from tracemine.report import Drawing, render_difference


def work(name: str, kernels: float, us: int, fused: float = 0, operations: tuple[str, ...] = ()) -> WorkOfClass:
    return WorkOfClass(name=name, kernels=kernels, gpu_ns=us * US, fused=fused, operations=operations)


def made(by: str, *classes: WorkOfClass, **about: Any) -> ComparedSide:
    mark, op = ("b" * 16, "xla::product") if by.startswith("JAX") else ("a" * 16, "aten::mul")
    one = side(item(mark, 100, (op,), rule=mark), **about)
    assert one.spent is not None
    return replace(one, spent=replace(one.spent, made_by=by, work=classes))


def eager_and_jax() -> Difference:
    eager = made("PyTorch", work("products", 48, 700), work("memory_bound", 310, 900), work("other", 2, 3))
    jax = made(
        "JAX 0.11.2", work("products", 44, 710), work("memory_bound", 34, 300, 30, ("add", "exponential")), format="xla"
    )
    return compared(eager, jax)


def test_classes_are_joined_and_the_largest_change_is_first() -> None:
    found = eager_and_jax().by_class
    assert found is not None
    assert found.made_by == ("PyTorch", "JAX 0.11.2")
    assert [one.name for one in found.classes] == ["memory_bound", "products", "other"]
    last = found.classes[-1]
    assert last.before is not None
    assert last.after is None


def test_another_producer_explains_what_comes_and_goes() -> None:
    found = eager_and_jax()
    (why,) = (one for one in found.differs if one.what == "producer")
    assert (why.before, why.after, why.explains) == ("PyTorch", "JAX 0.11.2", True)
    assert not found.incomparable
    assert found.counts == {"unknown": 2}


def test_torch_compile_is_another_maker_of_the_same_program() -> None:
    found = compared(made("PyTorch", work("products", 1, 1)), made("torch.compile", work("products", 1, 1)))
    assert found.by_class is not None
    assert not [one for one in found.differs if one.what == "producer"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (made("PyTorch", work("products", 1, 1)), made("PyTorch", work("products", 1, 1))),
        (made("", work("products", 1, 1)), made("PyTorch", work("products", 1, 1))),  # stored before it was kept
        (made("PyTorch", work("products", 1, 1), steps=0), made("JAX 0.11.2", work("products", 1, 1), format="xla")),
    ],
)
def test_what_is_no_comparison_of_compilers_has_none(before: ComparedSide, after: ComparedSide) -> None:
    assert compared(before, after).by_class is None


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_each_report_has_the_classes(form: str) -> None:
    out = StringIO()
    render_difference(form, eager_and_jax(), out, Drawing())
    for said in ("310", "34", "exponential"):
        assert said in out.getvalue()
    assert ("310 → 34" in out.getvalue()) is (form != "json")
