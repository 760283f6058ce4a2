"""Work that gives the same in every step: what is told, what is not, and that doing it once changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.flow.programs import ADD, ADD_, COPY_, RELU, Program, T
from tracemine.causes.loop_invariant.columns import COLUMNS
from tracemine.flow import flow
from tracemine.fusion import groups
from tracemine.rows import row_sets
from tracemine.rows.table import Categories, Numbers
from tracemine.timeline import Timeline

FILL_ = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
RANDOM_ = "aten::normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)"
MUL = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
SIN = "aten::sin(Tensor self) -> Tensor"
TRIU = "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor"
VAR = "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
LINEAR = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
MASKED_FILL = "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"
CONVOLUTION = (
    "aten::cudnn_convolution(Tensor self, Tensor weight, SymInt[] padding, SymInt[] stride, SymInt[] dilation, "
    "SymInt groups, bool benchmark, bool deterministic, bool allow_tf32) -> Tensor"
)
PLAIN = ("[1]", "[1]", "[1]", "1", "False", "False", "True")  # a convolution's other arguments
NUMBER = T("number", (), (), device="cpu")


class Loop(Program):
    """A program whose calls have recorded arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, str] = {}

    def op(self, schema: str, takes: Sequence[T], gives: T, *scalars: str, kernels: int = 1) -> T:
        """A call that gives one tensor, its numbers behind its tensors."""
        self.call(schema, takes, [gives], kernels=kernels, concrete=[*("" for _ in takes), *scalars])
        self.record(takes, scalars)
        return gives

    def filled(self, tensor: T, value: float) -> T:
        """A new tensor of a constant."""
        self.allocate(tensor)
        return self.op(FILL_, [tensor], tensor, str(value))

    def record(self, takes: Sequence[T], scalars: Sequence[str]) -> None:
        op = self.trace.rows["ops"][-1]
        kinds = [*(self.dtypes.get(each.storage, "float") for each in takes), *("Scalar" for _ in scalars)]
        op["input_dtypes"] = json.dumps(kinds)
        op["input_shapes"] = json.dumps([*(list(each.shape) for each in takes), *([] for _ in scalars)])

    def recorded(self) -> Timeline:
        """The timeline, with the tensors' dtypes."""
        for tensor in self.trace.rows["tensors"]:
            name = next((name for name, number in self.storages.items() if number == tensor["storage_id"]), "")
            tensor["dtype"] = self.dtypes.get(name, "float")
        return self.timeline()

    def told(self, fused: bool) -> dict[str, tuple[str, str]]:
        """Of each operator that launched something what its work gives and how sure that is, where it is the same in
        every step; operators as `Program.labels` names them. `fused`: where fusion groups are known."""
        timeline = self.recorded()
        found = flow(timeline)
        grouped = groups(found) if fused else None
        columns = row_sets(timeline, grouped, dataflow=found, columns=[COLUMNS])["activities"].columns
        names = self.labels(timeline, found)
        kind, sure, piece = (columns[f"invariant{more}"] for more in ("_kind", "_evidence", ""))
        assert isinstance(kind, Categories)
        assert isinstance(sure, Categories)
        assert isinstance(piece, Numbers)
        valid = [True] * len(piece.values) if piece.valid is None else piece.valid.tolist()
        return {
            names[node]: (kind.values[kind.codes[row]], sure.values[sure.codes[row]])
            for row, node in enumerate(found.activity_node.tolist())
            if valid[row]
        }


def looped(step: Callable[[Loop, int], None], steps: int = 2, *, fused: bool = False) -> dict[str, tuple[str, str]]:
    """What is told of so many steps."""
    loop = Loop()
    for number in range(steps):
        loop.step()
        step(loop, number)
    return loop.told(fused)


def batch(loop: Loop, number: int) -> T:
    """What a step is given: two batches in turn."""
    return loop.tensor(f"batch{number % 2}", 4, 4)


def weight_of(step: Callable[[Loop, T], T]) -> Callable[[Loop, int], None]:
    """A step in which a convolution takes what is made of the parameter `w` as its weight."""

    def whole(loop: Loop, number: int) -> None:
        made = step(loop, loop.tensor("w", 4, 4))
        loop.op(CONVOLUTION, [batch(loop, number), made], loop.tensor("out", 4, 4), *PLAIN)

    return whole


