"""Labelled programs in the shapes of large libraries: nested modules, callbacks, generators, loops that end early.

They were labelled from their sources before anything looked at them. Labels: `labels.py`; `labelled.py score` counts
them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_fifth_loops import BREAKS, HALF, LOOPS, WAITS, perceptron
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

COPIES = "copies from ordinary memory"
PLAIN = "AdamW was not made to be captured"


# -- waits -------------------------------------------------------------------------------------------------------------


def rollouts_fitted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, size: int = 4096, width: int = 1536
) -> Built:
    """Policies: parts of a rollout are gone through again and again; each part's share of clipped ratios is logged."""
    epochs, parts, actions = 3, 4, 12

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.actor = perceptron(width, 2, dtype), nn.Linear(width, actions)
            self.critic = nn.Linear(width, 1)

        def forward(self, seen: Tensor, done: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x = self.body(seen)
            chances = F.log_softmax(self.actor(x).float(), -1)
            entropy = -(chances * chances.exp()).sum(-1)
            return chances.gather(1, done[:, None])[:, 0], entropy, self.critic(x).float()[:, 0]

    agent = Agent().to(dtype)
    parameters, count = list(agent.parameters()), size * parts
    optimizer = torch.optim.Adam(parameters, lr=1e-5, fused=True)
    seen, done = torch.randn(count, width, dtype=dtype), torch.arange(count) % actions
    before, gains, wanted = torch.full((count,), -2.4), torch.randn(count), torch.randn(count)
    orders, function = [torch.randperm(count) for _ in range(epochs)], wrap(agent)

    def losses(mine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        chance, entropy, value = function(seen[mine], done[mine])
        change = chance - before[mine]
        ratio, gain = change.exp(), gains[mine]
        clipped = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
        loss = clipped - 0.01 * entropy.mean() + 0.5 * F.mse_loss(value, wanted[mine])
        with torch.no_grad():
            return loss, (ratio - 1 - change).mean(), ((ratio - 1).abs() > 0.2).float().mean()

    def update() -> Tensor:
        shares = list[Any]()
        for order in orders:  # may: recurrence_unfused
            for mine in order.split(size):  # near: python_loop
                loss, apart, share = losses(mine)
                shares += [share if fixed else share.item()]  # cause: host_sync, main
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)  # near: parameter_loop
                optimizer.step()  # near: optimizer_unfused
            if apart > 5:  # cause: host_sync, stays
                break
        return loss.detach() + sum(shares) / len(shares)

    return Built(update, parameters)


def boxes_matched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 32, width: int = 512
) -> Built:
    """Detection by queries: costs go to the host, which matches objects to queries; places come back as indices."""
    queries, classes, counts = 100, 20, [3 + 5 * at % 11 for at in range(pictures)]
    labels, places = torch.arange(sum(counts)) % classes, torch.rand(sum(counts), 4)
    owner = torch.repeat_interleave(torch.arange(pictures), torch.tensor(counts))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(perceptron(width, 2, dtype) for _ in range(4))
            self.kind, self.box = nn.Linear(width, classes + 1), nn.Linear(width, 4)

        def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
            said = []
            for layer in self.layers:  # near: python_loop
                x = x + layer(x)
                said.append((self.kind(x).float(), self.box(x).float().sigmoid()))
            return said

    class Matcher:
        @torch.no_grad()
        def __call__(self, kinds: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
            cost = (boxes[:, :, None] - places).abs().sum(-1) - kinds.softmax(-1)[..., labels]
            if fixed:
                return owner, cost[owner, :, torch.arange(len(owner), device=owner.device)].argmin(1)
            parts = cost.cpu().split(counts, -1)  # cause: host_sync, main
            found = [part[at].argmin(0) for at, part in enumerate(parts)]
            return torch.cat([torch.full_like(each, at) for at, each in enumerate(found)]), torch.cat(found)

    class Criterion(nn.Module):
        def __init__(self, matcher: Matcher) -> None:
            super().__init__()
            self.matcher = matcher

        def forward(self, kinds: Tensor, boxes: Tensor) -> Tensor:
            matched = self.matcher(kinds, boxes)  # same: host_sync
            mine, box = kinds[matched], boxes[matched]  # cause: pageable_copy
            empty = F.softplus(kinds[..., -1]).mean()
            return F.cross_entropy(mine, labels) + 5 * F.l1_loss(box, places) + empty  # near: linear_cross_entropy

    model, criterion = Decoder().to(dtype), Criterion(Matcher())
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    x, function = torch.randn(pictures, queries, width, dtype=dtype), wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = sum(criterion(*said) for said in function(x))  # same: host_sync  # same: pageable_copy
        loss.backward()  # same: pageable_copy
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def centroids_moved(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, points: int = 65536, clusters: int = 48
) -> Built:
    """Clusters: each centre's members are picked by a mask and averaged, until the centres hardly move."""
    width = 64
    x, begin = torch.randn(points, width, dtype=dtype), torch.randn(clusters, width)
    wide = x.float()

    def members(owner: Tensor) -> Iterator[Tensor]:
        for at in range(clusters):  # same: host_sync  # may: python_loop
            yield wide[owner == at]  # same: host_sync

    class Lloyd:
        def __init__(self, rounds: int) -> None:
            self.rounds, self.centres = rounds, begin

        def assigned(self) -> Tensor:
            near = x @ self.centres.T.to(dtype)
            return (near.float() - self.centres.square().sum(1) / 2).argmax(1)

        def moved(self, owner: Tensor) -> Tensor:
            if fixed:
                total = torch.zeros_like(begin).index_add_(0, owner, wide)
                count = begin.new_zeros(clusters, 1).index_add_(0, owner, torch.ones_like(wide[:, :1]))
                return torch.where(count > 0, total / count.clamp(min=1), self.centres)  # near: host_sync
            means = []
            pairs = zip(members(owner), self.centres, strict=True)
            for each, old in pairs:  # cause: host_sync, main  # may: python_loop
                means.append(each.mean(0) if len(each) else old)
            return torch.stack(means)

        def fit(self) -> Tensor:
            self.centres = begin
            for _ in range(self.rounds):  # may: recurrence_unfused
                last, self.centres = self.centres, wrapped(self.assigned())  # same: host_sync
                if (self.centres - last).abs().max() < 1e-3:  # cause: host_sync, stays
                    break
            return self.centres

    lloyd = Lloyd(6)
    wrapped = wrap(lloyd.moved)
    return Built(lloyd.fit)


def drafts_checked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, length: int = 48, words: int = 8000
) -> Built:
    """Speculative decoding: a draft goes on for as long as it is sure of itself, which is asked after each word."""
    width, ahead, least = 1024, 6, 0.1

    class Draft(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.body, self.head = (
                nn.Embedding(words, width),
                perceptron(width, 2, dtype),
                nn.Linear(width, words),
            )
            nn.init.normal_(self.head.weight, std=1.3)

        def forward(self, word: Tensor) -> Tensor:
            return self.head(self.body(self.table(word))).float()

    class Target(nn.Module):
        def __init__(self, draft: Draft) -> None:
            super().__init__()
            self.draft, self.deep, self.head = draft, perceptron(width, 16, dtype), draft.head

        def forward(self, text: Tensor) -> Tensor:
            x = self.draft.body(self.draft.table(text))
            return self.head(x + 0.5 * self.deep(x)).float()

    draft = Draft().to(dtype)
    small, large, first = wrap(draft), wrap(Target(draft)), torch.zeros(1, dtype=torch.long)

    def drafted(word: Tensor) -> tuple[Tensor, Tensor]:
        said, sure = [], []
        while len(said) < ahead:  # same: host_sync  # may: recurrence_unfused  # may: python_loop
            chance, word = small(word).softmax(-1).max(-1)
            said.append(word)
            sure.append(chance > least)
            if not fixed and not sure[-1]:  # cause: host_sync, main
                break
        return torch.cat(said), torch.cat(sure)

    def decode() -> Tensor:
        text = first
        while len(text) <= length:  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            said, sure = drafted(text[-1:])  # same: host_sync
            best = large(torch.cat((text[-1:], said))).argmax(-1)
            agreed = (best[:-1] == said) & F.pad(sure[:-1], (1, 0), value=True)
            taken = int(agreed.long().cumprod(0).sum())  # cause: host_sync, stays
            text = torch.cat((text, said[:taken], best[taken : taken + 1]))  # may: cache_grown
        return text[: length + 1]

    return Built(decode)


def timestamps_ruled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16, rounds: int = 6
) -> Built:
    """Speech to text: rules forbid times that cannot follow, read and applied a text at a time."""
    width, words, end, begin = 512, 8000, 6400, 6500
    layers = nn.Embedding(words, width), nn.Linear(width, width), nn.Linear(width, words)
    table, mix, head = (layer.to(dtype) for layer in layers)
    prompt, place = torch.arange(2 * rows).view(rows, 2), torch.arange(words)
    state = torch.randn(rows, width, dtype=dtype)

    class Rules:
        def __call__(self, logits: Tensor, text: Tensor) -> Tensor:
            if fixed:
                return self.at_once(logits, text)
            for row in range(rows):  # cause: host_sync, main  # may: python_loop
                said = text[row].tolist()
                times = [each for each in said if each >= begin]
                if said[-1] >= begin:
                    logits[row, slice(begin, None) if said[-2] >= begin else slice(0, end)] = -torch.inf
                if times:
                    logits[row, begin : times[-1]] = -torch.inf
            chances = logits.log_softmax(-1)
            for row, chance in enumerate(chances):  # same: host_sync  # may: python_loop
                if chance[begin:].logsumexp(-1) > chance[:begin].max():
                    logits[row, :begin] = -torch.inf
            return logits

        def at_once(self, logits: Tensor, text: Tensor) -> Tensor:
            timed, (before, last) = place >= begin, (text[:, -2:] >= begin).T[..., None]
            latest = torch.where(text >= begin, text, 0).amax(1, keepdim=True)
            never = last & torch.where(before, timed, place < end) | timed & (place < latest)
            chances = logits.masked_fill(never, -torch.inf).log_softmax(-1)  # near: host_sync
            sure = chances[:, begin:].logsumexp(-1) > chances[:, :begin].amax(1)
            return chances.masked_fill(sure[:, None] & ~timed, -torch.inf)

    filters: list[Callable[[Tensor, Tensor], Tensor]] = [Rules()]

    def decode() -> Tensor:
        x, text = state, prompt
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            x = torch.tanh(mix(x) + table(text[:, -1]))
            logits = 4 * head(x).float()
            for each in filters:
                logits = each(logits, text)  # same: host_sync
            text = torch.cat((text, logits.argmax(-1, keepdim=True)), 1)  # may: cache_grown
        return text

    return Built(wrap(decode))


