"""Programs in which nothing is to be found, and pairs of one model at batch 1 and 64. Labels: `labels.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16


def equal_layers(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16_384, width: int = 2048
) -> Built:
    """A loop over equal layers, each large enough to keep the device busy."""
    layers = [nn.Linear(width, width).to(dtype) for _ in range(12)]
    x = torch.randn(rows, width, dtype=dtype)

    def forward(x: Tensor) -> Tensor:
        for layer in layers:  # near: python_loop
            x = F.relu(layer(x))
        return x

    function = wrap(forward)
    return Built(lambda: function(x))


def library_lstm(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 256, length: int = 128
) -> Built:
    """The library's LSTM."""
    model, x = nn.LSTM(512, 512, 2, batch_first=True).to(dtype), torch.randn(texts, length, 512, dtype=dtype)
    function = wrap(lambda x: model(x)[0])  # near: recurrence_unfused
    return Built(lambda: function(x))


def biased_by_library(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 16, length: int = 1024
) -> Built:
    """Attention with a bias, by the library."""
    q, k, v = torch.randn(3, texts, 16, length, 64, dtype=dtype)
    bias, shown = torch.randn(1, 16, length, length, dtype=dtype), torch.rand(length, length) < 0.9

    def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        held = torch.where(shown, bias, -1e4)  # near: host_sync  # may: loop_invariant
        return F.scaled_dot_product_attention(q, k, v, attn_mask=held)  # near: attention_biased

    function = wrap(mixed)
    return Built(lambda: function(q, k, v))


def well_trained(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8192, width: int = 2048
) -> Built:
    """Training as it should be: a small vocabulary, optimizers over lists, one number read behind all parts."""
    model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())))
    model = model.append(nn.Linear(width, 64)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    x, y = torch.randn(4, rows, width, dtype=dtype), torch.randint(0, 64, (4, rows))
    function = wrap(model)

    def step() -> Tensor:
        total = torch.zeros((), device=x.device)
        for at in range(4):  # near: python_loop
            loss = F.cross_entropy(function(x[at]).float(), y[at]) / 4  # near: linear_cross_entropy
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)  # near: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        optimizer.zero_grad()  # near: gradient_zeroing
        return torch.tensor(total.item())  # near: host_sync

    return Built(step, list(model.parameters()))


def copied_ahead(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, width: int = 1024
) -> Built:
    """The next batch is copied from pinned memory on a stream of its own while this one is worked on."""
    device = torch.get_default_device()
    on_gpu = device.type == "cuda"
    with torch.device("cpu"):
        batch = torch.randn(rows, width).to(dtype)
    batch = batch.pin_memory() if on_gpu else batch
    side = torch.cuda.Stream() if on_gpu else None
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(24))).to(dtype)
    function, ready = wrap(model), [batch.to(device)]

    def step() -> Tensor:
        x = ready.pop()
        if side is None:
            ready.append(batch.to(device))
            return function(x)
        main = torch.cuda.current_stream()
        main.wait_stream(side)
        x.record_stream(main)
        with torch.cuda.stream(side):
            ready.append(batch.to(device, non_blocking=True))  # near: pageable_copy
        return function(x)

    return Built(step)


# -- one model, late or many -------------------------------------------------------------------------------------------


def served_encoder(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 1, length: int = 64
) -> Built:
    """A text encoder; its attention is spelled out."""
    width, heads, layers = 512, 8, 8
    qkv = [nn.Linear(width, 3 * width).to(dtype) for _ in range(layers)]
    out = [nn.Linear(width, width).to(dtype) for _ in range(layers)]
    x = torch.randn(batch, length, width, dtype=dtype)

    def encode(x: Tensor) -> Tensor:
        for first, last in zip(qkv, out, strict=True):
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in first(x).chunk(3, -1))
            if fixed:
                mixed = F.scaled_dot_product_attention(q, k, v)
            else:
                scores = q @ k.transpose(-2, -1) / (width // heads) ** 0.5
                mixed = torch.softmax(scores, -1) @ v  # cause: attention_unfused, main
            x = F.layer_norm(x + last(mixed.transpose(1, 2).flatten(2)), (width,))
        return x

    function = wrap(encode)
    return Built(lambda: function(x))


def served_pictures(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 1, side: int = 56
) -> Built:
    """A residual network whose norms stand apart from its convolutions."""
    convolutions = [nn.Conv2d(128, 128, 3, padding=1, bias=False).to(dtype) for _ in range(12)]
    norms = [nn.BatchNorm2d(128).to(dtype).eval() for _ in convolutions]
    for norm in norms:
        norm.running_var.uniform_(0.5, 2.0)
    pairs = zip(convolutions, norms, strict=True)
    folded = [torch.nn.utils.fusion.fuse_conv_bn_eval(c.eval(), n) for c, n in pairs] if fixed else []
    x = torch.randn(batch, 128, side, side, dtype=dtype)

    def forward(x: Tensor) -> Tensor:
        if fixed:
            for convolution in folded:
                x = F.relu(x + convolution(x))
            return x
        for convolution, norm in zip(convolutions, norms, strict=True):
            x = F.relu(x + norm(convolution(x)))  # cause: batch_norm_evaluated, main
        return x

    function = wrap(forward)
    return Built(lambda: function(x))


def served_ranker(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 1, tables: int = 26
) -> Built:
    """A ranker that asks many tables one after another; or one table with offsets."""
    rows, width = 10_000, 32
    joined = torch.randn(tables * rows, width, dtype=dtype)
    apart, offsets = list(joined.chunk(tables)), torch.arange(tables) * rows
    top = nn.Sequential(nn.Linear(tables * width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
    top, places = top.to(dtype), torch.randint(0, rows, (batch, tables))

    def forward(places: Tensor) -> Tensor:
        if fixed:
            return top(F.embedding(places + offsets, joined).flatten(1))
        found = []
        for at in range(tables):  # cause: python_loop, main
            found.append(F.embedding(places[:, at], apart[at]))  # noqa: PERF401 - a label stands on the loop
        return top(torch.cat(found, 1))

    function = wrap(forward)
    return Built(lambda: function(places))


NEAR = (
    Labelled(equal_layers, "near", {"rows": 4, "width": 16}, tolerance=5e-2),
    Labelled(library_lstm, "near", {"texts": 2, "length": 4}, Expected(compiled="", graphs="")),
    Labelled(biased_by_library, "near", {"texts": 1, "length": 8}),
    Labelled(well_trained, "near", {"rows": 4, "width": 16}, Expected("asks the device for a number"), training=True),
    Labelled(copied_ahead, "near", {"rows": 4, "width": 16}, Expected("a stream of its own")),
)

SERVED = (
    Labelled(served_encoder, "served", {"length": 6}, tolerance=5e-2),
    Labelled(served_pictures, "served", {"side": 8}, tolerance=0.1),
    Labelled(served_ranker, "served", {"tables": 4}),
)
BATCHES = (1, 64)