def standardised(loop: Loop, weight: T) -> T:
    spread = loop.op(VAR, [weight], loop.tensor("spread", 4, 4), "[1]", "0", "True")
    return loop.op(MUL, [weight, spread], loop.tensor("ready", 4, 4))


def test_a_weight_that_is_computed_of_parameters_alone_is_told_with_all_that_makes_it() -> None:
    found = looped(weight_of(standardised))
    assert found.keys() == {"var", "mul", "var#1", "mul#1"}
    assert set(found.values()) == {("standardised weight", "proven")}


def test_one_step_tells_nothing() -> None:
    assert not looped(weight_of(standardised), steps=1)


def test_a_parameter_that_a_step_updates_makes_no_weight_that_could_be_kept() -> None:
    def step(loop: Loop, number: int) -> None:
        weight_of(standardised)(loop, number)
        weight = loop.tensor("w", 4, 4)
        loop.op(ADD_, [weight, loop.tensor("out", 4, 4)], weight, "1")

    assert not looped(step)


def test_what_is_made_of_the_batch_is_not_told_and_neither_is_a_layer_s_result() -> None:
    def of_batch(loop: Loop, number: int) -> None:
        made = loop.op(RELU, [batch(loop, number)], loop.tensor("made", 4, 4))
        loop.op(CONVOLUTION, [batch(loop, number), made], loop.tensor("out", 4, 4), *PLAIN)

    def of_network(loop: Loop, number: int) -> None:
        x, weight = loop.tensor("same", 4, 4), loop.tensor("w", 4, 4)
        made = loop.op(CONVOLUTION, [x, weight], loop.tensor("made", 4, 4), *PLAIN)
        loop.op(CONVOLUTION, [batch(loop, number), made], loop.tensor("out", 4, 4), *PLAIN)

    assert not looped(of_batch)
    assert not looped(of_network)


def test_with_one_input_for_all_steps_only_what_is_used_as_a_weight_is_told() -> None:
    def step(loop: Loop, number: int, same: bool) -> None:
        x = loop.tensor("same", 4, 4) if same else batch(loop, number)
        scaled = loop.op(SIN, [loop.tensor("table", 4, 4)], loop.tensor("scaled", 4, 4))
        mixed = loop.op(ADD, [x, scaled], loop.tensor("mixed", 4, 4), "1")
        ready = loop.op(RELU, [loop.tensor("w", 4, 4)], loop.tensor("ready", 4, 4))
        loop.op(CONVOLUTION, [mixed, ready], loop.tensor("out", 4, 4), *PLAIN)

    found = looped(lambda loop, number: step(loop, number, same=True))
    assert found == {"relu": ("weight", "proven"), "relu#1": ("weight", "proven")}
    found = looped(lambda loop, number: step(loop, number, same=False))
    assert found["sin"] == ("sine table", "consistent"), "an input may stay for these steps by chance"
    assert found["relu"] == ("weight", "proven")
    assert "add" not in found


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (lambda loop, number: _on_host(loop, ("aten::arange", "0", "160", "1")), False),
        (lambda loop, number: _on_host(loop, ("aten::ones", "[160]"), ("aten::triu", "1")), False),
        (lambda loop, number: _on_host(loop, ("aten::arange", str(number), str(number + 160), "1")), True),
        (lambda loop, number: _on_host(loop, ("aten::randn", "[160]")), True),
        (lambda loop, number: _on_host(loop, ("aten::empty", "[160]")), True),
        (lambda loop, number: loop.tensor("loaded", 160, device="cpu"), True),
    ],
    ids=("places", "a mask", "places that move on", "noise", "filled by Python", "a batch"),
)
def test_a_copy_of_what_the_host_makes_of_constants_is_no_batch(made: Callable[[Loop, int], T], given: bool) -> None:
    def step(loop: Loop, number: int) -> None:
        loop.call("aten::to(Tensor self) -> Tensor", [made(loop, number)], [loop.tensor("moved", 160)], kernels=0)
        loop.trace.copy("HtoD", loop.now, 5, 640, op=loop.trace.rows["ops"][-1], step_row=loop.step_row)
        loop.now += 10
        scaled = loop.op(SIN, [loop.tensor("table", 4, 4)], loop.tensor("scaled", 4, 4))
        mixed = loop.op(ADD, [loop.tensor("moved", 160), scaled], loop.tensor("mixed", 4, 4), "1")
        loop.op(RELU, [mixed], loop.tensor("out", 4, 4))

    assert ("sin" in looped(step)) == given


