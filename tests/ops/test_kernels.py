"""Kernel families: every row met by its examples, near misses that are not, and names from all traces at hand."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.screens import Events
from tracemine.ops import CLASSES, KernelFamily, classify, functor, op_class
from tracemine.ops.kernels import family_rows, functor_rows, head


def test_every_row_is_the_one_that_its_examples_meet() -> None:
    rows = family_rows()
    for row in rows:
        assert row.examples, row
        for example in row.examples:
            fitting = (r for r in rows if r.head.search(head(example)) and (not r.within or r.within.search(example)))
            assert next(fitting, None) is row, example
            assert classify([example]) == [row.family], example


def test_every_row_has_a_documented_class() -> None:
    assert {row.family.op_class for row in family_rows()} <= CLASSES.keys()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # a name that looks like one family and is another
        ("void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(X&)>(int)", "pointwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>()", "reduction"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", "copy"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>()", "norm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(Params)", "gemm"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<int>>>(Params)", "attention"),
        ("void at::native::unrolled_elementwise_kernel<CUDAFunctor_add<double>, LoadWithCast<2>>(int)", "pointwise"),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>()", "softmax"),
        ("void vllm::moe::topkGatingSoftmax<4, 64, 4, 16>()", "sort"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>()", "gemm"),
        ("reshape_and_cache_kernel_flash", "scatter"),
        ("triton_poi_fused__softmax_backward_data_mm_3", "pointwise"),
        ("triton_per_fused_mm_native_layer_norm_2", "reduction"),
        ("triton_tem_fused_addmm_relu_0", "gemm"),
        ("void rocprim::detail::trampoline_kernel<rocprim::detail::wrapped_radix_sort_config<int>>()", "sort"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>()", "random"),
        ("Memset (Unknown)", "fill"),
        # words that contain a family's word, and nothing known
        ("triangle_count", "other"),
        ("my_kernel", "other"),
        ("Kernel", "other"),
        ("triton_like_name", "other"),
        ("", "other"),
    ],
)  # fmt: skip
def test_near_misses_are_distinguished(name: str, expected: str) -> None:
    assert classify([name])[0].op_class == expected


PRODUCTS = (
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x128x1_swiglu",
    "_p_matmul_ogs_NNT_bf16xbf16xmxfp4_64x256x128x1",
    "fused_moe_kernel",
    "fused_moe_kernel_gptq_awq",
    "_ZN5aiter33fmoe_bf16_pertokenFp8_g1u1_vs_silu",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<G, cutlass::epilogue::thread::SiLu>>(Params)",
    "void cutlass::device_kernel<vllm::cutlass_3x_gemm<cutlass::gemm::collective::CollectiveMma<int>>>(Params)",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_relu_MT256x128",
    "Cijk_Ailk_Bljk_F8BS_BH_SAB_SCD_SAV_UserArgs_MT128x128x128",
    "gemm_silu",
    "gemm_silu_kernel",
    "_gemm_a8w8_blockscale_kernel",
    "_gemm_afp4wfp4_kernel_preshuffled_scales",
    "_batched_gemm_a8w8_per_token_group_prequant_w_per_batched_tensor_quant_kernel",
    "void marlin::Marlin<half, 256, 4, 16, 4>(int4 const*)",
    "void marlin_moe_wna16::Marlin<half>(int4 const*)",
    "awq_gemm_kernel",
    "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_bias_gelu_TNT",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168u, 4096u>(float*)",
    "tritonGEMM_kernel",
    "_scaled_mm_gelu_kernel",
    "grouped_gemm_swiglu_forward",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_32x5_tn",
    "triton_tem_fused_addmm_gelu_0",
    "mxfp8_grouped_matmul",
)
NO_PRODUCTS = (
    "_swiglu_forward_kernel",
    "_geglu_tanh_forward_kernel",
    "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>>(c10::BFloat16*)",
    "silu_and_mul_per_block_quant",
    "_act_mul_and_dynamic_mxfp4_quant_kernel",
    "_dynamic_mxfp4_quant_kernel",
    "_fused_rms_mxfp4_quant_kernel",
    "scaled_fp4_quant_kernel",
    "quantize_mmq_q8_1",
    "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>()",
    "void moe_align_block_size_kernel<int>(int*)",
    "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16>(float const*)",
    "get_group_gemm_starts",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(X&)>(int)",
    "void vllm::rms_norm_static_fp8_quant_kernel<c10::BFloat16>()",
    "reshape_and_cache_kernel_flash",
)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_one_whatever_its_epilogue_is_called(name: str) -> None:
    assert classify([name])[0].op_class == "gemm"


@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_what_only_serves_a_product_or_sounds_like_its_epilogue_is_none(name: str) -> None:
    assert classify([name])[0].op_class not in ("gemm", "conv", "attention")


def test_kernels_that_libraries_fused_by_hand_are_told_from_torchs_own() -> None:
    ours = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, X<float>>()"
    theirs = "void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, float>, float>(int)"
    assert [each.family for each in classify([ours, theirs])] == ["multi_tensor", "apex"]


def test_what_nothing_knows_is_other() -> None:
    assert classify(["zzz"]) == [KernelFamily("other", "other")]


@pytest.mark.parametrize(
    ("kineto", "nsys"),
    [
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
            "void at::native::<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)2, (int)128, (int)1>(T1 *)",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, Array<char*, 1>>(int)",
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, array<char>>(int)",
        ),
    ],
)  # fmt: skip
def test_both_ways_of_demangling_give_one_family(kineto: str, nsys: str) -> None:
    assert classify([kineto]) == classify([nsys])
    assert head(kineto) == head(nsys)


def test_every_functor_row_is_the_one_that_its_examples_meet() -> None:
    rows = functor_rows()
    for row in rows:
        for example in row.examples:
            assert next(r for r in rows if r.pattern.search(example)) is row, example


@pytest.mark.parametrize(
    ("inside", "operation"),
    [
        ("at::native::CUDAFunctor_add<float>", "add"),
        ("at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", "mul"),
        ("at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}", "silu"),
        ("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)", "copy"),
        ("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)", "copy"),
        ("at::native::FillFunctor<c10::Half>", "fill"),
        ("at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)", "rsqrt"),
        ("at::native::addcmul_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)", "addcmul"),
        ("my::Functor<float>", None),
    ],
)
def test_the_functor_names_the_operation(inside: str, operation: str | None) -> None:
    assert (
        functor(f"void at::native::vectorized_elementwise_kernel<4, {inside}, std::array<char*, 2ul>>(int)")
        == operation
    )


@pytest.mark.parametrize(
    "name",
    [
        "a" * 10_000_000,
        "_Z" + "a" * 10_000_000,
        "<" * 1_000_000,
        "std::enable_if<" + "::type" * 100_000,
        "triton_" + "_mm" * 100_000 + "_",
        "(anonymous namespace)::" * 100_000,
        "_GLOBAL__N__" * 100_000,
        "elementwise_kernel<" + "flip_" * 100_000,
        "conv" * 1_000_000,
        " ".join("cudnn" for _ in range(100_000)),
        "at::native::" + "kernel_" * 1_000_000,
    ],
)  # fmt: skip
def test_a_hostile_name_costs_no_more_than_a_long_one(name: str) -> None:
    started = time.process_time()
    assert classify([name])[0].op_class in CLASSES
    functor(name)
    assert time.process_time() - started < 0.25


# ---------------------------------------------------------------- traces from many hands

FOLDER = os.environ.get("TRACEMINE_COMPAT_TRACES")
needs_traces = pytest.mark.skipif(not FOLDER, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")


class RealTraces(NamedTuple):
    """What both tests ask of the traces."""

    kernels: list[tuple[str, float]]  # name and microseconds of GPU activities, in Kineto and nsys files: sums
    owners: set[str]  # names of operators that own kernels


@pytest.fixture(scope="module")
def read(gpu_events: Callable[[Path], Events]) -> RealTraces:
    """What the standard library reads of each file, and of which other tests ask something else."""
    files = [gpu_events(path) for path in _kineto_files()]
    named_us = [each for file in files for each in file.named_us.items()]
    return RealTraces([*named_us, *_nsys_kernels()], {name for file in files for name in file.owners})


@needs_traces
def test_almost_all_gpu_time_of_real_traces_has_a_class(read: RealTraces, capsys: pytest.CaptureFixture[str]) -> None:
    unknown_us: dict[str, float] = defaultdict(float)
    total_us = 0.0
    for name, dur_us in read.kernels:
        total_us += dur_us
        if classify([name])[0].op_class == "other":
            unknown_us[name] += dur_us
    share = sum(unknown_us.values()) / total_us
    with capsys.disabled():
        print(
            f"\nkernels without a class: {share:.2%} of {total_us / 1e6:.2f} s;"
            f" {len(unknown_us)} names: {[name[:60] for name in unknown_us][:10]}"
        )
    assert total_us > 0
    assert share <= 0.02


@needs_traces
def test_almost_all_operators_that_own_kernels_in_real_traces_have_a_class(
    read: RealTraces, capsys: pytest.CaptureFixture[str]
) -> None:
    owners = sorted(read.owners)
    unknown = [name for name, found in zip(owners, op_class(owners), strict=True) if found in (None, "other")]
    with capsys.disabled():
        print(f"\noperators that own kernels: {len(owners)}, without a class: {unknown}")
    assert owners
    assert len(unknown) <= 0.05 * len(owners)


def _kineto_files() -> list[Path]:
    folder = Path(str(FOLDER))
    # Not of kernels that PyTorch launched, or made to be damaged.
    others = {"et", "ncu", "inputs", "jax", "compilers"}
    found = [p for p in folder.rglob("*.json*") if not others.intersection(p.relative_to(folder).parts)]
    return sorted(p for p in found if "_et_" not in p.name and not p.name.startswith(("et.", "meta_")))


def _nsys_kernels() -> Iterator[tuple[str, float]]:
    """Name and microseconds of every kernel in the nsys files."""
    query = (
        "select s.value, sum(k.end - k.start) / 1e3 from CUPTI_ACTIVITY_KIND_KERNEL k"
        " join StringIds s on s.id = k.demangledName group by 1"
    )
    for path in sorted(Path(str(FOLDER)).rglob("*.sqlite")):
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        try:
            if connection.execute("select 1 from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone():
                yield from connection.execute(query)
        finally:
            connection.close()
