"""Experts that are routed, embedding bags, caches that grow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, H, Layer, S, over, residuals, rows, sdpa
from benchmarks.causes.program import Step, program, size

# -- experts -----------------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """A router and two products for each expert, each of which takes so many tokens and no more."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) * width**-0.5)

    def forward(self, bins: Tensor) -> Tensor:
        return torch.bmm(F.silu(torch.bmm(bins, self.up)), self.down)


@program
def routed_by_argsort(fixed: bool) -> Step:
    """Tokens are put in the order of their expert by a sort of 64-bit integers; or by counting."""
    width, count = size(1024), 8
    tokens = size(16384)
    room, model = tokens // count * 2, Experts(width, count).to(B)

    def counted(expert: Tensor) -> Tensor:
        """The order that a stable sort would give."""
        ones = expert == torch.arange(count, device=expert.device)[:, None]
        place = ones.cumsum(1, dtype=torch.int32).gather(0, expert[None])[0] - 1
        sums = ones.sum(1, dtype=torch.int32)
        place = place + (sums.cumsum(0) - sums)[expert]
        return torch.empty_like(expert).scatter_(0, place.long(), torch.arange(len(expert), device=expert.device))

    def call(x: Tensor) -> Tensor:
        chance, expert = model.router(x).softmax(-1).max(-1)
        order = counted(expert) if fixed else torch.argsort(expert, stable=True)
        among = torch.arange(len(x), device=x.device)
        sorted_expert = expert[order]
        starts = torch.searchsorted(sorted_expert, torch.arange(count, device=x.device))
        place = (among - starts[sorted_expert]).clamp(max=room - 1)
        bins = x.new_zeros(count, room, width)
        bins[sorted_expert, place] = x[order]
        out = torch.empty_like(x)
        out[order] = model(bins)[sorted_expert, place]
        return out * chance[:, None]

    return over(call, rows(16384, 1024, B))


@program
def routed_by_two_sorts(fixed: bool) -> Step:
    """Each token's place among those of its expert: a sort of a sort; or a running count."""
    width, count, tokens = size(512), 16, size(32768)
    room, model = tokens // count * 2, Experts(width, count).to(H)

    def call(x: Tensor) -> Tensor:
        chance, expert = model.router(x).softmax(-1).max(-1)
        if fixed:
            ones = expert == torch.arange(count, device=x.device)[:, None]
            place = ones.cumsum(1, dtype=torch.int32).gather(0, expert[None])[0] - 1
        else:
            rank = expert.argsort(stable=True).argsort()
            sums = torch.bincount(expert, minlength=count)
            place = rank - (sums.cumsum(0) - sums)[expert]
        place = place.long().clamp(max=room - 1)
        bins = x.new_zeros(count, room, width)
        bins[expert, place] = x
        return model(bins)[expert, place] * chance[:, None]

    return over(call, rows(32768, 512, H))


@program
def routed_by_masks() -> Step:
    """Each expert on all tokens, weighted by the router's chances: nothing is sorted."""
    width, count = size(512), 8
    model = Experts(width, count).to(B)

    def call(x: Tensor) -> Tensor:
        best, expert = model.router(x).topk(2, dim=-1)
        weights = torch.zeros(len(x), count, dtype=x.dtype, device=x.device).scatter_(1, expert, best.softmax(-1))
        out = model(x.expand(count, *x.shape))
        return (out * weights.t()[..., None]).sum(0)

    return over(call, rows(8192, 512, B))


@program
def sorted_to_sample() -> Step:
    """Logits are sorted to sample from the likeliest words: no experts."""
    head = nn.Linear(size(1024), size(32768), bias=False).to(H)

    def call(x: Tensor) -> Tensor:
        values, words = head(x).float().sort(dim=-1, descending=True)
        chances = values.softmax(-1)
        kept = chances.masked_fill(chances.cumsum(-1) - chances > 0.9, 0.0)
        return words.gather(-1, kept.argmax(-1, keepdim=True))

    return over(call, rows(256, dtype=H))


# -- embedding bags ----------------------------------------------------------------------------------------------------


def top(inputs: int, dtype: torch.dtype = S) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, size(512)), nn.ReLU(), nn.Linear(size(512), 1)).to(dtype)


