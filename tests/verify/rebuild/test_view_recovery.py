"""View calls found from where tensors lie, held to torch: what they make are the same elements at the same places."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.examples import examples
from tracemine.verify.rebuild.view_recovery import Layout, views

torch = pytest.importorskip("torch")


def look_of(tensor: Any) -> Layout:
    return Layout(tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def made(tensor: Any, steps: Any) -> Any:
    for label, arguments in steps:
        name, _, overload = label.removeprefix("aten::").partition(".")
        function = getattr(getattr(torch.ops.aten, name), overload or "default")
        tensor = function(tensor, *(list(a) if isinstance(a, tuple) else a for a in arguments))
    return tensor


def one_view(draw: random.Random, tensor: Any) -> Any:
    kind = draw.choice(("permute", "slice", "select", "unsqueeze", "expand", "flatten"))
    if kind == "permute":
        return tensor.permute(draw.sample(range(tensor.dim()), tensor.dim()))
    if kind == "unsqueeze":
        return tensor.unsqueeze(draw.randint(0, tensor.dim()))
    if kind == "expand":
        return tensor.expand([n if n > 1 else draw.choice((1, 3)) for n in tensor.shape])
    if tensor.dim() == 0:
        return tensor
    dim = draw.randint(0, tensor.dim() - 1)
    first = draw.randint(0, tensor.size(dim) - 1)
    if kind == "slice":
        return tensor.narrow(dim, first, draw.randint(1, tensor.size(dim) - first))
    if kind == "select":
        return tensor.select(dim, first)
    return tensor.view(-1) if tensor.is_contiguous() else tensor


@examples(300)
def test_views_lead_to_the_elements_that_torch_shows(draw: random.Random) -> None:
    shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
    count = int(torch.tensor(shape).prod())
    source = torch.arange(count + 5)[5:].view(shape)
    source = source.permute(draw.sample(range(source.dim()), source.dim()))
    target = source
    for _ in range(draw.randint(0, 4)):
        target = one_view(draw, target)
    steps = views(look_of(source), look_of(target))
    assert steps is not None
    found = made(source, steps)
    assert found.shape == target.shape
    assert torch.equal(found, target)
    assert found.data_ptr() == target.data_ptr()


def test_a_slice_is_one_call_and_the_same_look_is_none() -> None:
    whole = Layout(0, (8, 16, 64), (1024, 64, 1))
    assert views(whole, whole) == ()
    assert views(whole, Layout(32, (8, 16, 32), (1024, 64, 1))) == (("aten::slice.Tensor", (2, 32, 64, 1)),)
    assert views(whole, Layout(128, (8, 64), (1024, 1))) == (("aten::select.int", (1, 2)),)


@pytest.mark.parametrize(
    "target",
    [
        Layout(0, (5,), (1,)),  # beyond its end
        Layout(0, (3, 2), (1, 1)),  # windows that overlap
        Layout(3, (2,), (2,)),  # out of range from there on
    ],
)
def test_what_no_views_make_is_none(target: Layout) -> None:
    assert views(Layout(0, (4,), (1,)), target) is None