def areas_counted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 16, side: int = 128
) -> Built:
    """Segmentation: each head's overlap with what was drawn is counted in training, over pixels picked by masks."""
    classes, ignored, width = 19, 255, 64

    class Areas:
        def __init__(self) -> None:
            self.totals = torch.zeros(2, classes)

        def counted(self, kinds: Tensor) -> Tensor:
            return torch.histc(kinds.float(), classes, 0, classes - 1)

        @torch.no_grad()
        def update(self, logits: Tensor, drawn: Tensor) -> None:
            said, known = logits.argmax(1), drawn != ignored
            if fixed:
                both = torch.where(known & (said == drawn), said, -1)  # near: host_sync
                seen, there = torch.where(known, said, -1), torch.where(known, drawn, -1)
            else:
                seen, there = said[known], drawn[known]  # cause: host_sync, main
                both = seen[seen == there]  # same: host_sync
            overlap = self.counted(both)
            self.totals += torch.stack((overlap, self.counted(seen) + self.counted(there) - overlap))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise((3, *[width] * 4))]
            self.body = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
            self.heads = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(3))

        def forward(self, x: Tensor) -> list[Tensor]:
            x = self.body(x)
            return [head(x).float() for head in self.heads]  # near: python_loop

    model, areas = Net().to(dtype).to(memory_format=torch.channels_last), Areas()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x = torch.randn(pictures, 3, side, side, dtype=dtype).to(memory_format=torch.channels_last)
    drawn = torch.randint(0, classes, (pictures, side, side))
    drawn[:, ::5], function = ignored, wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        losses = []
        for logits in function(x):  # near: python_loop  # same: host_sync
            areas.update(logits, drawn)  # same: host_sync
            losses.append(F.cross_entropy(logits, drawn, ignore_index=ignored))  # near: linear_cross_entropy
        loss = torch.stack(losses).sum()
        loss.backward()
        optimizer.step()
        return loss.detach() + areas.totals[0].sum() / areas.totals[1].sum()

    return Built(step, parameters)