@program
def bags_of_one_width(fixed: bool) -> Step:
    """26 tables of one width, each with a call of its own."""
    width, count, entries = size(64), 26, size(20_000, 100)
    bags = nn.ModuleList(nn.EmbeddingBag(entries, width, mode="sum") for _ in range(count))
    head = top(count * width)
    table = torch.cat([bag.weight for bag in bags])
    shift = (torch.arange(count) * entries)[:, None, None]

    def call(ids: Tensor) -> Tensor:
        if fixed:
            flat = (ids + shift).flatten(0, 1)
            found = F.embedding_bag(flat, table, mode="sum").view(count, -1, width).transpose(0, 1)
            return head(found.flatten(1))
        return head(torch.cat([bag(one) for bag, one in zip(bags, ids, strict=True)], 1))

    return over(call, torch.randint(0, entries, (count, size(8192), 4)))


@program
def bags_of_many_sizes(fixed: bool) -> Step:
    """12 tables of one width and many lengths, means of bags."""
    width, count = size(128), 12
    sizes = [size(1000 * (1 + at), 50 + at) for at in range(count)]
    tables = [torch.randn(entries, width, dtype=H) for entries in sizes]
    table = torch.cat(tables)
    shift = torch.tensor([sum(sizes[:at]) for at in range(count)])[:, None, None]
    head = top(width, H)

    def call(ids: Tensor) -> Tensor:
        if fixed:
            found = F.embedding_bag((ids + shift).flatten(0, 1), table, mode="mean").view(count, -1, width).sum(0)
        else:
            found = sum(F.embedding_bag(one, weight, mode="mean") for one, weight in zip(ids, tables, strict=True))
        return head(found)

    return over(call, torch.randint(0, min(sizes), (count, size(8192), 8)))


@program
def bags_of_many_widths() -> Step:
    """12 tables of as many widths: no table holds them all."""
    widths = [size(16 * (1 + at), 8 + at) for at in range(12)]
    bags = nn.ModuleList(nn.EmbeddingBag(size(10_000, 100), width, mode="sum") for width in widths)
    head = top(sum(widths))
    ids = torch.randint(0, size(10_000, 100), (12, size(8192), 4))
    return over(lambda ids: head(torch.cat([bag(one) for bag, one in zip(bags, ids, strict=True)], 1)), ids)


@program
def bags_in_one_table() -> Step:
    """One table and one call for 26 features already."""
    width, count, entries = size(64), 26, size(20_000, 100)
    bag, head = nn.EmbeddingBag(count * entries, width, mode="sum"), top(count * width)
    ids = torch.randint(0, count * entries, (size(8192) * count, 4))
    return over(lambda ids: head(bag(ids).view(-1, count * width)), ids)


# -- caches ------------------------------------------------------------------------------------------------------------


def decoded(fixed: bool, batch: int, layers: int, past: int, dtype: torch.dtype) -> Step:
    """A token through layers whose past is joined by `cat`, or kept in a buffer with room for it."""
    width, heads = size(1024, 64), 16
    blocks = nn.ModuleList(Layer(width, heads, sdpa) for _ in range(layers)).to(dtype).eval()
    kept = [torch.randn(2, batch, heads, past, width // heads, dtype=dtype) for _ in range(layers)]
    static = [F.pad(one, (0, 0, 0, 1)) for one in kept]
    at = torch.tensor([past])

    def call(x: Tensor) -> Tensor:
        for number, block in enumerate(blocks):

            def attend(q: Tensor, k: Tensor, v: Tensor, number: int = number) -> Tensor:
                if fixed:
                    static[number][0].index_copy_(2, at, k)
                    static[number][1].index_copy_(2, at, v)
                    return sdpa(q, *static[number])
                return sdpa(q, torch.cat([kept[number][0], k], 2), torch.cat([kept[number][1], v], 2))

            block.attention.attend = attend
            x = block(x)
        return x

    return over(call, torch.randn(batch, 1, width, dtype=dtype))


@program
def cache_joined(fixed: bool) -> Step:
    """Keys and values of 2,047 places and one more, in each of six layers."""
    return decoded(fixed, size(16, 2), 6, size(2048) - 1, B)


@program
def cache_joined_large(fixed: bool) -> Step:
    """The same with a batch of 64 and 1,023 places, fp16."""
    return decoded(fixed, size(64, 2), 4, size(1024) - 1, H)


@program
def cache_static() -> Step:
    """Each token is written into a buffer with room for all."""
    return decoded(True, size(16, 2), 6, size(2048) - 1, H)


@program
def cache_not_skips() -> Step:
    """Two tensors of one size are joined, as in a network with skips."""
    width = size(512)
    down, up = residuals(width, 1).to(B), nn.Linear(2 * width, width).to(B)

    def call(x: Tensor) -> Tensor:
        for _ in range(4):
            x = up(torch.cat([down(x), x], -1))
        return x

    return over(call, rows(16384, 512, B))
