"""A wrong kernel is called the same only where nothing could tell: what is done with the value says so."""

from __future__ import annotations

import re

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.options import CodegenOptions
from tracemine.validate.equivalent_maxima import nan_comes_anyway, nan_comes_otherwise
from tracemine.validate.equivalent_mutants import (
    factor_of_one,
    never_met,
    nothing_beyond,
    picked_elsewhere,
    scaled_away,
    sign_cancels,
)
from tracemine.validate.launcher_mutants import NARROWER, of_extremes, rounded_by_eager
from tracemine.validate.mutants import SAME, mutants_of
from tracemine.validate.sandbox import make_job


def reasons(name: str, kind: str, longest_row: int = 16_384) -> list[str | None]:
    """Of each wrong kernel of a kind, what it needs to differ, or why it does not."""
    chain = CATALOGUE[name]()
    return [
        w.needs
        for w in mutants_of(chain, generate(chain, CodegenOptions(longest_row=longest_row)).text)
        if w.name == kind
    ]


def test_operands_swapped_below_a_square_change_nothing() -> None:
    assert reasons("full_mean", "operands swapped") == [
        f"{SAME}all that is stored has its sign an even number of times"
    ]


def test_operands_swapped_elsewhere_are_a_mistake() -> None:
    b = GraphBuilder("gap")
    x, y = b.input("x", (4, 9), "float32"), b.input("y", (4, 9), "float32")
    chain = b.done(b.call("aten::sub.Tensor", x, y))
    found = [w.needs for w in mutants_of(chain, generate(chain).text) if w.name == "operands swapped"]
    assert found
    assert not any((needs or "").startswith(SAME) for needs in found)


def test_the_mask_of_a_sum_of_zeros_changes_nothing() -> None:
    found = reasons("embedding_scale_norm", "mask of a reduction dropped")
    assert found == [f"{SAME}it is 0 beyond the columns for every finite number"]


def test_the_mask_of_exponentials_does() -> None:
    found = reasons("scale_mask_softmax", "mask of a reduction dropped")
    assert found
    assert not any((needs or "").startswith(SAME) for needs in found)


def test_a_mean_that_is_estimated_twice_may_be_estimated_wrong_once() -> None:
    found = reasons("column_variance", "second operand dropped", 64)
    assert any((needs or "").startswith(f"{SAME}a second estimate") for needs in found)
    assert not all((needs or "").startswith(SAME) for needs in found)


def test_spare_lanes_are_those_of_the_line_s_own_kernel() -> None:
    found = reasons("long_softmax", "rows end one late", 64)
    assert found[0] == "row of long_softmax_kernel_0"
    assert len(set(found)) == len(found)


KERNEL = """def some_kernel(
    x_ptr, y_ptr, where_ptr, out_ptr, rows, columns: tl.constexpr,
):
    column_mask = column < columns
    mask = row_mask & column_mask
    x_1 = tl.load(x_ptr + row * x_s0 + column * x_s1, mask=mask, other=0).to(tl.float32)
    y_1 = tl.load(y_ptr + row * y_s0, mask=row_mask, other=0)
    where_1 = tl.load(where_ptr + row * where_s0, mask=row_mask, other=0)
"""


def kernel(*lines: str) -> tuple[list[str], int]:
    """A kernel's lines, and the place of the first of these."""
    found = [*KERNEL.rstrip().split("\n"), *(f"    {line}" for line in lines)]
    return found, len(found) - len(lines)


def test_a_sign_that_every_product_holds_twice_is_nobodys() -> None:
    twice = (
        "a_1 = x_1 - y_1  # aten::sub",
        "b_1 = a_1 * y_1",
        "c_1 = tl.sum(tl.where(column_mask, b_1, 0), 1)[:, None]",
    )
    store = "tl.store(out_ptr + row * out_s0, d_1.to(tl.bfloat16), mask=mask)"
    assert sign_cancels(*kernel(*twice, "d_1 = c_1 * a_1", store))
    assert not sign_cancels(*kernel(*twice, "d_1 = c_1 * y_1", store))
    assert not sign_cancels(*kernel(*twice, "d_1 = c_1 * a_1 + y_1 * a_1", store))
    assert not sign_cancels(*kernel(*twice, "d_1 = tl.exp(a_1)", store))
    assert not sign_cancels(*kernel(*twice, "d_1 = tl.where(a_1 > 0, x_1, y_1)", store))
    assert not sign_cancels(*kernel("a_1 = x_1 / y_1", "d_1 = a_1 * a_1", store))


