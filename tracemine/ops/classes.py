"""The kinds of work that operators and kernels do: one table, read by the operator table and the kernel families."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class OpClass(Struct, frozen=True):
    """One kind of work. `bound`: what limits a large kernel of this kind; None where it depends, or nothing runs."""

    name: str
    says: str
    bound: Literal["memory", "compute"] | None


_CLASSES = (
    OpClass("pointwise", "each output element comes from the matching elements of the inputs", "memory"),
    OpClass("copy", "elements are moved, cast, joined, padded or laid out anew, without arithmetic", "memory"),
    OpClass("fill", "elements are set from constants or from their position: zeros, fill_, arange", "memory"),
    OpClass("reduction", "many elements become one: sum, amax, any, vector norms", "memory"),
    OpClass("norm", "normalisation layers: batch, layer, group and RMS norm, forward and backward", "memory"),
    OpClass("softmax", "softmax and log_softmax, forward and backward", "memory"),
    OpClass("gather", "elements are read at computed places: index, gather, index_select", "memory"),
    OpClass("scatter", "elements are written or added at computed places: index_put_, scatter_add", "memory"),
    OpClass("embedding", "lookup of table rows, pooled or not, and its gradient", "memory"),
    OpClass("random", "random numbers are drawn: dropout, bernoulli_, normal_, randperm", "memory"),
    OpClass("pool", "windows are reduced: max and average pooling, forward and backward", "memory"),
    OpClass("resample", "images are sampled anew: upsampling, grid_sampler", "memory"),
    OpClass("loss", "losses with kernels of their own: nll_loss, mse_loss, ctc_loss", "memory"),
    OpClass("quantize", "values are scaled into a narrow type, or back", "memory"),
    OpClass("foreach", "one pointwise or reducing operation over a list of tensors", "memory"),
    OpClass("optimizer", "a whole optimizer step over a list of tensors: _fused_adamw_", "memory"),
    OpClass("scan", "running sums and their kin: each element depends on all before it", None),
    OpClass("sort", "elements are ordered, ranked or searched: sort, topk, median, unique, searchsorted", None),
    OpClass("gemm", "matrix products, with or without an epilogue", "compute"),
    OpClass("conv", "convolutions, forward and backward", "compute"),
    OpClass("attention", "attention as one operation", "compute"),
    OpClass("rnn", "recurrent layers and cells", "compute"),
    OpClass("linalg", "factorisations, solves, inverses, eigenvalues", "compute"),
    OpClass("fft", "Fourier transforms", None),
    OpClass("sparse", "tensors in a sparse layout are made, converted or multiplied", None),
    OpClass("collective", "ranks communicate", None),
    OpClass("sync", "the host waits for a value from the device: item, nonzero, equal", None),
    OpClass("view", "another look at the same storage: no kernel, or only that of a copy inside", None),
    OpClass("allocate", "storage is taken and not written: empty, resize_", None),
    OpClass("metadata", "facts about tensors are asked or set: no kernel", None),
    OpClass("other", "none of these, or not known", None),
)
CLASSES: dict[str, OpClass] = {row.name: row for row in _CLASSES}
MEMORY_BOUND_CLASSES = frozenset(row.name for row in _CLASSES if row.bound == "memory")
COMPUTE_BOUND_CLASSES = frozenset(row.name for row in _CLASSES if row.bound == "compute")
