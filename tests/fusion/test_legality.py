"""Random programs: whatever is fused could be run as one kernel, and no byte that must be moved is left out.

Brute force knows every element: who wrote it last, who read it, which of two accesses must come first.
"""

from __future__ import annotations

import graphlib
import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.flow.programs import ADD, ADD_, COPY_, RELU, Program, T
from tracemine.flow import flow
from tracemine.fusion import Groups, groups

SUM = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
INDEX_ADD_ = "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)"
ITEM = 4  # bytes
SIZE = 16  # elements of a storage

Element = tuple[str, int, int]  # storage, how often it was made anew, element


@dataclass
class Truth:
    """What each call read and wrote, element by element."""

    reads: list[set[Element]] = field(default_factory=list)
    writes: list[set[Element]] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def elements(self, tensor: T) -> set[Element]:
        stride = (tensor.strides or (1,))[0]
        return {(tensor.storage, self.made[tensor.storage], tensor.offset + i * stride) for i in range(tensor.shape[0])}

    def must_precede(self) -> dict[int, set[int]]:
        """For each call those before it that must run before it."""
        before: dict[int, set[int]] = {i: set() for i in range(len(self.reads))}
        for later in range(len(self.reads)):
            for earlier in range(later):
                if (
                    self.writes[earlier] & (self.reads[later] | self.writes[later])
                    or self.reads[earlier] & self.writes[later]
                ):
                    before[later].add(earlier)
        return before


def made(seed: int, most: int = 12) -> tuple[Program, Truth]:
    """A random program of up to `most` calls."""
    pick = random.Random(seed)
    program, truth = Program(), Truth()
    live: list[T] = [program.tensor(name, SIZE) for name in ("in", "other")]

    def taken(tensors: list[T]) -> T:
        tensor = pick.choice(tensors)
        half = tensor.shape[0] // 2
        return tensor.part(pick.choice([0, half]), half) if half > 1 and not pick.randrange(4) else tensor

    for number in range(pick.randint(2, most)):
        kind = pick.choice(["relu", "add", "add_", "copy_", "sum", "mm", "index_add_"])
        first, second = taken(live), taken(live)
        if second.shape != first.shape:
            second = first
        if kind in ("add_", "copy_", "index_add_"):
            schema = {"add_": ADD_, "copy_": COPY_, "index_add_": INDEX_ADD_}[kind]
            program.call(schema, [first, None, second, second] if kind == "index_add_" else [first, second], [first])
            truth.reads.append(truth.elements(second) | (set() if kind == "copy_" else truth.elements(first)))
            truth.writes.append(truth.elements(first))
            continue
        storage = pick.choice([f"s{number}", "reused"])
        if storage in (first.storage, second.storage):
            storage = f"s{number}"  # an output is never made in the memory of what it is made of
        truth.reads.append(truth.elements(first) | (truth.elements(second) if kind in ("add", "mm") else set()))
        truth.made[storage] += 1
        live = [tensor for tensor in live if tensor.storage != storage]
        out = program.tensor(storage, 1 if kind == "sum" else first.shape[0])
        schema = {"relu": RELU, "add": ADD, "sum": SUM, "mm": MM}[kind]
        program.call(schema, [first] if kind in ("relu", "sum") else [first, second], [out])
        truth.writes.append(truth.elements(out))
        live.append(out)
    return program, truth


def units(found: Groups, calls: int) -> list[int]:
    """For each call what it would be launched as: its group, or itself."""
    return [int(g) if g >= 0 else 1000 + i for i, g in enumerate(found.node_group[:calls].tolist())]


# In 1194 a group reaches over another one, and a way leads behind that and back.
@pytest.mark.parametrize(
    ("seed", "most"), [*((seed, 12) for seed in range(250)), *((s, 45) for s in (*range(60), 1194))]
)
def test_groups_can_be_launched_one_after_another(seed: int, most: int) -> None:
    program, truth = made(seed, most)
    of = units(groups(program.flow()), len(truth.reads))
    before: dict[int, set[int]] = {unit: set() for unit in of}
    for later, earlier in truth.must_precede().items():
        before[of[later]] |= {of[each] for each in earlier} - {of[later]}
    list(graphlib.TopologicalSorter(before).static_order())  # raises where two groups wait for each other


@pytest.mark.parametrize("seed", range(250))
def test_no_byte_that_a_group_must_move_is_left_out(seed: int) -> None:
    program, truth = made(seed)
    found = groups(program.flow())
    for group in range(len(found)):
        members = found.node[found.begin[group] : found.begin[group + 1]].tolist()
        outside, inside = set[Element](), set[Element]()
        for member in members:
            outside |= truth.reads[member] - inside
            inside |= truth.writes[member]
        # What others read of it; what is still there at the end need not be wanted, and is counted or not.
        wanted, writer = set[Element](), dict[Element, int]()
        for call in range(len(truth.reads)):
            if call not in members:
                wanted |= {each for each in truth.reads[call] if writer.get(each) in members}
            writer |= dict.fromkeys(truth.writes[call], call)
        kernel = found.kernels[found.kernel[group]]
        assert sum(kernel.reads) >= ITEM * len(outside)
        assert sum(kernel.writes) >= ITEM * len(wanted)
        assert found.bytes_after[group] <= found.bytes_before[group]


@pytest.mark.parametrize("seed", range(100))
def test_what_is_written_in_place_is_read_nowhere_else_in_its_group(seed: int) -> None:
    program, truth = made(seed)
    found = groups(program.flow())
    for group in range(len(found)):
        members = found.node[found.begin[group] : found.begin[group + 1]].tolist()
        for i, earlier in enumerate(members):
            for later in members[i + 1 :]:
                # A later member overwrites what an earlier one reads: the same elements, or none of them.
                met = truth.reads[earlier] & truth.writes[later]
                assert not met or met in (truth.reads[earlier], truth.writes[later])


@pytest.mark.parametrize("seed", range(100))
def test_the_same_flow_gives_the_same_groups(seed: int) -> None:
    timeline = made(seed)[0].timeline()
    one, other = groups(flow(timeline)), groups(flow(timeline))
    assert one.node.tolist() == other.node.tolist()
    assert one.begin.tolist() == other.begin.tolist()
    assert one.kernels == other.kernels
