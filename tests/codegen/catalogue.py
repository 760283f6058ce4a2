"""Chains that production models run unfused, call by call as eager PyTorch runs them, at a small size.

Each entry is named by what it is; sizes are small, odd where they may be, and bfloat16 where models are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracemine.codegen import Graph, GraphBuilder

CATALOGUE: dict[str, Callable[..., Graph]] = {}  # without arguments: at the small size
# Walked in a loop at this size, in parts where there are few rows; large enough for tables to be made, joins to be cut.
LONGEST_ROW = {"rope": 16, "rope_of_angles": 8, "group_norm_in_parts": 64} | dict.fromkeys(
    (
        "long_softmax", "long_layer_norm", "long_cross_entropy", "looped_softmax", "looped_norm_in_place",
        "norm_gradients_in_turn", "cross_entropy_trained", "bias_gradient", "long_extremes", "column_variance",
        "long_mean", "conv_bias_gradient",
    ),
    64,
)  # fmt: skip
BF16, F32 = "bfloat16", "float32"
Shape = tuple[int, ...]


def entry(make: Callable[..., Graph]) -> Callable[..., Graph]:
    CATALOGUE[make.__name__] = make
    return make


def _f32(b: GraphBuilder, x: Any, dtype: str = BF16) -> Any:
    """A cast, where there is something to cast."""
    return x if dtype == F32 else b.call("aten::_to_copy", x, dtype=F32)


def _narrow(b: GraphBuilder, x: Any, dtype: str = BF16) -> Any:
    """The cast back."""
    return x if dtype == F32 else b.call("aten::_to_copy", x, dtype=dtype)


def _rms(b: GraphBuilder, x: Any, weight: Any, dtype: str = BF16, eps: float = 1e-6) -> Any:
    """As Hugging Face writes it."""
    wide = _f32(b, x, dtype)
    mean = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), [-1], True)
    scale = b.call("aten::rsqrt", b.call("aten::add.Tensor", mean, eps))
    return b.call("aten::mul.Tensor", weight, _narrow(b, b.call("aten::mul.Tensor", wide, scale), dtype))


def _rotate(b: GraphBuilder, x: Any, half: int) -> Any:
    first = b.call("aten::slice.Tensor", x, -1, 0, half, 1)
    second = b.call("aten::slice.Tensor", x, -1, half, 9223372036854775807, 1)
    return b.call("aten::cat", [b.call("aten::neg", second), first], -1)


def _rope(b: GraphBuilder, x: Any, cos: Any, sin: Any, half: int) -> Any:
    turned = b.call("aten::mul.Tensor", _rotate(b, x, half), sin)
    return b.call("aten::add.Tensor", b.call("aten::mul.Tensor", x, cos), turned)


def _quantised(b: GraphBuilder, x: Any, live: list[Any], dtype: str = BF16) -> Any:
    """Per-row fp8 with a scale from the largest value."""
    wide = _f32(b, x, dtype)
    top = b.call("aten::clamp_min", b.call("aten::amax", b.call("aten::abs", wide), [-1], True), 1e-12)
    scale = b.call("aten::div.Tensor", top, 448.0)
    clamped = b.call("aten::clamp", b.call("aten::div.Tensor", wide, scale), -448.0, 448.0)
    live += [b.call("aten::_to_copy", clamped, dtype="float8_e4m3fn"), scale]
    return live[-2]


@entry
def rms_norm(rows: Shape = (3, 5), hidden: int = 100, dtype: str = BF16) -> Graph:
    b = GraphBuilder("rms_norm")
    x, weight = b.input("x", (*rows, hidden), dtype), b.input("weight", (hidden,), dtype)
    return b.done(_rms(b, x, weight, dtype))


@entry
def add_rms_norm(rows: Shape = (3, 5), hidden: int = 100, dtype: str = BF16) -> Graph:
    b = GraphBuilder("add_rms_norm")
    x, residual = b.input("x", (*rows, hidden), dtype), b.input("residual", (*rows, hidden), dtype)
    weight = b.input("weight", (hidden,), dtype)
    total = b.call("aten::add.Tensor", x, residual)
    return b.done(_rms(b, total, weight, dtype), total)


@entry
def layer_norm(rows: int = 7, hidden: int = 96, dtype: str = F32) -> Graph:
    b = GraphBuilder("layer_norm")
    x = b.input("x", (rows, hidden), dtype)
    weight, bias = b.input("weight", (hidden,), dtype), b.input("bias", (hidden,), dtype)
    return b.done(*b.call("aten::native_layer_norm", x, [hidden], weight, bias, 1e-5))


@entry
def swiglu(rows: Shape = (4, 6), hidden: int = 72, dtype: str = BF16) -> Graph:
    b = GraphBuilder("swiglu")
    x = b.input("x", (*rows, 2 * hidden), dtype)
    gate, up = b.call("aten::split.Tensor", x, hidden, -1)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::silu", gate), up))


@entry
def geglu_tanh(rows: int = 6, hidden: int = 130, dtype: str = BF16) -> Graph:
    b = GraphBuilder("geglu_tanh")
    gate, up = b.input("gate", (rows, hidden), dtype), b.input("up", (rows, hidden), dtype)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::gelu", gate, approximate="tanh"), up))


@entry
def relu_squared(rows: int = 5, hidden: int = 120, dtype: str = BF16) -> Graph:
    b = GraphBuilder("relu_squared")
    x = b.input("x", (rows, hidden), dtype)
    return b.done(b.call("aten::pow.Tensor_Scalar", b.call("aten::relu", x), 2))


@entry
def rope(batch: int = 2, tokens: int = 5, heads: Shape = (4, 2), width: int = 16, dtype: str = BF16) -> Graph:
    b = GraphBuilder("rope")
    many, few = heads
    strides = [(tokens * h * width, width, h * width, 1) for h in heads]
    q = b.input("q", (batch, many, tokens, width), dtype, strides[0])
    k = b.input("k", (batch, few, tokens, width), dtype, strides[1])
    cos, sin = b.input("cos", (batch, tokens, width), dtype), b.input("sin", (batch, tokens, width), dtype)
    cos, sin = b.call("aten::unsqueeze", cos, 1), b.call("aten::unsqueeze", sin, 1)
    return b.done(_rope(b, q, cos, sin, width // 2), _rope(b, k, cos, sin, width // 2))


@entry
def rope_of_angles() -> Graph:
    """The tables are made once, not for every head; part of each head is not turned."""
    b = GraphBuilder("rope_of_angles")
    q, k = b.input("q", (2, 4, 5, 12), BF16, (240, 12, 48, 1)), b.input("k", (2, 2, 5, 12), BF16, (120, 12, 24, 1))
    rest = b.input("rest", (2, 4, 5, 6), BF16)
    angles = b.call("aten::cat", [b.input("angles", (1, 5, 6), F32)] * 2, -1)
    cos, sin = (b.call("aten::unsqueeze", _narrow(b, b.call(f"aten::{f}", angles)), 1) for f in ("cos", "sin"))
    turned = b.call("aten::cat", [_rope(b, q, cos, sin, 6), rest], -1)
    return b.done(cos, turned, _rope(b, k, cos, sin, 6))


@entry
def qk_norm_rope(batch: int = 2, tokens: int = 5, heads: int = 4, width: int = 16, dtype: str = BF16) -> Graph:
    b = GraphBuilder("qk_norm_rope")
    x, weight = b.input("x", (batch, tokens, heads * width), dtype), b.input("weight", (width,), dtype)
    cos, sin = b.input("cos", (batch, tokens, width), dtype), b.input("sin", (batch, tokens, width), dtype)
    split = b.call("aten::view", x, [batch, tokens, heads, width])
    normed = b.call("aten::transpose.int", _rms(b, split, weight, dtype), 1, 2)
    cos, sin = b.call("aten::unsqueeze", cos, 1), b.call("aten::unsqueeze", sin, 1)
    return b.done(_rope(b, normed, cos, sin, width // 2))


@entry
def add_rms_norm_quant(rows: int = 9, hidden: int = 80, dtype: str = BF16) -> Graph:
    b = GraphBuilder("add_rms_norm_quant")
    x, residual = b.input("x", (rows, hidden), dtype), b.input("residual", (rows, hidden), dtype)
    weight = b.input("weight", (hidden,), dtype)
    total = b.call("aten::add.Tensor", x, residual)
    live: list[Any] = []
    _quantised(b, _rms(b, total, weight, dtype), live, dtype)
    return b.done(*live, total)


@entry
def swiglu_quant(rows: int = 9, hidden: int = 80, dtype: str = BF16) -> Graph:
    b = GraphBuilder("swiglu_quant")
    gate, up = b.input("gate", (rows, hidden), dtype), b.input("up", (rows, hidden), dtype)
    live: list[Any] = []
    _quantised(b, b.call("aten::mul.Tensor", b.call("aten::silu", gate), up), live, dtype)
    return b.done(*live)


@entry
def token_quant(rows: int = 9, hidden: int = 100, dtype: str = BF16) -> Graph:
    b = GraphBuilder("token_quant")
    live: list[Any] = []
    _quantised(b, b.input("x", (rows, hidden), dtype), live, dtype)
    return b.done(*live)


@entry
def token_quant_int8(rows: int = 9, hidden: int = 100, dtype: str = BF16) -> Graph:
    b = GraphBuilder("token_quant_int8")
    wide = _f32(b, b.input("x", (rows, hidden), dtype), dtype)
    top = b.call("aten::clamp_min", b.call("aten::amax", b.call("aten::abs", wide), [-1], True), 1e-8)
    scale = b.call("aten::div.Tensor", top, 127.0)
    codes = b.call("aten::clamp", b.call("aten::round", b.call("aten::div.Tensor", wide, scale)), -128.0, 127.0)
    return b.done(b.call("aten::_to_copy", codes, dtype="int8"), scale)


@entry
def block_quant(rows: int = 6, blocks: int = 4, width: int = 32, dtype: str = BF16) -> Graph:
    b = GraphBuilder("block_quant")
    x = b.input("x", (rows, blocks * width), dtype)
    live: list[Any] = []
    codes = _quantised(b, b.call("aten::view", x, [rows, blocks, width]), live, dtype)
    return b.done(b.call("aten::view", codes, [rows, blocks * width]), live[1])


@entry
def bias_gelu(rows: int = 6, hidden: int = 130, dtype: str = BF16) -> Graph:
    b = GraphBuilder("bias_gelu")
    x, bias = b.input("x", (rows, hidden), dtype), b.input("bias", (hidden,), dtype)
    return b.done(b.call("aten::gelu", b.call("aten::add.Tensor", x, bias), approximate="none"))


@entry
def bias_act_residual(rows: int = 6, hidden: int = 130, dtype: str = BF16) -> Graph:
    b = GraphBuilder("bias_act_residual")
    x, bias = b.input("x", (rows, hidden), dtype), b.input("bias", (hidden,), dtype)
    residual = b.input("residual", (rows, hidden), dtype)
    act = b.call("aten::relu", b.call("aten::add.Tensor", x, bias))
    return b.done(b.call("aten::add.Tensor", residual, act, alpha=0.5))


@entry
def bias_dropout_residual_norm(rows: int = 8, hidden: int = 96, dtype: str = BF16) -> Graph:
    b = GraphBuilder("bias_dropout_residual_norm")
    x, bias = b.input("x", (rows, hidden), dtype), b.input("bias", (hidden,), dtype)
    residual = b.input("residual", (rows, hidden), dtype)
    weight, shift = b.input("weight", (hidden,), dtype), b.input("shift", (hidden,), dtype)
    kept, mask = b.call("aten::native_dropout", b.call("aten::add.Tensor", x, bias), 0.1, True)
    total = b.call("aten::add.Tensor", kept, residual)
    normed, _, _ = b.call("aten::native_layer_norm", total, [hidden], weight, shift, 1e-5)
    return b.done(normed, total, mask)


@entry
def two_dropouts() -> Graph:
    """Each draws numbers of its own."""
    b = GraphBuilder("two_dropouts")
    x, residual = b.input("x", (24, 100), BF16), b.input("residual", (24, 100), BF16)
    first, one = b.call("aten::native_dropout", x, 0.3, True)
    second, other = b.call("aten::native_dropout", b.call("aten::add.Tensor", first, residual), 0.2, True)
    return b.done(second, one, other)


@entry
def scale_mask_softmax(batch: int = 2, heads: int = 3, q: int = 7, k: int = 40, dtype: str = BF16) -> Graph:
    b = GraphBuilder("scale_mask_softmax")
    scores = b.input("scores", (batch, heads, q, k), dtype)
    mask = b.input("bias", (batch, 1, q, k), dtype)
    scaled = b.call("aten::mul.Tensor", scores, 0.125)
    wide = _f32(b, b.call("aten::add.Tensor", scaled, mask), dtype)
    return b.done(_narrow(b, b.call("aten::_softmax", wide, -1, False), dtype))


@entry
def masked_fill_softmax(batch: int = 2, heads: int = 3, q: int = 7, k: int = 40, dtype: str = F32) -> Graph:
    b = GraphBuilder("masked_fill_softmax")
    scores, mask = b.input("scores", (batch, heads, q, k), dtype), b.input("hidden", (q, k), "bool")
    scaled = b.call("aten::div.Tensor", scores, 8.0)
    return b.done(b.call("aten::_softmax", b.call("aten::masked_fill.Scalar", scaled, mask, -10000.0), -1, False))


@entry
def cross_entropy(rows: int = 6, classes: int = 150, dtype: str = BF16) -> Graph:
    b = GraphBuilder("cross_entropy")
    logits, target = b.input("logits", (rows, classes), dtype), b.input("target", (rows,), "int64", below=classes)
    scores = b.call("aten::_log_softmax", _f32(b, logits, dtype), 1, False)
    loss, count = b.call("aten::nll_loss_forward", scores, target, None, 1, -100)
    return b.done(loss, count)


@entry
def kl_divergence(rows: int = 6, classes: int = 90, dtype: str = F32) -> Graph:
    b = GraphBuilder("kl_divergence")
    scores, target = b.input("scores", (rows, classes), dtype), b.input("target", (rows, classes), dtype)
    predicted = b.call("aten::_log_softmax", scores, -1, False)
    wanted = b.call("aten::_log_softmax", target, -1, False)
    gap = b.call("aten::mul.Tensor", b.call("aten::exp", wanted), b.call("aten::sub.Tensor", wanted, predicted))
    return b.done(b.call("aten::div.Tensor", b.call("aten::sum", gap), 6.0))


@entry
def jensen_shannon(rows: int = 5, classes: int = 70, dtype: str = F32) -> Graph:
    b = GraphBuilder("jensen_shannon")
    p, q = b.input("p", (rows, classes), dtype), b.input("q", (rows, classes), dtype)
    log_p, log_q = (b.call("aten::_log_softmax", t, -1, False) for t in (p, q))
    p, q = b.call("aten::exp", log_p), b.call("aten::exp", log_q)
    middle = b.call("aten::log", b.call("aten::mul.Tensor", b.call("aten::add.Tensor", p, q), 0.5))
    left = b.call("aten::mul.Tensor", p, b.call("aten::sub.Tensor", log_p, middle))
    right = b.call("aten::mul.Tensor", q, b.call("aten::sub.Tensor", log_q, middle))
    both = b.call("aten::mul.Tensor", b.call("aten::add.Tensor", left, right), 0.5)
    return b.done(b.call("aten::sum.dim_IntList", both, [-1], False))


@entry
def adamw_foreach(shapes: tuple[Shape, ...] = ((40, 3), (77,), (5, 9)), dtype: str = F32) -> Graph:
    b = GraphBuilder("adamw_foreach")
    lists = [[b.input(f"{n}{k}", s, dtype) for k, s in enumerate(shapes)] for n in ("p", "g", "m", "v")]
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
def clip_grad_norm(shapes: tuple[Shape, ...] = ((30, 4), (50,)), dtype: str = F32) -> Graph:
    b = GraphBuilder("clip_grad_norm")
    grads = [b.input(f"g{k}", s, dtype) for k, s in enumerate(shapes)]
    norms = b.call("aten::_foreach_norm.Scalar", grads, 2)
    total = b.call("aten::linalg_vector_norm", b.call("aten::stack", list(norms), 0), 2)
    share = b.call("aten::mul.Tensor", b.call("aten::reciprocal", b.call("aten::add.Tensor", total, 1e-6)), 1.5)
    clipped = b.call("aten::clamp", share, max=1.0)
    scaled = b.call("aten::_foreach_mul.Tensor", grads, clipped)
    return b.done(total, *scaled)


@entry
def adaln_modulate(batch: int = 2, tokens: int = 7, hidden: int = 64, dtype: str = BF16) -> Graph:
    b = GraphBuilder("adaln_modulate")
    x = b.input("x", (batch, tokens, hidden), dtype)
    shift, scale = b.input("shift", (batch, hidden), dtype), b.input("scale", (batch, hidden), dtype)
    normed, _, _ = b.call("aten::native_layer_norm", x, [hidden], None, None, 1e-6)
    factor = b.call("aten::add.Tensor", b.call("aten::unsqueeze", scale, 1), 1)
    scaled = b.call("aten::mul.Tensor", normed, factor)
    return b.done(b.call("aten::add.Tensor", scaled, b.call("aten::unsqueeze", shift, 1)))


@entry
def gated_residual(batch: int = 2, tokens: int = 7, hidden: int = 64, dtype: str = BF16) -> Graph:
    b = GraphBuilder("gated_residual")
    x, residual = b.input("x", (batch, tokens, hidden), dtype), b.input("residual", (batch, tokens, hidden), dtype)
    gate = b.input("gate", (batch, hidden), dtype)
    gated = b.call("aten::mul.Tensor", x, b.call("aten::unsqueeze", gate, 1))
    return b.done(b.call("aten::add.Tensor", residual, gated))


@entry
def group_norm_silu(shape: Shape = (2, 6, 5, 7), groups: int = 3, dtype: str = F32) -> Graph:
    b = GraphBuilder("group_norm_silu")
    batch, channels, height, width = shape
    x = b.input("x", shape, dtype)
    weight, bias = b.input("weight", (channels,), dtype), b.input("bias", (channels,), dtype)
    given = (x, weight, bias, batch, channels, height * width, groups, 1e-6)
    normed, _, _ = b.call("aten::native_group_norm", *given)
    return b.done(b.call("aten::silu", normed))


@entry
def group_norm_in_parts() -> Graph:
    return group_norm_silu((1, 6, 21, 27))


@entry
def softcap(rows: int = 5, hidden: int = 130, dtype: str = BF16) -> Graph:
    b = GraphBuilder("softcap")
    x = b.input("x", (rows, hidden), dtype)
    squeezed = b.call("aten::tanh", b.call("aten::div.Tensor", x, 30.0))
    return b.done(b.call("aten::mul.Tensor", squeezed, 30.0))


@entry
def temperature_softmax(rows: int = 5, hidden: int = 130, dtype: str = F32) -> Graph:
    b = GraphBuilder("temperature_softmax")
    x = b.input("x", (rows, hidden), dtype)
    return b.done(b.call("aten::_softmax", b.call("aten::div.Tensor", x, 0.7), -1, False))


@entry
def decode_metadata(rows: int = 13, places: int = 40) -> Graph:
    b = GraphBuilder("decode_metadata")
    lengths, slots = b.input("lengths", (rows,), "int32"), b.input("slots", (rows,), "int64", below=places)
    table = b.input("table", (places,), "int64")
    wide = b.call("aten::_to_copy", lengths, dtype="int64")
    ends = b.call("aten::cumsum", b.call("aten::add.Tensor", wide, 1), 0)
    return b.done(ends, b.call("aten::add.Tensor", b.call("aten::index.Tensor", table, [slots]), wide))


@entry
def gdn_gating(rows: Shape = (3, 5), heads: int = 24, dtype: str = BF16) -> Graph:
    b = GraphBuilder("gdn_gating")
    a_log, dt_bias = b.input("a_log", (heads,), F32), b.input("dt_bias", (heads,), dtype)
    a, beta = b.input("a", (*rows, heads), dtype), b.input("beta", (*rows, heads), dtype)
    shifted = b.call("aten::add.Tensor", _f32(b, a, dtype), dt_bias)
    decay = b.call("aten::neg", b.call("aten::exp", a_log))
    return b.done(
        b.call("aten::mul.Tensor", decay, b.call("aten::softplus", shifted, 1.0, 20.0)), b.call("aten::sigmoid", beta)
    )


@entry
def cast_ladder(shape: Shape = (4, 6, 33), dtype: str = BF16) -> Graph:
    b = GraphBuilder("cast_ladder")
    x = b.input("x", shape, dtype)
    swapped = b.call("aten::clone", b.call("aten::transpose.int", x, 1, 2), memory_format=None)
    scaled = b.call("aten::mul.Tensor", _f32(b, swapped, dtype), 0.5)
    return b.done(b.call("aten::clone", b.call("aten::permute", _narrow(b, scaled, dtype), [0, 2, 1])))


@entry
def transposed_add(rows: int = 37, columns: int = 50, dtype: str = F32) -> Graph:
    b = GraphBuilder("transposed_add")
    x, y = b.input("x", (rows, columns), dtype), b.input("y", (columns, rows), dtype)
    return b.done(b.call("aten::add.Tensor", x, b.call("aten::t", y)))


@entry
def norm_across_the_grain() -> Graph:
    """One operand has its rows side by side, the other its columns, and a result is written turned."""
    b = GraphBuilder("norm_across_the_grain")
    x, y = b.input("x", (2, 21, 24), BF16), b.input("y", (2, 21, 24), BF16, (504, 1, 21))
    weight, bias = b.input("weight", (24,), BF16), b.input("bias", (24,), BF16)
    total = b.call("aten::add.Tensor", x, y)
    normed = b.call("aten::native_layer_norm", total, [24], weight, bias, 1e-5)[0]
    turned = b.call("aten::clone", b.call("aten::permute", normed, [0, 2, 1]), memory_format=0)
    return b.done(total, turned)


@entry
def sibling_scales(shapes: tuple[Shape, ...] = ((3, 50), (3, 70), (90,)), dtype: str = BF16) -> Graph:
    b = GraphBuilder("sibling_scales")
    members = [b.input(f"x{k}", s, dtype) for k, s in enumerate(shapes)]
    return b.done(*(b.call("aten::mul.Tensor", m, 0.3) for m in members))


@entry
def embedding_scale_norm(rows: Shape = (2, 9), words: int = 50, hidden: int = 64, dtype: str = BF16) -> Graph:
    b = GraphBuilder("embedding_scale_norm")
    weight, ids = b.input("weight", (words, hidden), dtype), b.input("ids", rows, "int64", below=words)
    gain = b.input("gain", (hidden,), dtype)
    found = b.call("aten::embedding", weight, ids)
    return b.done(_rms(b, b.call("aten::mul.Tensor", found, 8.0), gain, dtype))


@entry
def column_sum(rows: int = 130, columns: int = 45, dtype: str = BF16) -> Graph:
    b = GraphBuilder("column_sum")
    grad = b.input("grad", (rows, columns), dtype)
    return b.done(b.call("aten::sum.dim_IntList", grad, [0], False))


@entry
def full_mean(rows: int = 40, columns: int = 300, dtype: str = F32) -> Graph:
    b = GraphBuilder("full_mean")
    x, y = b.input("x", (rows, columns), dtype), b.input("y", (rows, columns), dtype)
    return b.done(b.call("aten::mean", b.call("aten::pow.Tensor_Scalar", b.call("aten::sub.Tensor", x, y), 2)))


@entry
def long_softmax() -> Graph:
    b = GraphBuilder("long_softmax")
    x = b.input("x", (3, 300), BF16)
    return b.done(b.call("aten::_softmax", x, -1, False))


@entry
def long_layer_norm() -> Graph:
    b = GraphBuilder("long_layer_norm")
    x, weight = b.input("x", (3, 1101), F32), b.input("weight", (1101,), F32)
    return b.done(b.call("aten::native_layer_norm", x, [1101], weight, None, 1e-5)[0])


@entry
def long_cross_entropy(rows: int = 5, classes: int = 300) -> Graph:
    b = GraphBuilder("long_cross_entropy")
    logits, target = b.input("logits", (rows, classes), BF16), b.input("target", (rows,), "int64", below=classes)
    scores = b.call("aten::_log_softmax", _f32(b, logits), 1, False)
    return b.done(b.call("aten::nll_loss_forward", scores, target, None, 1, -100)[0])


@entry
def looped_softmax() -> Graph:
    b = GraphBuilder("looped_softmax")
    x = b.input("x", (5, 100), BF16)
    return b.done(b.call("aten::_softmax", x, -1, False))


@entry
def looped_norm_in_place() -> Graph:
    b = GraphBuilder("looped_norm_in_place")
    x, y, weight = b.input("x", (5, 100), F32), b.input("y", (5, 100), F32), b.input("weight", (100,), F32)
    total = b.call("aten::add_.Tensor", x, y)
    doubled = b.call("aten::mul.Tensor", total, 2.0)
    return b.done(doubled, b.call("aten::native_layer_norm", total, [100], weight, None, 1e-5)[0])


@entry
def bias_gradient() -> Graph:
    """What is summed over all rows is written too."""
    b = GraphBuilder("bias_gradient")
    grad, out = b.input("grad", (2, 75, 250), BF16), b.input("y", (2, 75, 250), BF16)
    back = b.call("aten::add.Tensor", b.call("aten::tanh_backward", grad, out), 0.25)
    flat = b.call("aten::view", back, [150, 250])
    return b.done(back, b.call("aten::sum.dim_IntList", flat, [0], True))


@entry
def conv_bias_gradient() -> Graph:
    """Summed over all but the channels, which lie side by side."""
    b = GraphBuilder("conv_bias_gradient")
    grad = b.input("grad", (3, 130, 5, 7), BF16, (4550, 1, 910, 130))
    return b.done(b.call("aten::sum.dim_IntList", b.call("aten::add.Tensor", grad, 0.5), [0, 2, 3], False))


@entry
def long_extremes() -> Graph:
    b = GraphBuilder("long_extremes")
    x, codes = b.input("x", (3, 300), BF16), b.input("codes", (3, 300), "int32")
    spread = b.call("aten::sub.Tensor", b.call("aten::amax", x, [1], True), b.call("aten::amin", x, [1], True))
    return b.done(b.call("aten::div.Tensor", x, spread), b.call("aten::any.dim", codes, 1))


@entry
def column_variance() -> Graph:
    b = GraphBuilder("column_variance")
    x = b.input("x", (150, 250), BF16)
    return b.done(b.call("aten::var.correction", x, [0], correction=0, keepdim=False))


@entry
def long_mean() -> Graph:
    b = GraphBuilder("long_mean")
    x, y = b.input("x", (40, 30), F32), b.input("y", (40, 30), F32)
    return b.done(b.call("aten::mean", b.call("aten::pow.Tensor_Scalar", b.call("aten::sub.Tensor", x, y), 2)))


@entry
def residual_in_place(rows: int = 9, hidden: int = 80, dtype: str = BF16) -> Graph:
    b = GraphBuilder("residual_in_place")
    x, y = b.input("x", (rows, hidden), dtype), b.input("y", (rows, hidden), dtype)
    weight = b.input("weight", (hidden,), dtype)
    return b.done(_rms(b, b.call("aten::add_.Tensor", x, y), weight, dtype))


@entry
def softmax_backward(rows: int = 6, hidden: int = 90, dtype: str = F32) -> Graph:
    b = GraphBuilder("softmax_backward")
    grad, out = b.input("grad", (rows, hidden), dtype), b.input("probs", (rows, hidden), dtype)
    back = b.call("aten::_softmax_backward_data", grad, out, -1, dtype)
    return b.done(b.call("aten::mul.Tensor", back, 0.125))


@entry
def batch_norm_relu() -> Graph:
    b = GraphBuilder("batch_norm_relu")
    x, residual = b.input("x", (3, 6, 5, 7), "float16"), b.input("residual", (3, 6, 5, 7), "float16")
    weight, bias = b.input("weight", (6,), "float16"), b.input("bias", (6,), "float16")
    mean, spread = b.input("mean", (6,), "float16"), b.input("spread", (6,), "float16")
    spread = b.call("aten::square", spread)
    normed, kept, _ = b.call("aten::native_batch_norm", x, weight, bias, mean, spread, False, 0.1, 1e-5)
    b.call("aten::add_.Tensor", normed, residual)
    return b.done(b.call("aten::clamp_min_", normed, 0), kept)


@entry
def batch_norm_train() -> Graph:
    b = GraphBuilder("batch_norm_train")
    x = b.input("x", (3, 6, 5, 7), "float16")
    weight, bias = b.input("weight", (6,), F32), b.input("bias", (6,), F32)
    mean, spread = b.input("mean", (6,), F32), b.input("spread", (6,), F32)
    found = b.call("aten::cudnn_batch_norm", x, weight, bias, mean, spread, True, 0.1, 1e-5)
    return b.done(b.call("aten::relu", found[0]), found[1], found[2])


@entry
def batch_norm_backward() -> Graph:
    b = GraphBuilder("batch_norm_backward")
    grad, out = b.input("grad", (3, 6, 5, 7), "float16"), b.input("after", (3, 6, 5, 7), "float16")
    x, weight = b.input("x", (3, 6, 5, 7), "float16"), b.input("weight", (6,), F32)
    mean, scale = b.input("mean", (6,), F32), b.input("scale", (6,), F32)
    reserve = b.input("reserve", (0,), "uint8")
    back = b.call("aten::threshold_backward", grad, out, 0)
    return b.done(*b.call("aten::cudnn_batch_norm_backward", x, back, weight, None, None, mean, scale, 1e-5, reserve))


@entry
def layer_norm_backward(rows: tuple[int, ...] = (3, 5), hidden: int = 60, residual: bool = True) -> Graph:
    b = GraphBuilder("layer_norm_backward")
    grad, x = b.input("grad", (*rows, hidden), BF16), b.input("x", (*rows, hidden), BF16)
    mean, scale = b.input("mean", (*rows, 1), F32), b.input("scale", (*rows, 1), F32)
    weight, bias = b.input("weight", (hidden,), BF16), b.input("bias", (hidden,), BF16)
    beside = [b.input("residual", (*rows, hidden), BF16)] if residual else []
    given = (grad, x, [hidden], mean, scale, weight, bias, [True, True, True])
    into, by_weight, by_bias = b.call("aten::native_layer_norm_backward", *given)
    into = b.call("aten::add.Tensor", *beside, into) if residual else into
    return b.done(into, by_weight, by_bias)


@entry
def rms_norm_backward(rows: int = 9, hidden: int = 60, dtype: str = F32) -> Graph:
    b = GraphBuilder("rms_norm_backward")
    grad, x = b.input("grad", (rows, hidden), dtype), b.input("x", (rows, hidden), dtype)
    scale, weight = b.input("scale", (rows, 1), F32), b.input("weight", (hidden,), dtype)
    given = (grad, x, [hidden], scale, weight, [True, True])
    return b.done(*b.call("aten::_fused_rms_norm_backward", *given))


@entry
def norm_gradients_in_turn() -> Graph:
    """Rows are so many that they are summed in parts: by what holds them already. Beyond them exp is not 0."""
    b = GraphBuilder("norm_gradients_in_turn")
    grad, x = b.input("grad", (131, 60), BF16), b.input("x", (131, 60), BF16)
    scale, weight = b.input("scale", (131, 1), F32), b.input("weight", (60,), BF16)
    given = (grad, x, [60], scale, weight, [True, True])
    into, by_weight = b.call("aten::_fused_rms_norm_backward", *given)
    return b.done(into, by_weight, b.call("aten::sum.dim_IntList", b.call("aten::exp", x), [0], False))


@entry
def group_norm_backward() -> Graph:
    b = GraphBuilder("group_norm_backward")
    grad, x = b.input("grad", (2, 6, 5, 7), F32), b.input("x", (2, 6, 5, 7), F32)
    mean, scale = b.input("mean", (2, 3), F32), b.input("scale", (2, 3), F32)
    weight = b.input("weight", (6,), F32)
    given = (grad, x, mean, scale, weight, 2, 6, 35, 3, [True, True, True])
    return b.done(*b.call("aten::native_group_norm_backward", *given))


@entry
def gelu_backward() -> Graph:
    b = GraphBuilder("gelu_backward")
    grad, x = b.input("grad", (6, 130), BF16), b.input("x", (6, 130), BF16)
    return b.done(b.call("aten::gelu_backward", grad, x, approximate="none"))


@entry
def gelu_tanh_backward() -> Graph:
    b = GraphBuilder("gelu_tanh_backward")
    grad, x = b.input("grad", (6, 130), BF16), b.input("x", (6, 130), BF16)
    return b.done(b.call("aten::gelu_backward", grad, x, approximate="tanh"))


@entry
def hard_swish_backward() -> Graph:
    b = GraphBuilder("hard_swish_backward")
    grad, x = b.input("grad", (6, 130), BF16), b.input("x", (6, 130), BF16)
    back = b.call("aten::hardswish_backward", grad, x)
    return b.done(back, b.call("aten::hardsigmoid_backward", grad, x))


@entry
def cross_entropy_backward() -> Graph:
    b = GraphBuilder("cross_entropy_backward")
    grad, scores = b.input("grad", (), F32), b.input("scores", (6, 150), F32)
    target, total = b.input("target", (6,), "int64", below=150), b.input("total", (), F32)
    back = b.call("aten::nll_loss_backward", grad, scores, target, None, 1, -100, total)
    return b.done(_narrow(b, b.call("aten::_log_softmax_backward_data", back, scores, 1, F32)))


@entry
def cross_entropy_trained(rows: int = 12, classes: int = 150) -> Graph:
    """The loss and its gradient, which waits for how many rows count."""
    b = GraphBuilder("cross_entropy_trained")
    logits, y = b.input("logits", (rows, classes), BF16), b.input("y", (rows,), "int64", below=classes)
    scores = b.call("aten::_log_softmax", _f32(b, logits), 1, False)
    loss, count = b.call("aten::nll_loss_forward", scores, y, None, 1, -100)
    back = b.call("aten::nll_loss_backward", b.call("aten::ones_like", loss), scores, y, None, 1, -100, count)
    return b.done(loss, _narrow(b, b.call("aten::_log_softmax_backward_data", back, scores, 1, F32)))


@entry
def weighted_cross_entropy() -> Graph:
    b = GraphBuilder("weighted_cross_entropy")
    scores, target = b.input("scores", (6, 50), F32), b.input("target", (6,), "int64", below=50)
    weight = b.input("weight", (50,), F32)
    return b.done(*b.call("aten::nll_loss_forward", scores, target, weight, 1, 3))


@entry
def causal_mask() -> Graph:
    b = GraphBuilder("causal_mask")
    scores = b.input("scores", (2, 3, 17, 17), BF16)
    rows = b.call("aten::arange.start_step", 0, 17, 1, dtype="int64")
    columns = b.call("aten::arange.start_step", 0, 17, 1, dtype="int64")
    later = b.call("aten::gt.Tensor", b.call("aten::unsqueeze", columns, 0), b.call("aten::unsqueeze", rows, 1))
    hidden = b.call("aten::masked_fill.Scalar", _f32(b, scores), later, -10000.0)
    return b.done(_narrow(b, b.call("aten::_softmax", hidden, -1, False)))


@entry
def safe_softmax() -> Graph:
    b = GraphBuilder("safe_softmax")
    scores = b.input("scores", (2, 3, 7, 40), F32)
    soft = b.call("aten::_softmax", scores, -1, False)
    hidden = b.call("aten::all.dim", b.call("aten::isneginf", scores), -1, True)
    zero = b.call("aten::full", [], 0.0, dtype=F32)
    return b.done(b.call("aten::where.self", hidden, zero, soft))


@entry
def shifted_windows() -> Graph:
    b = GraphBuilder("shifted_windows")
    x = b.input("x", (2, 6, 9, 8), "float16")
    turned = b.call("aten::roll", b.call("aten::roll", x, [-1], [1]), [2], [2])
    cut = b.call("aten::permute", b.call("aten::view", turned, [2, 2, 3, 3, 3, 8]), [0, 1, 3, 2, 4, 5])
    return b.done(b.call("aten::clone", cut, memory_format=0))


@entry
def enlarged() -> Graph:
    b = GraphBuilder("enlarged")
    x, y = b.input("x", (2, 3, 5, 4), "float16"), b.input("y", (2, 3, 10, 12), "float16")
    return b.done(b.call("aten::add.Tensor", b.call("aten::upsample_nearest2d", x, [10, 12]), y))


@entry
def padded() -> Graph:
    b = GraphBuilder("padded")
    x = b.input("x", (3, 5, 7), F32)
    return b.done(b.call("aten::relu", b.call("aten::constant_pad_nd", x, [1, 2, 0, 3], 0.5)))


@entry
def bias_in_place_below_permute() -> Graph:
    b = GraphBuilder("bias_in_place_below_permute")
    x, bias = b.input("x", (2, 5, 7, 24), BF16), b.input("bias", (1, 24, 1, 1), BF16)
    weight, shift = b.input("weight", (24,), BF16), b.input("shift", (24,), BF16)
    b.call("aten::add_.Tensor", b.call("aten::permute", x, [0, 3, 1, 2]), bias)
    return b.done(b.call("aten::native_layer_norm", x, [24], weight, shift, 1e-6)[0])


@entry
def residual_in_place_and_read_otherwise() -> Graph:
    """What is written in place is read in parts by kernels that walk it otherwise."""
    b = GraphBuilder("residual_in_place_and_read_otherwise")
    x, y = b.input("x", (2, 6, 4, 5), BF16), b.input("y", (1, 6, 1, 1), BF16)
    b.call("aten::add_.Tensor", x, y)
    parts = b.call("aten::split.Tensor", b.call("aten::view", x, [2, 6, 20]), 2, 1)
    return b.done(*(_f32(b, b.call("aten::transpose.int", part, 1, 2)) for part in parts))


@entry
def norms_gradient_added_in_place() -> Graph:
    """As autograd sums gradients of a residual: the sum takes the place of one, and a bias' gradient is read off it."""
    b = GraphBuilder("norms_gradient_added_in_place")
    grad, x, residual = (b.input(n, (3, 4, 40), BF16) for n in ("grad", "x", "residual"))
    mean, scale = b.input("mean", (3, 4, 1), F32), b.input("scale", (3, 4, 1), F32)
    mask = [True, False, False]
    back = b.call("aten::native_layer_norm_backward", grad, x, [40], mean, scale, None, None, mask)
    b.call("aten::add_.Tensor", residual, back)
    return b.done(b.call("aten::sum.dim_IntList", b.call("aten::view", residual, [12, 40]), [0], True))


