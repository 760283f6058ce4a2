"""Labelled programs with loops in Python over what one call could do. Labels: `labels.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16


def user_histories(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, users: int = 64, longest: int = 60
) -> Built:
    """Score candidates against what each user looked at before: histories differ in length."""
    table, tower = torch.randn(20_000, 128, dtype=dtype) * 0.1, nn.Linear(128, 128).to(dtype)
    lengths = [1 + 7 * at % longest for at in range(users)]
    history, candidates = torch.randint(0, 20_000, (users, longest)), torch.randint(0, 20_000, (users, 200))
    ends, places = torch.tensor(lengths), torch.arange(longest)

    def each(history: Tensor, candidates: Tensor) -> Tensor:
        scores = []
        for user, length in enumerate(lengths):  # cause: python_loop, main
            profile = tower(table[history[user, :length]]).mean(0)
            scores.append(table[candidates[user]] @ profile)
        return torch.stack(scores)

    def together(history: Tensor, candidates: Tensor) -> Tensor:
        known = (places < ends[:, None])[..., None]
        profiles = torch.where(known, tower(table[history]), 0).sum(1) / ends[:, None]  # near: host_sync
        return (table[candidates] @ profiles.to(table.dtype)[..., None]).squeeze(-1)

    function = wrap(together if fixed else each)
    return Built(lambda: function(history, candidates))


def dense_experts(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, experts: int = 32, tokens: int = 256
) -> Built:
    """A soft mixture: each expert sees each token, weighted by its gate."""
    width = 256
    gate = torch.randn(width, experts, dtype=dtype) * width**-0.5
    up = torch.randn(experts, width, 2 * width, dtype=dtype) * width**-0.5
    down = torch.randn(experts, 2 * width, width, dtype=dtype) * (2 * width) ** -0.5
    x = torch.randn(tokens, width, dtype=dtype)

    def each(x: Tensor) -> Tensor:
        weights = torch.softmax(x @ gate, -1)
        out = torch.zeros_like(x)
        for expert in range(experts):  # cause: python_loop, main
            hidden = F.gelu(x @ up[expert]) @ down[expert]
            out = out + weights[:, expert, None] * hidden
        return out

    def together(x: Tensor) -> Tensor:
        weights = torch.softmax(x @ gate, -1)
        hidden = torch.bmm(F.gelu(torch.matmul(x, up)), down)
        return torch.einsum("te,etw->tw", weights, hidden)

    function = wrap(together if fixed else each)
    return Built(lambda: function(x))


def heads_apart(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 8, length: int = 128
) -> Built:
    """Attention whose heads are modules of their own, called one after another."""
    width, heads, layers = 768, 12, 4
    projections = torch.randn(layers, heads, 3, width, width // heads, dtype=dtype) * width**-0.5
    outs = [nn.Linear(width, width, bias=False).to(dtype) for _ in range(layers)]
    x = torch.randn(batch, length, width, dtype=dtype)

    def each(x: Tensor) -> Tensor:
        for layer, out in enumerate(outs):
            said = []
            for head in range(heads):  # cause: python_loop, main
                q, k, v = (x @ projections[layer, head, part] for part in range(3))
                scores = q @ k.transpose(1, 2) / math.sqrt(width // heads)
                said.append(torch.softmax(scores, -1) @ v)  # may: attention_unfused
            x = x + out(torch.cat(said, -1))
        return x

    joined = projections.permute(0, 3, 2, 1, 4).reshape(layers, width, 3 * width).contiguous()

    def together(x: Tensor) -> Tensor:
        for layer, out in enumerate(outs):  # near: python_loop
            parts = (x @ joined[layer]).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # near: attention_unfused
        return x

    function = wrap(together if fixed else each)
    return Built(lambda: function(x), outs_of(outs))


def outs_of(modules: Any) -> list[Tensor]:
    return [parameter for module in modules for parameter in module.parameters()]


def overlapping_tiles(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 4, side: int = 576
) -> Built:
    """A large picture in overlapping tiles, each normalised by itself, then embedded."""
    tile, hop = 128, 64
    pictures = torch.rand(batch, 3, side, side, dtype=dtype)
    embed = nn.Linear(3 * tile * tile, 256).to(dtype)
    corners = range(0, side - tile + 1, hop)

    def each(pictures: Tensor) -> Tensor:
        found = []
        for top in corners:  # cause: python_loop, main
            for left in corners:
                part = pictures[:, :, top : top + tile, left : left + tile].flatten(1)
                part = (part - part.mean(1, keepdim=True)) / (part.std(1, keepdim=True) + 1e-4)
                found.append(embed(part))
        return torch.stack(found, 1)

    def together(pictures: Tensor) -> Tensor:
        parts = pictures.unfold(2, tile, hop).unfold(3, tile, hop).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        parts = (parts - parts.mean(2, keepdim=True)) / (parts.std(2, keepdim=True) + 1e-4)
        return embed(parts)

    function = wrap(together if fixed else each)
    return Built(lambda: function(pictures))


def rolling_features(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, series: int = 512, length: int = 160
) -> Built:
    """Features of a sliding window over time series: mean, spread and range of each window, then a small head."""
    window, channels = 32, 8
    x = torch.randn(series, length, channels, dtype=dtype)
    head = nn.Linear(3 * channels, 16).to(dtype)

    def each(x: Tensor) -> Tensor:
        found = []
        for at in range(window, length + 1):  # cause: python_loop, main
            part = x[:, at - window : at]
            spread = part.amax(1) - part.amin(1)
            found.append(torch.cat((part.mean(1), part.std(1), spread), 1))
        return head(torch.stack(found, 1))

    def together(x: Tensor) -> Tensor:
        parts = x.unfold(1, window, 1)
        spread = parts.amax(-1) - parts.amin(-1)
        return head(torch.cat((parts.mean(-1), parts.std(-1), spread), -1))

    function = wrap(together if fixed else each)
    return Built(lambda: function(x))


def averaged_weights(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 32, width: int = 256
) -> Built:
    """Training with an average of the weights kept beside them, a tensor at a time."""
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.SiLU()))).to(dtype)
    parameters = list(model.parameters())
    averages = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    x, y = torch.randn(256, width, dtype=dtype), torch.randn(256, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        loss = F.mse_loss(function(x), y)
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        optimizer.zero_grad()
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(averages, parameters, 0.01)  # near: parameter_loop
            else:
                for average, parameter in zip(averages, parameters, strict=True):  # cause: parameter_loop, main
                    average.lerp_(parameter, 0.01)
        return loss.detach()

    return Built(step, [*parameters, *averages])


def query_pairs(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, queries: int = 48, width: int = 256
) -> Built:
    """Learning to rank: of each query's documents all pairs are compared, a query at a time."""
    sizes = [8 + 5 * at % 24 for at in range(queries)]
    starts, longest = [sum(sizes[:at]) for at in range(queries)], max(sizes)
    model = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(dtype)
    documents, grades = torch.randn(sum(sizes), width, dtype=dtype), torch.randint(0, 5, (sum(sizes),))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=True)
    where, known = torch.zeros(queries, longest, dtype=torch.long), torch.zeros(queries, longest, dtype=torch.bool)
    for at, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        where[at, :size], known[at, :size] = torch.arange(start, start + size), True

    def each(documents: Tensor, grades: Tensor) -> Tensor:
        scores, total = model(documents).squeeze(1).float(), 0.0
        for start, size in zip(starts, sizes, strict=True):  # cause: python_loop, main
            s, g = scores[start : start + size], grades[start : start + size]
            better = (g[:, None] > g[None]).float()
            total = total + (F.softplus(s[None] - s[:, None]) * better).sum() / better.sum().clamp(min=1)
        return total / queries

    def together(documents: Tensor, grades: Tensor) -> Tensor:
        s, g = model(documents).squeeze(1).float()[where], grades[where]
        pairs = (known[:, :, None] & known[:, None]).float()
        better = (g[:, :, None] > g[:, None]).float() * pairs
        costs = (F.softplus(s[:, None] - s[:, :, None]) * better).sum((1, 2)) / better.sum((1, 2)).clamp(min=1)
        return costs.mean()

    function = wrap(together if fixed else each)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(documents, grades)
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, list(model.parameters()))


