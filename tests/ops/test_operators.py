"""The operator table: torch's facts, spelled out where a wrong one would cost most, and free of torch at run time."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tracemine.ops import CLASSES, is_view, lookup, op_class, operator_names, table_version
from tracemine.ops.operators import name_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mul", "pointwise"),
        ("aten::add_", "pointwise"),
        ("aten::where", "pointwise"),
        ("aten::threshold_backward", "pointwise"),
        ("aten::native_dropout_backward", "pointwise"),
        ("aten::sum", "reduction"),
        ("aten::max", "reduction"),
        ("aten::linalg_vector_norm", "reduction"),
        ("aten::native_layer_norm_backward", "norm"),
        ("aten::_fused_rms_norm", "norm"),
        ("aten::_log_softmax_backward_data", "softmax"),
        ("aten::logsumexp", "reduction"),
        ("aten::addmm", "gemm"),
        ("aten::_scaled_mm", "gemm"),
        ("aten::linear", "gemm"),
        ("aten::convolution_backward", "conv"),
        ("aten::_scaled_dot_product_cudnn_attention", "attention"),
        ("aten::_flash_attention_backward", "attention"),
        ("aten::copy_", "copy"),
        ("aten::_to_copy", "copy"),
        ("aten::cat", "copy"),
        ("aten::clone", "copy"),
        ("aten::transpose", "view"),
        ("aten::_unsafe_view", "view"),
        ("aten::index", "gather"),
        ("aten::index_put_", "scatter"),
        ("aten::embedding", "embedding"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::native_dropout", "random"),
        ("aten::randperm", "random"),
        ("aten::sort", "sort"),
        ("aten::cumsum", "scan"),
        ("aten::_foreach_add_", "foreach"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::max_pool2d_with_indices_backward", "pool"),
        ("aten::upsample_nearest2d", "resample"),
        ("aten::nll_loss_forward", "loss"),
        ("aten::zeros", "fill"),
        ("aten::fill_", "fill"),
        ("aten::empty", "allocate"),
        ("aten::resize_", "allocate"),
        ("aten::_local_scalar_dense", "sync"),
        ("aten::nonzero", "sync"),
        ("aten::size", "metadata"),
        ("aten::linalg_svd", "linalg"),
        ("aten::_fft_r2c", "fft"),
        ("aten::_cudnn_rnn", "rnn"),
        ("c10d::allreduce_", "collective"),
    ],
)
def test_an_operator_is_of_the_class_an_engineer_expects(name: str, expected: str) -> None:
    assert op_class([name]) == [expected]


def test_every_operator_has_a_documented_class_and_none_is_left_over() -> None:
    classes = dict(zip(operator_names(), op_class(operator_names()), strict=True))
    assert set(classes.values()) <= CLASSES.keys()
    assert [name for name, found in classes.items() if found == "other"] == []


def test_every_class_of_the_hand_written_names_is_documented() -> None:
    assert {row.says for row in name_rows()} <= CLASSES.keys()


def test_each_hand_written_row_is_the_one_that_its_examples_meet() -> None:
    rows = name_rows()
    for row in rows:
        for example in row.examples:
            assert next(r for r in rows if r.pattern.fullmatch(example)) is row, example
            assert lookup(example) is not None


@pytest.mark.parametrize(
    "name",
    [
        "CompiledFunction",
        "autograd::engine::evaluate_function: MulBackward0",
        "ProfilerStep#3",
        "aten::no_such_operator",
        "my::cat",
        "fbgemm::unheard_of",
        "nccl:",
        "",
    ],
)
def test_a_name_that_says_no_kind_of_work_has_no_class(name: str) -> None:
    assert op_class([name]) == [None]


@pytest.mark.parametrize(
    ("name", "types", "aliases", "mutates", "overwrites"),
    [
        ("aten::add", ["float", "float", "Scalar"], (None,), (), ()),
        ("aten::add_", ["float", "float", "Scalar"], (0,), (0,), ()),
        ("aten::add", ["float", "float", "Scalar", "float"], (3,), (3,), (3,)),  # out=
        ("aten::copy_", ["float", "c10::Half", "Scalar"], (0,), (0,), (0,)),
        ("aten::fill_", ["float", "Scalar"], (0,), (0,), (0,)),
        ("aten::zero_", ["float"], (0,), (0,), (0,)),
        ("aten::view", ["float", "ScalarList"], (0,), (), ()),
        ("aten::_unsafe_view", ["float", "ScalarList"], (0,), (), ()),
        ("aten::split", ["float", "Scalar", "Scalar"], (0,), (), ()),
        ("aten::t_", ["float"], (0,), (), ()),  # in place, but no element is written
        ("aten::resize_", ["float", "ScalarList", ""], (0,), (), ()),
        ("aten::reshape", ["float", "ScalarList"], (0,), (), ()),
        ("aten::index_put_", ["float", "", "float", "Scalar"], (0,), (0,), ()),
        ("aten::_foreach_add_", ["TensorList", "TensorList", "Scalar"], (), (0,), ()),
        ("aten::sort", ["float", "Scalar", "Scalar"], (None, None), (), ()),
        ("aten::maximum", ["float", "float"], (None,), (), ()),
        ("c10d::allreduce_", ["TensorList", "", "", "", "Scalar", "Scalar"], (0, None), (0,), ()),
        ("c10d::_allgather_base_", ["float", "float", "", "Scalar", "Scalar"], (0, None), (0,), (0,)),
    ],
)
def test_what_a_call_shares_and_writes(
    name: str, types: list[str], aliases: tuple[int | None, ...], mutates: tuple[int, ...], overwrites: tuple[int, ...]
) -> None:
    operator = lookup(name)
    assert operator is not None
    overload = operator.pick(types)
    assert overload is not None
    assert (overload.aliases, overload.mutates, overload.overwrites) == (aliases, mutates, overwrites)


def test_batch_norm_writes_its_running_statistics_although_the_schema_does_not_say_so() -> None:
    operator = lookup("aten::cudnn_batch_norm")
    assert operator is not None
    overload = operator.pick(["float"] * 5 + ["Scalar"] * 3)
    assert overload is not None and overload.mutates == (3, 4)


def test_a_number_where_a_tensor_was_wanted_still_picks_the_tensor_overload() -> None:
    operator = lookup("aten::mul")
    assert operator is not None
    picked = operator.pick(["c10::BFloat16", "double"])
    assert picked is not None and picked.name == "Tensor"


def test_an_overload_is_not_guessed_where_the_recording_does_not_tell() -> None:
    operator = lookup("aten::add")
    assert operator is not None
    assert operator.pick([]) is None
    assert operator.pick(["float"]) is None
    maximum = lookup("aten::max")
    assert maximum is not None and maximum.overloads
    assert maximum.pick(["float", "float"]) is None  # max(a, b), or max(a, out=b)?


def test_a_recorded_overload_name_narrows_the_operator_down() -> None:
    operator = lookup("aten::max.other")
    assert operator is not None
    assert (operator.op_class, [o.name for o in operator.overloads]) == ("pointwise", ["other"])
    default = lookup("aten::relu.default")
    assert default is not None and [o.name for o in default.overloads] == [""]


def test_views_are_views_and_in_place_arithmetic_is_none() -> None:
    assert all(map(is_view, ("aten::t", "aten::slice", "aten::unbind", "aten::detach", "aten::expand")))
    assert not any(map(is_view, ("aten::add_", "aten::contiguous", "aten::to", "aten::empty", "unheard::of")))


def test_positions_lie_within_the_arguments() -> None:
    for name in operator_names():
        operator = lookup(name)
        assert operator is not None and operator.overloads
        for overload in operator.overloads:
            places = {*overload.mutates, *(a for a in overload.aliases if a is not None), overload.positional - 1}
            assert max(places, default=-1) < len(overload.arguments), (name, overload.name)
            assert set(overload.overwrites) <= set(overload.mutates)
            assert len(overload.aliases) == len(overload.outputs)
            assert overload.op_class in CLASSES


def test_a_name_of_any_length_is_looked_up_in_no_time() -> None:
    assert lookup("aten::" + "a" * 10_000_000) is None
    assert lookup("fbgemm::" + "permute" * 1_000_000) is None


@pytest.mark.parametrize("module", ["dtypes", "kernels", "operators"])
def test_the_examples_in_the_documentation_are_true(module: str) -> None:
    found = importlib.import_module(f"tracemine.ops.{module}")
    assert doctest.testmod(found).failed == 0


def test_the_tables_answer_where_torch_cannot_be_imported() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'triton', 'pandas'): sys.modules[name] = None\n"
        "from tracemine.ops import lookup, classify, dtype\n"
        "assert lookup('aten::mm').op_class == 'gemm'\n"
        "assert classify(['volta_sgemm_64x64_tn'])[0].op_class == 'gemm'\n"
        "assert dtype('c10::Half') == 'float16'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_importing_the_tables_reads_none_of_them() -> None:
    code = "import tracemine.ops.operators as o, tracemine.ops.kernels as k, tracemine.ops.patterns as p\n" + "\n".join(
        f"assert {f}.cache_info().currsize == 0" for f in ("o._table", "o.name_rows", "k.family_rows", "p.document")
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---------------------------------------------------------------- against torch itself


# Tagged pointwise by torch, of another class here: see OVERRIDES in tools/generate_ops.py.
NOT_POINTWISE_HERE = {"aten::clone": "copy", "aten::equal": "sync", "prims::convert_element_type": "copy"}


def test_what_torch_tags_pointwise_is_pointwise_here() -> None:
    torch = _torch()
    checked = 0
    for name in operator_names():
        operator = lookup(name)
        assert operator is not None
        namespace, _, short = name.partition("::")
        for overload in operator.overloads:
            packet = getattr(getattr(torch.ops, namespace), short)
            if torch.Tag.pointwise in getattr(packet, overload.name or "default").tags:
                assert overload.op_class == NOT_POINTWISE_HERE.get(name, "pointwise"), (name, overload.name)
                checked += 1
    assert checked > 500


def test_the_committed_table_is_what_the_generator_makes() -> None:
    _torch()
    script = ROOT / "tools" / "generate_ops.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_table_says_is_written_is_what_torch_writes() -> None:
    """Run some operators, and compare each input before and after."""
    torch = _torch()
    x, y = torch.arange(6.0).reshape(2, 3) - 2, torch.ones(2, 3)
    calls = [
        ("aten::add_.Tensor", (x, y)),
        ("aten::relu_", (x,)),
        ("aten::copy_", (x, y)),
        ("aten::fill_.Scalar", (x, 7.0)),
        ("aten::mul.Tensor", (x, y)),
        ("aten::transpose.int", (x, 0, 1)),
        ("aten::t_", (x,)),
        ("aten::index_fill_.int_Scalar", (x, 0, torch.tensor([0]), 3.0)),
        ("aten::cumsum_", (x, 1)),
    ]
    for name, arguments in calls:
        arguments = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in arguments)
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        namespace, _, rest = name.partition("::")
        short, _, overload_name = rest.partition(".")
        result = getattr(getattr(getattr(torch.ops, namespace), short), overload_name or "default")(*arguments)
        operator = lookup(name if overload_name else f"{name}.default")
        assert operator is not None
        (overload,) = operator.overloads
        written = tuple(
            i
            for i, (old, new) in enumerate(zip(before, arguments, strict=True))
            if isinstance(old, torch.Tensor)
            and old.flatten().tolist() != new.as_strided(old.shape, old.stride()).flatten().tolist()
        )
        assert written == overload.mutates, name
        shares = result.untyped_storage().data_ptr() == arguments[0].untyped_storage().data_ptr()
        assert overload.aliases == ((0,) if shares else (None,)), name


def _torch() -> Any:
    torch = pytest.importorskip("torch")
    if (version := torch.__version__.partition("+")[0]) != table_version():
        pytest.skip(f"the table is of torch {table_version()}, installed is {version}")
    for each in ("torch._prims", "torch.distributed._functional_collectives", "torch.distributed._symmetric_memory"):
        importlib.import_module(each)  # registers operators of its own

    return torch
