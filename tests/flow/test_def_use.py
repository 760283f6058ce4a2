"""The checker of fusion groups: it finds what is planted, accuses nothing that is right, and finds nothing in ours."""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.dataflow import def_use
from benchmarks.dataflow.def_use import Launch, Node, Recording, Tensor
from benchmarks.dataflow.legality import Mined, judged, judged_lists, named, verdicts, verdicts_of_findings
from tracemine.flow import flow
from tracemine.flow.record import Evidence
from tracemine.fusion import groups

FIXTURES = Path(__file__).parents[2] / "fixtures"
RELU = "aten::relu(Tensor self) -> Tensor"
ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
SUM = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
INDEX_ADD_ = "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)"
ITEM = "aten::_local_scalar_dense(Tensor self) -> Scalar"
EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"
_COMPAT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
NVTX = {"convnet_train": 0.3}  # what a lower bar there is for exports of Nsight Systems
LEAST = 0.97  # of the GPU time that groups hold with the execution trace


@dataclass
class Program:
    """Operators as an execution trace has them, one launch each."""

    nodes: list[Node] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    def call(
        self, schema: str, inputs: Sequence[object], outputs: Sequence[object] = (), *, launches: bool = True
    ) -> int:
        """One operator; the number of its unit."""
        number = len(self.nodes) + 10
        name = schema.partition("(")[0].partition(".")[0]
        self.nodes.append(Node(number, name, 1, number, schema if "(" in schema else "", tuple(inputs), tuple(outputs)))
        if launches:
            self.launches.append(Launch(number, (number,), (number,), name, to_host=schema == ITEM))
        return len(self.launches) - 1

    def kinds(self, *groups: Sequence[int]) -> list[str]:
        return [fault.kind for fault in Recording(self.nodes, self.launches).faults(groups)]


def tensor(
    storage: int, offset: int = 0, shape: tuple[int, ...] = (8,), strides: tuple[int, ...] | None = None
) -> Tensor:
    return Tensor(("cuda:0", storage), offset, shape, strides or def_use._contiguous(shape), 4)


X, Y, Z, W = (tensor(number) for number in range(1, 5))