@entry
def slice_backward() -> Graph:
    b = GraphBuilder("slice_backward")
    grad, other = b.input("grad", (3, 5, 24), BF16), b.input("other", (3, 9, 24), BF16)
    whole = b.call("aten::zeros", [3, 9, 24], dtype=BF16)
    b.call("aten::copy_", b.call("aten::slice.Tensor", whole, 1, 2, 7, 1), b.call("aten::mul.Tensor", grad, 0.5))
    return b.done(b.call("aten::add.Tensor", whole, other))


@entry
def differences_of_each_two() -> Graph:
    """A vector meets itself turned: one axis is walked twice."""
    b = GraphBuilder("differences_of_each_two")
    x = b.input("x", (4, 12), F32)
    return b.done(b.call("aten::sub.Tensor", b.call("aten::view", x, [4, 1, 12]), b.call("aten::view", x, [4, 12, 1])))


@entry
def by_a_whole_number() -> Graph:
    b = GraphBuilder("by_a_whole_number")
    x = b.input("x", (5, 60), F32)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::div.Tensor", x, 2048), 3))


@entry
def filled_mask() -> Graph:
    b = GraphBuilder("filled_mask")
    x = b.input("x", (5, 40), F32)
    mask = b.call(
        "aten::bitwise_and.Tensor", b.call("aten::full", [], 1.0, dtype="bool"), b.call("aten::gt.Scalar", x, 0.0)
    )
    return b.done(b.call("aten::masked_fill.Scalar", x, mask, -1.0))
