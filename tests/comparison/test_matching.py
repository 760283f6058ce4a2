"""Which findings are the same: components, against a brute force that asks every pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.comparison.build import item, items
from tracemine.comparison.matched import Component, alike_in_kind, components
from tracemine.comparison.record import Item

A, B, C, U = (digit * 16 for digit in "abce")


def named(component: Component, before: Sequence[Item], after: Sequence[Item]) -> tuple[set[str], set[str]]:
    ours = {before[i].fingerprint for i in component[0]}
    return ours, {after[j].fingerprint for j in component[1]}


def matched(before: Sequence[Item], after: Sequence[Item], *, alike: bool) -> list[tuple[set[str], set[str]]]:
    return [named(one, before, after) for one in components(before, after, alike=alike)]


def test_a_finding_without_a_module_is_all_that_may_be_called_so() -> None:
    with_stacks = [item(A, 10, aliases=(U,), module="A_*"), item(B, 20, aliases=(U,), module="B_*")]
    without = [item(U, 30)]
    assert matched(with_stacks, without, alike=False) == [({A, B}, {U})]
    assert matched(without, with_stacks, alike=False) == [({U}, {A, B})]


def test_two_modules_that_may_be_called_the_same_are_not_the_same() -> None:
    before = [item(A, 10, ("aten::mul",), aliases=(U,), module="A_*", shapes=("[1]",))]
    after = [item(B, 10, ("aten::add",), aliases=(U,), module="B_*", shapes=("[1]",))]
    assert matched(before, after, alike=True) == [({A}, set()), (set(), {B})]


def test_where_modules_are_recorded_on_both_sides_a_stray_kernel_without_one_joins_nothing() -> None:
    before = [item(A, 10, aliases=(U,), module="A_*"), item(B, 20, aliases=(U,), module="B_*"), item(U, 1)]
    after = [item(B, 20, aliases=(U,), module="B_*"), item(U, 1)]
    assert matched(before, after, alike=True) == [({B}, {B}), ({U}, {U}), ({A}, set())]
    # On one side alone it may hold all of them.
    assert matched(before, after, alike=False) == [({A, B, U}, {B, U})]


def test_a_finding_of_schema_version_1_is_the_variant_that_is_called_as_it() -> None:
    assert matched([item(A, 10)], [item(B, 10, variants=("x", A), module="B_*")], alike=False) == [({A}, {B})]


def test_a_module_that_got_another_name_is_found_by_its_operators_and_shapes() -> None:
    before = [item(A, 10, ("aten::mul", "aten::add"), module="Old_*", shapes=("[8]",))]
    after = [item(B, 10, ("aten::add", "aten::mul"), module="New_*", shapes=("[8]",))]
    found = components(before, after, alike=True)
    assert found == [((0,), (0,), "signature")]
    other = [item(B, 10, ("aten::add", "aten::mul"), module="New_*", shapes=("[9]",))]
    assert [one[2] for one in components(before, other, alike=True)] == [None, None]


def test_a_signature_matches_only_what_no_name_did() -> None:
    before = [item(A, 10, module="M_*", dtype="float32"), item(B, 10, module="M_*", dtype="bfloat16")]
    after = [item(A, 10, module="M_*", dtype="float32")]
    assert matched(before, after, alike=True) == [({A}, {A}), ({B}, set())]


def brute(before: Sequence[Item], after: Sequence[Item], *, alike: bool) -> set[tuple[frozenset[int], frozenset[int]]]:
    """Components by asking every pair, and walking until nothing is added."""

    def own(one: Item) -> set[str]:
        return {one.fingerprint} | set(one.variants)

    def same(one: Item, other: Item) -> bool:
        return one.on_gpu == other.on_gpu and bool(own(one) & own(other))

    def called(one: Item, other: Item) -> bool:
        alias = own(one) & set(other.aliases) or set(one.aliases) & own(other)
        return same(one, other) or (one.on_gpu == other.on_gpu and bool(alias))

    left, right = set(range(len(before))), set(range(len(after)))
    found: set[tuple[frozenset[int], frozenset[int]]] = set()
    rounds: list[Callable[[Item, Item], bool]] = [*([same] if alike else []), called, alike_in_kind]
    for edge in rounds:
        joined: set[tuple[frozenset[int], frozenset[int]]] = set()
        for start in left:
            ours, theirs, size = {start}, set[int](), -1
            while size != len(ours) + len(theirs):
                size = len(ours) + len(theirs)
                theirs |= {j for j in right if any(edge(before[i], after[j]) for i in ours)}
                ours |= {i for i in left if any(edge(before[i], after[j]) for j in theirs)}
            if theirs:
                joined.add((frozenset(ours), frozenset(theirs)))
        found |= joined
        left -= {i for ours, _ in joined for i in ours}
        right -= {j for _, theirs in joined for j in theirs}
    found |= {(frozenset({i}), frozenset()) for i in left}
    return found | {(frozenset(), frozenset({j})) for j in right}


@given(items(), items(), st.booleans())
def test_components_are_those_that_asking_every_pair_gives(
    before: tuple[Item, ...], after: tuple[Item, ...], alike: bool
) -> None:
    """Every finding is in exactly one, and backwards they are the same."""
    there = components(before, after, alike=alike)
    assert {(frozenset(one[0]), frozenset(one[1])) for one in there} == brute(before, after, alike=alike)
    assert sorted(i for one in there for i in one[0]) == list(range(len(before)))
    assert sorted(j for one in there for j in one[1]) == list(range(len(after)))
    back = components(after, before, alike=alike)
    assert {*there} == {(one[1], one[0], one[2]) for one in back}