def _on_host(loop: Loop, *calls: tuple[str, ...]) -> T:
    """What calls give on the host, each of what the one before gave: their names and numbers."""
    given = list[T]()
    for at, (name, *numbers) in enumerate(calls):
        result = loop.tensor(f"host{at}", 160, device="cpu")
        loop.call(f"{name}(Tensor self) -> Tensor", given, [result], kernels=0, concrete=numbers)
        given = [result]
    return given[0]


def test_ids_that_stay_are_taken_for_an_input() -> None:
    def step(loop: Loop, number: int) -> None:
        loop.dtypes["ids"] = "long int"
        table = loop.op(SIN, [loop.tensor("ids", 4, 4)], loop.tensor("table", 4, 4))
        loop.op(ADD, [batch(loop, number), table], loop.tensor("out", 4, 4), "1")

    assert not looped(step)


def test_a_mask_of_constants_is_told_where_it_is_read_by_what_changes() -> None:
    def step(loop: Loop, number: int) -> None:
        ones = loop.filled(loop.tensor("ones", 4, 4), 1)
        upper = loop.op(TRIU, [ones], loop.tensor("upper", 4, 4), "1")
        loop.op(MM, [upper, batch(loop, number)], loop.tensor("out", 4, 4))

    found = looped(step, fused=True)
    assert found.keys() == {"fill_", "triu", "fill_#1", "triu#1"}
    assert set(found.values()) == {("mask", "proven")}


def test_what_one_kernel_does_with_longer_work_of_the_step_is_left_to_it() -> None:
    def step(loop: Loop, number: int) -> None:
        ones = loop.filled(loop.tensor("ones", 4, 4), 1)
        upper = loop.op(TRIU, [ones], loop.tensor("upper", 4, 4), "1")
        loop.op(MASKED_FILL, [batch(loop, number), upper], loop.tensor("out", 4, 4), "-inf", kernels=longer)

    longer = 1  # kernels, of 5 ns each
    assert looped(step, fused=True)
    longer = 3
    assert not looped(step, fused=True)
    assert looped(step)


def test_a_whole_number_that_is_taken_off_a_packed_weight_is_no_place() -> None:
    def step(loop: Loop, number: int) -> None:
        loop.dtypes |= {"number": "long int", "packed": "unsigned char"}
        centred = loop.op(ADD, [loop.tensor("packed", 4, 4), NUMBER], loop.tensor("centred", 4, 4), "1")
        ready = loop.op(MUL, [centred, loop.tensor("scale", 4, 4)], loop.tensor("ready", 4, 4))
        loop.op(CONVOLUTION, [batch(loop, number), ready], loop.tensor("out", 4, 4), *PLAIN)

    found = looped(step)
    assert found["add"] == found["mul"] == ("dequantised weight", "consistent")


def test_a_fill_is_told_where_it_takes_longer_than_its_launch() -> None:
    def step(loop: Loop, number: int) -> None:
        zeros = loop.tensor("zeros", 4, 4)
        loop.allocate(zeros)
        loop.op(FILL_, [zeros], zeros, "0", kernels=kernels)
        loop.op(MM, [batch(loop, number), zeros], loop.tensor("out", 4, 4))

    kernels = 1  # of 5 ns each
    assert not looped(step)
    kernels = 900
    assert set(looped(step).values()) == {("constant", "proven")}


