"""One kernel has one canonical name, whoever demangled or shortened it; two kernels have two."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.ops.kernel_names import canonical, is_short, short, short_name

# As PyTorch's profiler prints it, and as Nsight Compute did: 2023 with casts, 2025 without namespaces in two ways.
SAME = [
    (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add"
        "<c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)"
        "::{lambda(int)#1}>"
        "(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&)"
        "::{lambda(int)#1})",
        "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::"
        "CUDAFunctor_add<c10::BFloat16>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
        "void at::elementwise_kernel<128, 4, void at::gpu_kernel_impl_nocast<at::CUDAFunctor_add<c10::BFloat16>>"
        "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
        "void elementwise_kernel<128, 4, void gpu_kernel_impl_nocast<CUDAFunctor_add<BFloat16>>(TensorIteratorBase &, "
        "const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::launch_clamp_scalar("
        "at::TensorIteratorBase&, c10::Scalar)::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}, "
        "std::array<char*, 2ul> >(int, std::array<char*, 2ul>)",
        "void at::vectorized_elementwise_kernel<8, at::<unnamed>::launch_clamp_scalar(at::TensorIteratorBase &, "
        "c10::Scalar)::[lambda() (instance 1)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)], "
        "std::array<char *, 2>>(int, T2, T3)",
        "void vectorized_elementwise_kernel<8, unnamed>::launch_clamp_scalar(TensorIteratorBase &, Scalar)::"
        "[lambda() (instance 1)]::operator ()() const::[lambda(BFloat16) (instance 1)], std::array<char *, 2>>(int)",
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>"
        ", unsigned int, 4, 64, 64>(at::native::(anonymous namespace)::OpaqueType<2u>*, unsigned int)",
        "void at::<unnamed>::CatArrayBatchedCopy<at::<unnamed>::OpaqueType<2>, unsigned int, 4, 64, 64>(T1 *, T2)",
        "void _GLOBAL__N__eb37ca63_21_Shape_cu_0::CatArrayBatchedCopy<OpaqueType<(unsigned int)2>, unsigned int, "
        "(int)4, (int)64, (int)64>(T1 *, T2)",
    ),
    ("void f<true, false, 3>(float*)", "void f<(bool)1, (bool)0, (int)3>(float *)"),
    ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
]


@pytest.mark.parametrize("spellings", SAME, ids=lambda each: short(each[0]))
def test_all_spellings_of_a_name_are_one(spellings: tuple[str, ...]) -> None:
    assert len({canonical(name) for name in spellings}) == 1
    assert len({short(name) for name in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void f<{lambda(int)#1}>(int)", "void f<{lambda(int)#2}>(int)"),
        ("void f<float>(int)", "void f<double>(int)"),
        ("void f<(int)4>(int)", "void f<(int)8>(int)"),
        ("void f<true>(int)", "void f<false>(int)"),
        ("nvjet_sm90_tst_256x128_TNT", "nvjet_sm90_tst_256x128_bias_TNT"),
        ("void g<unsigned int>()", "void g<int>()"),
    ],
)
def test_what_differs_in_a_type_a_number_or_a_lambda_stays_apart(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_a_mangled_name_gives_its_function() -> None:
    add = (
        "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIN3c108BFloat16E"
        "EEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_"
    )
    assert short(add) == short(SAME[0][0]) == "elementwise_kernel"
    assert is_short(add)
    assert not is_short(SAME[0][0])
    assert (short("_Z5saxpyifPfS_"), short("_ZN12_GLOBAL__N_13fooE")) == ("saxpy", "foo")


@given(st.text(alphabet="abN_Z:<>(){}[],# 019lambdaunnamed", max_size=200))
def test_any_text_has_a_canonical_name(text: str) -> None:
    assert canonical(canonical(text)) == canonical(canonical(canonical(text)))
    assert short(text) is not None


@pytest.mark.parametrize("piece", ["(", "a::", "<a", "unnamed>::", "1", "_", "{lambda(int)#1}", "a (", ":: "])
def test_a_long_name_takes_a_time_linear_in_its_length(piece: str) -> None:
    begin = time.process_time()
    canonical(piece * (300_000 // len(piece)))
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("name", "few_words"),
    [
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()",
            "reduce_kernel",
        ),
        ("volta_sgemm_128x32_nt", "volta_sgemm_128x32_nt"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        (
            "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_align4>(P)",
            "cutlass_tensorop_s1688wgrad_align4",
        ),
        ("void mine::Kernel2<MyOwnGemm>(P)", "Kernel2"),  # whose first argument says nothing to CUTLASS
        ("void Kernel<>()", "Kernel"),
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("Memset (Device)", "Memset (Device)"),
        ("MemcpyLikeKernel<4>(int)", "MemcpyLikeKernel"),
        ("", ""),
        ("(((", "((("),
        ("核", "核"),
    ],
)
def test_a_short_name_is_what_tells_a_kernel_from_others(name: str, few_words: str) -> None:
    assert short_name(name) == few_words


def test_a_short_name_of_a_name_without_end_is_short_and_soon_there() -> None:
    began = time.monotonic()
    for name in ("a::" * 50_000 + "b<int>()", "Memcpy " + "x" * 10**6, "(" * 10**6, "Kernel2<" + "cutlass" * 20_000):
        assert 0 < len(short_name(name)) <= 200
    assert time.monotonic() - began < 5