def test_what_is_no_number_beyond_the_columns_is_not_taken_for_nothing() -> None:
    places = frozenset({"where"})

    def same(*made: str) -> bool:
        lines, at = kernel(*made, "s_1 = tl.sum(tl.where(column_mask, v_1, 0), 1)[:, None]")
        return nothing_beyond(lines, at + len(made), places)

    assert same("v_1 = x_1 * y_1")
    assert same("a_1 = ((column) == where_1) & (where_1 != 3)", "v_1 = tl.where(a_1, y_1, 0.0)")
    assert not same("a_1 = ((column) == y_1)", "v_1 = tl.where(a_1, y_1, 0.0)"), "no index: it may be any number"
    assert not same("a_1 = ((column) == where_1)", "v_1 = tl.where(a_1, 0.0, y_1)")
    assert not same("v_1 = x_1 + y_1")
    assert not same("v_1 = y_1 / x_1")
    assert not same("v_1 = y_1"), "a row's number is there at every column"
    assert not same("v_1 = tl.exp(x_1)")


def test_the_largest_of_bfloat16_numbers_is_one_and_their_sum_is_not() -> None:
    chain = CATALOGUE["long_softmax"]()
    lines = generate(chain, CodegenOptions(longest_row=64)).text.split("\n")
    stored = {
        name: of_extremes(lines, name, frozenset({"x"})) for name in ("scratch0", "scratch1", "scratch2", "scratch3")
    }
    assert stored == {"scratch0": True, "scratch1": True, "scratch2": False, "scratch3": False}
    assert not any(of_extremes(lines, name, frozenset()) for name in stored), "of wider numbers it is a wider one"


def test_a_sum_that_is_scaled_by_nothing_first_may_begin_anywhere() -> None:
    begin = ("total = tl.full((4, 4), 1.0, tl.float32)", "most = tl.full((4, 4), -float('inf'), tl.float32)")
    assert scaled_away(*kernel(*begin, "total = total * _exp(most - top) + tl.sum(x_1, 2)"))
    assert not scaled_away(*kernel(*begin, "total = total + tl.sum(x_1, 2)"))
    assert not scaled_away(*kernel(*begin, "total = total * _exp(top - most) + tl.sum(x_1, 2)"))


def test_a_largest_number_may_pass_over_nan_where_the_smallest_has_it() -> None:
    found = reasons("long_extremes", "NaN passed over", 64)
    assert found == [f"{SAME}all that is made of it is NaN there by another number, too"] * 2
    assert reasons("token_quant", "NaN passed over") == [None]


def test_nan_comes_by_another_number_only_where_that_is_of_the_same_ones() -> None:
    most, least = "most_1 = _row_max(tl.where(column_mask, x_1, -float('inf')))", "-_row_max(-{})"
    of_x, of_y = (f"tl.where(column_mask, {name}, float('inf'))" for name in ("x_1", "y_1"))
    store = "tl.store(out_ptr + row * out_s0, gap_1, mask=row_mask)"

    def same(least: str, *rest: str) -> bool:
        lines, at = kernel(f"least_1 = {least}", most, *rest)
        return nan_comes_otherwise(lines, at + 1)

    assert same(least.format(of_x), "gap_1 = most_1 - least_1", store)
    assert not same(least.format(of_y), "gap_1 = most_1 - least_1", store), "of other numbers"
    assert not same("tl.min(x_1, 1)[:, None]", "gap_1 = most_1 - least_1", store), "it passes over NaN, too"
    assert not same(least.format("x_1"), "gap_1 = most_1 - least_1", store), "of all lanes"
    assert not same(least.format(of_x), "gap_1 = tl.where(least_1 < 0, most_1, least_1)", store)
    alone = "tl.store(other_ptr + row * other_s0, most_1, mask=row_mask)"
    assert not same(least.format(of_x), "gap_1 = most_1 - least_1", store, alone)


