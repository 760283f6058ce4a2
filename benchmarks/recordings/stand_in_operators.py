"""Which operators of an execution trace of a CPU would launch a kernel on a GPU, and what it might be called.

An operator launches where none below it does, or where CUDA does it in one kernel of its own (`WHOLE`): what a CPU
calls below it is then left out. Views, allocations and operators made of others alone (CompositeImplicitAutograd)
never do. Needs torch: its dispatcher says which these are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from string import Template
from typing import Any

import torch

from tracemine.ops.operators import lookup

Node = dict[str, Any]
Key = tuple[int, int]  # a tensor's and its storage's number


def named(text: str) -> frozenset[str]:
    """ATen's operators of these names."""
    return frozenset(f"aten::{name}" for name in text.split())


# One kernel on CUDA, whatever a CPU makes them of.
WHOLE = named("""
    mm bmm addmm addmm_ baddbmm baddbmm_ mv addmv dot _grouped_mm convolution_overrideable mkldnn_convolution
    _slow_conv2d_forward slow_conv3d_forward _conv_depthwise2d slow_conv_transpose2d slow_conv_transpose3d
    slow_conv_dilated2d slow_conv_dilated3d convolution_backward mkldnn_rnn_layer _thnn_fused_lstm_cell
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    native_batch_norm _native_batch_norm_legit native_batch_norm_backward native_layer_norm native_layer_norm_backward
    native_group_norm native_group_norm_backward _rms_norm _fused_rms_norm _softmax _log_softmax _softmax_backward_data
    _log_softmax_backward_data native_dropout native_dropout_backward _weight_norm_interface
    _weight_norm_interface_backward glu glu_backward _prelu_kernel renorm_ mse_loss nll_loss_forward nll_loss_backward
    nll_loss2d_forward nll_loss2d_backward _ctc_loss _cdist_forward _euclidean_dist
    mean sum prod var std var_mean std_mean norm linalg_vector_norm argmax argmin max min amax amin any all
    cumsum cumprod cummax cummin logcumsumexp sort topk argsort kthvalue median mode nonzero _unique2 bincount histc
    histogram multinomial searchsorted bucketize
    masked_select index index_put_ _index_put_impl_ index_select gather scatter scatter_ scatter_add scatter_add_
    index_add index_add_ index_copy_ index_fill_ embedding_dense_backward repeat_interleave
    max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d
    adaptive_max_pool2d _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest2d_backward upsample_linear1d upsample_bilinear2d
    upsample_bilinear2d_backward upsample_bicubic2d upsample_trilinear3d grid_sampler_2d grid_sampler_2d_backward
    grid_sampler_3d im2col col2im unfold_backward reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
    replication_pad3d _fft_r2c _fft_c2r _fft_c2c linalg_inv_ex linalg_cholesky_ex _linalg_svd linalg_qr
    cat stack_ copy_ fill_ roll flip tril triu tril_ triu_ tril_indices triu_indices randperm
    _fused_adamw_ _fused_adam_ _fused_sgd_ _fused_adagrad_
""")
ON_HOST = named("""
    is_nonzero item resolve_conj resolve_neg lift lift_fresh detach_ set_ _has_compatible_shallow_copy_type is_same_size
    record_stream result_type is_pinned _backward chunk unsafe_split unsafe_chunk unsafe_split_with_sizes _unsafe_view
    _reshape_alias view_as_real view_as_complex broadcast_tensors meshgrid _nested_tensor_size _coalesced_
""")
ON_HOST_STARTS = ("aten::empty", "aten::new_empty", "aten::resize", "aten::sym_", "aten::_assert")
READS_BACK = "aten::_local_scalar_dense"  # a copy to the host, where the number lies on the GPU
CASTS_ANYWHERE = ("aten::where", "aten::pow")  # they call `to` themselves, on CUDA as well
NO_LAUNCH_CLASSES = frozenset(("view", "allocate", "metadata"))
WRAPPED = frozenset(("Tensor(double)", "Tensor(long int)", "Tensor(bool)"))  # what Python's numbers become

