"""PyTorch's NVTX texts: parts taken off from the right, whatever a name holds."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.nsys.make import Export, timeline
from tracemine.formats.nsys.calls import nested
from tracemine.formats.nsys.ranges import LAST_PARTS, NvtxRange, last_parts, parsed_range, step_number

_SIZES = st.lists(st.lists(st.integers(0, 10**6), max_size=4), min_size=1, max_size=5).filter(
    lambda sizes: all(prod(size) < 1 << 62 for size in sizes)
)
_MAKERS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(-1, 30)), min_size=1, max_size=5)


@given(
    name=st.text(max_size=40).filter(lambda text: ", seq = " not in text and ", op_id = " not in text),
    sequence=st.none() | st.integers(0, 10**9),
    op_id=st.none() | st.integers(1, 10**12),
    sizes=st.none() | _SIZES,
    makers=st.none() | _MAKERS,
)
def test_what_torch_writes_is_taken_apart_again(
    name: str,
    sequence: int | None,
    op_id: int | None,
    sizes: list[list[int]] | None,
    makers: list[tuple[int, int]] | None,
) -> None:
    text = name
    text += "" if sequence is None else f", seq = {sequence}"
    text += "" if op_id is None else f", op_id = {op_id}"
    text += "" if sizes is None else f", sizes = {sizes}"
    text += "" if makers is None else ", input_op_ids = [" + ", ".join(f"({a},{b})" for a, b in makers) + "]"
    found = parsed_range(text)
    if name.endswith((", sizes = []", ", input_op_ids = []")):
        return
    assert (found.name, found.sequence, found.op_id) == (name, sequence, op_id)
    assert found.sizes == (None if sizes is None else tuple(map(tuple, sizes)))
    assert found.makers == (None if makers is None else tuple(makers))


@given(st.text(alphabet="[](),= 0123456789-seqop_idinputz", max_size=300))
def test_any_text_is_a_range(text: str) -> None:
    assert isinstance(parsed_range(text), NvtxRange)


_PIECES = st.sampled_from(
    [
        ", seq = 1",
        ", seq = -1",
        ", op_id = 2",
        ", sizes = [[3, 4]]",
        ", sizes = []",
        ", input_op_ids = [(5,0)]",
        " ",
        "n",
    ]
)


@given(st.lists(_PIECES, max_size=9).map("".join))
def test_parts_at_once_are_what_they_are_one_by_one(text: str) -> None:
    whole = LAST_PARTS.fullmatch(text)
    assert whole is None or whole.groups() == last_parts(text)
    text += ", op_id = 2, sizes = [[3, 4]], input_op_ids = [(5,0)]"
    whole = LAST_PARTS.fullmatch(text)
    assert whole is not None and whole.groups() == last_parts(text)


@given(st.lists(_PIECES, max_size=5).map("".join))
def test_a_text_with_all_parts_is_matched_at_once(name: str) -> None:
    assert LAST_PARTS.fullmatch(f"{name}, seq = 7, op_id = 2, sizes = [[8192, 2048]], input_op_ids = [(1,0)]")


def test_a_hostile_text_is_read_in_time() -> None:
    for piece in (
        ", seq = 1, op_id = 1, sizes = [",
        ", seq = 1",
        ", sizes = [",
        ", input_op_ids = [(1,0)",
        "[[",
        ", op_id = 1",
        "(0,-1), ",
    ):
        assert parsed_range(piece * 100_000).name


@pytest.mark.parametrize(
    ("text", "is_op"),
    [
        ("aten::mul, op_id = 4", True),
        ("detach_, op_id = 4", True),
        ("MulBackward0, seq = 3, op_id = 4", True),
        ("autograd::engine::evaluate_function: MulBackward0, op_id = 4", True),
        ("FlashAttnFunc, op_id = 4, sizes = [[1]], input_op_ids = [(0,-1)]", True),
        ("FSDP::post_forward (blocks.19), op_id = 4", False),
        ("Optimizer.step#SGD.step, op_id = 4", False),
        ("forward, op_id = 4", False),
        ("aten::mul", False),
    ],
)
def test_operators_are_told_from_a_users_own_ranges(text: str, *, is_op: bool) -> None:
    assert parsed_range(text).is_op is is_op


def test_numbers_beyond_64_bits_are_part_of_the_name() -> None:
    text = f"aten::mul, op_id = {10**30}"
    assert parsed_range(text) == NvtxRange(name=text, is_op=False)


def test_members_of_a_list_are_told_from_other_inputs() -> None:
    assert nested("aten::cat", ((2,), (3,), ())) == [[[2], [3]], []]
    assert nested("aten::add", ((2,), (2,), ())) == [[2], [2], []]
    assert nested("my::op", ((2,), (3,), ())) == [[2], [3], []]


@pytest.mark.parametrize(
    ("name", "number"),
    [("step 0", 0), ("Step_12", 12), ("ProfilerStep#3", 3), ("iter:7", 7), ("train_step 5", 5), ("batch-9", 9)],
)
def test_marks_of_steps_have_their_number(name: str, number: int) -> None:
    assert step_number(name) == number


@pytest.mark.parametrize("name", ["step", "forward 3", "step 1 of 9", "stepwise 2", "layer.2", "9"])
def test_other_names_are_no_steps(name: str) -> None:
    assert step_number(name) is None


@pytest.mark.parametrize(
    "sizes", ["[[99999999999999999999]]", "[[9999999999, 9999999999]]", "[[0, 9223372036854775808]]"]
)
def test_sizes_that_no_number_holds_are_not_recorded(tmp_path: Path, sizes: str) -> None:
    export = Export().op(1, "aten::mul", 100, sizes, "[(0,-1)]").op(2, "aten::relu", 200, "[[4, 8]]", "[(0,-1)]")
    found = timeline(tmp_path, export)
    assert found.ops["input_shapes"].to_pylist() == [None, "[[4,8]]"]
    assert set(found.tensors["numel"].to_pylist()) == {32}
