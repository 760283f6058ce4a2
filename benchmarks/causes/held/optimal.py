"""Steps with none of the causes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import (
    LAST,
    B,
    H,
    applied,
    attended,
    conv,
    hidden,
    images,
    linears,
    over,
    residuals,
    rows,
    sdpa,
    square,
    trained,
    transformer,
)
from benchmarks.causes.program import Step, program, size


@program
def good_decoder() -> Step:
    """A causal transformer in fp16, attention in one call."""
    return attended(lambda q, k, v: sdpa(q, k, v, is_causal=True), dtype=H)


@program
def good_small_batch() -> Step:
    """One sequence through the same layers in bfloat16."""
    return applied(transformer(layers=3).to(B), hidden(1, 512)[:1])


@program(training=True)
def good_trained_convolutions() -> Step:
    """Convolutions with BatchNorm in training, channels last, bfloat16, SGD fused."""
    model = nn.Sequential(conv(128, bias=False), nn.BatchNorm2d(size(128, 8)), nn.ReLU(), conv(128)).to(B)
    updates = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    return trained(model.to(memory_format=LAST), images(32, 128, dtype=B).to(memory_format=LAST), optimizer=updates)


@program(training=True)
def good_trained_tf32() -> Step:
    """Residual layers in float32 with TF32, AdamW fused."""
    return trained(residuals(size(1024)), rows(4096))


@program
def good_pooled() -> Step:
    """Convolutions, pools and a classifier, fp16, channels last."""
    width = size(128, 8)
    body = nn.Sequential(conv(128), nn.ReLU(), nn.MaxPool2d(2), conv(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(body, nn.Flatten(), nn.Linear(width, 1000)).to(H).to(memory_format=LAST)
    return applied(model, images(32, 128).to(memory_format=LAST))


@program
def good_decode() -> Step:
    """A token over keys and values that lie in a buffer of a fixed size."""
    width, places = size(1024, 64), size(2048)
    kept = [torch.randn(2, size(16, 2), 16, places, width // 16, dtype=B) for _ in range(2)]
    model, at, turn = transformer().to(B).eval(), torch.tensor([places // 2]), [0]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = kept[turn[0] % 2]
        turn[0] += 1
        return sdpa(q, keys.index_copy_(2, at, k), values.index_copy_(2, at, v))

    for layer in model.layers:
        layer.attention.attend = attend
    return over(model, torch.randn(size(16, 2), 1, width, dtype=B))


@program
def good_bag() -> Step:
    """One bag of embeddings."""
    bag = nn.EmbeddingBag(size(100_000), size(256), mode="mean").to(H)
    head = nn.Linear(size(256), size(256)).to(H)
    return over(lambda ids: head(bag(ids)), torch.randint(0, size(100_000), (size(32768), 16)))


@program
def good_gru() -> Step:
    """The library's GRU."""
    layer = nn.GRU(size(512), size(512), num_layers=2).to(B)
    return over(lambda x: layer(x)[0], torch.randn(size(128), 64, size(512), dtype=B))


@program
def good_pointwise() -> Step:
    """One activation of a large tensor."""
    return over(F.gelu, rows(32768, 4096, B))


@program
def good_softmax() -> Step:
    """Softmax of long rows, and their largest."""
    return over(lambda x: x.softmax(-1).max(-1), rows(8192, 32768, H))


@program
def good_graph() -> Step:
    """Messages along edges, added up by index."""
    nodes, width = size(65536), size(256)
    source, target = torch.randint(0, nodes, (2, 4 * nodes)).unbind(0)
    mix = nn.Linear(width, width).to(B)

    def call(x: Tensor) -> Tensor:
        return F.relu(mix(torch.zeros_like(x).index_add_(0, target, x[source])))

    return over(call, torch.randn(nodes, width, dtype=B))


@program
def good_upsampled() -> Step:
    """Convolutions and a pixel shuffle, channels last, fp16."""
    model = nn.Sequential(conv(64), nn.ReLU(), conv(64, 256), nn.PixelShuffle(2)).to(H).to(memory_format=LAST)
    return applied(model, images(32, 64).to(memory_format=LAST))


@program(training=True)
def good_accumulated() -> Step:
    """Four small batches in bfloat16, one update."""
    model = linears(12, 2048).to(B)
    updates = torch.optim.AdamW(model.parameters(), fused=True)

    def step(x: Tensor) -> None:
        updates.zero_grad(set_to_none=True)
        for part in x.chunk(4):
            (square(model(part)) / 4).backward()
        updates.step()

    return over(step, rows(8192, 2048, B))


@program(training=True)
def good_clipped() -> Step:
    """A transformer in bfloat16, gradients clipped over lists, AdamW fused."""
    model = transformer().to(B)
    return trained(model, hidden(4), between=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True))


@program
def good_patches() -> Step:
    """Patches cut by a layer, tokens through a transformer, classes by an aligned head."""
    width = size(1024, 64)
    cut, body, head = nn.Linear(3 * 256, width).to(B), transformer().to(B).eval(), nn.Linear(width, 1000).to(B)
    return over(lambda x: head(body(cut(x)).mean(1)), torch.randn(size(16, 2), size(256), 3 * 256, dtype=B))
