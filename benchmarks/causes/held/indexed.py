"""Experts that are routed, embedding bags, caches that grow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, H, S, hidden, over, rows, sdpa
from benchmarks.causes.program import Step, program, size

# -- experts -----------------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """A router and two products for each expert."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.ups = nn.Parameter(torch.randn(count, width, 2 * width) * width**-0.5)
        self.downs = nn.Parameter(torch.randn(count, 2 * width, width) * width**-0.5)


@program
def routed_top_two(fixed: bool) -> Step:
    """Two experts a token; all pairs are sorted by expert, as 64-bit integers or as bytes."""
    width, count, tokens = size(512), 8, size(16384)
    model, room = Experts(width, count).to(B), 4 * tokens // count

    def call(x: Tensor) -> Tensor:
        best, expert = model.router(x).topk(2, dim=-1)
        flat = expert.flatten()
        order = (flat.to(torch.uint8) if fixed else flat).sort(stable=True).indices
        sums = torch.bincount(flat, minlength=count)
        of = flat[order]
        place = torch.arange(len(of), device=x.device) - (sums.cumsum(0) - sums)[of]
        place = place.clamp(max=room - 1)
        token = order // 2
        bins = x.new_zeros(count, room, width)
        bins[of, place] = x[token]
        out = torch.bmm(F.silu(torch.bmm(bins, model.ups)), model.downs)[of, place]
        weights = best.softmax(-1).flatten()[order]
        return torch.zeros_like(x, dtype=S).index_add_(0, token, (out * weights[:, None]).float())

    return over(call, rows(16384, 512, B))


@program
def routed_slices(fixed: bool) -> Step:
    """Tokens sorted by expert, one slice an expert, whose lengths the host asks for."""
    width, count = size(1024), 8
    model = Experts(width, count).to(H)

    def call(x: Tensor) -> Tensor:
        chance, expert = model.router(x).softmax(-1).max(-1)
        keys, order = (expert.to(torch.uint8) if fixed else expert).sort(stable=True)
        ends = torch.bincount(keys.long(), minlength=count).cumsum(0).tolist()
        came, out, start = x[order], torch.empty_like(x), 0
        for each, end in enumerate(ends):
            out[start:end] = F.silu(came[start:end] @ model.ups[each]) @ model.downs[each]
            start = end
        return torch.empty_like(x).index_copy_(0, order, out) * chance[:, None]

    return over(call, rows(16384, 1024, H))


@program
def routed_by_counting() -> Step:
    """Places among the tokens of an expert by a running count: nothing is sorted."""
    width, count, tokens = size(512), 8, size(16384)
    model, room = Experts(width, count).to(H), 2 * tokens // count

    def call(x: Tensor) -> Tensor:
        chance, expert = model.router(x).softmax(-1).max(-1)
        ones = expert == torch.arange(count, device=x.device)[:, None]
        place = ones.cumsum(1, dtype=torch.int32).gather(0, expert[None])[0].long() - 1
        place = place.clamp(max=room - 1)
        bins = x.new_zeros(count, room, width)
        bins[expert, place] = x
        return torch.bmm(F.silu(torch.bmm(bins, model.ups)), model.downs)[expert, place] * chance[:, None]

    return over(call, rows(16384, 512, H))


@program
def sorted_lengths() -> Step:
    """Sequences are put in the order of their lengths for a recurrent layer: 64 keys, no experts."""
    width = size(512)
    layer = nn.LSTM(width, width, batch_first=True).to(S)
    lengths = torch.randint(1, size(128), (64,))

    def call(x: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True)
        out, _ = layer(x[order])
        return torch.empty_like(out).index_copy_(0, order, out)

    return over(call, torch.randn(64, size(128), width), lengths)


# -- embedding bags ----------------------------------------------------------------------------------------------------


def top(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, size(512)), nn.ReLU(), nn.Linear(size(512), 1))


@program
def bags_with_offsets(fixed: bool) -> Step:
    """16 tables of one width, bags told by offsets."""
    width, count, entries, batch = size(64), 16, size(50_000, 100), size(8192)
    tables = nn.ParameterList(torch.randn(entries, width) for _ in range(count))
    table = torch.cat(list(tables))
    offsets, head = torch.arange(0, batch * 6, 6), top(count * width)
    every = torch.arange(0, count * batch * 6, 6)
    shift = (torch.arange(count) * entries)[:, None]

    def call(ids: Tensor) -> Tensor:
        if fixed:
            found = F.embedding_bag((ids + shift).flatten(), table, every, mode="sum")
            return head(found.view(count, batch, width).transpose(0, 1).flatten(1))
        found = [F.embedding_bag(one, each, offsets, mode="sum") for one, each in zip(ids, tables, strict=True)]
        return head(torch.cat(found, 1))

    return over(call, torch.randint(0, entries, (count, batch * 6)))


@program
def bags_weighted(fixed: bool) -> Step:
    """8 tables of one width, each entry with a weight of its own."""
    width, count, entries = size(128), 8, size(20_000, 100)
    bags = nn.ModuleList(nn.EmbeddingBag(entries, width, mode="sum") for _ in range(count))
    table, head = torch.cat([bag.weight for bag in bags]), top(count * width)
    shift = (torch.arange(count) * entries)[:, None, None]

    def call(ids: Tensor, weights: Tensor) -> Tensor:
        if fixed:
            flat, given = (ids + shift).flatten(0, 1), weights.flatten(0, 1)
            found = F.embedding_bag(flat, table, mode="sum", per_sample_weights=given)
            return head(found.view(count, -1, width).transpose(0, 1).flatten(1))
        found = [bag(one, per_sample_weights=each) for bag, one, each in zip(bags, ids, weights, strict=True)]
        return head(torch.stack(found, 1).flatten(1))

    shape = (count, size(8192), 4)
    return over(call, torch.randint(0, entries, shape), torch.rand(shape))


