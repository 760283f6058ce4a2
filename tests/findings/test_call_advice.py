"""What is advised of a library's calls can be done to them: every rule, every operator, both vendors."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from tests.findings.test_library_calls import F32, FFMA, HALF, NVJET, SGEMM, WGRAD, Calls
from tracemine.causes import load_rules
from tracemine.findings.advice_facts import call_class
from tracemine.matching import Rule
from tracemine.matching.advice import Fact, advised
from tracemine.matching.lint import misfits
from tracemine.ops.infer.library import OPERATIONS, LibraryCall
from tracemine.rows.library import KINDS_OF_CAUSE, KnownCall, cause_of

RULES = {rule.id: rule for rule in load_rules()}
OF_CALLS = [rule for rule in RULES.values() if rule.saving == "reach_rate" or rule.id == "channels_last"]


@pytest.mark.parametrize("rule", OF_CALLS, ids=lambda rule: rule.id)
def test_nothing_is_advised_that_cannot_take_the_call(rule: Rule) -> None:
    assert list(misfits(rule)) == []


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("library_below_rate", "F.scaled_dot_product_attention(q, k, v)"),
        ("library_below_rate", "model.to(memory_format=torch.channels_last)"),
        ("no_tensor_cores", "torch.backends.cudnn.benchmark = True"),
        ("float32_without_tf32", "torch.backends.cudnn.allow_tf32 = True"),
        ("misaligned_product", "F.scaled_dot_product_attention(q, k, v)"),
        ("patch_convolution", "torch.backends.cuda.preferred_blas_library('cublaslt')"),
        ("channels_last", "x.to(memory_format=torch.channels_last)"),  # which MIOpen does not take by itself
    ],
)
def test_one_text_for_all_is_noticed(rule: str, fault: str) -> None:
    assert list(misfits(replace(RULES[rule], fix=fault, advice=())))


def test_what_a_replacement_is_made_of_may_be_named() -> None:
    """A convolution that becomes a product is told how products become faster."""
    assert "set_float32_matmul_precision" in RULES["grouped_convolution"].fix
    planted = replace(RULES["grouped_convolution"], fix=RULES["grouped_convolution"].fix.replace("torch.bmm", "done"))
    assert list(misfits(planted))


def test_no_cause_is_seen_in_a_kind_of_call_that_is_said_not_to_have_it() -> None:
    seen: dict[str, set[str]] = {}
    facts = product(
        OPERATIONS.values(), ("float16", "float32", "float64"), (True, False, None), (1, 4), (1, 16), (True, False)
    )
    for kind, dtype, given, groups, channels, flag in facts:
        call = LibraryCall(
            operation=kind,
            dtype=dtype,
            flops=1,
            nbytes=1,
            misaligned=given if kind == "product" else None,
            allow_tf32=given if kind == "convolution" else None,
            groups=groups if kind == "convolution" else 1,
            channels=channels if kind == "convolution" else 0,
            patches=flag and kind == "convolution",
        )
        for unit, narrow, kernels in product(("vector", "matrix"), (True, False), (1, 4)):
            one = KnownCall(
                call=call,
                unit=unit,
                narrow=narrow,
                kernels=kernels,
                computes=narrow,
                has_tf32=True,
                runs_tf32=False,
                converts_float64=flag,
            )
            seen.setdefault(cause_of(one), set()).add(kind)
    assert set(seen) == set(KINDS_OF_CAUSE)
    assert {
        cause: kinds - KINDS_OF_CAUSE[cause] for cause, kinds in seen.items() if kinds - KINDS_OF_CAUSE[cause]
    } == {}


def fix_of(calls: Calls, rule: str) -> str:
    return calls.found()[rule].fix


def test_a_slow_product_is_told_of_libraries_of_products_alone() -> None:
    fix = fix_of(Calls().product(NVJET, 3_000_000, 2048, 2048, 2048), "library_below_rate")
    assert "preferred_blas_library" in fix
    assert "channels_last" not in fix
    assert "sdpa_kernel" not in fix


def test_a_slow_convolution_is_told_of_layouts_and_algorithms_alone() -> None:
    fix = fix_of(Calls().convolution([(WGRAD, 3_000_000)], [16, 256, 56, 56], [256, 256, 3, 3]), "library_below_rate")
    assert "channels_last" in fix
    assert "cudnn.benchmark" in fix
    assert "preferred_blas_library" not in fix


def test_slow_attention_is_told_of_other_kernels_alone() -> None:
    heads = [8, 16, 2048, 64]
    strides = [16 * 2048 * 64, 2048 * 64, 64, 1]
    inputs = (
        [heads] * 3 + [[]] * 4,
        [HALF] * 3 + ["Scalar"] * 4,
        [strides] * 3 + [[]] * 4,
        [""] * 3 + ["0.", "False", "False", ""],
    )
    calls = Calls().call("aten::_scaled_dot_product_flash_attention", [("flash_fwd_kernel", 30_000_000)], inputs)
    fix = fix_of(calls, "library_below_rate")
    assert "sdpa_kernel" in fix
    assert "channels_last" not in fix


def test_a_convolution_without_matrix_units_is_told_so() -> None:
    calls = Calls().convolution([(SGEMM, 480_000)], [2, 3, 224, 224], [384, 3, 16, 16], stride=8)
    assert "channels_last" in fix_of(calls, "no_tensor_cores")


def test_products_and_convolutions_in_one_finding_are_told_both() -> None:
    both = Calls().product(FFMA, 1_372_600, 8192, 2048, 2048, F32, turned=False)
    alone = fix_of(both, "float32_without_tf32")
    both.convolution([(SGEMM, 3_000_000)], [16, 256, 56, 56], [256, 256, 3, 3], dtype=F32, tf32=False)
    fix = fix_of(both, "float32_without_tf32")
    assert "cudnn.allow_tf32" not in alone
    assert "cudnn.allow_tf32" in fix
    assert "set_float32_matmul_precision" in fix


@pytest.mark.parametrize(
    ("facts", "there", "not_there"),
    [
        ({"call_class": "convolution", "amd": True}, "PYTORCH_MIOPEN_SUGGEST_NHWC=1", "cuDNN"),
        ({"call_class": "convolution", "amd": False}, "cuDNN", "MIOPEN"),
        ({"call_class": "product", "amd": True}, "PYTORCH_TUNABLEOP_ENABLED=1", "cublaslt"),
        ({"call_class": "product", "amd": False}, "cublaslt", "TUNABLEOP"),
        ({"call_class": None}, "larger batch", "channels_last"),
    ],
)
def test_each_vendor_has_its_own(facts: dict[str, Fact], there: str, not_there: str) -> None:
    rule = RULES["library_below_rate"]
    text = advised(rule.advice, rule.fix, facts)
    assert there in text
    assert not_there not in text


def test_channels_last_under_rocm_names_what_makes_pytorch_take_it() -> None:
    rule = RULES["channels_last"]
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in advised(rule.advice, rule.fix, {"amd": True})
    assert "MIOPEN" not in advised(rule.advice, rule.fix, {"amd": False})


def test_operators_of_several_kinds_are_no_kind() -> None:
    assert call_class(["aten::mm", "aten::cudnn_convolution"]) is None
    assert call_class(["aten::add"]) is None
    assert call_class([]) is None