RENAMED = {
    "aten::mkldnn_convolution": "aten::cudnn_convolution",
    "aten::_slow_conv2d_forward": "aten::cudnn_convolution",
    "aten::_conv_depthwise2d": "aten::cudnn_convolution",
    "aten::slow_conv3d_forward": "aten::cudnn_convolution",
    "aten::slow_conv_dilated2d": "aten::cudnn_convolution",
    "aten::slow_conv_transpose2d": "aten::cudnn_convolution_transpose",
    "aten::slow_conv_transpose3d": "aten::cudnn_convolution_transpose",
    "aten::mkldnn_rnn_layer": "aten::_cudnn_rnn",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "aten::_scaled_dot_product_flash_attention_backward",
}
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"

# By the operator's class; a class that is not here has an elementwise kernel.
AT = "void at::native::"
KERNELS = {
    "gemm": "nvjet_sm90_tst_128x128_64x4_1x2_h_bz_coopA_TNT",
    "conv": "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x32x8_execute_kernel__5x_cudnn",
    "attention": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(Flash_fwd_params)",
    "reduction": AT + "reduce_kernel<512, 1, at::native::ReduceOp<$dtype, at::native::${name}_functor<$dtype> > >()",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<$dtype, $dtype, float, 10, false, false>($dtype*)",
    "norm": AT + "${name}_kernel<$dtype, float>(int)",
    "gather": AT + "index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<$name<$dtype> > >(long)",
    "embedding": AT + "(anonymous namespace)::indexSelectLargeIndex<$dtype, long, unsigned int, 2, 2, -2, true>()",
    "scatter": AT + "_scatter_gather_elementwise_kernel<128, 8, at::native::$name<$dtype> >(int)",
    "sort": "void at_cuda_detail::cub::DeviceRadixSort$name<$dtype>()",
    "scan": AT + "tensor_kernel_scan_innermost_dim<$dtype, std::plus<$dtype> >($dtype*)",
    "random": AT + "(anonymous namespace)::distribution_elementwise_grid_stride_kernel<$dtype, 4, $name>(long)",
    "pool": AT + "(anonymous namespace)::${name}_pool_forward_nchw<$dtype>(int)",
    "resample": AT + "(anonymous namespace)::${name}_upsample_out_frame<$dtype>(int)",
    "loss": AT + "(anonymous namespace)::nll_loss_${name}_kernel<$dtype>(int)",
    "foreach": AT + "(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2> >()",
    "optimizer": AT + "(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4> >()",
    "fft": "void regular_fft<256u, EPT<4u>, 16u, 16u, float>()",
    "rnn": "void RNN_blockPersist_fp_LSTM<float>()",
}
BY_NAME = {
    "cat": AT + "(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4>($dtype*)",
    "native_layer_norm": AT + "(anonymous namespace)::vectorized_layer_norm_kernel<$dtype, float, false>(int)",
}
ELEMENTWISE = AT + "vectorized_elementwise_kernel<4, at::native::$functor, std::array<char*, 3ul> >(int)"
LAMBDA = "_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}"
GELU = "{}CUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{{lambda()#{}}}"
FUNCTORS = {  # and by a word among the arguments
    "add": "CUDAFunctor_add<$dtype>",
    "sub": "CUDAFunctor_add<$dtype>",
    "rsub": "CUDAFunctor_add<$dtype>",
    "mul": "BinaryFunctor<$dtype, $dtype, $dtype, at::native::binary_internal::MulFunctor<$dtype> >",
    "div": "BinaryFunctor<$dtype, $dtype, $dtype, at::native::binary_internal::DivFunctor<$dtype> >",
    "div floor": f"div_floor{LAMBDA}",
    "div trunc": f"div_trunc{LAMBDA}",
    "gelu": GELU.format("Gelu", 2),
    "gelu tanh": GELU.format("Gelu", 1),
    "gelu_backward": GELU.format("GeluBackward", 2),
    "gelu_backward tanh": GELU.format("GeluBackward", 1),
    "copy": "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}",
    "fill": "FillFunctor<$dtype>",
    "zero": "FillFunctor<$dtype>",
}
WORDS = ("tanh", "floor", "trunc")