@program
def bags_of_two_types() -> Step:
    """Three tables in float32 and three in float16: no four are of one type."""
    width, entries = size(64), size(20_000, 100)
    tables = [torch.randn(entries, width, dtype=H if at % 2 else S) for at in range(6)]
    head = top(6 * width)

    def call(ids: Tensor) -> Tensor:
        found = [F.embedding_bag(one, each, mode="sum").float() for one, each in zip(ids, tables, strict=True)]
        return head(torch.cat(found, 1))

    return over(call, torch.randint(0, entries, (6, size(16384), 8)))


@program
def bags_of_three() -> Step:
    """Three tables of one width."""
    width, entries = size(128), size(20_000, 100)
    bags = nn.ModuleList(nn.EmbeddingBag(entries, width, mode="mean") for _ in range(3))
    head = top(3 * width)
    ids = torch.randint(0, entries, (3, size(32768), 8))
    return over(lambda ids: head(torch.cat([bag(one) for bag, one in zip(bags, ids, strict=True)], 1)), ids)


# -- caches ------------------------------------------------------------------------------------------------------------


class Cell(nn.Module):
    """Projections of one token; keys and values lie as [batch, places, heads, head]."""

    def __init__(self, width: int, heads: int, kv: int) -> None:
        super().__init__()
        self.heads, self.kv = heads, kv
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width // heads * kv)
        self.v, self.out = nn.Linear(width, width // heads * kv), nn.Linear(width, width)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.q(x).unflatten(-1, (self.heads, -1)),
            self.k(x).unflatten(-1, (self.kv, -1)),
            self.v(x).unflatten(-1, (self.kv, -1)),
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return self.out(sdpa(q, k, v, enable_gqa=self.heads != self.kv).transpose(1, 2).flatten(2))


@program
def cache_grows(fixed: bool) -> Step:
    """The cache really grows by a place each step, and begins anew when it is full."""
    width, batch, start, most = size(1024, 64), size(16, 2), size(1536), size(2048)
    cells = nn.ModuleList(Cell(width, 16, 16) for _ in range(6)).to(B)
    first = [torch.randn(2, batch, start, 16, width // 16, dtype=B) for _ in cells]
    grown = list(first)
    room = [torch.zeros(2, batch, most, 16, width // 16, dtype=B) for _ in cells]
    for one, begin in zip(room, first, strict=True):
        one[:, :, :start] = begin
    filled = [start]

    def call(x: Tensor) -> Tensor:
        if filled[0] == most:
            filled[0], grown[:] = start, first
        for number, cell in enumerate(cells):
            q, k, v = cell.parts(x)
            if fixed:
                room[number][0, :, filled[0] : filled[0] + 1] = k
                room[number][1, :, filled[0] : filled[0] + 1] = v
                there = room[number][:, :, : filled[0] + 1]
            else:
                grown[number] = there = torch.cat([grown[number], torch.stack([k, v])], dim=2)
            x = x + cell.attend(q, there[0], there[1])
        filled[0] += 1
        return x

    return over(call, torch.randn(batch, 1, width, dtype=B))


@program
def cache_joined_grouped(fixed: bool) -> Step:
    """Few heads of keys and values, joined along places in [batch, places, heads, head]."""
    width, batch, past = size(2048, 64), size(32, 2), size(2048) - 1
    cells = nn.ModuleList(Cell(width, 16, 4) for _ in range(5)).to(H)
    kept = [torch.randn(2, batch, past, 4, width // 16, dtype=H) for _ in cells]
    room = [F.pad(one, (0, 0, 0, 0, 0, 1)) for one in kept]

    def call(x: Tensor) -> Tensor:
        for number, cell in enumerate(cells):
            q, k, v = cell.parts(x)
            if fixed:
                keys, values = room[number]
                keys[:, past:], values[:, past:] = k, v
            else:
                keys, values = torch.cat((kept[number][0], k), dim=1), torch.cat((kept[number][1], v), dim=1)
            x = x + cell.attend(q, keys, values)
        return x

    return over(call, torch.randn(batch, 1, width, dtype=H))


@program
def cache_not_class_token() -> Step:
    """One row is joined in front of all patches, once for all layers."""
    width = size(1024, 64)
    cells = nn.ModuleList(Cell(width, 16, 16) for _ in range(4)).to(B)
    token = torch.randn(1, 1, width, dtype=B)

    def call(x: Tensor) -> Tensor:
        x = torch.cat([token.expand(len(x), 1, width), x], 1)
        for cell in cells:
            x = x + cell.attend(*cell.parts(x))
        return x[:, 0]

    return over(call, hidden(16, 255 if size(1024) == 1024 else 1024))


@program
def cache_not_prompts() -> Step:
    """Trained prompts are joined in front of keys and values that each layer makes anew."""
    width, batch = size(1024, 64), size(8, 2)
    cells = nn.ModuleList(Cell(width, 16, 16) for _ in range(4)).to(B)
    prompts = [torch.randn(2, batch, 8, 16, width // 16, dtype=B) for _ in cells]

    def call(x: Tensor) -> Tensor:
        for cell, prompt in zip(cells, prompts, strict=True):
            q, k, v = cell.parts(x)
            x = x + cell.attend(q, torch.cat([prompt[0], k], 1), torch.cat([prompt[1], v], 1))
        return x

    return over(call, hidden())