def test_the_checker_imports_nothing_of_what_it_checks() -> None:
    for node in ast.walk(ast.parse(Path(def_use.__file__).read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.startswith(("tracemine", "benchmarks")) for name in names)


def test_two_that_a_product_lies_between_are_a_path() -> None:
    program = Program()
    first = program.call(RELU, [X], [Y])
    product = program.call(MM, [Y, X], [Z])
    last = program.call(ADD, [Y, Z], [W])
    assert program.kinds([first, last]) == ["path"]
    assert program.kinds([first, product, last]) == ["library"]
    assert program.kinds([product], [last], [first]) == ["library"]


def test_what_overwrites_the_input_of_a_member_elsewhere_is_a_hazard() -> None:
    program = Program()
    reader = program.call(RELU, [tensor(1)], [Y])
    shifted = program.call(ADD_, [tensor(1, offset=4), Z], [tensor(1, offset=4)])
    assert program.kinds([reader, shifted]) == ["hazard"]


def test_what_overwrites_the_same_elements_or_others_is_none() -> None:
    same, beside = Program(), Program()
    reader = same.call(RELU, [X], [Y])
    assert same.kinds([reader, same.call(ADD_, [X, Z], [X])]) == []
    reader = beside.call(RELU, [tensor(1, 0, (4, 2), (4, 1))], [Y])
    other = tensor(1, 2, (4, 2), (4, 1))  # the other half of each row
    assert beside.kinds([reader, beside.call(ADD_, [other, Z], [other])]) == []


def test_a_transposed_read_of_what_is_overwritten_is_a_hazard() -> None:
    program = Program()
    reader = program.call(RELU, [tensor(1, 0, (4, 4), (1, 4))], [Y])
    square = tensor(1, 0, (4, 4))
    assert program.kinds([reader, program.call(ADD_, [square, square], [square])]) == ["hazard"]


def test_an_overwritten_tensor_is_a_path_too() -> None:
    program = Program()
    first = program.call(RELU, [Y], [Z])
    program.call(MM, [X, Z], [W])
    program.call(ADD_, [X, W], [X])
    assert program.kinds([first, program.call(ADD, [Z, X], [tensor(9)])]) == ["path"]


def test_memory_that_is_used_again_is_no_path() -> None:
    program = Program()
    first = program.call(RELU, [X], [Y])
    program.call(MM, [Y, X], [Z])
    program.call(EMPTY, [], [Z], launches=False)
    last = program.call(ADD_, [Z, Y], [Z])
    assert program.kinds([first, last]) == []


def test_what_the_host_reads_comes_before_all_that_it_launches_later() -> None:
    program = Program()
    first = program.call(RELU, [X], [Y])
    program.call(ITEM, [Y])
    assert program.kinds([first, program.call(ADD, [Y, X], [Z])]) == ["path (host)"]


def test_work_of_which_nobody_says_what_it_touches_is_a_path() -> None:
    program = Program()
    first = program.call(RELU, [X], [Y])
    program.call("CustomBackward", [])
    assert program.kinds([first, program.call(ADD, [Y, X], [Z])]) == ["path (unknown)"]


def test_what_reads_a_scatter_of_its_group_is_a_hazard_and_what_is_scattered_is_none() -> None:
    program = Program()
    source = program.call(RELU, [X], [Y])
    scatter = program.call(INDEX_ADD_, [Z, 0, W, Y], [Z])
    assert program.kinds([source, scatter]) == []
    assert program.kinds([source, scatter, program.call(RELU, [Z], [tensor(9)])]) == ["hazard"]


def test_reductions_of_one_group_walk_the_same_rows() -> None:
    program = Program()
    square = tensor(1, 0, (4, 4))
    rows = program.call(SUM, [square, (1,), False, "<None>"], [tensor(2, shape=(4,))])
    more = program.call(SUM, [square, (-1,), False, "<None>"], [tensor(3, shape=(4,))])
    columns = program.call(SUM, [square, (0,), False, "<None>"], [tensor(4, shape=(4,))])
    assert program.kinds([rows, more]) == []
    assert program.kinds([rows, columns]) == ["reductions"]


def test_two_groups_that_wait_for_each_other_are_a_circle() -> None:
    program = Program()
    a = program.call(RELU, [X], [Y])
    b = program.call(RELU, [Z], [W])
    c = program.call(RELU, [W], [tensor(5)])
    d = program.call(RELU, [Y], [tensor(6)])
    assert program.kinds([a, c], [b, d]) == ["circle"]
    assert program.kinds([a, d], [b, c]) == []


@pytest.mark.parametrize(
    "name", ["decoder_decode", "decoder_prefill", "convnet_train", "tiny_mlp_train", "whisper_train"]
)
def test_no_group_of_our_recordings_is_illegal_and_with_less_evidence_they_hold_as_much(name: str) -> None:
    folder = FIXTURES / ("memory" if "mlp" in name or "whisper" in name else "captures") / name
    found = verdicts(folder / "trace.json.gz", folder / "et.json.gz")
    assert found["et"].groups
    for verdict in found.values():
        assert verdict.illegal == 0, verdict.faults
        assert verdict.false_proven == 0
    assert found["et"].proven == found["et"].groups
    assert found["shapes"].legal_ns >= LEAST * found["et"].legal_ns
    assert found["bare"].legal_ns >= 0.9 * found["et"].legal_ns
    assert found["stacks"].legal_ns == found["shapes"].legal_ns
    assert found["nvtx"].legal_ns >= NVTX.get(name, LEAST) * found["et"].legal_ns


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("captures", "chain"),
        ("accumulated", "mixed_accumulate"),
        ("accumulated", "mixed_zeroed"),
        ("nsys", "block_train"),
    ],
)
def test_what_is_called_proven_hangs_together_in_the_other_recordings_too(folder: str, name: str) -> None:
    trace, execution_trace = next(
        (trace, other) for title, trace, other in named(FIXTURES / folder) if name in title.split("/")[-1]
    )
    found = verdicts(trace, execution_trace)
    assert found["et"].groups
    assert all(verdict.illegal == verdict.false_proven == 0 for verdict in found.values())


def test_members_hang_together_by_what_one_writes_and_another_reads_or_by_what_both_read() -> None:
    program = Program()
    first = program.call(RELU, [X], [Y])
    last = program.call(ADD, [Y, W], [Z])
    beside = program.call(RELU, [X], [tensor(5)])
    apart = program.call(RELU, [tensor(6)], [tensor(7)])
    half = program.call(RELU, [tensor(1, 8)], [tensor(8)])  # of the same buffer, and none of the elements
    recording = Recording(program.nodes, program.launches)
    assert recording.chained([first])
    assert recording.chained([first, last])
    assert recording.chained([first, last, beside])
    assert not recording.chained([first, last, apart])
    assert not recording.chained([last, beside])
    assert not recording.chained([first, half])