# -- what a node holds -------------------------------------------------------------------------------------------------


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor: number, storage, offset, elements, bytes of each, device."""
    return isinstance(value, list) and len(value) == 6 and str(value[5]).startswith(("cpu", "cuda"))


def tensors(ends: Node) -> Iterator[list[Any]]:
    """Tensors of a node's inputs or outputs, those in lists too."""
    waiting = list(reversed(ends["values"]))
    while waiting:
        value = waiting.pop()
        if is_tensor(value):
            yield value
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def entries(ends: Node) -> Iterator[tuple[list[Any], list[int], str]]:
    """Value, shape and type of each tensor; lists are not looked into."""
    for value, shape, kind in zip(ends["values"], ends["shapes"], ends["types"], strict=False):
        if is_tensor(value):
            yield value, shape, kind


def key(tensor: list[Any]) -> Key:
    return tensor[0], tensor[1]


def host_numbers(nodes: Sequence[Node]) -> set[tuple[int, Key]]:
    """Node and tensor, where a tensor is a number of the host: of no axis, and Python's or made of such alone.

    What an operator writes is none. Numbers of tensors are addresses that others take later: where what was last given
    there had another shape or type, this is a new one.
    """
    found: set[tuple[int, Key]] = set()
    last: dict[Key, tuple[list[int], str] | None] = {}  # None: a number of the host
    for node in sorted(nodes, key=lambda node: int(node["id"])):
        if not node["name"].startswith("aten::"):
            continue
        written = {key(value) for value, _, _ in entries(node["outputs"])}
        for value, shape, kind in entries(node["inputs"]):
            one = key(value)
            new = kind in WRAPPED and one not in written and last.get(one) != (shape, kind)
            if shape == [] and (new or (one in last and last[one] is None)):
                found.add((node["id"], one))
        given = [(node["id"], key(value)) in found for value in tensors(node["inputs"])]
        numbers = node["name"] == "aten::lift_fresh" or (any(given) and all(given))
        for value, shape, kind in entries(node["outputs"]):
            last[key(value)] = None if numbers and shape == [] else (shape, kind)
            if numbers and shape == []:
                found.add((node["id"], key(value)))
    return found


# -- who launches ------------------------------------------------------------------------------------------------------


class Operators:
    """The nodes of an execution trace by id, those that launch (`leaves`) and those that a GPU has not (`dropped`)."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = {node["id"]: node for node in nodes}
        self._numbers = host_numbers(nodes)
        self.leaves: set[int] = set()
        self.dropped: set[int] = set()
        self._children: dict[int, list[int]] = defaultdict(list)
        roots = []
        for node in nodes:
            above = node["ctrl_deps"]
            if above == node["id"] or above not in self.nodes:
                roots.append(node["id"])
            else:
                self._children[above].append(node["id"])
        for root in roots:
            self._visit(root)

    def of_host(self, node: Node, tensor: list[Any]) -> bool:
        """Whether a tensor of this node is a number of the host."""
        return (node["id"], key(tensor)) in self._numbers

    def _visit(self, number: int) -> bool:
        """Finds what launches at this node and below. Returns whether anything does."""
        node = self.nodes[number]
        if self._casts_an_operand(node):
            self.dropped |= {number, *self._below(number)}
            return False
        if is_whole(node):
            self.dropped |= self._below(number)
        elif sum(self._visit(child) for child in self._children[number]):  # visits them all, as `any` would not
            return True
        if self._launches(node):
            self.leaves.add(number)
        return number in self.leaves

    def _below(self, number: int) -> set[int]:
        found, waiting = set[int](), [*self._children[number]]
        while waiting:
            one = waiting.pop()
            found.add(one)
            waiting += self._children[one]
        return found

    def _casts_an_operand(self, node: Node) -> bool:
        """A CPU casts numbers and other operands before its pointwise kernel; CUDA's takes them as they are."""
        above = self.nodes.get(node["ctrl_deps"], {"name": ""})["name"]
        if node["name"] not in ("aten::to", "aten::_to_copy") or not above.startswith("aten::") or above == "aten::to":
            return False
        operator = lookup(above)
        pointwise = operator is not None and operator.op_class == "pointwise" and above not in CASTS_ANYWHERE
        of_numbers = any(tensors(node["inputs"])) and self._of_host_alone(node)
        return of_numbers or (pointwise and bool(self._children[node["id"]]))

    def _of_host_alone(self, node: Node) -> bool:
        return all(self.of_host(node, tensor) for tensor in tensors(node["inputs"]))

    def _launches(self, node: Node) -> bool:
        name = node["name"]
        if name == READS_BACK:
            return not self._of_host_alone(node)
        if not name.startswith("aten::") or name in ON_HOST or name.startswith(ON_HOST_STARTS):
            return False
        operator = lookup(name)
        if operator is not None and operator.op_class in NO_LAUNCH_CLASSES:
            return False
        if not is_whole(node) and composite(name):
            return False
        touched = list(tensors(node["outputs"])) or list(tensors(node["inputs"]))
        return any(tensor[3] for tensor in touched) and not all(self.of_host(node, tensor) for tensor in touched)


