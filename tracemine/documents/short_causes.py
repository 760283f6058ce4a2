"""Causes in a few words, for a table's cell: what a performance engineer calls them."""

from __future__ import annotations

# Titles of rules and of their advice, without the class of a module behind them. One that is missing here is cut.
SHORT = {
    "An optimizer's step, operator by operator": "Unfused optimizer step",
    "Gradients are filled with zeros": "zero_grad fills with zeros",
    "An optimizer over lists, of a class without a fused step": "Optimizer without fused step",
    "One small operator after another over a list of tensors": "Per-tensor loop, no foreach",
    "Gradients are unscaled in a pass of their own": "Separate gradient unscaling",
    "Gradients are scaled although nothing is float16": "GradScaler without float16",
    "Weights are cast to half width in every step": "Weights cast every step",
    "Many embedding bags of one width, one after another": "Embedding bags one by one",
    "A cache of keys and values grows by concatenation": "KV cache grown by torch.cat",
    "A constant computed anew in every step": "Constant recomputed per step",
    "A weight is standardised in every step": "Weight standardised per step",
    "A weight is normalised in every step": "Weight normalised per step",
    "A weight is dequantised in every step": "Weight dequantised per step",
    "A weight is converted in every step": "Weight converted per step",
    "A weight is computed anew in every step": "Weight recomputed per step",
    "A table of sines is built anew in every step": "Sine table rebuilt per step",
    "A mask is built anew in every step": "Mask rebuilt per step",
    "Tokens sorted by their expert: few values as 64-bit keys": "Expert sort with int64 keys",
    "Small products in a loop, which one product of all would do": "Small GEMMs in a loop",
    "Attention as separate products and a softmax": "Unfused attention",
    "RMSNorm run as separate operators": "Unfused RMSNorm",
    "Rotary position embedding run as separate operators": "Unfused rotary embedding",
    "Printing or logging a tensor breaks the compiled graph": "Graph break: print or log",
    "A result whose size depends on data breaks the compiled graph": "Graph break: dynamic size",
    "A tensor's value on the host breaks the compiled graph": "Graph break: tensor value",
    "A compiled function is broken into several graphs": "Graph break",
    "A grouped convolution that runs one group after another": "Grouped conv, group by group",
    "A product in half precision whose leading dimension is no multiple of 8": "Misaligned GEMM",
    "Products in float32 on vector units, where TF32 is not allowed": "float32 GEMM without TF32",
    "Products and convolutions in float64": "float64 GEMM or conv",
    "A convolution over patches that lie side by side": "Patch conv as convolution",
    "A library's call in half precision on vector units": "No tensor cores used",
    "A library's call far below what the device reaches": "Library call below roofline",
    "The host waits for the device, and the device then for the host": "Host-device sync",
    "The device waits while memory is allocated or freed": "Allocator stalls",
    "The device waits for the next batch": "Data loading",
    "The device waits while code is compiled": "Compilation in the step",
    "float64 by promotion: one operand makes all that follows twice as wide": "float64 by promotion",
    "Layouts converted around convolutions: channels_last is not set": "No channels_last",
    "The device waits while a kernel's module is loaded": "Kernel module loading",
    "A conversion there and back": "Cast there and back",
    "A permuted residual stream: every norm copies it": "Permuted layout copied",
    "The device waits for CUDA graphs to be launched": "Gaps between CUDA graphs",
    "The device waits long for the host in one place": "Host stall in one place",
    "A copy between the device and pageable host memory": "Pageable host copy",
    "Copies between host and device that nothing hides": "Exposed host-device copies",
    "Communication between ranks that nothing hides": "Exposed communication",
    "The device waits for the host to launch the next kernel": "Launch gaps",
    "Kernels shorter than their own launch, many in a row": "Tiny kernels",
    "A BatchNorm in evaluation behind a convolution or a linear layer: both are one": "BatchNorm not folded",
    "Memory-bound kernels that a graph break left to run one by one": "Unfused after a graph break",
    "Memory-bound kernels that one kernel could do": "Unfused elementwise chain",
    "PyTorch's own layer norm, slower than a kernel made for its rows": "Slow layer norm",
}


def short_cause(title: str) -> str:
    """Return a finding's title in a few words; of an unknown one, the title.

    >>> short_cause("RMSNorm run as separate operators: LlamaRMSNorm"), short_cause("A rule of your own")
    ('Unfused RMSNorm', 'A rule of your own')
    """
    known = [name for name in SHORT if title == name or title.startswith(f"{name}: ")]
    return SHORT[max(known, key=len)] if known else title