def test_a_group_that_is_falsely_called_proven_is_found() -> None:
    """Two groups of a recording joined, and one that a guess holds together."""
    folder = FIXTURES / "captures" / "decoder_prefill"
    one = Mined(folder / "trace.json.gz", folder / "et.json.gz", folder)
    found = groups(flow(one.whole))
    true = judged(one.recording, one.whole, found)
    assert (true.proven, true.false_proven) == (true.groups, 0)
    joined = replace(found, activity_begin=np.delete(found.activity_begin, 1), evidence=found.evidence[1:])
    planted = judged(one.recording, one.whole, joined)
    assert planted.false_proven >= 1
    guessed = replace(joined, evidence=np.full_like(joined.evidence, Evidence.ADJACENT))
    assert judged(one.recording, one.whole, guessed).false_proven == 0


@pytest.mark.parametrize("name", ["decoder_decode", "convnet_train"])
def test_nothing_that_is_reported_as_one_kernel_is_illegal_with_less_evidence(name: str) -> None:
    folder = FIXTURES / "captures" / name
    found = verdicts_of_findings(folder / "trace.json.gz", folder / "et.json.gz")
    assert found["et"].groups
    for verdict in found.values():
        assert verdict.illegal == 0, verdict.faults


@pytest.mark.parametrize("lost", ["aten::view", "aten::linear", "aten::mm", "aten::mul", "aten::reshape"])
def test_no_group_is_illegal_where_results_reach_their_readers_as_objects_of_no_operator(
    lost: str, tmp_path: Path
) -> None:
    folder = FIXTURES / "captures" / "decoder_decode"
    one = Mined(folder / "trace.json.gz", folder / "et.json.gz", tmp_path)
    twin = one.twin(lost=lost)
    verdict = judged(one.recording, twin, groups(flow(twin)))
    assert verdict.groups
    assert verdict.illegal == 0, verdict.faults


@pytest.mark.skipif(not _COMPAT.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
@pytest.mark.parametrize("name", ["deberta_infer", "own_llm_decode"])
def test_nothing_reported_of_recordings_by_others_is_illegal_with_less_evidence(name: str) -> None:
    folder = _COMPAT / "captures" / name / "run"
    found = verdicts_of_findings(folder / "trace.json.gz", folder / "et.json.gz", ("shapes", "nvtx"))
    for verdict in found.values():
        assert verdict.groups
        assert verdict.illegal == 0, verdict.faults


def test_an_occurrence_across_a_product_that_is_no_member_is_found(tmp_path: Path) -> None:
    folder = FIXTURES / "captures" / "decoder_prefill"
    one = Mined(folder / "trace.json.gz", folder / "et.json.gz", tmp_path)
    found = groups(flow(one.whole))
    lists = [found.activity[begin:end].tolist() for begin, end in pairwise(found.activity_begin[:4].tolist())]
    assert judged_lists(one.recording, one.whole, lists, only_paths=True).illegal == 0
    planted = judged_lists(one.recording, one.whole, [[*lists[0], *lists[2]], lists[1]], only_paths=True)
    assert (planted.groups, planted.illegal) == (2, 1)
    assert planted.legal_ns > 0


def test_groups_joined_across_a_product_are_found_in_a_recording() -> None:
    folder = FIXTURES / "captures" / "decoder_prefill"
    recording = Recording.of(folder / "trace.json.gz", folder / "et.json.gz")
    names = [unit.name for unit in recording.units]
    product = names.index("aten::addmm")
    (before,) = [unit for unit, kind in recording.before[product].items() if kind == "data"]
    behind = min(unit for unit, kind in recording.after[product].items() if kind == "data")
    (fault,) = recording.faults([[before, behind]])
    assert fault.kind == "path"
    assert product in fault.path
    assert "aten::addmm" in fault.says


@pytest.mark.parametrize(("takes", "kinds"), [((), []), ((Y,), ["hazard"])])
def test_what_an_operator_gives_and_did_not_take_is_new_memory_for_the_copy_inside_it(
    takes: tuple[Tensor, ...], kinds: list[str]
) -> None:
    """`pow` with an exponent of 1 allocates without saying so; the storage was another tensor's before."""
    program = Program()
    expanded = tensor(Y.storage[1], strides=(0,))
    first = program.call(RELU, [expanded], [Z])
    program.call("aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", [W, *takes], [Y], launches=False)
    last = program.call("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", [Y, W], [Y])
    program.nodes[-1] = dataclasses.replace(program.nodes[-1], parent=program.nodes[-2].number)
    assert program.kinds([first, last]) == kinds