def is_whole(node: Node) -> bool:
    """One kernel, whatever lies below it: those of `WHOLE` and of lists; max and min of two tensors are maximum's."""
    name = str(node["name"])
    if name in ("aten::max", "aten::min"):
        return len([kind for kind in node["inputs"]["types"] if kind.startswith("Tensor")]) == 1
    return name in WHOLE or name.startswith("aten::_foreach")


def composite(name: str) -> bool:
    """Whether all overloads are made of other operators alone."""
    operator = lookup(name)
    overloads = [one.name for one in operator.overloads] if operator is not None else [""]
    try:
        return all(
            torch._C._dispatch_has_kernel_for_dispatch_key(
                f"{name}.{one}" if one else name, "CompositeImplicitAutograd"
            )
            for one in overloads
        )
    except RuntimeError:  # torch registers no such operator
        return False


# -- names -------------------------------------------------------------------------------------------------------------


def cudnn_norm(node: Node) -> bool:
    """Whether a batch norm is cuDNN's: in inference, of float32 weights."""
    ends = node["inputs"]
    if node["name"] != "aten::native_batch_norm":
        return False
    return ends["types"][1] == "Tensor(float)" and ends["values"][5] in (False, "False", 0)


def name_on_cuda(node: Node) -> str:
    """What CUDA calls the operator that a CPU called here."""
    if cudnn_norm(node):
        return "aten::cudnn_batch_norm"
    if node["name"] == ATTENTION:
        kinds = [str(kind) for kind in node["inputs"]["types"]]
        masked = any(kind.startswith("Tensor") for kind in kinds[3:])
        flash = not masked and any("BFloat16" in kind or "Half" in kind for kind in kinds)
        return f"aten::_scaled_dot_product_{'flash' if flash else 'efficient'}_attention"
    return RENAMED.get(node["name"], str(node["name"]))


def kernel_name(node: Node) -> str:
    """What ATen's kernel of that operator might be called."""
    name = name_on_cuda(node)
    operator, short = lookup(name), name.removeprefix("aten::")
    bare = short.strip("_")
    dtype = next((kind[7:-1] for _, _, kind in entries(node["outputs"])), "float")
    word = next((value for value in reversed(node["inputs"]["values"]) if str(value) in WORDS), "")
    functor = FUNCTORS.get(f"{bare} {word}") or FUNCTORS.get(bare) or bare + LAMBDA
    kind = operator.op_class if operator is not None else ""
    text = BY_NAME.get(short) or KERNELS.get(kind) or ELEMENTWISE.replace("$functor", functor)
    return Template(text).substitute(dtype=dtype, name=bare)
