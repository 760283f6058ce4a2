"""Floating-point operations of a call, by its class. A multiply and an add are two; a comparison is one.

| class | operations | source |
|---|---|---|
| gemm | 2·m·n·k a matrix; what is added or activated after it is not counted | as torch.utils.flop_counter |
| conv | 2 · output elements · weight elements an output channel; transposed: input elements | as flop_counter |
| conv backward | as much for each gradient asked for | as flop_counter |
| attention | 2·b·h·s·t·(d + dᵥ); halved where is_causal was recorded | flop_counter, which never halves |
| attention backward | five products where the forward has two: 2·b·h·s·t·(3·d + 2·dᵥ) | FlashAttention-2, section 4 |
| pointwise, norm, softmax, … | elements of the largest tensor × costs.toml (or 1) | next to each row there |
| copy, fill, gather, view, … | none | |
"""

from __future__ import annotations

from math import prod

from tracemine.ops.facts import FLOPS_PER_ELEMENT, base_name
from tracemine.ops.infer.arguments import Arguments, refuse_if
from tracemine.ops.infer.tensor import TensorSpec

_MOST = 1 << 100
_NONE = frozenset(
    {"copy", "fill", "gather", "embedding", "view", "allocate", "metadata", "sync", "random", "collective"}
)
_BY_ELEMENT = frozenset(
    {"pointwise", "reduction", "norm", "softmax", "loss", "pool", "foreach", "scan", "scatter", "quantize"}
)

Outputs = tuple[TensorSpec | None, ...] | None


def flops(call: Arguments, outputs: Outputs) -> int | None:
    """Return operations, or None where not known. May raise as the rules of outputs do."""
    kind = call.overload.op_class
    listed = base_name(call.name) in FLOPS_PER_ELEMENT
    if kind in _NONE and not listed:
        return 0
    formula = _FORMULAS.get(kind, _elements if listed or kind in _BY_ELEMENT else None)
    count = None if formula is None else formula(call, outputs)
    return None if count is None or count > _MOST else count


def _elements(call: Arguments, outputs: Outputs) -> int | None:
    """Return the elements of the largest tensor that goes in or comes out, times what each costs."""
    each = FLOPS_PER_ELEMENT.get(base_name(call.name), 1)
    given = call.inputs
    lists = [tensor for one in given if isinstance(one, tuple) for tensor in one]
    if call.overload.op_class == "foreach":
        first = given[0] if given else None
        return sum(tensor.elements for tensor in first) * each if isinstance(first, tuple) and first else None
    if outputs is None and call.overload.op_class == "pointwise":
        return None
    tensors = [*(one for one in given if isinstance(one, TensorSpec)), *lists, *(outputs or ())]
    return max((tensor.elements for tensor in tensors if tensor is not None), default=0) * each


def _gemm(call: Arguments, outputs: Outputs) -> int | None:
    """Return 2 × output elements × length of the axis that is summed over."""
    if outputs is None or len(outputs) != 1 or outputs[0] is None:
        return None
    inner = call.optional("mat1", "batch1", "mat", "vec1", "input", "self")
    if inner is None or call.name in ("einsum", "bilinear", "_trilinear", "tensordot"):
        return None
    if call.name in ("outer", "ger", "addr"):
        return outputs[0].elements
    batch = inner.shape[0] if call.name == "addbmm" else 1
    return 2 * outputs[0].elements * inner.shape[-1] * batch


def _conv(call: Arguments, outputs: Outputs) -> int | None:
    weight, source = call.tensor("weight"), call.tensor("input", "self")
    transposed = "transpose" in call.name or call.flag("transposed")
    window = prod(weight.shape[1:])  # of the weight: [out, in / groups, kernel …]; transposed [in, out / groups, …]
    if "grad_output" in call:
        outer = source if transposed else call.tensor("grad_output")
        wanted = call.flags("output_mask")[:2] if "output_mask" in call else (True,)
        return 2 * outer.elements * window * sum(wanted)
    if outputs is None or outputs[0] is None:
        return None
    return 2 * (source if transposed else outputs[0]).elements * window


def _attention(call: Arguments, outputs: Outputs) -> int | None:
    query, key, value = call.tensor("query"), call.tensor("key"), call.tensor("value")
    refuse_if(
        call.given("cum_seq_q") or call.given("cu_seqlens_q") or len(query.shape) != 4,
        "the lengths of packed sequences are data",
    )
    # The forward operators of flash and efficient attention take queries before heads.
    heads_last = call.name in ("_flash_attention_forward", "_efficient_attention_forward")
    heads_last |= call.name in ("_flash_attention_backward", "_efficient_attention_backward")
    sequence, head = (1, 2) if heads_last else (2, 1)
    scores = query.shape[0] * query.shape[head] * query.shape[sequence] * key.shape[sequence]
    width, wide = query.shape[-1], value.shape[-1]
    backward = call.name.endswith("_backward")
    count = 2 * scores * (3 * width + 2 * wide if backward else width + wide)
    return count // 2 if call.flag("is_causal") else count


_FORMULAS = {"gemm": _gemm, "conv": _conv, "attention": _attention}