def flow_refined(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, side: int = 48, rounds: int = 10
) -> Built:
    """Optical flow: in each round and level the offsets of a window are made on the host and copied."""
    pairs, width, levels, radius = 2, 128, 3, 4
    window = 2 * radius + 1

    def offsets(device: torch.device) -> Tensor:
        ranges = [torch.linspace(-radius, radius, window, device=device)] * 2
        return torch.stack(torch.meshgrid(*ranges, indexing="ij"), -1).flip(-1)

    kept = offsets(torch.get_default_device())

    class Correlation:
        def __init__(self, one: Tensor, two: Tensor) -> None:
            volume = torch.einsum("nchw,ncij->nhwij", one, two).flatten(0, 2)[:, None].float() / width**0.5
            self.pyramid = [volume]
            while len(self.pyramid) < levels:  # near: python_loop
                self.pyramid.append(F.avg_pool2d(self.pyramid[-1], 2))

        def __call__(self, places: Tensor) -> Tensor:
            found = []
            for level, volume in enumerate(self.pyramid):  # may: python_loop  # same: pageable_copy
                delta = kept if fixed else offsets(torch.device("cpu")).to(places.device)  # cause: pageable_copy, main
                at = places.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level + delta
                at = 2 * at / max(volume.shape[-1] - 1, 1) - 1
                found.append(F.grid_sample(volume, at, align_corners=True).view(pairs, side, side, -1))
            return torch.cat(found, -1).permute(0, 3, 1, 2).to(dtype)

    class Update(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(levels * window**2 + 2, width, 1)
            self.gate, self.new = (nn.Conv2d(2 * width, width, 3, padding=1) for _ in range(2))
            self.flow = nn.Conv2d(width, 2, 3, padding=1)

        def forward(self, hidden: Tensor, seen: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
            both = torch.cat((hidden, F.relu(self.enter(torch.cat((seen, flow.to(dtype)), 1)))), 1)
            hidden = hidden + torch.sigmoid(self.gate(both)) * (torch.tanh(self.new(both)) - hidden)
            return hidden, self.flow(hidden).float()

    update = wrap(Update().to(dtype))
    one, two, context = torch.randn(3, pairs, width, side, side, dtype=dtype)
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy")).float()

    def refine() -> Tensor:
        look, hidden, flow = Correlation(one, two), torch.tanh(context), torch.zeros_like(context[:, :2]).float()
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: pageable_copy
            hidden, change = update(hidden, look(grid + flow), flow)  # same: pageable_copy
            flow = flow + change
        return flow

    return Built(refine)


# -- models ------------------------------------------------------------------------------------------------------------


def chains_normalised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, length: int = 128
) -> Built:
    """Tagging by a conditional random field, whose normaliser is added up a word at a time; or by halves."""
    width, tags = 256, 9

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.begin, self.end = nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))
            self.moves = nn.Parameter(torch.randn(tags, tags))

        def path(self, said: Tensor, chosen: Tensor) -> Tensor:
            words = said.gather(2, chosen[..., None])[..., 0].sum(0)
            return words + self.begin[chosen[0]] + self.moves[chosen[:-1], chosen[1:]].sum(0) + self.end[chosen[-1]]

        def normaliser(self, said: Tensor) -> Tensor:
            score = self.begin + said[0]
            if fixed:
                return torch.logsumexp(score[:, :, None] + self.joined(said[1:]) + self.end, (1, 2))
            for word in said[1:]:  # cause: recurrence_unfused, main  # may: python_loop
                score = torch.logsumexp(score[:, :, None] + self.moves + word[:, None], 1)
            return torch.logsumexp(score + self.end, 1)

        def joined(self, said: Tensor) -> Tensor:
            links = self.moves + said[:, :, None]
            while len(links) > 1:  # near: recurrence_unfused  # near: python_loop
                even = len(links) // 2 * 2
                pair = torch.logsumexp(links[0:even:2][..., None] + links[1:even:2][:, :, None], 3)
                links = torch.cat((pair, links[even:]))
            return links[0]

        def forward(self, said: Tensor, chosen: Tensor) -> Tensor:
            return (self.normaliser(said) - self.path(said, chosen)).mean()  # same: recurrence_unfused

    encoder, chain = perceptron(width, 3, dtype).append(nn.Linear(width, tags).to(dtype)), Chain()
    parameters = [*encoder.parameters(), *chain.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    x, chosen = torch.randn(length, texts, width, dtype=dtype), torch.arange(length * texts).view(length, texts) % tags
    function = wrap(chain)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(encoder(x).float(), chosen)  # same: recurrence_unfused
        loss.backward()  # same: recurrence_unfused
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def decomposed_positions(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 4, side: int = 32
) -> Built:
    """Segmenting anything: attention over a picture, its bias made of a term for rows and one for columns."""
    heads, each = 12, 64
    width = heads * each

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.rows, self.columns = (nn.Parameter(0.1 * torch.randn(2 * side - 1, each)) for _ in range(2))
            self.register_buffer("apart", torch.arange(side)[:, None] - torch.arange(side) + side - 1)

        def bias(self, q: Tensor) -> Tensor:
            q = q.unflatten(2, (side, side))
            high = torch.einsum("nahwc,hkc->nahwk", q, self.rows[self.apart])
            wide = torch.einsum("nahwc,wkc->nahwk", q, self.columns[self.apart])
            return (high[..., None] + wide[..., None, :]).flatten(4).flatten(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, each)).permute(2, 0, 3, 1, 4)
            if fixed:
                said = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(q))  # near: attention_biased
            else:
                scores = (q * each**-0.5) @ k.transpose(-2, -1)  # same: attention_biased
                scores = scores + self.bias(q)  # same: attention_biased
                said = scores.softmax(-1) @ v  # cause: attention_biased, main
            return self.out(said.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(width), Attention()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.attention(self.norm(x))

    model = nn.Sequential(*(Block() for _ in range(4))).to(dtype)
    x, function = torch.randn(pictures, side * side, width, dtype=dtype), wrap(model)
    return Built(lambda: function(x))


# -- nothing to be found -----------------------------------------------------------------------------------------------


def patches_hidden(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 512, width: int = 768
) -> Built:
    """Masked pretraining: patches to hide are chosen by sorting noise, so that nothing depends on a mask's sum."""
    patches, kept = 196, 49

    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = perceptron(width, 4, dtype), perceptron(width, 2, dtype)
            self.empty = nn.Parameter(torch.zeros(1, 1, width))

        def forward(self, x: Tensor, noise: Tensor) -> Tensor:
            order = noise.argsort(1)
            back = order.argsort(1)[..., None].expand(-1, -1, width)
            seen = self.encode(x.gather(1, order[:, :kept, None].expand(-1, -1, width)))  # near: host_sync
            filled = torch.cat((seen, self.empty.expand(len(x), patches - kept, -1)), 1)
            return self.decode(filled.gather(1, back))

    model = Coder().to(dtype)
    parameters, noise = list(model.parameters()), torch.rand(pictures, patches)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    x, function = torch.randn(pictures, patches, width, dtype=dtype), wrap(model)

    def step() -> Tensor:
        noise.mul_(7.3).remainder_(1)
        hidden = noise > noise.kthvalue(kept, 1, keepdim=True).values
        each = (function(x, noise) - x).float().square().mean(-1)
        loss = (each * hidden).sum() / hidden.sum()  # near: host_sync
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def flips_averaged(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 32, side: int = 224
) -> Built:
    """Test-time augmentation: a wide network sees four views one after another, and one number is read at the end."""
    layers = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise((16, 128, 128, 128))]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Conv2d(128, 8, 1))
    function = wrap(model.to(dtype).to(memory_format=torch.channels_last))
    x = torch.randn(pictures, 16, side, side, dtype=dtype).to(memory_format=torch.channels_last)
    flips, peaks = ((), (3,), (2,), (2, 3)), [0.0]

    def views(x: Tensor) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        for dims in flips:  # near: python_loop
            yield x.flip(dims), lambda said, dims=dims: said.flip(dims)

    def step() -> Tensor:
        total = torch.zeros((), device=x.device)
        for seen, back in views(x):  # near: python_loop
            total = total + back(function(seen)).float()
        mean = (total / len(flips)).mean((2, 3))
        peaks[0] = max(peaks[0], mean.max().item())  # near: host_sync
        return mean

    return Built(step)


