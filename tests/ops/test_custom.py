"""Operators of other libraries: every line of the table is sound, and says what the traces of those libraries show."""

from __future__ import annotations

import pytest

from tracemine.flow.effects import effects
from tracemine.ops import CLASSES, is_custom, lookup
from tracemine.ops.custom import custom_signatures, libraries
from tracemine.ops.infer import infer

BF16, FP8, LONG, FLOAT = "c10::BFloat16", "c10::Float8_e4m3fn", "long int", "float"


def test_every_line_is_sound_and_has_its_source() -> None:
    names = [name for library in libraries() for name in library.operators]
    assert len(names) == len(set(names)) > 120
    for library in libraries():
        assert library.source.startswith("github.com/") and library.versions
        for name, signatures in library.operators.items():
            assert is_custom(name), name
            operator = lookup(name)
            assert operator is not None and len(operator.overloads) == len(signatures)
            for overload in operator.overloads:
                assert overload.op_class in CLASSES, name
                given = [argument.name for argument in overload.arguments]
                assert len(given) == len(set(given)), name
                assert all(argument.type and " " not in argument.type for argument in overload.arguments), name
                assert overload.outputs or overload.mutates, f"{name} gives nothing and writes nothing"
            counts = [len(overload.arguments) for overload in operator.overloads]
            assert len(counts) == len(set(counts)), f"versions of {name} are told apart by how many arguments they take"


# As serving engines' traces record them: one type an argument, "" for what is no tensor and no number.
@pytest.mark.parametrize(
    ("name", "types", "written"),
    [
        ("_C::rms_norm", [BF16, BF16, BF16, "Scalar"], (0,)),
        ("_C::fused_add_rms_norm", [BF16, BF16, BF16, "Scalar"], (0, 1)),
        ("_C::rotary_embedding", [LONG, BF16, BF16, "Scalar", BF16, "Scalar"], (1, 2)),
        ("_C::static_scaled_fp8_quant", [FP8, BF16, FLOAT], (0,)),
        ("_C::static_scaled_fp8_quant", [FP8, BF16, FLOAT, ""], (0,)),
        ("_C_cache_ops::reshape_and_cache_flash", [BF16, BF16, BF16, BF16, LONG, "", FLOAT, FLOAT], (2, 3)),
        ("vllm::unified_attention_with_output", [FP8, BF16, BF16, BF16, "", "", ""], (3, 6)),
        ("vllm::unified_attention_with_output", [BF16, BF16, BF16, BF16, "", "", "", BF16], (3, 6)),
        ("vllm::moe_forward", [BF16, BF16, ""], (0,)),
        ("sgl_kernel::sgl_per_token_group_quant_fp8", [BF16, FP8, FLOAT, *["Scalar"] * 5], (1, 2)),
        ("aiter::rmsnorm2d_fwd_with_add", [BF16] * 5 + ["Scalar", "Scalar"], (0, 3)),
        ("flash_attn::_flash_attn_forward", [BF16, BF16, BF16, *["Scalar"] * 6, "", "Scalar"], ()),
        ("mylib::touch", [BF16], None),
    ],
)
def test_what_a_recorded_call_writes(name: str, types: list[str], written: tuple[int, ...] | None) -> None:
    operator = lookup(name)
    overload = None if operator is None else operator.pick(types)
    assert (None if overload is None else overload.mutates) == written


def test_what_an_execution_traces_schema_leaves_unmarked_the_table_knows() -> None:
    schema = "sgl_kernel::sgl_per_token_quant_fp8(Tensor input, Tensor output_q, Tensor output_s) -> ()"
    assert effects(schema).mutates == {1, 2}
    assert not effects(schema).mute


def test_a_schema_in_no_table_that_marks_nothing_is_not_believed() -> None:
    assert effects("mylib::touch(Tensor x) -> ()").mute
    assert not effects("mylib::touch(Tensor(a!) x) -> ()").mute
    assert not effects("aten::relu(Tensor self) -> Tensor").mute


def test_an_output_like_an_argument_has_its_shape_and_dtype() -> None:
    shapes = [[2, 8, 4, 64]] * 3 + [[]] * 8
    types = [BF16] * 3 + ["Scalar"] * 6 + ["", "Scalar"]
    found = infer("flash_attn::_flash_attn_forward", shapes, types).outputs
    assert found is not None and found[0] is not None
    assert (found[0].shape, found[0].dtype) == ((2, 8, 4, 64), "bfloat16")
    assert found[1:] == (None, None, None)


@pytest.mark.parametrize(
    ("name", "custom"),
    [
        ("fbgemm::permute_2D_sparse_data", True),
        ("torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", True),
        ("torchvision::nms", True),
        ("aten::mul", False),
        ("prims::convert_element_type", False),
        ("torch::autograd::AccumulateGrad", False),
        ("torch.distributed.ddp.reducer::copy_bucket_to_grad", False),
        ("autograd::engine::evaluate_function: MulBackward0", False),
        ("record_param_comms", False),
        ("triton_poi_fused_add_0", False),
        ("nccl:all_reduce", False),
    ],
)
def test_whose_an_operator_is(name: str, custom: bool) -> None:
    assert is_custom(name) is custom


def test_what_no_table_has_has_no_signature() -> None:
    assert custom_signatures("aten::mul") == custom_signatures("mylib::touch") == ()