def random(loop: Loop) -> T:
    drawn = loop.tensor("ones", 4, 4)
    return loop.op(RANDOM_, [drawn], drawn, "0", "1")


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("another number in each step", lambda loop, number: loop.filled(loop.tensor("ones", 4, 4), number)),
        ("random numbers", lambda loop, number: random(loop)),
        ("other sizes", lambda loop, number: loop.filled(loop.tensor("ones", 4, 4 + number), 1)),
    ],
)
def test_what_differs_is_not_told(why: str, change: Callable[[Loop, int], T]) -> None:
    def step(loop: Loop, number: int) -> None:
        loop.allocate(loop.tensor("ones", 4, 4))
        table = loop.op(SIN, [change(loop, number)], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    assert not looped(step), why


@pytest.mark.parametrize(
    ("schema", "dtype", "told"),
    [
        (MUL, "double", "consistent"),
        (ADD, "double", "consistent"),
        (MUL, "long int", "consistent"),
        (ADD, "long int", ""),
    ],
)
def test_a_whole_number_that_is_added_may_be_a_place_that_moves_on(schema: str, dtype: str, told: str) -> None:
    def step(loop: Loop, number: int) -> None:
        loop.dtypes["number"] = dtype
        places = loop.filled(loop.tensor("places", 4, 4), 1)
        moved = loop.op(schema, [places, NUMBER], loop.tensor("moved", 4, 4), *(["1"] if schema == ADD else []))
        table = loop.op(SIN, [moved], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    found = looped(step)
    assert found.get("sin") == (("sine table", told) if told else None)


def test_a_tensor_from_the_host_is_a_new_one_each_time() -> None:
    def step(loop: Loop, number: int) -> None:
        host = T("host", (4, 4), (4, 1), device="cpu")
        here = loop.tensor("here", 4, 4)
        loop.allocate(here)
        loop.op(COPY_, [here, host], here, "False")
        table = loop.op(SIN, [here], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    assert not looped(step)


def test_zeros_into_which_a_step_adds_have_to_be_filled_each_time() -> None:
    def step(loop: Loop, number: int) -> None:
        zeros = loop.filled(loop.tensor("zeros", 4, 4), 0)
        table = loop.op(SIN, [zeros], loop.tensor("table", 4, 4))
        loop.op(ADD_, [zeros, batch(loop, number)], zeros, "1")
        loop.op(MM, [zeros, table], loop.tensor("out", 4, 4))

    assert looped(step).keys() == {"sin", "sin#1"}


def test_zeros_that_are_filled_from_outside_are_no_constant() -> None:
    """A padded batch: what goes into it may be another in the next step."""

    def step(loop: Loop, number: int, outside: bool) -> None:
        padded = loop.filled(loop.tensor("padded", 4, 4), 0)
        part = loop.tensor("sound", 8) if outside else loop.filled(loop.tensor("ones", 8), 1)
        waves = part if outside else loop.op(SIN, [part], loop.tensor("waves", 8))
        loop.op(COPY_, [padded.part(0, 8), waves], padded.part(0, 8), "False")
        loop.op(CONVOLUTION, [padded, loop.tensor("w", 4, 4)], loop.tensor("out", 4, 4), *PLAIN)

    assert not looped(lambda loop, number: step(loop, number, outside=True))
    assert {"sin", "copy_"} < looped(lambda loop, number: step(loop, number, outside=False)).keys()


def rounds(
    loop: Loop, number: int, *, turns: int = 5, between: Callable[[Loop, T, T, T], None] = lambda *_: None
) -> None:
    """A step that goes on from its own result, by what a scene gives: read anew in each turn."""
    scene, state = loop.filled(loop.tensor("scene", 4, 4), number), batch(loop, number)
    scene = loop.op(MM, [scene, batch(loop, number)], loop.tensor("seen", 4, 4))
    for turn in range(turns):
        known = loop.op(MM, [scene, loop.tensor("w", 4, 4)], loop.tensor(f"known{turn}", 4, 4))
        known = loop.op(SIN, [known], loop.tensor(f"read{turn}", 4, 4))
        state = loop.op(ADD, [state, known], loop.tensor(f"state{turn}", 4, 4), "1")
        between(loop, scene, known, state)


def test_what_was_computed_before_in_a_step_is_told_but_for_the_first_time() -> None:
    found = looped(rounds)
    per_step = [name for name in found if found[name][0] == "repeated"]
    assert sorted(per_step) == sorted(f"{name}#{at}" for name, first in (("mm", 2), ("sin", 1)) for at in MORE[first])


MORE = {1: (1, 2, 3, 4, 6, 7, 8, 9), 2: (2, 3, 4, 5, 8, 9, 10, 11)}  # of calls of the two steps


def written(loop: Loop, tensor: T) -> None:
    loop.op(ADD_, [tensor, loop.tensor("w", 4, 4)], tensor, "1")


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("three times only", {"turns": 3}),
        ("the scene is written in between", {"between": lambda loop, scene, known, state: written(loop, scene)}),
        ("the result is written into", {"between": lambda loop, scene, known, state: written(loop, known)}),
        ("the weight is", {"between": lambda loop, scene, known, state: written(loop, loop.tensor("w", 4, 4))}),
    ],
)
def test_what_may_have_become_another_is_not_told_as_computed_before(why: str, how: Any) -> None:
    found = looped(lambda loop, number: rounds(loop, number, **how))
    assert not any(kind == "repeated" and name.startswith("sin") for name, (kind, _) in found.items()), why


@pytest.mark.parametrize(
    ("dtype", "module", "told"),
    [
        ("double", "Net_0.Layer_{}", True),
        ("double", "Net_0.Layer_0", False),  # a loop within one module: sines of several frequencies
        ("double", "", False),
        ("double", "Net_0.Layer{}_0", False),  # of classes of their own
        ("long int", "Net_0.Layer_{}", False),  # dilations
        ("", "Net_0.Layer_{}", True),  # a constant
        ("", "Net_0.Layer_0", False),
    ],
)
def test_what_is_scaled_is_told_as_computed_before_where_layers_of_a_class_do_it(
    dtype: str, module: str, told: bool
) -> None:
    def step(loop: Loop, number: int) -> None:
        loop.dtypes["number"] = dtype
        scene, state = loop.filled(loop.tensor("scene", 4, 4), number), batch(loop, number)
        scene = loop.op(MM, [scene, batch(loop, number)], loop.tensor("seen", 4, 4))
        for turn in range(4):
            factor = NUMBER if dtype else loop.filled(loop.tensor(f"ones{turn}", 4, 4), 1)
            loop.trace.rows["ops"][-1]["module"] = module.format(turn) or None
            known = loop.op(MUL, [scene, factor], loop.tensor(f"scaled{turn}", 4, 4))
            loop.trace.rows["ops"][-1]["module"] = module.format(turn) or None
            known = loop.op(SIN, [known], loop.tensor(f"read{turn}", 4, 4))
            state = loop.op(ADD, [state, known], loop.tensor(f"state{turn}", 4, 4), "1")

    found = looped(step)
    assert found.get("sin#1") == (("repeated", "consistent" if dtype else "proven") if told else None)


@pytest.mark.parametrize("within", [False, True])
def test_what_an_operator_makes_for_itself_alone_is_not_told_as_computed_before(within: bool) -> None:
    def step(loop: Loop, number: int) -> None:
        scene, state = loop.filled(loop.tensor("scene", 4, 4), number), batch(loop, number)
        scene = loop.op(MM, [scene, batch(loop, number)], loop.tensor("seen", 4, 4))
        for turn in range(4):
            with (
                loop.inside("aten::scaled_dot_product_attention", kernels=0, joined=False) if within else nullcontext()
            ):
                known = loop.op(SIN, [scene], loop.tensor(f"read{turn}", 4, 4))
                state = loop.op(ADD, [state, known], loop.tensor(f"state{turn}", 4, 4), "1")

    assert ("sin#1" in looped(step)) is not within


ITEM = "aten::_local_scalar_dense(Tensor self) -> Scalar"


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (("fetched", "part"), False),  # which part that is may have been fetched
        (("fetched", "whole"), True),
        (("part", "fetched"), True),
        (("part",), True),
    ],
)
def test_a_part_that_is_written_behind_a_fetch_may_be_another_one_in_another_step(
    order: Sequence[str], told: bool
) -> None:
    def step(loop: Loop, number: int) -> None:
        counts = loop.filled(loop.tensor("counts", 4, 4), 1)
        for what in order:
            if what == "fetched":
                loop.op(ITEM, [batch(loop, number)], loop.tensor("host", 4, 4, device="cpu"))
                loop.trace.rows["activities"][-1] |= {"kind": "memcpy", "copy_kind": "DtoH"}
            else:
                chosen = counts.part(4, 4) if what == "part" else counts
                loop.op(FILL_, [chosen], chosen, "2")
        table = loop.op(SIN, [counts], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    assert ("sin" in looped(step)) == told


def test_what_is_written_into_memory_from_outside_others_may_count_on() -> None:
    def step(loop: Loop, number: int) -> None:
        kept = loop.tensor("kept", 4, 4)
        loop.op(FILL_, [kept], kept, "1")
        table = loop.op(SIN, [kept], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    assert not looped(step)


@pytest.mark.parametrize("when", ["before", "between"])
def test_what_is_not_known_may_have_written(when: str) -> None:
    def step(loop: Loop, number: int) -> None:
        if when == "before":
            loop.call("my::unknown", joined=False)
        ones = loop.filled(loop.tensor("ones", 4, 4), 1)
        table = loop.op(SIN, [ones], loop.tensor("table", 4, 4))
        if when == "between":
            loop.call("my::unknown", joined=False)
        ready = loop.op(RELU, [loop.tensor("w", 4, 4)], loop.tensor("ready", 4, 4))
        loop.op(MM, [table, batch(loop, number)], loop.tensor("mixed", 4, 4))
        loop.op(CONVOLUTION, [loop.tensor("mixed", 4, 4), ready], loop.tensor("out", 4, 4), *PLAIN)

    found = looped(step)
    assert "relu" not in found, "it may have written the parameter"
    assert ("sin" in found) == (when == "before"), "the table is made anew behind it"


def test_a_product_s_weight_is_told_within_linear_only() -> None:
    def step(loop: Loop, number: int, inside: bool) -> None:
        x, out = loop.tensor("same", 4, 4), loop.tensor("out", 4, 4)
        ready = loop.op(RELU, [loop.tensor("w", 4, 4)], loop.tensor("ready", 4, 4))
        if not inside:
            loop.op(MM, [x, ready], out)
            return
        with loop.inside(LINEAR, [x, ready], [out], kernels=0):
            loop.op(MM, [x, ready], out)

    assert looped(lambda loop, number: step(loop, number, inside=True)).keys() == {"relu", "relu#1"}
    assert not looped(lambda loop, number: step(loop, number, inside=False))


@pytest.mark.parametrize("updates", [True, False])
def test_in_training_without_an_update_parameters_may_change_later(updates: bool) -> None:
    def step(loop: Loop, number: int) -> None:
        weight_of(standardised)(loop, number)
        with loop.inside("autograd::engine::evaluate_function: MulBackward0", kernels=0, joined=False):
            loop.op(RELU, [loop.tensor("out", 4, 4)], loop.tensor("grad", 4, 4))
        if updates:
            other = loop.tensor("other", 4, 4)
            loop.op(ADD_, [other, loop.tensor("grad", 4, 4)], other, "1")

    assert bool(looped(step)) is updates, "what an update in each step leaves alone is frozen"


# --- doing it once changes nothing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One line of a small program: an operator, what it takes, and the tensor that it makes or writes into."""

    op: str  # fill, random, relu, add, conv, or add_ and copy_, which write in place
    takes: tuple[str, ...]
    gives: str
    number: int = 0


IN_PLACE = ("add_", "copy_")
SCHEMAS = {
    "relu": RELU,
    "add": ADD,
    "conv": CONVOLUTION,
    "add_": ADD_,
    "copy_": COPY_,
    "fill": FILL_,
    "random": RANDOM_,
}
SCALARS: dict[str, tuple[str, ...]] = {"add": ("1",), "add_": ("1",), "conv": PLAIN, "copy_": ("False",)}
OUTSIDE = ("batch", "same", "w", "v")  # before the loop; `batch` is another one in each step


@st.composite
def programs(draw: st.DrawFn) -> list[Call]:
    """The lines of a step, each of which reads what is there."""
    lines: list[Call] = []
    there = list(OUTSIDE)
    for at in range(draw(st.integers(2, 9))):
        op = draw(st.sampled_from((*SCHEMAS, "relu", "add", "conv", "fill", "fill")))
        one, two = (draw(st.sampled_from(there)) for _ in range(2))
        made = f"t{at}"
        if op in ("fill", "random"):
            lines.append(Call(op, (), made, draw(st.integers(0, 1))))
        elif op in IN_PLACE:
            made = draw(st.sampled_from(there[1:]))
            lines.append(Call(op, (made, two), made))
        else:
            lines.append(Call(op, (one,) if op == "relu" else (one, two), made))
        if made not in there:
            there.append(made)
    return lines


@dataclass
class Cell:
    """A storage, and what is in it."""

    value: object


@dataclass
class Machine:
    """Runs a step's lines with values that say how they were computed."""

    cells: dict[str, Cell] = field(default_factory=dict)
    drawn: int = 0

    def run(self, line: Call, step: int) -> object:
        """What the line writes."""
        names = [f"batch{step}" if name == "batch" else name for name in line.takes]
        takes = [self.cells.setdefault(name, Cell(name)) for name in names]
        self.drawn += 1
        value: object = (line.op, line.number, *(each.value for each in takes))
        if line.op == "random":
            value = ("random", self.drawn)
        elif line.op == "copy_":
            value = ("copy_", takes[1].value)
        if line.op in IN_PLACE:
            takes[0].value = value
        else:
            self.cells[line.gives] = Cell(value)
        return value


def run(lines: list[Call], once: set[int], steps: int) -> list[list[object]]:
    """What each line writes in each step, where the lines of `once` run in the first step only."""
    machine, written = Machine(), []
    for step in range(steps):
        now = []
        for at, line in enumerate(lines):
            machine.drawn = 100 * step + at
            now.append(None if step and at in once else machine.run(line, step))
        written.append(now)
    return written


def told_of(lines: list[Call], steps: int) -> set[int]:
    """Lines of which every step is told to do the same."""
    loop = Loop()
    for step in range(steps):
        loop.step()
        for line in lines:
            takes = [loop.tensor(f"batch{step}" if name == "batch" else name, 4, 4) for name in line.takes]
            gives = loop.tensor(line.gives, 4, 4)
            if line.op in ("fill", "random"):
                loop.allocate(gives)
                takes = [gives]
            scalars = (str(line.number),) if line.op == "fill" else ("0", "1") if line.op == "random" else ()
            loop.op(SCHEMAS[line.op], takes, gives, *scalars, *SCALARS.get(line.op, ()))
    timeline = loop.timeline()
    found = row_sets(timeline, dataflow=flow(timeline), columns=[COLUMNS])["activities"].columns["invariant"]
    assert isinstance(found, Numbers)
    valid = [True] * len(found.values) if found.valid is None else found.valid.tolist()
    every = [{at for at in range(len(lines)) if valid[step * len(lines) + at]} for step in range(steps)]
    assert all(one == every[0] for one in every), "each step tells the same lines"
    return every[0]


@settings(max_examples=100, deadline=None)
@example([Call("fill", (), "t0"), Call("copy_", ("t0", "w"), "t0"), Call("add", ("batch", "t0"), "t1")], 2)
@example([Call("fill", (), "t0"), Call("add", ("batch", "t0"), "t1"), Call("add_", ("t0", "same"), "t0")], 2)
@given(programs(), st.integers(2, 3))
def test_what_is_told_can_be_done_in_the_first_step_alone(lines: list[Call], steps: int) -> None:
    once = told_of(lines, steps)
    before, after = run(lines, set(), steps), run(lines, once, steps)
    for step in range(steps):
        for at in range(len(lines)):
            assert after[step][at] == before[step][at] or (step and at in once), (lines, once)


@settings(max_examples=100, deadline=None)
@example([Call("fill", (), "t0"), Call("relu", ("t0",), "t1"), Call("add", ("batch", "t1"), "t2")])
@given(programs())
def test_what_is_made_of_constants_and_read_by_what_changes_is_told(lines: list[Call]) -> None:
    """All of it: the greatest set of such lines that can be done once, found by trying."""
    written = run(lines, set(), 2)
    made = [line.op not in IN_PLACE and line.op != "conv" for line in lines]
    touched = {line.gives for line in lines if line.op in IN_PLACE}
    fixed: set[str] = set()
    same = set[int]()
    for at, line in enumerate(lines):
        if made[at] and line.op != "random" and line.gives not in touched and fixed.issuperset(line.takes):
            fixed.add(line.gives)
            same.add(at)
            assert written[0][at] == written[1][at]
    changing = [line for at, line in enumerate(lines) if written[0][at] != written[1][at]]
    wanted = {name for line in changing for name in line.takes}
    computed = set[int]()
    for at in sorted(same, reverse=True):
        if lines[at].gives in wanted:
            computed.add(at)
            wanted |= set(lines[at].takes)
    told = told_of(lines, 2)
    filled = {at for at in computed if lines[at].op == "fill"}
    assert computed - filled <= told, (lines, told)


def test_the_machine_sees_what_cannot_be_done_once() -> None:
    zeros = [Call("fill", (), "t0"), Call("add_", ("t0", "batch"), "t0")]
    before, after = run(zeros, set(), 2), run(zeros, {0}, 2)
    assert after[1][1] != before[1][1], "what is kept has been added to"
    random = [Call("random", (), "t0"), Call("relu", ("t0",), "t1")]
    assert run(random, {0}, 2)[1][1] != run(random, set(), 2)[1][1]
