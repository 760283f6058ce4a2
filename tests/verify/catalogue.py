"""Chains that production models run unfused, call by call as eager PyTorch runs them, at a small size.

Each entry is named by what it is; sizes are small, odd where they may be, and bfloat16 where models are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracemine.verify import Builder, Chain

CATALOGUE: dict[str, Callable[[], Chain]] = {}
LONGEST_ROW = {"long_softmax": 64, "long_layer_norm": 64, "long_cross_entropy": 64}  # walked in a loop at this size
BF16, F32 = "bfloat16", "float32"


def entry(make: Callable[[], Chain]) -> Callable[[], Chain]:
    CATALOGUE[make.__name__] = make
    return make


def _f32(b: Builder, x: Any) -> Any:
    return b.call("aten::_to_copy", x, dtype=F32)


def _bf16(b: Builder, x: Any) -> Any:
    return b.call("aten::_to_copy", x, dtype=BF16)


def _rms(b: Builder, x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """As Hugging Face writes it."""
    wide = _f32(b, x)
    mean = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), [-1], True)
    scale = b.call("aten::rsqrt", b.call("aten::add.Tensor", mean, eps))
    return b.call("aten::mul.Tensor", weight, _bf16(b, b.call("aten::mul.Tensor", wide, scale)))


def _rotate(b: Builder, x: Any, half: int) -> Any:
    first = b.call("aten::slice.Tensor", x, -1, 0, half, 1)
    second = b.call("aten::slice.Tensor", x, -1, half, 9223372036854775807, 1)
    return b.call("aten::cat", [b.call("aten::neg", second), first], -1)


def _rope(b: Builder, x: Any, cos: Any, sin: Any, half: int) -> Any:
    turned = b.call("aten::mul.Tensor", _rotate(b, x, half), sin)
    return b.call("aten::add.Tensor", b.call("aten::mul.Tensor", x, cos), turned)


def _quantised(b: Builder, x: Any, live: list[Any]) -> Any:
    """Per-row fp8 with a scale from the largest value."""
    wide = _f32(b, x)
    top = b.call("aten::clamp_min", b.call("aten::amax", b.call("aten::abs", wide), [-1], True), 1e-12)
    scale = b.call("aten::div.Tensor", top, 448.0)
    clamped = b.call("aten::clamp", b.call("aten::div.Tensor", wide, scale), -448.0, 448.0)
    live += [b.call("aten::_to_copy", clamped, dtype="float8_e4m3fn"), scale]
    return live[-2]


@entry
def rms_norm() -> Chain:
    b = Builder("rms_norm")
    x, weight = b.input("x", (3, 5, 100), BF16), b.input("weight", (100,), BF16)
    return b.done(_rms(b, x, weight))


@entry
def add_rms_norm() -> Chain:
    b = Builder("add_rms_norm")
    x, residual = b.input("x", (3, 5, 100), BF16), b.input("residual", (3, 5, 100), BF16)
    weight = b.input("weight", (100,), BF16)
    total = b.call("aten::add.Tensor", x, residual)
    return b.done(_rms(b, total, weight), total)


@entry
def layer_norm() -> Chain:
    b = Builder("layer_norm")
    x = b.input("x", (7, 96), F32)
    weight, bias = b.input("weight", (96,), F32), b.input("bias", (96,), F32)
    return b.done(*b.call("aten::native_layer_norm", x, [96], weight, bias, 1e-5))


@entry
def swiglu() -> Chain:
    b = Builder("swiglu")
    x = b.input("x", (4, 6, 2 * 72), BF16)
    gate, up = b.call("aten::split.Tensor", x, 72, -1)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::silu", gate), up))


@entry
def geglu_tanh() -> Chain:
    b = Builder("geglu_tanh")
    gate, up = b.input("gate", (6, 130), BF16), b.input("up", (6, 130), BF16)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::gelu", gate, approximate="tanh"), up))


@entry
def relu_squared() -> Chain:
    b = Builder("relu_squared")
    x = b.input("x", (5, 120), BF16)
    return b.done(b.call("aten::pow.Tensor_Scalar", b.call("aten::relu", x), 2))


@entry
def rope() -> Chain:
    b = Builder("rope")
    q, k = b.input("q", (2, 4, 5, 16), BF16, (320, 16, 64, 1)), b.input("k", (2, 2, 5, 16), BF16, (160, 16, 32, 1))
    cos, sin = b.input("cos", (2, 5, 16), BF16), b.input("sin", (2, 5, 16), BF16)
    cos, sin = b.call("aten::unsqueeze", cos, 1), b.call("aten::unsqueeze", sin, 1)
    return b.done(_rope(b, q, cos, sin, 8), _rope(b, k, cos, sin, 8))


@entry
def rope_of_angles() -> Chain:
    """The tables are made once, not for every head; part of each head is not turned."""
    b = Builder("rope_of_angles")
    q, k = b.input("q", (2, 4, 5, 12), BF16, (240, 12, 48, 1)), b.input("k", (2, 2, 5, 12), BF16, (120, 12, 24, 1))
    rest = b.input("rest", (2, 4, 5, 6), BF16)
    angles = b.call("aten::cat", [b.input("angles", (1, 5, 6), F32)] * 2, -1)
    cos, sin = (b.call("aten::unsqueeze", _bf16(b, b.call(f"aten::{f}", angles)), 1) for f in ("cos", "sin"))
    turned = b.call("aten::cat", [_rope(b, q, cos, sin, 6), rest], -1)
    return b.done(cos, turned, _rope(b, k, cos, sin, 6))


@entry
def qk_norm_rope() -> Chain:
    b = Builder("qk_norm_rope")
    x, weight = b.input("x", (2, 5, 4 * 16), BF16), b.input("weight", (16,), BF16)
    cos, sin = b.input("cos", (2, 5, 16), BF16), b.input("sin", (2, 5, 16), BF16)
    heads = b.call("aten::view", x, [2, 5, 4, 16])
    normed = b.call("aten::transpose.int", _rms(b, heads, weight), 1, 2)
    cos, sin = b.call("aten::unsqueeze", cos, 1), b.call("aten::unsqueeze", sin, 1)
    return b.done(_rope(b, normed, cos, sin, 8))


@entry
def add_rms_norm_quant() -> Chain:
    b = Builder("add_rms_norm_quant")
    x, residual = b.input("x", (9, 80), BF16), b.input("residual", (9, 80), BF16)
    weight = b.input("weight", (80,), BF16)
    total = b.call("aten::add.Tensor", x, residual)
    live: list[Any] = []
    _quantised(b, _rms(b, total, weight), live)
    return b.done(*live, total)


@entry
def swiglu_quant() -> Chain:
    b = Builder("swiglu_quant")
    gate, up = b.input("gate", (9, 80), BF16), b.input("up", (9, 80), BF16)
    live: list[Any] = []
    _quantised(b, b.call("aten::mul.Tensor", b.call("aten::silu", gate), up), live)
    return b.done(*live)


@entry
def token_quant() -> Chain:
    b = Builder("token_quant")
    live: list[Any] = []
    _quantised(b, b.input("x", (9, 100), BF16), live)
    return b.done(*live)


@entry
def token_quant_int8() -> Chain:
    b = Builder("token_quant_int8")
    wide = _f32(b, b.input("x", (9, 100), BF16))
    top = b.call("aten::clamp_min", b.call("aten::amax", b.call("aten::abs", wide), [-1], True), 1e-8)
    scale = b.call("aten::div.Tensor", top, 127.0)
    codes = b.call("aten::clamp", b.call("aten::round", b.call("aten::div.Tensor", wide, scale)), -128.0, 127.0)
    return b.done(b.call("aten::_to_copy", codes, dtype="int8"), scale)


@entry
def block_quant() -> Chain:
    b = Builder("block_quant")
    x = b.input("x", (6, 4 * 32), BF16)
    live: list[Any] = []
    codes = _quantised(b, b.call("aten::view", x, [6, 4, 32]), live)
    return b.done(b.call("aten::view", codes, [6, 128]), live[1])


@entry
def bias_gelu() -> Chain:
    b = Builder("bias_gelu")
    x, bias = b.input("x", (6, 130), BF16), b.input("bias", (130,), BF16)
    return b.done(b.call("aten::gelu", b.call("aten::add.Tensor", x, bias), approximate="none"))


@entry
def bias_act_residual() -> Chain:
    b = Builder("bias_act_residual")
    x, bias = b.input("x", (6, 130), BF16), b.input("bias", (130,), BF16)
    residual = b.input("residual", (6, 130), BF16)
    act = b.call("aten::relu", b.call("aten::add.Tensor", x, bias))
    return b.done(b.call("aten::add.Tensor", residual, act, alpha=0.5))


@entry
def bias_dropout_residual_norm() -> Chain:
    b = Builder("bias_dropout_residual_norm")
    x, bias = b.input("x", (8, 96), BF16), b.input("bias", (96,), BF16)
    residual = b.input("residual", (8, 96), BF16)
    weight, shift = b.input("weight", (96,), BF16), b.input("shift", (96,), BF16)
    kept, mask = b.call("aten::native_dropout", b.call("aten::add.Tensor", x, bias), 0.1, True)
    total = b.call("aten::add.Tensor", kept, residual)
    normed, _, _ = b.call("aten::native_layer_norm", total, [96], weight, shift, 1e-5)
    return b.done(normed, total, mask)


@entry
def scale_mask_softmax() -> Chain:
    b = Builder("scale_mask_softmax")
    scores = b.input("scores", (2, 3, 7, 40), BF16)
    mask = b.input("bias", (2, 1, 7, 40), BF16)
    scaled = b.call("aten::mul.Tensor", scores, 0.125)
    wide = _f32(b, b.call("aten::add.Tensor", scaled, mask))
    return b.done(_bf16(b, b.call("aten::_softmax", wide, -1, False)))


@entry
def masked_fill_softmax() -> Chain:
    b = Builder("masked_fill_softmax")
    scores, mask = b.input("scores", (2, 3, 7, 40), F32), b.input("hidden", (7, 40), "bool")
    scaled = b.call("aten::div.Tensor", scores, 8.0)
    return b.done(b.call("aten::_softmax", b.call("aten::masked_fill.Scalar", scaled, mask, -10000.0), -1, False))


@entry
def cross_entropy() -> Chain:
    b = Builder("cross_entropy")
    logits, target = b.input("logits", (6, 150), BF16), b.input("target", (6,), "int64", below=150)
    scores = b.call("aten::_log_softmax", _f32(b, logits), 1, False)
    loss, count = b.call("aten::nll_loss_forward", scores, target, None, 1, -100)
    return b.done(loss, count)


@entry
def kl_divergence() -> Chain:
    b = Builder("kl_divergence")
    scores, target = b.input("scores", (6, 90), F32), b.input("target", (6, 90), F32)
    predicted = b.call("aten::_log_softmax", scores, -1, False)
    wanted = b.call("aten::_log_softmax", target, -1, False)
    gap = b.call("aten::mul.Tensor", b.call("aten::exp", wanted), b.call("aten::sub.Tensor", wanted, predicted))
    return b.done(b.call("aten::div.Tensor", b.call("aten::sum", gap), 6.0))


@entry
def jensen_shannon() -> Chain:
    b = Builder("jensen_shannon")
    p, q = b.input("p", (5, 70), F32), b.input("q", (5, 70), F32)
    log_p, log_q = (b.call("aten::_log_softmax", t, -1, False) for t in (p, q))
    p, q = b.call("aten::exp", log_p), b.call("aten::exp", log_q)
    middle = b.call("aten::log", b.call("aten::mul.Tensor", b.call("aten::add.Tensor", p, q), 0.5))
    left = b.call("aten::mul.Tensor", p, b.call("aten::sub.Tensor", log_p, middle))
    right = b.call("aten::mul.Tensor", q, b.call("aten::sub.Tensor", log_q, middle))
    both = b.call("aten::mul.Tensor", b.call("aten::add.Tensor", left, right), 0.5)
    return b.done(b.call("aten::sum.dim_IntList", both, [-1], False))


@entry
def adamw_foreach() -> Chain:
    b = Builder("adamw_foreach")
    shapes = ((40, 3), (77,), (5, 9))
    lists = [[b.input(f"{n}{k}", s, F32) for k, s in enumerate(shapes)] for n in ("p", "g", "m", "v")]
    params, grads, first, second = lists
    b.call("aten::_foreach_mul_.Scalar", params, 0.999)
    b.call("aten::_foreach_lerp_.Scalar", first, grads, 0.1)
    b.call("aten::_foreach_mul_.Scalar", second, 0.95)
    b.call("aten::_foreach_addcmul_.Scalar", second, grads, grads, 0.05)
    root = b.call("aten::_foreach_sqrt", second)
    b.call("aten::_foreach_div_.Scalar", root, 0.3)
    b.call("aten::_foreach_add_.Scalar", root, 1e-8)
    b.call("aten::_foreach_addcdiv_.Scalar", params, first, root, -0.001)
    return b.done()


@entry
def clip_grad_norm() -> Chain:
    b = Builder("clip_grad_norm")
    grads = [b.input(f"g{k}", s, F32) for k, s in enumerate(((30, 4), (50,)))]
    norms = b.call("aten::_foreach_norm.Scalar", grads, 2)
    total = b.call("aten::linalg_vector_norm", b.call("aten::stack", list(norms), 0), 2)
    share = b.call("aten::mul.Tensor", b.call("aten::reciprocal", b.call("aten::add.Tensor", total, 1e-6)), 1.5)
    clipped = b.call("aten::clamp", share, max=1.0)
    scaled = b.call("aten::_foreach_mul.Tensor", grads, clipped)
    return b.done(total, *scaled)


@entry
def adaln_modulate() -> Chain:
    b = Builder("adaln_modulate")
    x = b.input("x", (2, 7, 64), BF16)
    shift, scale = b.input("shift", (2, 64), BF16), b.input("scale", (2, 64), BF16)
    normed, _, _ = b.call("aten::native_layer_norm", x, [64], None, None, 1e-6)
    factor = b.call("aten::add.Tensor", b.call("aten::unsqueeze", scale, 1), 1)
    scaled = b.call("aten::mul.Tensor", normed, factor)
    return b.done(b.call("aten::add.Tensor", scaled, b.call("aten::unsqueeze", shift, 1)))


@entry
def gated_residual() -> Chain:
    b = Builder("gated_residual")
    x, residual = b.input("x", (2, 7, 64), BF16), b.input("residual", (2, 7, 64), BF16)
    gate = b.input("gate", (2, 64), BF16)
    gated = b.call("aten::mul.Tensor", x, b.call("aten::unsqueeze", gate, 1))
    return b.done(b.call("aten::add.Tensor", residual, gated))


@entry
def group_norm_silu() -> Chain:
    b = Builder("group_norm_silu")
    x = b.input("x", (2, 6, 5, 7), F32)
    weight, bias = b.input("weight", (6,), F32), b.input("bias", (6,), F32)
    normed, _, _ = b.call("aten::native_group_norm", x, weight, bias, 2, 6, 35, 3, 1e-6)
    return b.done(b.call("aten::silu", normed))


@entry
def softcap() -> Chain:
    b = Builder("softcap")
    x = b.input("x", (5, 130), BF16)
    squeezed = b.call("aten::tanh", b.call("aten::div.Tensor", x, 30.0))
    return b.done(b.call("aten::mul.Tensor", squeezed, 30.0))


@entry
def temperature_softmax() -> Chain:
    b = Builder("temperature_softmax")
    x = b.input("x", (5, 130), F32)
    return b.done(b.call("aten::_softmax", b.call("aten::div.Tensor", x, 0.7), -1, False))


@entry
def decode_metadata() -> Chain:
    b = Builder("decode_metadata")
    lengths, slots = b.input("lengths", (13,), "int32"), b.input("slots", (13,), "int64", below=40)
    table = b.input("table", (40,), "int64")
    wide = b.call("aten::_to_copy", lengths, dtype="int64")
    ends = b.call("aten::cumsum", b.call("aten::add.Tensor", wide, 1), 0)
    return b.done(ends, b.call("aten::add.Tensor", b.call("aten::index.Tensor", table, [slots]), wide))


@entry
def gdn_gating() -> Chain:
    b = Builder("gdn_gating")
    a_log, dt_bias = b.input("a_log", (24,), F32), b.input("dt_bias", (24,), BF16)
    a, beta = b.input("a", (3, 5, 24), BF16), b.input("beta", (3, 5, 24), BF16)
    shifted = b.call("aten::add.Tensor", _f32(b, a), dt_bias)
    decay = b.call("aten::neg", b.call("aten::exp", a_log))
    return b.done(
        b.call("aten::mul.Tensor", decay, b.call("aten::softplus", shifted, 1.0, 20.0)), b.call("aten::sigmoid", beta)
    )


@entry
def cast_ladder() -> Chain:
    b = Builder("cast_ladder")
    x = b.input("x", (4, 6, 33), BF16)
    swapped = b.call("aten::clone", b.call("aten::transpose.int", x, 1, 2), memory_format=None)
    scaled = b.call("aten::mul.Tensor", _f32(b, swapped), 0.5)
    return b.done(b.call("aten::clone", b.call("aten::permute", _bf16(b, scaled), [0, 2, 1])))


@entry
def transposed_add() -> Chain:
    b = Builder("transposed_add")
    x, y = b.input("x", (37, 50), F32), b.input("y", (50, 37), F32)
    return b.done(b.call("aten::add.Tensor", x, b.call("aten::t", y)))


@entry
def norm_across_the_grain() -> Chain:
    """One operand has its rows side by side, the other its columns, and a result is written turned."""
    b = Builder("norm_across_the_grain")
    x, y = b.input("x", (2, 21, 24), BF16), b.input("y", (2, 21, 24), BF16, (504, 1, 21))
    weight, bias = b.input("weight", (24,), BF16), b.input("bias", (24,), BF16)
    total = b.call("aten::add.Tensor", x, y)
    normed = b.call("aten::native_layer_norm", total, [24], weight, bias, 1e-5)[0]
    turned = b.call("aten::clone", b.call("aten::permute", normed, [0, 2, 1]), memory_format=0)
    return b.done(total, turned)


@entry
def sibling_scales() -> Chain:
    b = Builder("sibling_scales")
    shapes = ((3, 50), (2, 70), (90,))
    members = [b.input(f"x{k}", s, BF16) for k, s in enumerate(shapes)]
    return b.done(*(b.call("aten::mul.Tensor", m, 0.3) for m in members))


@entry
def embedding_scale_norm() -> Chain:
    b = Builder("embedding_scale_norm")
    weight, ids = b.input("weight", (50, 64), BF16), b.input("ids", (2, 9), "int64", below=50)
    gain = b.input("gain", (64,), BF16)
    rows = b.call("aten::embedding", weight, ids)
    return b.done(_rms(b, b.call("aten::mul.Tensor", rows, 8.0), gain))


@entry
def column_sum() -> Chain:
    b = Builder("column_sum")
    grad = b.input("grad", (130, 45), BF16)
    return b.done(b.call("aten::sum.dim_IntList", grad, [0], False))


@entry
def full_mean() -> Chain:
    b = Builder("full_mean")
    x, y = b.input("x", (40, 300), F32), b.input("y", (40, 300), F32)
    return b.done(b.call("aten::mean", b.call("aten::pow.Tensor_Scalar", b.call("aten::sub.Tensor", x, y), 2)))


@entry
def long_softmax() -> Chain:
    b = Builder("long_softmax")
    x = b.input("x", (3, 300), BF16)
    return b.done(b.call("aten::_softmax", x, -1, False))


@entry
def long_layer_norm() -> Chain:
    b = Builder("long_layer_norm")
    x, weight = b.input("x", (3, 300), F32), b.input("weight", (300,), F32)
    return b.done(b.call("aten::native_layer_norm", x, [300], weight, None, 1e-5)[0])


@entry
def long_cross_entropy() -> Chain:
    b = Builder("long_cross_entropy")
    logits, target = b.input("logits", (5, 300), BF16), b.input("target", (5,), "int64", below=300)
    scores = b.call("aten::_log_softmax", _f32(b, logits), 1, False)
    return b.done(b.call("aten::nll_loss_forward", scores, target, None, 1, -100)[0])


@entry
def residual_in_place() -> Chain:
    b = Builder("residual_in_place")
    x, y = b.input("x", (9, 80), BF16), b.input("y", (9, 80), BF16)
    weight = b.input("weight", (80,), BF16)
    return b.done(_rms(b, b.call("aten::add_.Tensor", x, y), weight))


@entry
def softmax_backward() -> Chain:
    b = Builder("softmax_backward")
    grad, out = b.input("grad", (6, 90), F32), b.input("probs", (6, 90), F32)
    back = b.call("aten::_softmax_backward_data", grad, out, -1, F32)
    return b.done(b.call("aten::mul.Tensor", back, 0.125))