def rounded_weights(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 24, width: int = 512
) -> Built:
    """Inference of a model whose weights are rounded to eight bits in each step, to see what that costs in accuracy."""
    weights = [torch.randn(width, width, dtype=dtype) * width**-0.5 for _ in range(layers)]
    x = torch.randn(64, width, dtype=dtype)

    def each(x: Tensor) -> Tensor:
        rounded = []
        for weight in weights:  # cause: parameter_loop, main
            scale = weight.abs().amax() / 127
            rounded.append((weight / scale).round().clamp(-127, 127) * scale)
        for weight in rounded:  # near: python_loop
            x = F.relu(x @ weight)
        return x

    def together(x: Tensor) -> Tensor:
        every = torch.stack(weights)
        scale = every.abs().amax((1, 2), keepdim=True) / 127
        for weight in ((every / scale).round().clamp(-127, 127) * scale).unbind():  # near: python_loop
            x = F.relu(x @ weight)
        return x

    function = wrap(together if fixed else each)
    return Built(lambda: function(x))


def padded_texts(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 96, longest: int = 64
) -> Built:
    """Texts of a flat buffer copied into a padded batch one by one, embedded and pooled."""
    lengths = [1 + 11 * at % longest for at in range(texts)]
    starts = [sum(lengths[:at]) for at in range(texts)]
    flat, table = torch.randint(1, 8000, (sum(lengths),)), torch.randn(8000, 256, dtype=dtype)
    places = torch.arange(longest)
    known = places < torch.tensor(lengths)[:, None]
    index = torch.where(known, torch.tensor(starts)[:, None] + places, 0)
    encode = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(dtype)

    def each(flat: Tensor) -> Tensor:
        batch = flat.new_zeros(texts, longest)
        for at in range(texts):  # cause: python_loop, main
            batch[at, : lengths[at]] = flat[starts[at] : starts[at] + lengths[at]]
        return (encode(table[batch]) * (batch > 0)[..., None]).sum(1)

    def together(flat: Tensor) -> Tensor:
        batch = torch.where(known, flat[index], 0)  # near: host_sync
        return (encode(table[batch]) * (batch > 0)[..., None]).sum(1)

    function = wrap(together if fixed else each)
    return Built(lambda: function(flat))