def test_a_mistake_of_a_launcher_is_made_in_both_builds() -> None:
    job = make_job(CATALOGUE["column_variance"](), longest_row=64)
    twins = {m[1].partition(" = ")[0]: m[4] for m in job.mutants if m[0] == NARROWER}
    assert twins.keys() == {"scratch0", "scratch1", "scratch2"}
    for scratch, text in twins.items():
        assert text is not None
        assert re.findall(r"(\w+) = .*dtype=torch.bfloat16", text) == ["out", scratch]


def test_partial_results_are_as_narrow_as_eager_s_only_where_eager_rounds_them() -> None:
    def texts(name: str) -> list[list[str]]:
        chain = CATALOGUE[name]()
        return [
            generate(chain, CodegenOptions(rounds=rounds, longest_row=64)).text.split("\n") for rounds in (False, True)
        ]

    lines, rounded = texts("long_extremes")
    assert rounded_by_eager(lines, rounded, "scratch0"), "the spread of a row is a call's result"
    assert not rounded_by_eager(lines, rounded, "scratch2"), "the smallest number of a part is not"
    assert not rounded_by_eager(lines, lines, "scratch0")
    lines, rounded = texts("column_variance")
    assert not any(rounded_by_eager(lines, rounded, f"scratch{k}") for k in range(3))


def test_launchers_are_spoiled_too() -> None:
    chain = CATALOGUE["long_layer_norm"]()
    found = {w.name for w in mutants_of(chain, generate(chain, CodegenOptions(longest_row=64)).text)}
    assert found >= {
        "launches exchanged",
        "launch left out",
        "one block too few",
        "stride off by one",
        "partial results stored narrower",
        "plan kept whatever the sizes",
        "plan kept whatever the strides",
        "last block of a loop left out",
        "offsets in 32 bits",
    }
    names = {w.name for w in mutants_of(CATALOGUE["relu_squared"](), generate(CATALOGUE["relu_squared"]()).text)}
    assert names >= {"result in an input's memory", "store reaches beyond the columns", "rows counted in 32 bits"}


def test_a_factor_of_one_may_be_left_out_and_no_other() -> None:
    assert factor_of_one(*kernel("a_1 = 1.0 * x_1  # aten::mul.Tensor"))
    assert factor_of_one(*kernel("a_1 = x_1 * 1.0"))
    assert not factor_of_one(*kernel("a_1 = 2.0 * x_1"))
    assert not factor_of_one(*kernel("a_1 = 1.0 + x_1"))
    assert not factor_of_one(*kernel("a_1 = 1.0 * x_1 * y_1"))


def test_what_is_nothing_stays_so_in_functions_and_quotients_by_a_row_s_number() -> None:
    def same(*made: str) -> bool:
        lines, at = kernel(*made, "s_1 = tl.sum(tl.where(column_mask, v_1, 0), 1)[:, None]")
        return nothing_beyond(lines, at + len(made), frozenset())

    total = "t_1 = tl.sum(x_1 * x_1, 1)[:, None]"
    assert same("v_1 = _tanh(x_1)")
    assert same("a_1 = x_1 * y_1", "v_1 = tl.maximum(x_1, a_1, propagate_nan=tl.PropagateNan.ALL)")
    assert not same("v_1 = tl.maximum(x_1, y_1, propagate_nan=tl.PropagateNan.ALL)"), "of a row's number that is more"
    assert not same("v_1 = tl.cos(x_1)")
    assert same(total, "r_1 = tl.sqrt_rn(t_1)", "v_1 = _ratio(x_1, r_1)")
    assert same(total, "v_1 = x_1 / t_1")
    assert not same(total, "v_1 = t_1 / x_1")
    z = "z_1 = tl.load(z_ptr + column * z_s0, mask=column_mask, other=0)"
    assert not same(z, "v_1 = x_1 / z_1"), "0 by 0 beyond the columns alone"


