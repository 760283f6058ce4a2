"""What an activity is, what it must move, and how it was launched."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.test_gaps import column
from tests.timelines import Trace
from tracemine.rows import ROW_DOCS, Categories, Flags, Numbers, row_sets
from tracemine.rows.activities import activity_rows

F32, BF16, SCALAR = "float", "c10::BFloat16", "Scalar"


def only(trace: Trace, name: str) -> object:
    """The one activity's value."""
    (value,) = column(activity_rows(trace.timeline()), name)
    return value


def test_every_documented_column_is_there_with_its_kind_and_no_other() -> None:
    trace = Trace()
    trace.kernel("k", 0, 5)
    kinds = {Categories: "categories", Numbers: "numbers", Flags: "flags"}
    for name, rows in row_sets(trace.timeline()).items():
        documented = {doc.name: doc.kind for doc in ROW_DOCS[name]}
        assert {key: kinds[type(found)] for key, found in rows.columns.items()} == documented


def test_only_columns_that_say_what_null_means_have_nulls() -> None:
    trace = Trace()
    trace.kernel("k", 0, 5, device=None, stream=None)
    trace.kernel("k", 9, 5, device=None, stream=None)
    for name, rows in row_sets(trace.timeline()).items():
        for doc in ROW_DOCS[name]:
            assert doc.null is not None or None not in column(rows, doc.name), doc.name


# --- gaps on a stream ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(0, 2)), max_size=25))
@settings(max_examples=150)
def test_gap_ns_is_the_time_since_everything_before_on_the_stream_ended(activities: list[tuple[int, int, int]]) -> None:
    trace = Trace()
    for start, dur, stream in activities:
        trace.kernel("k", start, dur, stream=stream)
    timeline = trace.timeline()
    found = column(activity_rows(timeline), "gap_ns")
    table = timeline.activities.to_pylist()
    for row, (each, gap) in enumerate(zip(table, found, strict=True)):
        before = [a["start_ns"] + a["dur_ns"] for a in table[:row] if a["stream"] == each["stream"]]
        assert gap == (max(0, each["start_ns"] - max(before)) if before else None)


# --- class -----------------------------------------------------------------------------------------------------------


def test_an_operators_only_kernel_is_what_the_operator_is() -> None:
    trace = Trace()
    trace.kernel("some_kernel_nobody_knows", 0, 5, launch=(0, 2), op="aten::mul")
    assert (only(trace, "op_class"), only(trace, "bound")) == ("pointwise", "memory")


def test_an_overloads_class_counts_where_the_input_types_tell_it() -> None:
    trace = Trace()
    max_over_dim: dict[str, Any] = {"shapes": [[4, 8], [], []], "dtypes": [F32, SCALAR, SCALAR]}
    trace.kernel("k", 0, 5, launch=(0, 2), op="aten::max", **max_over_dim)
    assert only(trace, "op_class") == "reduction"


def test_a_set_inside_a_gemm_is_a_set_and_the_gemm_stays_one() -> None:
    trace = Trace()
    mm = trace.op("aten::mm", 0, 50)
    trace.kernel("Memset (Device)", 100, 1, kind="memset", op=mm, launch=(5, 2), bytes=64)
    trace.kernel("nobody_knows_this_gemm", 110, 50, op=mm, launch=(10, 2))
    rows = activity_rows(trace.timeline())
    assert column(rows, "kind") == ["memset", "kernel"]
    assert column(rows, "op_class") == ["fill", "gemm"]
    assert column(rows, "bytes_written") == [64, None]


def test_an_operation_is_named_alike_in_place_or_not() -> None:
    trace = Trace()
    trace.kernel("k", 0, 5, launch=(0, 2), op="aten::mul_")
    assert only(trace, "operation") == "mul"


def test_a_kernel_whose_operator_compiled_it_with_triton_is_generated() -> None:
    trace = Trace()
    trace.kernel(
        "triton_poi_fused_add_0",
        0,
        5,
        launch=(0, 2),
        op=trace.op("triton_poi_fused_add_0", 0, 9, kernel_backend="triton"),
    )
    assert only(trace, "generated") is True


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_launch_is_measured_against_its_kernel() -> None:
    trace = Trace()
    trace.kernel("k", 1000, 5, launch=(900, 40))
    assert only(trace, "launch_dur_ns") == 40
    assert only(trace, "launch_excess_ns") == 35
    assert only(trace, "queued_ns") == 60


