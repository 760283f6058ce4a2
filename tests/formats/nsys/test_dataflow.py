"""`input_op_ids` as dataflow: what they prove, against execution traces of the same process, and where they lie."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.formats.nsys.make import Export, timeline
from tracemine.cli import whole
from tracemine.flow import Evidence, activity_edges, flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nsys"
_COMPAT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))

Edge = tuple[str, str]


def reads(t: Timeline) -> set[Edge]:
    """Who reads what whom wrote, by name and op_id."""
    found = flow(t)
    row, name, number = found.nodes.op_row, t.ops["name"].to_pylist(), t.ops["record_function_id"].to_pylist()
    label = [f"{name[r]}#{number[r]}" for r in row.tolist()]
    return {(label[a], label[b]) for a, b in zip(found.edges.producer, found.edges.consumer, strict=True)}


def unknown(t: Timeline) -> list[str]:
    """Names of the operators of which it is not known what they read."""
    nodes = flow(t).nodes
    return [t.ops["name"][r].as_py() for r in nodes.op_row[~nodes.known].tolist()]


def outer_edges(t: Timeline, outermost: set[int]) -> tuple[set[tuple[int, int]], set[int]]:
    """Edges, and unknown nodes, by the rows of `outermost` around them."""
    parent = t.ops["parent_row"].to_pylist()

    def outer(row: int) -> int:
        at: int | None = row
        while at is not None and at not in outermost:
            at = parent[at]
        return row if at is None else at

    found = flow(t)
    op = [outer(row) for row in found.nodes.op_row.tolist()]
    pairs = zip(found.edges.producer.tolist(), found.edges.consumer.tolist(), strict=True)
    edges = {(op[a], op[b]) for a, b in pairs if op[a] != op[b]}
    return edges, {op[i] for i in (~found.nodes.known).nonzero()[0].tolist()}


def test_of_a_training_step_no_edge_is_wrong_and_none_is_missing_where_all_is_known() -> None:
    nvtx = open_trace(FIXTURES / "block_train.sqlite")
    both = open_trace(FIXTURES / "block_train.sqlite", execution_trace=FIXTURES / "block_train.et.json.gz")
    truth = flow(both)
    outermost = set(truth.nodes.op_row.tolist())
    true_edges, _ = outer_edges(both, outermost)
    edges, not_known = outer_edges(nvtx, outermost)
    assert len(true_edges) == 96
    assert edges - true_edges == set()
    missing = true_edges - edges
    assert len(missing) == 4
    assert {reader for _, reader in missing} <= not_known


def test_dtypes_are_not_made_up() -> None:
    t = open_trace(FIXTURES / "block_train.sqlite")
    assert t.ops["input_dtypes"].null_count == t.ops.num_rows
    assert t.tensors["dtype"].null_count == t.tensors["itemsize_bytes"].null_count == t.tensors.num_rows > 0


@pytest.mark.skipif(not _COMPAT.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
@pytest.mark.parametrize("export", ["h200_seed_chains_nvtx.sqlite", "seed_chains_nvtx_cuda_kern_exec_trace.csv"])
def test_operators_and_dataflow_are_those_of_the_profilers_trace_with_its_execution_trace(export: str) -> None:
    folder = _COMPAT / "h200" / "seed_chains"
    nsys = open_trace(_COMPAT / "nsys" / export)
    kineto = open_trace(folder / "eager.json.gz", execution_trace=folder / "et.json.gz")
    steps = []
    for t in (nsys, kineto):
        found, name = flow(t), t.ops["name"].to_pylist()
        of_step = defaultdict(list)
        for node, step in enumerate(found.nodes.step_row.tolist()):
            of_step[step].append(node)
        per_step = []
        for nodes in of_step.values():
            place = {node: at for at, node in enumerate(nodes)}
            pairs = zip(found.edges.producer.tolist(), found.edges.consumer.tolist(), strict=True)
            edges = {(place[a], place[b]) for a, b in pairs if a in place and b in place}
            per_step.append(([name[found.nodes.op_row[node]] for node in nodes], sorted(edges)))
        steps.append(per_step)
        assert found.nodes.known.all()
    assert steps[0] == steps[1]
    assert [len(edges) for _, edges in steps[0]] == [25, 25]


def test_a_view_and_what_is_written_in_place_share_their_inputs_storage(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]")
    export.op(2, "aten::view", 200, "[[4, 8], []]", "[(1,0), (0,-1)]", kernels=0)
    export.op(3, "aten::relu_", 300, "[[32]]", "[(2,0)]")
    export.op(4, "aten::exp", 400, "[[4, 8]]", "[(1,0)]")
    t = timeline(tmp_path, export)
    assert reads(t) == {("aten::neg#1", "aten::relu_#3"), ("aten::relu_#3", "aten::exp#4")}
    assert len(set(t.tensors["storage_id"].to_pylist())) == 3


def test_a_maker_of_another_shape_is_a_tensor_object_used_again(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]")
    export.op(2, "aten::exp", 200, "[[9]]", "[(1,0)]")
    t = timeline(tmp_path, export)
    assert reads(t) == set()
    assert unknown(t) == ["aten::exp"]
    assert sum(count for reason, count in t.meta.ingest.skipped.items() if "beyond doubt" in reason) == 1


def test_a_scalar_wrapped_as_a_tensor_is_no_reader_of_its_predecessor(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::exp", 200, "[[4, 8]]", "[(1,0)]")
    export.op(3, "aten::add", 300, "[[4, 8], [], []]", "[(2,0), (1,0), (0,-1)]")
    t = timeline(tmp_path, export)
    assert reads(t) == {("aten::neg#1", "aten::exp#2"), ("aten::exp#2", "aten::add#3")}
    assert unknown(t) == []


def test_an_operator_inside_another_reads_only_what_that_one_was_given(tmp_path: Path) -> None:
    # copy_ inside clone writes memory that clone allocated; its object lies where that of neg's output lay.
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::exp", 200, "[[4, 8]]", "[(0,-1)]")
    export.range("aten::clone, op_id = 3, sizes = [[4, 8], []], input_op_ids = [(2,0), (0,-1)]", 300, 340)
    export.op(4, "aten::copy_", 310, "[[4, 8], [4, 8], []]", "[(1,0), (2,0), (0,-1)]")
    export.op(5, "aten::abs", 400, "[[4, 8]]", "[(3,0)]").op(6, "aten::sin", 500, "[[4, 8]]", "[(1,0)]")
    t = timeline(tmp_path, export)
    assert reads(t) == {
        ("aten::exp#2", "aten::copy_#4"),
        ("aten::copy_#4", "aten::abs#5"),
        ("aten::neg#1", "aten::sin#6"),
    }


def test_what_is_made_inside_is_written_though_only_the_operator_around_tells_its_shape(tmp_path: Path) -> None:
    export = Export().range("aten::rms_norm, op_id = 1, sizes = [[4, 8], [], [8], []], input_op_ids = "
                            "[(0,-1), (0,-1), (0,-1), (0,-1)]", 100, 140)  # fmt: skip
    export.op(2, "aten::_fused_rms_norm", 110, "[[4, 8], [], [8], []]", "[(0,-1), (0,-1), (0,-1), (0,-1)]")
    export.op(3, "aten::abs", 200, "[[4, 8]]", "[(1,0)]")
    t = timeline(tmp_path, export)
    assert reads(t) == {("aten::_fused_rms_norm#2", "aten::abs#3")}
    assert unknown(t) == []


def test_a_node_of_the_backward_pass_reads_what_its_forward_operator_had(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]")
    export.range("aten::exp, seq = 9, op_id = 2, sizes = [[4, 8]], input_op_ids = [(1,0)]", 200, 210)
    export.call(202, 203, 201).kernel(1200, 1205, 201)
    export.op(3, "aten::cos", 300, "[[4, 8]]", "[(0,-1)]")
    export.range("ExpBackward0, seq = 9, op_id = 4, sizes = [[4, 8]], input_op_ids = [(3,0)]", 400, 490)
    export.op(5, "aten::mul", 410, "[[4, 8], [4, 8]]", "[(3,0), (2,0)]")
    export.range("SinBackward0, seq = 8, op_id = 6, sizes = [[4, 8]], input_op_ids = [(5,0)]", 500, 590)
    export.op(7, "aten::mul", 510, "[[4, 8], [4, 8]]", "[(5,0), (1,0)]")
    t = timeline(tmp_path, export)
    assert ("aten::exp#2", "aten::mul#5") in reads(t)
    assert ("aten::neg#1", "aten::mul#7") not in reads(t)
    assert unknown(t) == ["aten::mul"]


def layer_norms(tmp_path: Path, then: str = "") -> Timeline:
    """A layer norm of a parameter and a bias of one shape, something, and its backward pass."""
    shapes, makers = "[[4, 8], [], [8], [8], []]", "[(1,0), (0,-1), (0,-1), (0,-1), (0,-1)]"
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]")
    text = "aten::native_layer_norm, seq = 7, op_id = 2"
    export.range(f"{text}, sizes = {shapes}, input_op_ids = {makers}", 200, 290).call(210, 215, 201).kernel(
        1210, 1215, 201
    )
    if then:
        export.op(3, then, 300, "[[8], []]", "[(0,-1), (0,-1)]")
    export.op(4, "aten::exp", 400, "[[4, 8]]", "[(2,0)]")
    export.range("NativeLayerNormBackward0, seq = 7, op_id = 5, sizes = [[4, 8]], input_op_ids = [(4,0)]", 500, 590)
    shapes = "[[4, 8], [4, 8], [], [4, 1], [4, 1], [8], [8], []]"
    makers = "[(4,0), (1,0), (0,-1), (2,1), (2,2), (0,-1), (0,-1), (0,-1)]"
    export.op(6, "aten::native_layer_norm_backward", 510, shapes, makers)
    return timeline(tmp_path, export)


def test_which_of_two_parameters_was_saved_does_not_matter_where_nobody_writes_them(tmp_path: Path) -> None:
    t = layer_norms(tmp_path)
    assert unknown(t) == []
    assert ("aten::exp#4", "aten::native_layer_norm_backward#6") in reads(t)
    of = [row["storage_id"] for row in t.tensors.to_pylist() if row["shape"] == [8] and not row["is_output"]]
    assert len(of) == 4
    assert of[:2] == of[2:]
    assert of[0] != of[1]


def test_a_write_between_of_what_may_be_one_of_them_is_not_known(tmp_path: Path) -> None:
    assert unknown(layer_norms(tmp_path, then="aten::mul_")) == ["aten::mul_"]


def test_a_write_through_a_view_of_a_part_makes_its_readers_unknown(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]")
    export.op(2, "aten::slice", 200, "[[4, 8], [], [], [], []]", "[(1,0), (0,-1), (0,-1), (0,-1), (0,-1)]", kernels=0)
    export.op(3, "aten::relu_", 300, "[[4, 4]]", "[(2,0)]").op(4, "aten::exp", 400, "[[4, 8]]", "[(1,0)]")
    assert {"aten::relu_", "aten::exp"} <= set(unknown(timeline(tmp_path, export)))


def test_what_writes_a_tensor_of_no_operator_may_write_one_that_was_read(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::relu_", 200, "[[4, 8]]", "[(0,-1)]")
    export.op(3, "aten::relu_", 300, "[[7]]", "[(0,-1)]")
    assert unknown(timeline(tmp_path, export)) == ["aten::relu_"]


def test_lists_of_another_length_than_the_makers_prove_nothing(tmp_path: Path) -> None:
    export = (
        Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::exp", 200, "[[4, 8]]", "[(1,0), (0,-1)]")
    )
    t = timeline(tmp_path, export)
    assert (reads(t), unknown(t)) == (set(), ["aten::exp"])


def test_op_ids_count_within_their_process(tmp_path: Path) -> None:
    export = Export().op(1, "aten::neg", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::exp", 200, "[[4, 8]]", "[(1,0)]")
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"):
        for row in export.rows[table][-1:]:
            for column in ("globalTid", "globalPid"):
                if column in row:
                    row[column] += 77 << 24
    t = timeline(tmp_path, export)
    assert (reads(t), unknown(t)) == (set(), ["aten::exp"])


def test_edges_are_proven_and_their_bytes_not_recorded() -> None:
    edges = activity_edges(flow(open_trace(FIXTURES / "block_train.sqlite")))
    assert edges["bytes"].null_count == edges.num_rows > 0
    assert set(edges["evidence"].to_pylist()) == {"proven"}


def fused(t: Timeline) -> list[tuple[tuple[str, ...], Evidence]]:
    """The operators of each fusion group in order, and its evidence."""
    dataflow = flow(t)
    found, name = groups(dataflow), t.ops["name"].to_pylist()
    members = [found.node[begin:end] for begin, end in pairwise(found.begin.tolist())]
    names = [tuple(name[row] for row in dataflow.nodes.op_row[each].tolist()) for each in members]
    return list(zip(names, map(Evidence, found.evidence.tolist()), strict=True))


@pytest.mark.skipif(not _COMPAT.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
def test_fusion_groups_are_those_of_the_profilers_trace_with_its_execution_trace() -> None:
    folder = _COMPAT / "h200" / "seed_chains"
    nsys = fused(open_trace(_COMPAT / "nsys" / "h200_seed_chains_nvtx.sqlite"))
    kineto = fused(open_trace(folder / "eager.json.gz", execution_trace=folder / "et.json.gz"))
    assert nsys == kineto
    assert [(len(ops), evidence) for ops, evidence in nsys] == [(7, Evidence.PROVEN), (15, Evidence.PROVEN)] * 2


def softmax_chain(tmp_path: Path, kernel: str) -> Timeline:
    """x − mean(x, −1), then a softmax of that, whose kernel has the given name."""
    export = Export().op(1, "aten::neg", 100, "[[64, 32]]", "[(0,-1)]")
    export.op(2, "aten::mean", 200, "[[64, 32], [], [], []]", "[(1,0), (0,-1), (0,-1), (0,-1)]")
    export.op(3, "aten::sub", 300, "[[64, 32], [64, 1], []]", "[(1,0), (2,0), (0,-1)]")
    export.op(4, "aten::_softmax", 400, "[[64, 32], [], []]", "[(3,0), (0,-1), (0,-1)]")
    name = export.text(kernel)
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][-1] |= {"demangledName": name, "shortName": name}
    return timeline(tmp_path, export)


def test_a_group_is_proven_and_its_bytes_are_not_known(tmp_path: Path) -> None:
    t = softmax_chain(tmp_path, "void <unnamed>::softmax_warp_forward<float, float, float, (int)5>(T2 *, const T1 *)")
    assert fused(t) == [(("aten::neg", "aten::mean", "aten::sub", "aten::_softmax"), Evidence.PROVEN)]
    found = groups(flow(t))
    for column in (found.kernel, found.bytes_before, found.bytes_after, found.intermediate_bytes):
        assert column.tolist() == [-1]
    assert set(found.node_reads.tolist()) == set(found.node_writes.tolist()) == {-1}
    assert found.kernels == ()


def test_a_softmax_along_an_axis_that_nobody_tells_is_not_fused_with_a_reduction(tmp_path: Path) -> None:
    t = softmax_chain(tmp_path, "void at::native::cunn_SpatialSoftMaxForward<float, float, float>(T2 *)")
    assert fused(t) == [(("aten::neg", "aten::mean", "aten::sub"), Evidence.PROVEN)]


def test_a_proven_group_is_estimated_by_durations_and_claims_no_bytes(tmp_path: Path) -> None:
    export = Export()
    for number, name in enumerate(("aten::neg", "aten::exp", "aten::abs"), 1):
        made_by = "[(0,-1)]" if number == 1 else f"[({number - 1},0)]"
        export.op(number, name, 20 * number, "[[512, 512]]", made_by)
        export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][-1] |= {"start": number * 30_000, "end": number * 30_000 + 20_000}
    path = export.write(tmp_path / "t.sqlite")
    told = [str(path), "--format", "json", "--quiet", "--why-not", "--gpu", "NVIDIA H200"]
    result = CliRunner().invoke(whole(), ["scan", *told])
    assert result.exit_code == 0, result.output
    scan = json.loads(result.output)
    (finding,) = (each for each in scan["findings"] if each["gpu_saving_ns"]["mid"])
    assert (finding["ops"], finding["evidence"]) == (["aten::neg", "aten::exp", "aten::abs"], "proven")
    assert finding["traffic_bytes"] is finding["intermediate_bytes"] is finding["flops"] is None
    assert finding["fused_ns"] == {"low": 20_000, "mid": 40_000, "high": 60_000}
    assert any("dtypes and so bytes are not" in text for text in finding["assumptions"])
    assert all(each["bytes"] is None for each in scan["refused"])
    assert any("was not measured" in text for text in scan["warnings"])
    assert not any("1.5 times" in text for text in scan["warnings"])
