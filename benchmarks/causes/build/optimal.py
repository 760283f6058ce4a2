"""Steps with none of the causes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    LAST,
    B,
    H,
    S,
    applied,
    attended,
    attended_training,
    conv,
    hidden,
    images,
    linears,
    over,
    residuals,
    rows,
    sdpa,
    trained,
    transformer,
)
from benchmarks.causes.program import Step, program, size


@program
def good_encoder() -> Step:
    """A transformer's encoder in bfloat16, attention in one call."""
    return applied(transformer(layers=3).to(B), hidden())


@program
def good_swiglu() -> Step:
    """Gated layers with aligned widths."""
    width, inner = size(1024), size(2816)
    gate, up, down = nn.Linear(width, inner).to(B), nn.Linear(width, inner).to(B), nn.Linear(inner, width).to(B)
    return over(lambda x: down(F.silu(gate(x)) * up(x)), rows(8192, dtype=B))


@program(training=True)
def good_trained_network() -> Step:
    """Residual layers in bfloat16, AdamW fused."""
    return trained(residuals(size(1024), 4).to(B), rows(8192, dtype=B))


@program
def good_tf32() -> Step:
    """Residual layers in float32 with TF32."""
    return applied(residuals(size(1024)), rows(4096))


@program
def good_convolutions() -> Step:
    """Convolutions with bias and activation, fp16, channels last."""
    model = nn.Sequential(conv(256), nn.ReLU(), conv(256), nn.ReLU(), conv(256)).to(H).to(memory_format=LAST)
    return applied(model, images(32, 256, 28).to(memory_format=LAST))


@program
def good_group_norms() -> Step:
    """Convolutions with norms of groups, bfloat16, channels last."""
    model = nn.Sequential(conv(128), nn.GroupNorm(8, size(128, 8)), nn.SiLU(), conv(128)).to(B).to(memory_format=LAST)
    return applied(model, images(32, 128, dtype=B).to(memory_format=LAST))


@program
def good_table() -> Step:
    """One table of embeddings and a network."""
    table, model = torch.randn(size(50_000), size(1024), dtype=B), residuals(size(1024), 2).to(B)
    return over(lambda ids: model(F.embedding(ids, table)), torch.randint(0, size(50_000), (size(8192),)))


@program
def good_loss() -> Step:
    """Cross entropy over an aligned vocabulary."""
    head = nn.Linear(size(1024), size(50304), bias=False).to(B)
    wanted = torch.randint(0, size(50304), (size(2048),))
    return over(lambda x, labels: F.cross_entropy(head(x), labels), rows(2048, dtype=B), wanted)


@program
def good_lstm() -> Step:
    """The library's LSTM."""
    layer = nn.LSTM(size(512), size(512), num_layers=2).to(H)
    return over(lambda x: layer(x)[0], torch.randn(size(128), 64, size(512), dtype=H))


@program
def good_products() -> Step:
    """A batch of aligned products in fp16."""
    left, right = (torch.randn(size(32, 2), size(1024), size(1024), dtype=H) for _ in range(2))
    return over(lambda a, b: torch.bmm(a, b).relu_(), left, right)


@program
def good_norms() -> Step:
    """Norms and nothing else."""
    norms = nn.ModuleList((nn.LayerNorm(size(2048)), nn.RMSNorm(size(2048)))).to(B)
    return over(lambda x: norms[1](norms[0](x)), rows(32768, 2048, B))


@program
def good_spectra() -> Step:
    """Spectra of sounds."""
    window = torch.hann_window(size(1024))

    def call(sound: Tensor) -> Tensor:
        return torch.stft(sound, size(1024), size(256), window=window, return_complex=True).abs().log1p()

    return over(call, torch.randn(size(64, 2), size(320_000, 4096)))


@program(training=True)
def good_trained_transformer() -> Step:
    """A causal transformer in bfloat16, gradients clipped over lists, AdamW fused."""
    return attended_training(lambda q, k, v: sdpa(q, k, v, is_causal=True))


@program(training=True)
def good_average() -> Step:
    """A deep network in float32 with TF32, its average kept over lists."""
    model = linears(24)
    average = [p.detach().clone() for p in model.parameters()]
    kept = [p.detach() for p in model.parameters()]
    return trained(model, rows(4096, dtype=S), behind=lambda: torch._foreach_lerp_(average, kept, 0.01))


@program
def good_grouped_queries() -> Step:
    """Few heads of keys and values, one call."""
    return attended(lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), kv_heads=4, dtype=H)
