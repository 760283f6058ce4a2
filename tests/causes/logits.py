"""Heads and losses as timelines: what is recorded of a step's operators, however large, without running any."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.flow.programs import Program, T
from tracemine.pipeline import analysed
from tracemine.rows.table import Categories, Rows, category

ROWS, WORDS, WIDTH = 4096, 32_000, 1024
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
TANH = "aten::tanh(Tensor self) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
LOG1P = "aten::log1p(Tensor self) -> Tensor"
LOG_SOFTMAX = "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"
SOFTMAX = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"
GATHER = "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"
SUM = "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"
SUB = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
MUL = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
AMAX = "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"
ARGMAX = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"
DRAW = "aten::multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor"
NLL = (
    "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) "
    "-> (Tensor output, Tensor total_weight)"
)
NLL_BACKWARD = (
    "aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, "
    "SymInt ignore_index, Tensor total_weight) -> Tensor"
)
LOG_SOFTMAX_BACKWARD = (
    "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor"
)


class Steps:
    """Steps of a program; what each makes is gone at its end, but for what it keeps."""

    def __init__(self, step: Callable[[Steps], None], rows: int = ROWS, words: int = WORDS) -> None:
        self.program, self.rows, self.words = Program(), rows, words
        self._made = dict[str, T]()
        for self.number in range(3):
            self.program.step()
            self._made.clear()
            for name in "abcdefgh":  # so that most memory is seen to be used again
                self.call(TANH, [self.call(TANH, [self.tensor("hidden", 8)], name, 8)], f"{name}'", 8)
            step(self)
            for made in self._made.values():
                self.program.allocate(made)

    def tensor(self, name: str, *shape: int) -> T:
        return self.program.tensor(name, *shape)

    def call(self, schema: str, inputs: list[T], name: str, *shape: int, kept: bool = False) -> T:
        made = self.tensor(f"{name} {self.number}" if kept else name, *shape)
        if not kept:
            self._made[name] = made
        self.program.call(schema, inputs, [made])
        op = self.program.trace.rows["ops"][-1]
        op["input_shapes"] = json.dumps([one.shape for one in inputs])
        op["input_dtypes"] = json.dumps(["float"] * len(inputs))
        return made

    def wide(self, schema: str, inputs: list[T], name: str, kept: bool = False) -> T:
        return self.call(schema, inputs, name, self.rows, self.words, kept=kept)

    def head(self, name: str = "logits", kept: bool = False) -> T:
        return self.wide(
            MM, [self.tensor("hidden", self.rows, WIDTH), self.tensor("weight", WIDTH, self.words)], name, kept
        )

    def backward(self, schema: str, inputs: list[T], name: str, *shape: int) -> T:
        with self.program.inside("autograd::engine::evaluate_function: Backward0", kernels=0, joined=False):
            return self.call(schema, inputs, name, *shape)

    def loss(self, logits: T) -> None:
        """Cross-entropy, its gradient, and the products of the head's backward pass."""
        labels, log = self.tensor("labels", self.rows), self.wide(LOG_SOFTMAX, [logits], "log")
        loss = self.call(NLL, [log, labels], "loss")
        wide = (self.rows, self.words)
        of_log = self.backward(NLL_BACKWARD, [loss, log, labels], "of log", *wide)
        gradient = self.backward(LOG_SOFTMAX_BACKWARD, [of_log, log], "gradient", *wide)
        self.backward(MM, [gradient, self.tensor("weight'", self.words, WIDTH)], "of hidden", self.rows, WIDTH)
        turned = T(gradient.storage, (self.words, self.rows), (1, self.words))
        self.backward(MM, [turned, self.tensor("hidden", self.rows, WIDTH)], "of weight", self.words, WIDTH)

    @property
    def activities(self) -> Rows:
        return analysed(self.program.timeline()).rows["activities"]

    @property
    def uses(self) -> list[str | None]:
        """What the logits that each activity of the second step works on are for; None: it works on none."""
        rows = self.activities
        column: Categories = category(rows, "logits_use")
        found = [column.values[code] if code >= 0 else None for code in column.codes.tolist()]
        count = len(found) // 3
        return found[count : 2 * count]
