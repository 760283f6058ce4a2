"""Programs of the second part that was held back: indexed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes.parts import B, H, Layer, Layers, applied, over, residuals, sdpa
from benchmarks.causes.program import Step, program, size

# -- expert_sort -------------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """Each row through some of many gated experts: rows in the order of their experts, and back."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen, self.norm = chosen, nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)
        self.register_buffer("numbers", torch.arange(experts))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        share, expert = self.router(y).float().sigmoid().topk(self.chosen, -1)
        ordered, order = expert.flatten().to(self.numbers.dtype).sort(stable=True)
        ends = torch.searchsorted(ordered, self.numbers, right=True, out_int32=True)
        a, b = F.grouped_mm(y[order // self.chosen], self.up, offs=ends).chunk(2, -1)
        out = F.grouped_mm(F.silu(a) * b, self.down, offs=ends)
        back = torch.empty_like(out)
        back[order] = out
        share = (share / share.sum(-1, keepdim=True)).to(x.dtype)
        return x + (back.view(*expert.shape, -1) * share.unsqueeze(-1)).sum(1)


@program
def tokens_in_order_of_experts(fixed: bool) -> Step:
    """A language model's layers of 32 small experts, 4 for each token, that tokens are sorted by."""
    width = size(1024)
    model = Layers([Experts(width, size(512), 32, 4) for _ in range(2)]).to(B)
    if fixed:
        for layer in model.layers:
            layer.numbers = layer.numbers.to(torch.uint8)  # a byte to sort by, not eight
    return applied(model, torch.randn(size(8192), width, dtype=B))


Ranks = Callable[[Tensor, Tensor, Tensor], Tensor]  # of experts, scores and numbers of experts


def counted(expert: Tensor, score: Tensor, numbers: Tensor) -> Tensor:
    """How many of the rows before go to the same expert."""
    before = (expert == numbers[:, None]).cumsum(1, dtype=torch.int32)
    return before.gather(0, expert[None])[0] - 1


class Switch(nn.Module):
    """Each row through one expert, that takes so many and no more: those of the lowest ranks."""

    def __init__(self, width: int, experts: int, room: int, ranks: Ranks) -> None:
        super().__init__()
        self.room, self.ranks = room, ranks
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) / (4 * width) ** 0.5)
        self.register_buffer("numbers", torch.arange(experts))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        score, expert = self.router(y).softmax(-1, dtype=torch.float32).max(-1)
        rank = self.ranks(expert, score, self.numbers)
        fits, last = rank < self.room, self.numbers.numel() * self.room
        place = torch.where(fits, expert * self.room + rank, last)
        taken = y.new_zeros(last + 1, x.shape[-1]).index_copy_(0, place, y)[:-1].unflatten(0, (-1, self.room))
        out = torch.bmm(F.gelu(torch.bmm(taken, self.up)), self.down).flatten(0, 1)
        return x.addcmul(out[place.clamp(max=last - 1)], (score * fits).to(x.dtype)[:, None])


