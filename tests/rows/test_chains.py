"""Runs of neighbours, where nobody knows what a kernel reads and writes: they end where something known runs."""

from __future__ import annotations

from typing import Any

from tests.timelines import Trace
from tracemine.pipeline import Analysis, analysed
from tracemine.rows.table import Flags, Numbers

SHAPES: dict[str, Any] = {"shapes": [[512, 512]], "dtypes": ["float"]}
PRODUCT: dict[str, Any] = {"shapes": [[512, 512], [512, 512]], "dtypes": ["float", "float"]}


def made(*ops: str, kernel: str = "k") -> Analysis:
    trace = Trace()
    for at, op in enumerate(ops):
        shapes = PRODUCT if op == "aten::mm" else SHAPES
        trace.kernel(kernel, 1_000 + 200 * at, 150, launch=(100 + 20 * at, 10), op=op or None, **shapes if op else {})
    return analysed(trace.timeline())


def chains(analysis: Analysis) -> list[int]:
    column = analysis.rows["activities"].columns["chain"]
    assert isinstance(column, Numbers)
    return [int(code) for code in column.values]


def handwritten(analysis: Analysis) -> list[bool]:
    column = analysis.rows["activities"].columns["handwritten"]
    assert isinstance(column, Flags)
    return [bool(flag) for flag in column.values]


def test_a_known_product_ends_a_run_of_what_is_not_known() -> None:
    first, product, second, third = chains(made("mylib::a", "aten::mm", "mylib::b", "mylib::c"))
    assert second == third
    assert len({first, product, second}) == 3


def test_neighbours_of_which_nothing_is_known_are_one_run() -> None:
    assert len(set(chains(made("mylib::a", "mylib::b", "mylib::c")))) == 1


def test_another_librarys_operators_are_fused_by_hand() -> None:
    assert handwritten(made("mylib::a", "torch::autograd::CppNode<Lookup>", "aten::relu")) == [True, True, False]


def test_kernels_of_such_libraries_are_told_by_their_names_where_no_operator_is() -> None:
    trace = Trace()
    for at, name in enumerate(
        (
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
            "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
            "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)",
        )
    ):
        trace.kernel(name, 100 * at, 50)
    assert handwritten(analysed(trace.timeline())) == [True, True, True, False]


def test_lists_of_tensors_of_torchs_own_operators_are_not() -> None:
    name = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)"
    assert handwritten(made("aten::_foreach_add_", kernel=name)) == [False]