def mixture_density(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = torch.float32, parts: int = 64, points: int = 4096
) -> Built:
    """Log density under a mixture of Gaussians with full covariances, a component at a time."""
    size = 32
    means, factors = torch.randn(parts, size, dtype=dtype), torch.randn(parts, size, size, dtype=dtype).tril() * 0.3
    factors = factors + torch.eye(size, dtype=dtype)
    offsets = torch.log_softmax(torch.randn(parts, dtype=dtype), 0) + factors.diagonal(dim1=1, dim2=2).abs().log().sum(
        1
    )
    x = torch.randn(points, size, dtype=dtype)

    def each(x: Tensor) -> Tensor:
        found = []
        for part in range(parts):  # cause: python_loop, main
            white = (x - means[part]) @ factors[part]  # may: float32_inference
            found.append(offsets[part] - 0.5 * white.pow(2).sum(1))
        return torch.logsumexp(torch.stack(found, 1), 1)

    def together(x: Tensor) -> Tensor:
        white = torch.bmm(x[None] - means[:, None], factors)  # may: float32_batched_product
        return torch.logsumexp(offsets[:, None] - 0.5 * white.pow(2).sum(2), 0)

    function = wrap(together if fixed else each)
    return Built(lambda: function(x))


LOOPS = (
    Labelled(user_histories, "loops", {"users": 6, "longest": 9}),
    Labelled(dense_experts, "loops", {"experts": 4, "tokens": 9}, tolerance=4e-2),
    Labelled(heads_apart, "loops", {"batch": 2, "length": 5}, tolerance=5e-2),
    Labelled(overlapping_tiles, "loops", {"batch": 1, "side": 256}, tolerance=4e-2),
    Labelled(rolling_features, "loops", {"series": 4, "length": 40}, tolerance=4e-2),
    Labelled(
        averaged_weights,
        "loops",
        {"layers": 3, "width": 16},
        Expected(capture="AdamW keeps its count of steps on the host: not capturable"),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(query_pairs, "loops", {"queries": 5, "width": 12}, training=True, tolerance=5e-2),
    Labelled(rounded_weights, "loops", {"layers": 3, "width": 24}, tolerance=5e-2),
    Labelled(padded_texts, "loops", {"texts": 6, "longest": 9}),
    Labelled(mixture_density, "loops", {"parts": 5, "points": 17}, tolerance=1e-3),
)