def test_a_graphs_one_launch_is_no_kernels_own() -> None:
    trace = Trace()
    replay = trace.call("cudaGraphLaunch", 0, 90)
    trace.kernel("k", 100, 5, launch=replay)
    trace.kernel("k", 110, 5, launch=replay)
    rows = activity_rows(trace.timeline())
    assert column(rows, "graph") == [True, True]
    assert column(rows, "launch_dur_ns") == [None, None]


# --- what was recorded around it -------------------------------------------------------------------------------------


def test_shape_and_dtype_are_the_first_tensors() -> None:
    trace = Trace()
    trace.kernel("k", 0, 5, launch=(0, 2), op="aten::pow", shapes=[[16, 559, 1024], []], dtypes=[BF16, SCALAR])
    assert (only(trace, "shape"), only(trace, "dtype")) == ("[16,559,1024]", "bfloat16")


def test_the_source_line_is_the_users_not_the_frameworks() -> None:
    trace = Trace()
    outer = trace.frame("/home/me/model.py(30): forward")
    inner = trace.frame("/venv/torch/nn/functional.py(1700): silu", outer)
    trace.kernel("k", 0, 5, launch=(0, 2), op="aten::silu", stack=inner)
    assert only(trace, "source") == "/home/me/model.py:30 forward"


# --- traffic ---------------------------------------------------------------------------------------------------------

