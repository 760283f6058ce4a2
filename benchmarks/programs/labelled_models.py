"""Labelled programs whose model is spelled slowly: recurrences, losses, tables, precision. Labels: `labels.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16


def lstm_tagger(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, length: int = 64
) -> Built:
    """A tagger's LSTM written out, its input projected anew in each round."""
    width, tags = 256, 24
    library = nn.LSTM(width, width, batch_first=True, bias=False).to(dtype)
    into, over = library.weight_ih_l0, library.weight_hh_l0
    head, x = nn.Linear(width, tags).to(dtype), torch.randn(texts, length, width, dtype=dtype)

    def written_out(x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(texts, width)
        said = []
        for at in range(length):  # cause: recurrence_unfused, main
            gates = x[:, at] @ into.T + hidden @ over.T  # cause: input_projection_in_loop
            i, f, g, o = gates.chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            said.append(hidden)
        return head(torch.stack(said, 1))

    def by_library(x: Tensor) -> Tensor:
        return head(library(x)[0])  # near: recurrence_unfused

    function = wrap(by_library if fixed else written_out)
    return Built(lambda: function(x))


def gru_classifier(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, length: int = 50
) -> Built:
    """A classifier trained through a GRU cell that is called once a position."""
    width, classes = 256, 12
    cell, library = nn.GRUCell(width, width).to(dtype), nn.GRU(width, width, batch_first=True).to(dtype)
    head = nn.Linear(width, classes).to(dtype)
    with torch.no_grad():
        for mine, theirs in zip(library.parameters(), cell.parameters(), strict=True):
            mine.copy_(theirs)
    parameters = [*(library if fixed else cell).parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y = torch.randn(texts, length, width, dtype=dtype), torch.randint(0, classes, (texts,))

    def called_once_each(x: Tensor) -> Tensor:
        state = x.new_zeros(texts, width)
        for at in range(length):  # cause: recurrence_unfused, main
            state = cell(x[:, at], state)  # cause: input_projection_in_loop
        return head(state)

    function = wrap((lambda x: head(library(x)[1][0])) if fixed else called_once_each)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(function(x).float(), y)  # near: linear_cross_entropy
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def gated_scan(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 16, length: int = 256
) -> Built:
    """A gated linear recurrence, one position after another; in closed form it is a cumulative sum."""
    width = 512
    gates, values = nn.Linear(width, width).to(dtype), nn.Linear(width, width).to(dtype)
    x = torch.randn(texts, length, width, dtype=dtype)

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        return 0.05 * F.logsigmoid(gates(x)).float(), values(x).float()

    def in_turn(x: Tensor) -> Tensor:
        logs, given = parts(x)
        kept, state, said = logs.exp(), given.new_zeros(given.shape[0], width), []
        for at in range(length):  # cause: recurrence_unfused, main
            state = kept[:, at] * state + given[:, at]
            said.append(state)
        return torch.stack(said, 1)

    def at_once(x: Tensor) -> Tensor:
        logs, given = parts(x)
        total = logs.cumsum(1)
        return total.exp() * (given * (-total).exp()).cumsum(1)

    function = wrap(at_once if fixed else in_turn)
    return Built(lambda: function(x))


def vocabulary_loss(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, words: int = 32_000
) -> Built:
    """The loss of a language model over all words at once, and that of a small head beside it."""
    width, strips = 1024, 8
    body = nn.Sequential(nn.Linear(width, width), nn.GELU()).to(dtype)
    head, kinds = nn.Linear(width, words, bias=False).to(dtype), nn.Linear(width, 32).to(dtype)
    parameters = [*body.parameters(), *head.parameters(), *kinds.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y, kind = torch.randn(rows, width, dtype=dtype), torch.randint(0, words, (rows,)), torch.randint(0, 32, (rows,))

    def strip(hidden: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(head(hidden).float(), y, reduction="sum")

    def loss_of(x: Tensor) -> Tensor:
        hidden = body(x)
        small = F.cross_entropy(kinds(hidden).float(), kind)  # near: linear_cross_entropy
        if not fixed:
            return small + F.cross_entropy(head(hidden).float(), y)  # cause: linear_cross_entropy, main
        total = small * rows
        for part, said in zip(hidden.chunk(strips), y.chunk(strips), strict=True):  # near: python_loop
            total = total + checkpoint(strip, part, said, use_reentrant=False)
        return total / rows

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def item_embeddings(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = torch.float32,
    items: int = 400_000,
    rows: int = 4096,
) -> Built:
    """Two towers over a large table of items of which a step reads few rows; a small table of categories beside it."""
    width = 64
    table, categories = nn.Embedding(items, width, sparse=fixed), nn.Embedding(100, width)
    tower = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, width)).to(dtype)
    parameters = [*table.parameters(), *categories.parameters(), *tower.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    seen, wanted = torch.randint(0, items, (rows,)), torch.randint(0, items, (rows,))
    kind = torch.randint(0, 100, (rows,))

    def loss_of(seen: Tensor, wanted: Tensor) -> Tensor:
        small = categories(kind)  # near: embedding_gradient_dense
        mine = F.normalize(tower(torch.cat((table(seen), small), 1)), dim=1)  # cause: embedding_gradient_dense, main
        theirs = F.normalize(table(wanted), dim=1)  # cause: embedding_gradient_dense
        return F.softplus(-(mine * theirs).sum(1)).mean()

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(seen, wanted)
        loss.backward()  # same: embedding_gradient_dense
        optimizer.step()  # same: embedding_gradient_dense
        return loss.detach()

    return Built(step, parameters)


def encoder_in_float32(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, length: int = 128
) -> Built:
    """A text encoder served as it was trained: in float32, tensor cores unused."""
    width, heads = 384, 6
    kind = dtype if fixed else torch.float32
    layers = [
        nn.ModuleList((nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width),
                       nn.Linear(width, 4 * width), nn.Linear(4 * width, width))).to(kind)
        for _ in range(6)
    ]  # fmt: skip
    x = torch.randn(texts, length, width).to(kind)

    def encode(x: Tensor) -> Tensor:
        for norm, qkv, out, after, up, down in layers:  # cause: float32_inference, main
            parts = qkv(norm(x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # near: attention_unfused
            x = x + down(F.gelu(up(after(x))))
        return x.mean(1)

    function = wrap(encode)
    return Built(lambda: function(x))


def late_interaction(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, documents: int = 256, length: int = 180
) -> Built:
    """Word by word scores of documents for queries, taken in float32 of embeddings that are half."""
    width, queries = 128, 16
    project = nn.Linear(768, width, bias=False).to(dtype)
    asked, read = torch.randn(queries, 32, 768, dtype=dtype), torch.randn(documents, length, 768, dtype=dtype)

    def scores(asked: Tensor, read: Tensor) -> Tensor:
        q, d = F.normalize(project(asked), dim=-1), F.normalize(project(read), dim=-1)
        if not fixed:
            q, d = q.float(), d.float()
        found = torch.matmul(q[:, None], d[None].transpose(-2, -1))  # cause: float32_batched_product, main
        return found.amax(-1).float().sum(-1)

    function = wrap(scores)
    return Built(lambda: function(asked, read))


def relative_positions(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 8, length: int = 512
) -> Built:
    """Attention with a learned bias by distance, spelled out, as T5 has it."""
    width, heads, layers = 512, 8, 6
    qkv = [nn.Linear(width, 3 * width, bias=False).to(dtype) for _ in range(layers)]
    out = [nn.Linear(width, width, bias=False).to(dtype) for _ in range(layers)]
    far = torch.arange(length)[:, None] - torch.arange(length)[None]
    table = torch.randn(heads, 64, dtype=dtype)
    bias = table[:, far.clamp(-32, 31) + 32].contiguous()
    x, known = torch.randn(texts, length, width, dtype=dtype), torch.arange(length) < length - 3

    def encode(x: Tensor) -> Tensor:
        x = torch.where(known[:, None], x, 0)  # near: host_sync
        for first, last in zip(qkv, out, strict=True):  # near: python_loop
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in first(x).chunk(3, -1))
            if fixed:
                mixed = F.scaled_dot_product_attention(
                    q, k, v, attn_mask=bias[None], scale=1.0
                )  # near: attention_biased
            else:
                mixed = (
                    torch.softmax((q @ k.transpose(-2, -1) + bias).float(), -1).to(v.dtype) @ v
                )  # cause: attention_biased, main
            x = x + last(mixed.transpose(1, 2).flatten(2)) * 0.1
        return x

    function = wrap(encode)
    return Built(lambda: function(x))


def adam_one_by_one(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 40, width: int = 256
) -> Built:
    """A deep small network whose optimizer goes over its tensors in Python."""
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.SiLU()))).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **({"fused": True} if fixed else {"foreach": False}))
    x, y = torch.randn(512, width, dtype=dtype), torch.randn(512, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()  # near: gradient_zeroing
        loss = F.mse_loss(function(x), y)
        loss.backward()
        optimizer.step()  # cause: optimizer_unfused, main
        return loss.detach()

    return Built(step, list(model.parameters()))


def grown_cache(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8, rounds: int = 16
) -> Built:
    """Words of a decoder one after another, its keys and values grown by `cat`; or written where there is room."""
    width, heads, layers, prompt = 512, 8, 6, 512
    qkv = [nn.Linear(width, 3 * width, bias=False).to(dtype) for _ in range(layers)]
    out = [nn.Linear(width, width, bias=False).to(dtype) for _ in range(layers)]
    past = torch.randn(layers, 2, rows, heads, prompt, width // heads, dtype=dtype)
    room = torch.zeros(layers, 2, rows, heads, prompt + rounds, width // heads, dtype=dtype)
    room[:, :, :, :, :prompt] = past
    start = torch.randn(rows, 1, width, dtype=dtype)

    def one(x: Tensor, cache: list[tuple[Tensor, Tensor]], end: int) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        after = []
        for layer in range(layers):  # near: python_loop
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv[layer](x).chunk(3, -1))
            keys, values = cache[layer]
            if fixed:
                keys[:, :, end - 1 : end], values[:, :, end - 1 : end] = k, v
                k, v = keys[:, :, :end], values[:, :, :end]
                after.append((keys, values))
            else:
                k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)  # cause: cache_grown, main
                after.append((k, v))
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = F.layer_norm(x + out[layer](mixed), (width,))
        return x, after

    function = wrap(one)

    def step() -> Tensor:
        x, said = start, []
        cache = [(each[0], each[1]) for each in (room if fixed else past)]
        for at in range(rounds):  # near: recurrence_unfused
            x, cache = function(x, cache, prompt + at + 1)
            said.append(x)
        return torch.cat(said, 1)

    return Built(step)


MODELS = (
    Labelled(lstm_tagger, "models", {"texts": 2, "length": 6}, tolerance=4e-2),
    Labelled(gru_classifier, "models", {"texts": 3, "length": 5}, training=True, tolerance=6e-2),
    Labelled(gated_scan, "models", {"texts": 2, "length": 40}),
    Labelled(vocabulary_loss, "models", {"rows": 16, "words": 40}, training=True, tolerance=5e-2),
    Labelled(item_embeddings, "models", {"items": 300, "rows": 12}, training=True, tolerance=1e-4),
    Labelled(encoder_in_float32, "models", {"texts": 2, "length": 6}, tolerance=0.1),
    Labelled(late_interaction, "models", {"documents": 3, "length": 7}, tolerance=4e-2),
    Labelled(relative_positions, "models", {"texts": 2, "length": 40}, tolerance=6e-2),
    Labelled(
        adam_one_by_one,
        "models",
        {"layers": 3, "width": 16},
        Expected(capture="Adam keeps its count of steps on the host: not capturable"),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(
        grown_cache,
        "models",
        {"rows": 2, "rounds": 3},
        Expected(graphs="what it gave is kept over its next call"),
        tolerance=5e-2,
    ),
)
