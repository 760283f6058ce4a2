"""Nearly all of the GPU time on serving traces is of known kernels, by their operators or by their names alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.formats import open_trace
from tracemine.ops import classify
from tracemine.rows import Flags, row_sets
from tracemine.rows.activities import activity_rows
from tracemine.rows.table import category, number

COMPAT = os.environ.get("TRACEMINE_COMPAT_TRACES")
SERVING = (
    "tracelens_b200_eager",
    "tracelens_sglang_qwen3-8b_decode",
    "tracelens_vllm_decode_full_graph",
    "tracelens_vllm_piecewise_graph",
    "tracelens_xdit_flux1_sage",
)
# Kernels of serving engines that were read one by one, by what they do.
READ = {
    "collective": [
        "void deep_ep::internode_ll::combine<false, 7168, 9>(int)",
        "void dpsk::ep::internode::dispatch<4096>(int)",
        "void a::b::ep::intranode::combine<__nv_bfloat16>(int)",
        "void tensorrt_llm::kernels::moeAllToAllKernel<8>(int)",
        "void tensorrt_llm::kernels::mnnvl::oneshotAllreduceFusionKernel<8u, __nv_bfloat16, true>(int)",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int)",
        "fcollect_on_stream_kernel",
        "void broadcast_on_stream_kernel<long>(long*)",
        "allToAllV(long*, long*, long*, long*, unsigned long, int, int)",
        "rcclGenericKernel_4",
    ],
    "gemm": [
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_swiGlu",
        "fused_moe_kernel",
    ],
    "attention": ["sage_fwd", "kernel_unified_attention_3d", "void flash::flash_fwd_splitkv_combine_kernel<int>(int)"],
    "sort": ["_combined_routing_compute", "_topk_forward", "_expt_data_compute", "rejection_random_sample_kernel"],
    "fill": ["_combined_routing_memset"],
    "gather": ["_finalize_matmul_scatter_bf16", "void vllm::moe::permute_kernel<int>(int)"],
    "scatter": ["set_mla_kv_buffer_kernel", "reshape_and_cache_kernel_flash"],
    "quantize": ["void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>(int)", "sage_quant_kernel"],
    # near misses
    "copy": ["void permute_kernel<float>(float*)"],
    "other": [
        "void step::internode::dispatch(int)",
        "void a::ep::plan::dispatch(int)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(int)",  # of one rank alone
        "allToAllVInfo",
        "barrier_kernel",
        "my_routing_kernel",
        "dispatch",
        "bmm_helper",
        "expt_data",
        "sage_gpu",
    ],
}


@pytest.mark.parametrize(("expected", "name"), [(each, name) for each, names in READ.items() for name in names])
def test_kernels_of_serving_engines_have_their_class(expected: str, name: str) -> None:
    assert classify([name])[0].op_class == expected


@pytest.mark.skipif(not COMPAT, reason="TRACEMINE_COMPAT_TRACES is not set")
@pytest.mark.parametrize("name", SERVING)
def test_nearly_all_of_the_gpus_time_on_serving_traces_is_classified(name: str) -> None:
    rows = activity_rows(open_trace(Path(str(COMPAT)) / f"kineto/{name}.json.gz"))
    dur, kind, kernel = number(rows, "dur_ns"), category(rows, "op_class"), category(rows, "name")
    known = np.array([*(each != "other" for each in kind.values), False])[kind.codes]
    by_name = np.array([*(each.op_class != "other" for each in classify(kernel.values)), False])[kernel.codes]
    assert dur[known].sum() >= 0.99 * dur.sum()
    assert dur[by_name].sum() >= 0.95 * dur.sum()


def test_kernels_that_engines_wrote_by_hand_are_no_members_of_a_run() -> None:
    trace = Trace()
    for at, name in enumerate(("rms_norm_kernel", "_finalize_matmul_scatter_bf16", "reshape_and_cache_kernel_flash")):
        trace.kernel(name, 1_000 + 20 * at, 10, launch=(900 + at, 1))
    handwritten = row_sets(trace.timeline())["activities"].columns["handwritten"]
    assert isinstance(handwritten, Flags)
    assert handwritten.values.tolist() == [False, True, True]