TRAFFIC = {
    "a pointwise operator reads both and writes the broadcast": (
        "aten::mul", [[16, 8], [8]], [F32, F32], None, None, (16 * 8 + 8) * 4, 16 * 8 * 4,
    ),
    "a wider input decides the result's dtype": (
        "aten::mul", [[16, 8], [16, 8]], [BF16, F32], None, None, 16 * 8 * 6, 16 * 8 * 4,
    ),
    "a Python number neither counts nor promotes": (
        "aten::add", [[16, 8], [], []], [BF16, "double", SCALAR], None, ["", "", "1"], 16 * 8 * 2, 16 * 8 * 2,
    ),
    "a comparison writes bytes": ("aten::lt", [[16], []], [F32, SCALAR], None, ["", "3"], 64, 16),
    "in place, the target is read and written": (
        "aten::add_", [[16], [16], []], [F32, F32, SCALAR], None, ["", "", "1"], 128, 64,
    ),
    "a cast reads the source and writes the target": (
        "aten::copy_", [[16], [16], []], [BF16, F32, SCALAR], None, ["", "", "False"], 64, 32,
    ),
    "an expanded input is read once": (
        "aten::mul", [[16, 8], [16, 8]], [F32, F32], [[8, 1], [0, 1]], None, (16 * 8 + 8) * 4, 16 * 8 * 4,
    ),
    "a mean over the last axis": (
        "aten::mean", [[16, 8], [], [], []], [F32, "ScalarList", SCALAR, ""], None, ["", "[-1]", "True", ""], 512, 64,
    ),
    "a sum asked for in another dtype": (
        "aten::sum", [[16, 8], [], [], []], [BF16, "ScalarList", SCALAR, SCALAR], None, ["", "[0]", "False", "6"],
        256, 32,
    ),
    "a reduction whose axes were not recorded writes an unknown amount": (
        "aten::mean", [[16, 8], [], [], []], [F32, "ScalarList", SCALAR, ""], None, None, 512, None,
    ),
    "a maximum over an axis writes values and places": (
        "aten::max", [[16, 8], [], []], [F32, SCALAR, SCALAR], None, ["", "1", "False"], 512, 16 * 12,
    ),
    "a softmax writes what it reads": (
        "aten::_softmax", [[16, 8], [], []], [BF16, SCALAR, SCALAR], None, ["", "-1", "False"], 256, 256,
    ),
    "a softmax from half to float writes twice as much": (
        "aten::_softmax", [[16, 8], [], []], [BF16, SCALAR, SCALAR], None, ["", "-1", "True"], 256, 512,
    ),
    "a layer norm writes its statistics too": (
        "aten::native_layer_norm", [[4, 2, 8], [], [8], [8], []], [BF16, "ScalarList", BF16, BF16, SCALAR], None,
        ["", "[8]", "", "", "1e-5"], (64 + 16) * 2, 64 * 2 + 8 * 2 * 4,
    ),
    "a fill writes only": ("aten::fill_", [[16], []], [F32, SCALAR], None, ["", "0"], 0, 64),
    "a product reads both factors": ("aten::mm", [[16, 8], [8, 4]], [BF16, BF16], None, None, (128 + 32) * 2, 128),
    "rows selected are read and written, and the index is read": (
        "aten::index_select", [[8192, 1024], [], [4]], [BF16, SCALAR, "long int"], None, ["", "0", ""],
        4 * 1024 * 2 + 32, 4 * 1024 * 2,
    ),
    "two halves of one width promote to float": (
        "aten::mul", [[16], [16]], [BF16, "c10::Half"], None, None, 64, 64,
    ),
    "integers divided are floats": ("aten::div", [[16], [16]], ["int", "int"], None, None, 128, 64),
    "shapes that do not broadcast give no answer": ("aten::mul", [[16], [3]], [F32, F32], None, None, 76, None),
    "an operator that nobody knows gives no answer": ("my::op", [[16]], [F32], None, None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", TRAFFIC.values(), ids=TRAFFIC.keys())
def test_traffic(case: tuple[str, list[object], list[str], object, object, int | None, int | None]) -> None:
    op, shapes, dtypes, strides, concrete, read, written = case
    trace = Trace()
    trace.kernel("k", 0, 5, launch=(0, 2), op=op, shapes=shapes, dtypes=dtypes, strides=strides, concrete=concrete)
    assert (only(trace, "bytes_read"), only(trace, "bytes_written")) == (read, written)
    both = read is not None and written is not None
    assert only(trace, "bytes") == (read + written if both else None)  # type: ignore[operator]


def test_a_cats_dtype_is_in_its_kernels_name_alone() -> None:
    trace = Trace()
    name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4>"
    halves = [[[16, 32], [16, 32]], []]
    trace.kernel(
        name, 0, 5, launch=(0, 2), op="aten::cat", shapes=halves, dtypes=["TensorList", SCALAR], concrete=["", "0"]
    )
    assert (only(trace, "bytes_read"), only(trace, "bytes_written")) == (2048, 2048)


def test_of_an_operator_with_two_kernels_neither_ones_traffic_is_known() -> None:
    trace = Trace()
    op = trace.op("aten::mul", 0, 50, [[4], [4]], [F32, F32])
    trace.kernel("a", 100, 5, op=op, launch=(1, 2))
    trace.kernel("b", 110, 5, op=op, launch=(5, 2))
    assert column(activity_rows(trace.timeline()), "bytes") == [None, None]


@pytest.mark.parametrize(("direction", "read", "written"), [("HtoD", 0, 64), ("DtoH", 64, 0), ("DtoD", 64, 64)])
def test_a_copy_moves_device_memory_on_the_sides_that_are_devices(direction: str, read: int, written: int) -> None:
    trace = Trace()
    trace.copy(direction, 0, 5, 64)
    assert (only(trace, "bytes_read"), only(trace, "bytes_written")) == (read, written)


@pytest.mark.parametrize(
    "text", ["[[", "null", "[[-4]]", "[[1e400]]", "[" * 5000, '[["a"]]', "[[99999999999999999999]]"]
)
def test_damaged_shapes_read_as_not_recorded(text: str) -> None:
    trace = Trace()
    op = trace.op("aten::relu", 0, 9, None, [F32])
    op["input_shapes"] = text
    trace.kernel("k", 0, 5, launch=(0, 2), op=op)
    assert only(trace, "bytes") is None


# --- cost ------------------------------------------------------------------------------------------------------------


def test_deriving_rows_imports_no_pandas(tmp_path: Path) -> None:
    trace = Trace()
    trace.step(0, 20)
    trace.frame("a.py(1): f")
    trace.kernel("k", 0, 5, launch=(0, 2), op="aten::mul", shapes=[[4], [4]], dtypes=[F32, F32])
    trace.kernel("k", 9, 5)
    trace.timeline().write(tmp_path / "timeline")
    code = (
        "import sys; from pathlib import Path\nfrom tracemine.rows import row_sets\n"
        "from tracemine.timeline import Timeline\nrow_sets(Timeline.read(Path(sys.argv[1])))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "timeline")], check=True)


def test_rows_are_derived_column_by_column_not_row_by_row() -> None:
    def seconds(count: int) -> float:
        trace = Trace()
        for i in range(count):
            trace.kernel("k", i * 10, 5, launch=(i * 10 - 3, 2), op="aten::mul", shapes=[[4], [4]], dtypes=[F32, F32])
        timeline = trace.timeline()
        begin = time.process_time()
        row_sets(timeline)
        return time.process_time() - begin

    seconds(10)
    assert min(seconds(5000) for _ in range(3)) < 0.25, "5,000 activities take about 10 ms"
    assert np.isfinite(seconds(1))