@program
def speech_frames_to_experts(fixed: bool) -> Step:
    """Frames of speech, each to one of eight experts: ranks by a sort of experts and a sort of its order."""
    width, count = size(768), size(8192)
    places = torch.arange(count)

    def sorted_ranks(expert: Tensor, score: Tensor, numbers: Tensor) -> Tensor:
        order = torch.argsort(expert, stable=True)
        ordered = expert[order]
        return (places - torch.searchsorted(ordered, numbers)[ordered])[order.argsort()]

    ranks = counted if fixed else sorted_ranks
    model = Layers([Switch(width, 8, count * 5 // 32, ranks) for _ in range(2)]).to(H)
    return applied(model, torch.randn(count, width, dtype=H))


def by_priority(expert: Tensor, score: Tensor, numbers: Tensor) -> Tensor:
    """How many of the rows with a better score go to the same expert."""
    order = score.argsort(descending=True)
    ranks = counted(expert[order], score, numbers)
    return torch.empty_like(ranks).scatter_(0, order, ranks)


@program
def patches_by_priority() -> Step:
    """Patches of images to experts that have room for half of them: those that the router is surest of go first."""
    width, count = size(1024), size(12544, 96)
    model = Layers([Switch(width, 16, count // 32, by_priority) for _ in range(2)]).to(B)
    return applied(model, torch.randn(count, width, dtype=B))


# -- embedding_bags ----------------------------------------------------------------------------------------------------


class Fields(nn.Module):
    """A bag of each field, and a score of all."""

    def __init__(self, counts: Sequence[int], width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum") for count in counts)
        inner = size(1024)
        self.score = nn.Sequential(
            nn.Linear(width * len(counts), inner), nn.ReLU(), nn.Linear(inner, inner // 4), nn.ReLU()
        )
        self.last = nn.Linear(inner // 4, 1)
        self.all: tuple[Tensor, Tensor] | None = None  # one table, and where each field begins in it

    def join(self) -> None:
        ends = torch.tensor([bag.num_embeddings for bag in self.bags]).cumsum(0)
        self.all = torch.cat([bag.weight.detach() for bag in self.bags]), F.pad(ends, (1, 0))[:-1, None]
        self.bags = nn.ModuleList()

    def forward(self, fields: Tensor) -> Tensor:
        if self.all is None:
            found = torch.cat([bag(fields[:, i]) for i, bag in enumerate(self.bags)], 1)
        else:
            table, begin = self.all
            found = F.embedding_bag((fields + begin).flatten(0, 1), table, mode="sum").view(len(fields), -1)
        return self.last(self.score(found)).sigmoid()


@program
def listings_by_field(fixed: bool) -> Step:
    """A ranking of listings by 20 fields of several values, a table each."""
    counts = [size(5000 * (i + 1)) for i in range(20)]
    model = Fields(counts, size(64))
    fields = torch.stack([torch.randint(count, (size(8192), 5)) for count in counts], 1)
    if fixed:
        model.join()
    return applied(model, fields)


@program
def reads_by_their_words(fixed: bool) -> Step:
    """Reads of a genome by the means of their words of one to eight letters, a table each."""
    reads, width = size(4096), size(128)
    lengths = torch.arange(reads) % 7 + 5
    begins, total = lengths.cumsum(0) - lengths, int(lengths.sum())
    tables = [torch.randn(4**k, width, dtype=H) for k in range(1, 9)]
    words = [torch.randint(len(table), (total,)) for table in tables]
    rest = residuals(8 * width).to(H).eval()

    def one_by_one(*words: Tensor) -> Tensor:
        means = [F.embedding_bag(w, table, begins) for w, table in zip(words, tables, strict=True)]
        return rest(torch.hstack(means))

    if not fixed:
        return over(one_by_one, *words)
    table = torch.cat(tables)
    steps = torch.arange(8)[:, None]
    starts = torch.tensor([0] + [4**k for k in range(1, 8)]).cumsum(0)[:, None]
    ends = (begins + steps * total).flatten()

    def at_once(*words: Tensor) -> Tensor:
        means = F.embedding_bag((torch.stack(words) + starts).flatten(), table, ends)
        return rest(means.view(8, reads, width).transpose(0, 1).flatten(1))

    return over(at_once, *words)


@program
def claims_of_mixed_widths() -> Step:
    """Claims by eight fields whose embeddings are the wider the more values a field has."""
    widths = (8, 16, 24, 32, 48, 64, 96, 128)
    bags = nn.ModuleList(nn.EmbeddingBag(size(width * width * 12), width) for width in widths).to(B)
    codes = [torch.randint(bag.num_embeddings, (size(32768), 4)) for bag in bags]
    sizes = sum(widths), size(1024), size(512), 8
    parts = [part for i, o in pairwise(sizes) for part in (nn.Linear(i, o), nn.SiLU())]
    score = nn.Sequential(*parts[:-1]).to(B)
    return over(lambda *codes: score(torch.cat([bag(c) for bag, c in zip(bags, codes, strict=True)], 1)), *codes)


# -- cache_cat ---------------------------------------------------------------------------------------------------------


class Grown:
    """Keys and values of what was read [batch, length, heads, head]: each token makes new ones."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.begin = self.now = keys, values

    def reset(self) -> None:
        self.now = self.begin

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.now = torch.cat((self.now[0], k), dim=1), torch.cat((self.now[1], v), dim=1)
        return self.now


class Written:
    """The same with room for some tokens, that are written in their places."""

    def __init__(self, keys: Tensor, values: Tensor, room: int) -> None:
        self.k, self.v = (F.pad(t, (0, 0, 0, 0, 0, room)) for t in (keys, values))
        self.begin = self.at = keys.shape[1]

    def reset(self) -> None:
        self.at = self.begin

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k[:, self.at : self.at + 1], self.v[:, self.at : self.at + 1] = k, v
        self.at += 1
        return self.k[:, : self.at], self.v[:, : self.at]


class Reader(nn.Module):
    """A layer that reads one token a call; four query heads share keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head = width // heads
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, width // 2, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, cache: Grown | Written) -> Tensor:
        y = self.norm(x)
        k, v = self.kv(y).unflatten(-1, (-1, self.head)).chunk(2, 2)
        q, k, v = (t.transpose(1, 2) for t in (self.q(y).unflatten(-1, (-1, self.head)), *cache.add(k, v)))
        x = x + self.o(sdpa(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


@program
def four_tokens_behind_a_prompt(fixed: bool) -> Step:
    """Four tokens are read behind a long prompt, one after the other: each layer's cache grows by one."""
    batch, heads, width, prompt = size(32, 2), 16, size(1024, 128), size(3072)
    layers = nn.ModuleList(Reader(width, heads) for _ in range(2)).to(B)
    shape = batch, prompt, heads // 4, width // heads
    past = [(torch.randn(shape, dtype=B), torch.randn(shape, dtype=B)) for _ in layers]
    caches = [Written(k, v, 4) if fixed else Grown(k, v) for k, v in past]

    def read(tokens: Tensor) -> Tensor:
        for cache in caches:
            cache.reset()
        outs = []
        for x in tokens.split(1, 1):
            for layer, cache in zip(layers, caches, strict=True):
                x = layer(x, cache)
            outs.append(x)
        return torch.hstack(outs)

    return over(read, torch.randn(batch, 4, width, dtype=B))


class Remembering(nn.Module):
    """Features of a frame look at what was kept of the frames before; gives what to keep of this one too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.keep = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.rest = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU())
        self.out = nn.Linear(2 * width, width)

    def forward(self, frame: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.query(frame), *memory.chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        seen = frame + sdpa(q, k, v).transpose(1, 2).flatten(2)
        seen = seen + self.out(self.rest(seen))
        return seen, self.keep(seen)


@program
def masks_of_video_from_memory(fixed: bool) -> Step:
    """Objects followed through four frames of a video: what is kept of a frame is joined to the memory."""
    batch, width, places, kept = size(8, 2), size(512, 64), size(256), size(4096)
    model = Remembering(width, 8).to(H).eval()
    memory = torch.randn(batch, kept, 2 * width, dtype=H)
    frames = torch.randn(batch, 4, places, width, dtype=H)
    room = F.pad(memory, (0, 0, 0, 4 * places)) if fixed else None

    def follow(frames: Tensor) -> Tensor:
        seen, known = [], memory
        for number, frame in enumerate(frames.unbind(1)):
            if room is not None:
                known = room[:, : kept + number * places]
            out, new = model(frame, known)
            if room is None:
                known = torch.concat((known, new), -2)
            else:
                room[:, kept + number * places :][:, :places] = new
            seen.append(out)
        return torch.stack(seen, 1)

    return over(follow, frames)


class Prefixed(nn.Module):
    """Attention to what was given, and to keys and values that were tuned for a task."""

    def __init__(self, heads: int, head: int, count: int = 16) -> None:
        super().__init__()
        self.keys, self.values = (nn.Parameter(torch.randn(1, heads, count, head)) for _ in range(2))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = (t.expand(q.shape[0], -1, -1, -1) for t in (self.keys, self.values))
        return sdpa(q, torch.cat([keys, k], -2), torch.cat([values, v], -2))


@program
def tuned_prefixes() -> Step:
    """An encoder with a tuned prefix of keys and values in each layer."""
    width, heads = size(1024, 128), 16
    model = Layers([Layer(width, heads, Prefixed(heads, width // heads)) for _ in range(3)]).to(B)
    return applied(model, torch.randn(size(8, 2), size(1024), width, dtype=B))
