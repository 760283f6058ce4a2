"""What else of the project has to know an operator of `operators.toml`: each test says what to add where it fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codegen.catalogue import CATALOGUE
from tests.codegen.test_operators import CASES, CHAINS, case
from tracemine.codegen import Graph
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.operators import PointwiseRow, expression, table
from tracemine.ops import lookup
from tracemine.ops.facts import FLOPS_PER_ELEMENT, STEPS

ROOT = Path(__file__).parents[2]
HERE = "tests/codegen/test_operator_table.py"
# Names that calls have: other rows are what rules build with.
OPERATORS = {name: row for row in table().pointwise for name in row.ops if lookup(f"aten::{name}") is not None}

# No call of it can be made: it has no rule in tracemine/ops/infer/outputs.toml.
NO_CASE = {"_masked_scale"}

# Not in [flops_per_element]: an element counts as one operation. Of these it is one, or two where numbers are given …
ONE_OPERATION = """
add sub subtract rsub mul multiply div divide true_divide floor_divide reciprocal neg negative abs absolute square exp
exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh erf erfc erfinv lgamma acos asin atan sinh cosh acosh asinh
atanh atan2 hypot relu leaky_relu maximum minimum fmax fmin clamp_min clamp_max clamp clip hardtanh floor ceil trunc
round sign sgn isnan isinf isposinf isneginf isfinite eq ne lt le gt ge logical_not logical_and logical_or logical_xor
bitwise_left_shift __lshift__ bitwise_right_shift __rshift__ bitwise_xor __xor__ bitwise_and __and__ bitwise_or __or__
where masked_fill remainder frac threshold _prelu_kernel _masked_scale hardshrink leaky_relu_backward hardtanh_backward
hardshrink_backward softshrink_backward
"""
# … and of these it is more: their arithmetic is counted too low.
COUNTED_TOO_LOW = """
elu hardsigmoid hardswish softshrink logaddexp xlogy log_sigmoid_forward log_sigmoid_backward mish_backward
hardsigmoid_backward hardswish_backward softplus_backward
"""

# More than 1 ulp in operators.toml, and yet taken for exact in roundings.py, which is the stricter of the two: the
# results of each pass all the same, in float32, in tests/codegen/test_operators.py.
TAKEN_FOR_EXACT = {
    **dict.fromkeys(("divide", "true_divide"), "eager calls div for them, which is there"),
    **dict.fromkeys(("sigmoid_backward", "tanh_backward", "lerp"), "products and sums, rounded on the way as eager's"),
    **dict.fromkeys(("hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward"), "a division by 6 or 3"),
    **dict.fromkeys(("elu", "mish", "logaddexp", "xlogy"), "by several functions, none of which has needed it"),
    **dict.fromkeys(("silu_backward", "mish_backward", "softplus_backward"), "as the functions that they are of"),
    **dict.fromkeys(("log_sigmoid_forward", "log_sigmoid_backward"), "as the functions that they are of"),
}
# Inexact in roundings.py, and 0 ulp in operators.toml.
EXACT_HERE_ALONE = {"sqrt": "eager's may be CUDA's approximation; what is generated rounds correctly"}


def exercised() -> Iterator[Graph]:
    """Every graph that is proved on each run of the tests."""
    yield from (make() for make in CATALOGUE.values())
    yield from map(case, CASES)
    yield from (make() for make in CHAINS)


@pytest.fixture(scope="module")
def used() -> tuple[set[str], set[str]]:
    """Operators that the graphs call, and names of expressions that they become."""
    graphs = [*exercised()]
    names = {call.operator.removeprefix("aten::") for graph in graphs for call in graph.calls}
    return names, {part for graph in graphs for name in lower(graph).operations for part in re.split(" [&|+] ", name)}


def _is_used(row: PointwiseRow, names: set[str], operations: set[str]) -> bool:
    called = {name + end for name in row.ops if name in OPERATORS for end in ("", "_")}
    return not called.isdisjoint(names) if called else row.operation in operations


def test_every_name_has_an_expression() -> None:
    named = {name for row in table().pointwise for name in (row.operation, row.short) if name is not None}
    rows = [row.operation for row in table().pointwise if row.expr]
    assert all(expression(name).expr for name in named | {*table().powers.values()})
    assert len({*rows, *table().expressions}) == len(rows) + len(table().expressions), "two have one name"
    code = "".join(path.read_text("utf-8") for path in (ROOT / "tracemine" / "codegen").rglob("*.py"))
    used = {*re.findall(r"\w+", code)} | named | {*table().powers.values()}
    assert not table().expressions.keys() - used, "no rule builds with it"


def test_every_row_has_a_case(used: tuple[set[str], set[str]]) -> None:
    lacking = {row.ops[0] for row in table().pointwise if not _is_used(row, *used)} - NO_CASE
    assert not lacking, f"no test calls {sorted(lacking)}: add a line to CASES in tests/codegen/test_operators.py"
    assert all(not _is_used(OPERATORS[name], *used) for name in NO_CASE), f"take it out of NO_CASE in {HERE}"


def test_every_power_and_every_operator_over_lists_has_a_case(used: tuple[set[str], set[str]]) -> None:
    names, operations = used
    powers = [exponent for exponent, power in table().powers.items() if power not in operations]
    lists = [name for name in table().foreach if names.isdisjoint({f"_foreach_{name}", f"_foreach_{name}_"})]
    assert not powers, f"no test raises a number to {powers}: add a line to CASES in tests/codegen/test_operators.py"
    assert not lists, f"no test calls _foreach_ {lists}: add it to lists_in_place in tests/codegen/test_operators.py"


def test_every_operator_says_what_an_element_facts() -> None:
    lacking = OPERATORS.keys() - STEPS.keys()
    assert not lacking, (
        f"{sorted(lacking)}: add to [steps] in tracemine/ops/facts.toml, at a function that takes as many "
        "instructions, or where one or two do to simple"
    )


def test_every_operator_says_how_many_operations_an_element_takes() -> None:
    stated, excused = FLOPS_PER_ELEMENT.keys(), {*ONE_OPERATION.split(), *COUNTED_TOO_LOW.split()}
    lacking = OPERATORS.keys() - stated - excused
    assert not lacking, f"{sorted(lacking)}: add to [flops_per_element] in tracemine/ops/facts.toml"
    assert not excused & stated, f"{sorted(excused & stated)}: has a row now; take it out of the lists in {HERE}"


def test_functions_whose_last_bits_may_be_off_are_known_to_the_check_of_results() -> None:
    torch = pytest.importorskip("torch")
    roundings = pytest.importorskip("tracemine.validate.roundings")
    number = torch.tensor([1.5])
    inexact = {name for name in OPERATORS if roundings.rounded_off(number, number, name=name) is not None}
    generated = {name for name, row in OPERATORS.items() if row.ulp > 1}  # 1: a product that is rounded with its sum
    lacking = generated - inexact - TAKEN_FOR_EXACT.keys()
    assert not lacking, (
        f"{sorted(lacking)}: more than 1 ulp in operators.toml. Add to _INEXACT in tracemine/validate/roundings.py, "
        f"or with a reason to TAKEN_FOR_EXACT in {HERE}"
    )
    settled = TAKEN_FOR_EXACT.keys() - (generated - inexact)
    assert not settled, f"{sorted(settled)}: the two agree; take it out of TAKEN_FOR_EXACT in {HERE}"
    assert inexact - generated == EXACT_HERE_ALONE.keys(), (
        "operators.toml has 1 ulp at most for it: which one is right?"
    )
