"""Weights that a program casts itself: what is one, and what is an input, a result, or half width already."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.flow.programs import ADD_, COPY_, RELU, Program, T
from tracemine.pipeline import analysed
from tracemine.rows.table import Flags

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
X, W, OUT = (8, 64), (32, 64), (8, 32)
HALF, FLOAT = "c10::Half", "float"


class Steps:
    """Two steps of a program whose operators' shapes and types are recorded as well."""

    def __init__(self, step: Callable[[Steps, int], None]) -> None:
        self.program = Program()
        for number in range(2):
            self.program.step()
            step(self, number)

    def call(self, schema: str, inputs: list[T], outputs: list[T], dtypes: list[str], shapes: list[T]) -> None:
        self.program.call(schema, inputs, outputs)
        op = self.program.trace.rows["ops"][-1]
        op["input_shapes"], op["input_dtypes"] = json.dumps([one.shape for one in shapes]), json.dumps(dtypes)

    def tensor(self, name: str, shape: tuple[int, ...]) -> T:
        return self.program.tensor(name, *shape)

    def cast(self, source: str, shape: tuple[int, ...], to: str = HALF) -> T:
        """A half-width copy; its name is `half` and the source's."""
        kept, made = self.tensor(source, shape), self.tensor(f"half {source}", shape)
        self.call(COPY_, [made, kept], [made], [to, FLOAT], [made, kept])
        return made

    def product(self, x: T, weight: T) -> None:
        turned = T(weight.storage, weight.shape[::-1], None)
        self.call(MM, [x, weight], [self.tensor("out", OUT)], [HALF, HALF], [x, turned])

    @property
    def casts(self) -> list[bool]:
        column = analysed(self.program.timeline()).rows["activities"].columns["weight_cast"]
        assert isinstance(column, Flags)
        values: list[bool] = column.values.tolist()
        return values


def by_hand(steps: Steps, number: int) -> None:
    steps.product(steps.tensor("x", X), steps.cast("w", W))


def trained(steps: Steps, number: int) -> None:
    by_hand(steps, number)
    weight = steps.tensor("w", W)
    with steps.program.inside("mark", kernels=0, joined=False):
        steps.program.trace.rows["ops"][-1] |= {"kind": "annotation", "name": "Optimizer.step#SGD.step"}
        steps.call(ADD_, [weight, steps.tensor("g", W)], [weight], [FLOAT, FLOAT], [weight, weight])


def an_input(steps: Steps, number: int) -> None:
    steps.product(steps.cast("x", X), steps.tensor("w", W))


def another_each_step(steps: Steps, number: int) -> None:
    steps.product(steps.tensor("x", X), steps.cast(f"documents {number}", W))


def computed(steps: Steps, number: int) -> None:
    given, made = steps.tensor("w", W), steps.tensor("made", W)
    steps.call(RELU, [given], [made], [FLOAT], [given])
    steps.product(steps.tensor("x", X), steps.cast("made", W))


def to_full_width(steps: Steps, number: int) -> None:
    steps.product(steps.tensor("x", X), steps.cast("w", W, to=FLOAT))


def read_by_no_product(steps: Steps, number: int) -> None:
    made = steps.cast("w", W)
    steps.call(RELU, [made], [steps.tensor("out", W)], [HALF], [made])


@pytest.mark.parametrize(("step", "casts"), [(by_hand, [True, False]), (trained, [True, False, False])])
def test_a_weight_that_every_step_casts_is_told(step: Callable[[Steps, int], None], casts: list[bool]) -> None:
    assert Steps(step).casts == 2 * casts


@pytest.mark.parametrize("step", [an_input, another_each_step, computed, to_full_width, read_by_no_product])
def test_any_other_copy_is_none(step: Callable[[Steps, int], None]) -> None:
    assert not any(Steps(step).casts)