GUARDS = ("value_1 = (column) < 18", "value_2 = (column) >= 18")
LEFT = "a_1 = tl.load(a_ptr + column * a_s0, mask=mask & value_1, other=0)"
RIGHT = "b_1 = tl.load(a_ptr + column * a_s0, mask=mask & value_2, other=0)"


def test_a_guard_may_be_dropped_where_the_number_is_there_and_not_chosen() -> None:
    def same(*after: str, there: str = RIGHT) -> bool:
        lines, at = kernel(*GUARDS, there, LEFT, *after)
        return picked_elsewhere(lines, at + 3)

    assert same("c_1 = a_1 * y_1", "d_1 = tl.where(value_1, c_1, b_1)", "tl.store(out_ptr + row, d_1, mask=mask)")
    assert not same("d_1 = tl.where(value_2, a_1, b_1)"), "chosen where the guard is off"
    assert not same("c_1 = a_1 * y_1", "tl.store(out_ptr + row, c_1, mask=mask)")
    assert not same("c_1 = tl.sum(a_1, 1)[:, None]", "d_1 = tl.where(value_1, c_1, b_1)"), "a sum takes all of it"
    beyond = RIGHT.replace("column *", "(column - 18) *")
    assert not same("d_1 = tl.where(value_1, a_1, b_1)", there=beyond), "nothing says that there is such a place"


def test_a_place_that_no_condition_lets_through_may_be_asked_for_either_way() -> None:
    def same(edge: int, use: str) -> bool:
        lines, at = kernel("value_1 = (column_n1) < 18", f"value_2 = (column_n1 + 18) < {edge}", use)
        return never_met(lines, at + 1)

    assert same(36, "value_3 = value_1 & value_2")
    assert not same(35, "value_3 = value_1 & value_2"), "place 17 is let through"
    assert not same(36, "value_3 = value_1 | value_2")
    assert not same(36, "a_1 = tl.where(value_2, x_1, y_1)")


def test_a_largest_number_may_pass_over_nan_where_a_sum_or_every_share_has_it() -> None:
    most = "amax_1 = _row_max(tl.where(column_mask, x_1, -float('inf')))"
    gap, total = "g_1 = x_1 - amax_1", "s_1 = tl.sum(tl.where(column_mask, g_1, 0), 1)[:, None]"

    def same(*rest: str, before: tuple[str, ...] = ()) -> bool:
        lines, at = kernel(*before, most.replace(" x_1", " p_1") if before else most, *rest)
        return nan_comes_anyway(lines, at + len(before))

    store = "tl.store(out_ptr + row * out_s0, {}, mask=mask)"
    assert same(gap, total, "r_1 = tl.log(s_1)", "o_1 = r_1 + amax_1", store.format("o_1"))
    assert same(gap, total, "o_1 = g_1 / s_1", store.format("o_1"))
    assert not same(gap, store.format("g_1")), "only where x is NaN"
    assert not same(gap, total, store.format("amax_1"))
    assert not same(gap, "c_1 = tl.where(x_1 == amax_1, x_1, g_1)", store.format("c_1"))
    assert not same("a_1 = x_1 < amax_1", store.format("a_1")), "others are less than a number, and not less than NaN"
    shares = (
        "online_1_sum = tl.sum(_exp(x_1), 1)[:, None]",
        "i_1 = 1.0 / online_1_sum  # aten::_softmax",
        "p_1 = x_1 * i_1  # aten::_softmax",
    )
    assert same("b_1 = amax_1 * y_1", "a_1 = p_1 < b_1", store.format("a_1"), before=shares)
    assert not same("b_1 = amax_1 * y_1", "a_1 = x_1 < b_1", store.format("a_1"), before=shares)