def followed_over_lists(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8192, width: int = 2048
) -> Built:
    """Diffusion training as it should be: clipping, optimizer and the slow average each take all tensors at once."""
    model = perceptron(width, 6, dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    x, noise, level = *torch.randn(2, rows, width, dtype=dtype), torch.rand(rows, 1, dtype=dtype)
    function = wrap(model)

    class Average:
        def __init__(self, decay: float) -> None:
            self.decay, self.slow = decay, [each.detach().clone() for each in parameters]

        @torch.no_grad()
        def update(self) -> None:
            torch._foreach_lerp_(self.slow, parameters, 1 - self.decay)  # near: parameter_loop

    average = Average(0.999)
    callbacks: list[Callable[[], None]] = [optimizer.step, optimizer.zero_grad, average.update]

    def step() -> Tensor:
        said = function(level * x + (1 - level) * noise)
        weight = (1 / level.float()).clamp(max=5)
        loss = (weight * (said - noise).float().square()).mean()  # near: float32_inference
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)  # near: parameter_loop  # near: host_sync
        for each in callbacks:  # near: python_loop  # near: optimizer_unfused  # near: gradient_zeroing
            each()
        return loss.detach()

    return Built(step, [*parameters, *average.slow])


def experts_by_capacity(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tokens: int = 16384, width: int = 1024
) -> Built:
    """A mixture of experts with room for a fixed number of tokens each: places are a running count on the device."""
    experts = 8
    room = tokens // experts * 5 // 4

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(width, experts)
            self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
            self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

        def forward(self, x: Tensor) -> Tensor:
            share, expert = self.gate(x).float().softmax(-1).max(-1)
            chosen = F.one_hot(expert, experts).T.contiguous()  # near: host_sync
            place = (chosen.cumsum(1) * chosen).sum(0) - 1  # near: recurrence_unfused
            slot = torch.where(place < room, expert * room + place, experts * room)  # near: host_sync
            filled = x.new_zeros(experts * room + 1, width).index_copy_(0, slot, x)
            said = torch.bmm(F.gelu(torch.bmm(filled[:-1].unflatten(0, (experts, room)), self.up)), self.down)
            return x + share[:, None].to(dtype) * F.pad(said.flatten(0, 1), (0, 0, 0, 1))[slot]  # near: python_loop

    layers, x = nn.ModuleList(Mixture() for _ in range(2)).to(dtype), torch.randn(tokens, width, dtype=dtype)

    def mixed(x: Tensor) -> Tensor:
        for layer in layers:  # near: python_loop
            x = layer(x)
        return x

    function = wrap(mixed)
    return Built(lambda: function(x))


def blocks_searched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, queries: int = 4096, block: int = 32768
) -> Built:
    """Nearest neighbours over three large blocks of a catalogue, the best so far merged with the best of each."""
    width, best = 512, 16
    tower, x = perceptron(width, 2, dtype), torch.randn(queries, width, dtype=dtype)
    catalogue = torch.randn(3 * block, width, dtype=dtype)

    def search(x: Tensor) -> Tensor:
        asked = F.normalize(tower(x), dim=1)
        found = []
        for part in catalogue.split(block):  # near: python_loop  # near: float32_inference
            found.append((asked @ part.T).topk(best, 1).values)  # noqa: PERF401
        return torch.cat(found, 1).topk(best, 1).values.float()

    function = wrap(search)
    return Built(lambda: function(x))


FIFTH = (
    *LOOPS,
    Labelled(rollouts_fitted, "fifth", {"size": 16, "width": 16}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(boxes_matched, "fifth", {"pictures": 3, "width": 16}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(centroids_moved, "fifth", {"points": 200, "clusters": 5}, Expected(WAITS, BREAKS, BREAKS), tolerance=5e-2),
    Labelled(drafts_checked, "fifth", {"length": 12, "words": 60}, Expected(WAITS)),
    Labelled(timestamps_ruled, "fifth", {"rows": 4, "rounds": 5}, Expected(WAITS, BREAKS, BREAKS)),
    Labelled(areas_counted, "fifth", {"pictures": 2, "side": 12}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(flow_refined, "fifth", {"side": 8, "rounds": 2}, Expected(COPIES), tolerance=5e-2),
    Labelled(chains_normalised, "fifth", {"texts": 3, "length": 12}, training=True, tolerance=5e-2),
    Labelled(decomposed_positions, "fifth", {"pictures": 1, "side": 4}, tolerance=5e-2),
    Labelled(patches_hidden, "fifth", {"pictures": 2, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(flips_averaged, "fifth", {"pictures": 1, "side": 12}, Expected(WAITS), tolerance=5e-2),
    Labelled(followed_over_lists, "fifth", {"rows": 8, "width": 16}, Expected(PLAIN), training=True, tolerance=5e-2),
    Labelled(experts_by_capacity, "fifth", {"tokens": 64, "width": 16}, tolerance=5e-2),
    Labelled(blocks_searched, "fifth", {"queries": 4, "block": 40}, tolerance=5e-2),
)
