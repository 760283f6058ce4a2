"""Labelled programs of other fields and habits, after those of `labelled_unseen.py`. Labels: `labels.py`.

They were labelled before anything looked at them, recorded, and scored once before any detector was changed for them:
`labelled.py score` counts them apart.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"
DRAWN = "Python draws what each step masks"
SPARSE = "a gradient is sparse"


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh()))).to(dtype)


# -- loops -------------------------------------------------------------------------------------------------------------


def masked_spectrograms(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, clips: int = 96, frames: int = 400
) -> Built:
    """Speech: a strip of time and one of pitch are silenced in each clip of a batch, where Python draws them."""
    bins, draw = 80, random.Random(3)
    device = torch.get_default_device()
    x, times, pitches = torch.randn(clips, bins, frames, dtype=dtype), torch.arange(frames), torch.arange(bins)
    layers = (nn.Conv1d(bins, 192, 5, 2), nn.GELU(), nn.Conv1d(192, 192, 5, 2), nn.GELU(), nn.Conv1d(192, 192, 3, 2))
    function = wrap(nn.Sequential(*layers).to(dtype))

    def strips(length: int, widest: int) -> list[list[int]]:
        begins = [draw.randrange(length - widest) for _ in range(clips)]
        return [[begin, begin + draw.randint(1, widest)] for begin in begins]

    def augment(batch: Tensor) -> Tensor:
        spans, bands = strips(frames, frames // 8), strips(bins, bins // 6)
        if fixed:
            ends = torch.tensor([spans, bands], device="cpu")
            ends = ends.pin_memory() if device.type == "cuda" else ends
            (begin, end), (low, high) = ends.to(device, non_blocking=True).transpose(1, 2)  # near: pageable_copy
            late = (times >= begin[:, None]) & (times < end[:, None])
            shrill = (pitches >= low[:, None]) & (pitches < high[:, None])
            return batch.masked_fill(late[:, None] | shrill[:, :, None], 0)  # near: host_sync
        batch = batch.clone()
        for at, ((begin, end), (low, high)) in enumerate(zip(spans, bands, strict=True)):  # cause: python_loop, main
            batch[at, :, begin:end] = 0
            batch[at, low:high] = 0
        return batch

    return Built(lambda: function(augment(x)).mean(2))


def chamfer_each(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, clouds: int = 32, points: int = 512
) -> Built:
    """Point clouds: a decoder's points are held against clouds of different sizes, a pair at a time."""
    width, sizes = 256, [points // 2 + 41 * at % points for at in range(clouds)]
    decode = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 3 * points)).to(dtype)
    parameters = list(decode.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    codes, targets = torch.randn(clouds, width, dtype=dtype), [torch.randn(size, 3) for size in sizes]
    padded, counts = nn.utils.rnn.pad_sequence(targets, batch_first=True), torch.tensor(sizes)
    known = torch.arange(padded.shape[1]) < counts[:, None]

    def chamfer(made: Tensor, cloud: Tensor) -> Tensor:
        far = torch.cdist(made, cloud)
        return far.amin(0).mean() + far.amin(1).mean()

    def loss_of(codes: Tensor) -> Tensor:
        made = decode(codes).float().unflatten(1, (points, 3))
        if fixed:
            far = torch.cdist(made, padded).masked_fill(~known[:, None], torch.inf)  # near: host_sync
            back = torch.where(known, far.amin(1), 0).sum(1) / counts
            return (back + far.amin(2).mean(1)).sum() / clouds
        return sum(chamfer(*pair) for pair in zip(made, targets, strict=True)) / clouds  # cause: python_loop, main

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(codes)
        loss.backward()  # same: python_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def frames_encoded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, videos: int = 4, frames: int = 32
) -> Built:
    """Video: a small network for pictures sees the frames of each video one after another."""

    class Video(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 128)
            layers = [nn.Conv2d(a, b, 3, 2, 1) for a, b in pairwise(widths)]
            self.eye = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
            self.head = nn.Linear(widths[-1], 400)

        def forward(self, video: Tensor) -> Tensor:
            if fixed:
                seen = self.eye(video.flatten(0, 1)).mean((2, 3)).unflatten(0, video.shape[:2])
            else:
                every = [self.eye(frame).mean((2, 3)) for frame in video.unbind(1)]  # cause: python_loop, main
                seen = torch.stack(every, 1)
            return self.head(seen.mean(1))

    model, x = wrap(Video().to(dtype)), torch.randn(videos, frames, 3, 112, 112, dtype=dtype)
    return Built(lambda: model(x))


def molecules_read(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, molecules: int = 96, rounds: int = 3
) -> Built:
    """Chemistry: what atoms say is weighed up molecule by molecule, whose sizes are counted on the device."""
    width, sizes = 128, [9 + 7 * at % 31 for at in range(molecules)]
    owner = torch.repeat_interleave(torch.arange(molecules), torch.tensor(sizes))
    atoms = len(owner)
    bonds = torch.stack((torch.arange(atoms), (torch.arange(atoms) + 1) % atoms))
    message, gate, head = (nn.Linear(width, n).to(dtype) for n in (width, 1, 12))
    x = torch.randn(atoms, width, dtype=dtype)

    def pooled(part: Tensor) -> Tensor:
        return (torch.softmax(gate(part), 0) * part).sum(0)

    def read(x: Tensor) -> Tensor:
        for _ in range(rounds):  # near: python_loop  # near: recurrence_unfused
            x = torch.tanh(x + torch.zeros_like(x).index_add_(0, bonds[1], message(x)[bonds[0]]))
        if fixed:
            share = gate(x).exp()
            total = x.new_zeros(molecules, 1).index_add_(0, owner, share)
            return head(x.new_zeros(molecules, width).index_add_(0, owner, share * x) / total)
        counts = torch.bincount(owner).tolist()  # cause: host_sync
        return head(torch.stack(list(map(pooled, x.split(counts)))))  # cause: python_loop, main

    function = wrap(read)
    return Built(lambda: function(x))


def paged_cache(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 16, pages: int = 12
) -> Built:
    """Serving: keys and values lie in pages, which are gathered by each text's list of them, page by page."""
    heads, width, long, layers, pool = 8, 64, 32, 4, 256
    tables = [[(37 * text + 11 * at) % pool for at in range(pages)] for text in range(texts)]
    on_device = torch.tensor(tables)
    caches = torch.randn(layers, 2, pool, long, heads, width, dtype=dtype)
    qs = [nn.Linear(heads * width, heads * width).to(dtype) for _ in range(layers)]
    x = torch.randn(texts, heads * width, dtype=dtype)

    def gathered(cache: Tensor) -> Tensor:
        if fixed:
            return cache[on_device].flatten(1, 2)
        rows = []
        for table in tables:  # cause: python_loop, main
            rows.append(torch.cat([cache[page] for page in table]))  # noqa: PERF401
        return torch.stack(rows)

    def decode(x: Tensor) -> Tensor:
        for project, (keys, values) in zip(qs, caches, strict=True):  # may: python_loop
            q = project(x).view(texts, 1, heads, width).transpose(1, 2)
            k, v = gathered(keys).transpose(1, 2), gathered(values).transpose(1, 2)  # same: python_loop
            x = x + F.scaled_dot_product_attention(q, k, v).flatten(1)  # near: attention_unfused  # near: cache_grown
        return x

    function = wrap(decode)
    return Built(lambda: function(x))


def lion_each(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 30, width: int = 256
) -> Built:
    """Training by an optimizer out of a paper, whose step goes over its tensors one by one."""

    class Lion(torch.optim.Optimizer):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["mean"] = torch.zeros_like(parameter)

        @torch.no_grad()
        def step(self) -> None:  # type: ignore[override]
            for group in self.param_groups:
                mine = [parameter for parameter in group["params"] if parameter.grad is not None]
                if fixed:
                    self.together(mine, group["lr"])
                    continue
                for parameter in mine:  # cause: parameter_loop, main  # may: optimizer_unfused
                    mean = self.state[parameter]["mean"]
                    update = mean.mul(0.9).add_(parameter.grad, alpha=0.1).sign_()
                    parameter.add_(update, alpha=-group["lr"])
                    mean.mul_(0.99).add_(parameter.grad, alpha=0.01)

        def together(self, mine: list[Tensor], lr: float) -> None:
            means, gradients = [self.state[each]["mean"] for each in mine], [each.grad for each in mine]
            updates = torch._foreach_mul(means, 0.9)
            torch._foreach_add_(updates, gradients, alpha=0.1)
            torch._foreach_sign_(updates)
            torch._foreach_add_(mine, updates, alpha=-lr)
            torch._foreach_mul_(means, 0.99)
            torch._foreach_add_(means, gradients, alpha=0.01)

    model = perceptron(width, layers, dtype)
    optimizer = Lion(model.parameters(), 1e-4)
    x, y = torch.randn(512, width, dtype=dtype), torch.randn(512, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        loss = F.smooth_l1_loss(function(x), y)
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # same: parameter_loop  # may: optimizer_unfused
        return loss.detach()

    return Built(step, list(model.parameters()))


# -- waits -------------------------------------------------------------------------------------------------------------


def edges_dropped(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, nodes: int = 4000, edges: int = 40_000
) -> Built:
    """Graphs: each layer leaves out the edges between nodes that differ, by a mask."""
    width = 128

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.message, self.keep = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x: Tensor, ends: Tensor) -> Tensor:
            source, target = ends
            alike = (x[source] * x[target]).sum(1) > 0
            said = self.message(x)
            if fixed:
                said = torch.where(alike[:, None], said[source], 0)  # near: host_sync
            else:
                source, target = ends[:, alike]  # cause: host_sync, main
                said = said[source]
            return F.silu(self.keep(x) + torch.zeros_like(x).index_add_(0, target, said) / 8)

    layers = [Layer().to(dtype) for _ in range(4)]
    x, ends = torch.randn(nodes, width, dtype=dtype), torch.randint(0, nodes, (2, edges))

    def passed(x: Tensor, ends: Tensor) -> Tensor:
        for layer in layers:  # near: python_loop
            x = layer(x, ends)
        return x

    function = wrap(passed)
    return Built(lambda: function(x, ends))


def noise_extracted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 64, side: int = 32
) -> Built:
    """Diffusion: a training step that looks its schedule up on the host, by times that are on the device."""
    width, rounds = 96, 1000
    shares = (1 - torch.linspace(1e-4, 0.02, rounds)).cumprod(0)
    tables = [shares.sqrt(), (1 - shares).sqrt()]
    tables = tables if fixed else [table.cpu() for table in tables]
    widths = [(3, width), (width, width), (width, width), (width, 3)]
    layers = [part for a, b in widths for part in (nn.Conv2d(a, b, 3, padding=1), nn.SiLU())][:-1]
    model = nn.Sequential(*layers).to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, noise = torch.randn(2, pictures, 3, side, side, dtype=dtype)
    times, function = torch.arange(pictures) * 13 % rounds, wrap(model)

    def extract(table: Tensor, times: Tensor) -> Tensor:
        found = table.gather(0, times if fixed else times.cpu())  # cause: host_sync, main
        return found.to(x).view(-1, 1, 1, 1)  # cause: pageable_copy

    def step() -> Tensor:
        times.add_(37).remainder_(rounds)
        noised = extract(tables[0], times) * x + extract(tables[1], times) * noise  # same: host_sync
        loss = F.mse_loss(function(noised), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


def tree_searched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rounds: int = 40, fan: int = 12
) -> Built:
    """Tree search: counts of visits lie beside the network on the device, and each choice is asked for."""
    depth, width = 3, 256
    device = torch.get_default_device()
    nodes = sum(fan**at for at in range(depth + 1))
    value, states = nn.Sequential(perceptron(width, 3, dtype), nn.Linear(width, 1).to(dtype)), torch.randn(nodes, width)
    states, place, function = states.to(dtype), torch.device("cpu") if fixed else device, wrap(value)

    class Tree:
        def __init__(self) -> None:
            self.visits, self.worth = torch.ones(nodes, device=place), torch.zeros(nodes, device=place)

        def select(self) -> list[int]:
            path = [0]
            while len(path) <= depth:  # may: python_loop  # same: host_sync
                first = fan * path[-1] + 1
                visits, worth = self.visits[first : first + fan], self.worth[first : first + fan]
                score = worth / visits + 1.4 * (self.visits[path[-1]].log() / visits).sqrt()
                path.append(first + int(score.argmax()))  # cause: host_sync, main
            return path

        def backup(self, path: list[int], found: Tensor) -> None:
            found = found.float().to(place)  # cause: host_sync, stays
            for node in path:  # may: python_loop
                self.visits[node] += 1
                self.worth[node] += found

    def step() -> Tensor:
        tree = Tree()
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            path = tree.select()
            tree.backup(path, torch.tanh(function(states[path[-1]]))[0])
        return torch.cat((tree.visits, tree.worth)).to(device)  # may: pageable_copy

    return Built(step)


def activations_watched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 12, width: int = 512
) -> Built:
    """Training under watch: hooks log mean and spread of what each layer gives, as numbers of Python."""
    model = perceptron(width, layers, dtype)
    parameters, log = list(model.parameters()), dict[str, Any]()
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y = torch.randn(256, width, dtype=dtype), torch.randn(256, width, dtype=dtype)

    def watched(name: str) -> Any:
        def hook(module: nn.Module, given: Any, output: Tensor) -> None:
            seen = output.detach().float()
            if fixed:
                log[name] = torch.stack((seen.mean(), seen.std()))
            else:
                log[name] = torch.tensor([seen.mean().item(), seen.std().item()])  # cause: host_sync, main

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(watched(name))
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(function(x), y)
        loss.backward()
        optimizer.step()
        return torch.stack(tuple(log.values()))

    return Built(step, parameters)


def nucleus_sampled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 24, rounds: int = 6
) -> Built:
    """Sampling: words outside of the nucleus are forbidden in one text after another, by a mask of each."""
    width, words = 512, 8000
    table, head = torch.randn(words, width, dtype=dtype), nn.Linear(width, words).to(dtype)
    body, begin = perceptron(width, 3, dtype), torch.randn(texts, width, dtype=dtype)
    noise = -torch.rand(rounds, texts, words).clamp(min=1e-6).log().neg().log()

    def cut(logits: Tensor) -> Tensor:
        ordered, order = logits.sort(descending=True)
        beyond = ordered.softmax(-1).cumsum(-1) > 0.9
        beyond = F.pad(beyond[:, :-1], (1, 0))
        if fixed:
            return logits.masked_fill(torch.zeros_like(beyond).scatter_(1, order, beyond), -torch.inf)
        for row in range(len(logits)):  # cause: host_sync, main  # same: python_loop
            logits[row, order[row][beyond[row]]] = -torch.inf  # same: host_sync
        return logits

    def sample(x: Tensor) -> Tensor:
        said = []
        for at in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            logits = head(body(x)).float()
            word = (cut(logits) + noise[at]).argmax(-1)
            said.append(word)
            x = x + table[word]
        return torch.stack(said, 1)

    function = wrap(sample)
    return Built(lambda: function(begin))


# -- models ------------------------------------------------------------------------------------------------------------


def advantages(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, worlds: int = 64, length: int = 128
) -> Built:
    """Reinforcement: advantages by a walk back through what was played, then one change of the critic."""
    width, share, decay = 256, 0.99, 0.95
    critic = nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    critic = critic.to(dtype)
    parameters = list(critic.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    seen, rewards = torch.randn(length + 1, worlds, 32, dtype=dtype), torch.randn(length, worlds)
    ended = ((torch.arange(length)[:, None] + 5 * torch.arange(worlds)) % 50 == 49).float()
    alive, far = 1 - ended, torch.arange(length) - torch.arange(length)[:, None]
    weight = torch.where(far >= 0, (share * decay) ** far.clamp(min=0), 0)

    def gained(values: Tensor) -> Tensor:
        if fixed:
            change = rewards + share * values[1:] * alive - values[:-1]
            game = ended.cumsum(0) - ended
            return (weight[..., None] * (game[:, None] == game[None]) * change[None]).sum(1)
        gains, last = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
        for at in reversed(range(length)):  # cause: recurrence_unfused, main
            change = rewards[at] + share * values[at + 1] * alive[at] - values[at]
            gains[at] = last = change + share * decay * alive[at] * last
        return gains

    function = wrap(gained)

    def step() -> Tensor:
        with torch.no_grad():
            values = critic(seen).squeeze(-1).float()
            wanted = function(values) + values[:-1]
        optimizer.zero_grad()
        loss = F.mse_loss(critic(seen[:-1]).squeeze(-1).float(), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def weights_widened(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, width: int = 8192, rows: int = 64
) -> Built:
    """Quantisation by hand: weights of eight bits become 16-bit ones in each call, though they never change."""
    group = 128 if width >= 128 else width

    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randn(width, width // group, group, dtype=dtype) * width**-0.5
            self.scale = weight.abs().amax(2, keepdim=True) / 127
            self.whole = (weight / self.scale).round().to(torch.int8)
            self.ready = self.widened()

        def widened(self) -> Tensor:
            return (self.whole.to(dtype) * self.scale).flatten(1)  # cause: weights_dequantised, main

        def forward(self, x: Tensor) -> Tensor:
            weight = self.ready if fixed else self.widened()  # same: weights_dequantised
            return F.linear(x, weight)  # same: weights_dequantised

    model, x = nn.Sequential(*(Rounded() for _ in range(4))), torch.randn(rows, width, dtype=dtype)
    function = wrap(model)
    return Built(lambda: function(x))


def catalogue_scored(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, users: int = 1024, items: int = 200_000
) -> Built:
    """Retrieval: users are held against a whole catalogue, both kept in 16 bits and multiplied in 32."""
    width = 256
    tower, seen = perceptron(width, 2, dtype), torch.randn(users, width, dtype=dtype)
    catalogue = torch.randn(items, width, dtype=dtype)

    def best(seen: Tensor, catalogue: Tensor) -> Tensor:
        mine = tower(seen)
        if fixed:
            return torch.einsum("ud,id->ui", mine, catalogue).amax(1).float()
        wide = catalogue.float()  # same: float32_inference  # may: loop_invariant
        return torch.einsum("ud,id->ui", mine.float(), wide).amax(1)  # cause: float32_inference, main

    function = wrap(best)
    return Built(lambda: function(seen, catalogue))


def attention_of_pairs(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, molecules: int = 8, atoms: int = 768
) -> Built:
    """Chemistry: attention spelled in einsum, with a term for each pair of atoms."""
    heads, each = 8, 32

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(heads * each, 3 * heads * each), nn.Linear(heads * each, heads * each)
            self.norm = nn.LayerNorm(heads * each)

        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, heads, each)).unbind(2)
            if fixed:
                q, k, v = (part.transpose(1, 2) for part in (q, k, v))
                said = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)  # near: attention_biased
            else:
                scores = torch.einsum("bihd,bjhd->bhij", q, k) * each**-0.5 + bias
                said = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)  # cause: attention_biased, main
            return x + self.out(said.flatten(2))

    layers = nn.ModuleList(Pairs() for _ in range(4)).to(dtype)
    places, slopes = torch.randn(molecules, atoms, 3), torch.rand(heads)
    bias = (-torch.cdist(places, places)[:, None] * slopes[:, None, None]).to(dtype)
    x = torch.randn(molecules, atoms, heads * each, dtype=dtype)

    def folded(x: Tensor) -> Tensor:
        for layer in layers:  # near: python_loop
            x = layer(x, bias)
        return x

    function = wrap(folded)
    return Built(lambda: function(x))


def cloud_classified(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, clouds: int = 64, points: int = 4096
) -> Built:
    """Point clouds: a trained network of pointwise convolutions is served with its norms beside them."""
    widths = (3, 64, 128, 512)
    pairs = [(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b)) for a, b in pairwise(widths)]
    for convolution, norm in pairs:
        convolution.to(dtype).eval()
        norm.to(dtype).eval().running_var.uniform_(0.5, 2.0)
    folded = [fuse_conv_bn_eval(*pair) for pair in pairs] if fixed else []
    head, x = nn.Linear(widths[-1], 40).to(dtype), torch.randn(clouds, 3, points, dtype=dtype)

    def classify(x: Tensor) -> Tensor:
        for convolution in folded:  # near: python_loop
            x = F.relu(convolution(x))
        for convolution, norm in () if fixed else pairs:  # near: python_loop
            x = F.relu(norm(convolution(x)))  # cause: batch_norm_evaluated, main
        return head(x.amax(2))

    function = wrap(classify)
    return Built(lambda: function(x))


# -- nothing to be found -----------------------------------------------------------------------------------------------


def mixed_pictures(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 256, width: int = 2048
) -> Built:
    """Training on mixtures of pictures with squares cut out: masks and sums on the device, no number is read."""
    side, cut = 32, 8
    model = nn.Sequential(nn.Flatten(1), nn.Linear(3 * side * side, width), nn.ReLU())
    model = model.extend(part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU()))
    model = model.append(nn.Linear(width, 100)).to(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, foreach=True)
    x, y = torch.randn(64 * pictures, 3, side, side, dtype=dtype), torch.randint(0, 100, (64 * pictures,))
    share, places = torch.rand(64 * pictures, 1, 1, 1, dtype=dtype), torch.randint(0, side - cut, (64 * pictures, 1, 2))
    at, hits, function = torch.arange(side), torch.zeros(()), wrap(model)

    def augment(x: Tensor) -> Tensor:
        inside = (at[:, None] >= places) & (at[:, None] < places + cut)
        hole = inside[:, :, None, 0] & inside[:, None, :, 1]
        return torch.where(hole[:, None], 0, share * x + (1 - share) * x.flip(0))  # near: host_sync

    def step() -> Tensor:
        said = function(augment(x)).float()  # may: loop_invariant
        optimizer.zero_grad()  # near: gradient_zeroing
        loss = F.cross_entropy(said, y)  # near: linear_cross_entropy
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        hits.add_((said.detach().argmax(1) == y).sum())  # near: host_sync
        return torch.stack((loss.detach(), hits))

    return Built(step, parameters)


def long_filters(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 8, length: int = 4096
) -> Built:
    """Long filters over whole texts by Fourier transforms: what others walk through in time, at once."""
    width = 1024
    decay = torch.exp(-torch.arange(length) / 500) * torch.randn(width, length)
    spectrum = torch.fft.rfft(decay, 2 * length)
    gates, out = nn.Linear(width, 2 * width).to(dtype), nn.Linear(width, width).to(dtype)
    x = torch.randn(texts, length, width, dtype=dtype)

    def filtered(x: Tensor) -> Tensor:
        gate, given = gates(x).chunk(2, -1)
        waves = torch.fft.rfft(given.float().transpose(1, 2), 2 * length)  # near: float32_inference
        mixed = torch.fft.irfft(waves * spectrum, 2 * length)[..., :length]  # near: recurrence_unfused
        return x + out(mixed.transpose(1, 2).to(x.dtype) * torch.sigmoid(gate))

    function = wrap(filtered)
    return Built(lambda: function(x))


def schedule_on_host(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8192, width: int = 2048
) -> Built:
    """A sampler whose schedule is a tensor on the host: reading it waits for nothing."""
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)).to(dtype)
    shares, x = torch.linspace(0.99, 0.1, 10, device="cpu"), torch.randn(rows, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        state = x
        for share in shares:  # near: python_loop  # near: recurrence_unfused
            level = float(share)  # near: host_sync
            if share < 0.05:  # near: host_sync
                break
            state = level * state + (1 - level) * function(state)
        return state[:64].float()

    return Built(step)


def bags_by_library(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, users: int = 8192, items: int = 500_000
) -> Built:
    """Recommendation: bags of items by the library's layer, its gradient sparse, and a wide tower in 16 bits."""
    width, wide, long = 64, 1024, 20
    bags = nn.EmbeddingBag(items, width, mode="sum", sparse=True)
    tower = nn.Sequential(nn.Linear(width, wide), nn.ReLU())
    tower = tower.extend(part for _ in range(4) for part in (nn.Linear(wide, wide), nn.ReLU()))
    tower = tower.append(nn.Linear(wide, 1)).to(dtype)
    parameters = [*bags.parameters(), *tower.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    seen, y = torch.randint(0, items, (users, long)), torch.rand(users)

    def loss_of(seen: Tensor) -> Tensor:
        said = tower(bags(seen).to(dtype))  # near: embedding_gradient_dense  # near: python_loop
        return F.binary_cross_entropy_with_logits(said.squeeze(1).float(), y)  # near: linear_cross_entropy

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(seen)
        loss.backward()
        optimizer.step()  # may: host_sync  # may: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


THIRD = (
    Labelled(masked_spectrograms, "third", {"clips": 5, "frames": 80}, Expected(DRAWN), tolerance=5e-2),
    Labelled(chamfer_each, "third", {"clouds": 4, "points": 16}, training=True, tolerance=5e-2),
    Labelled(frames_encoded, "third", {"videos": 1, "frames": 3}, tolerance=4e-2),
    Labelled(molecules_read, "third", {"molecules": 6, "rounds": 2}, Expected(WAITS, BREAKS, BREAKS), tolerance=5e-2),
    Labelled(paged_cache, "third", {"texts": 3, "pages": 2}, tolerance=4e-2),
    Labelled(lion_each, "third", {"layers": 3, "width": 16}, training=True, tolerance=5e-2),
    Labelled(edges_dropped, "third", {"nodes": 30, "edges": 100}, Expected(WAITS, BREAKS, BREAKS), tolerance=8e-2),
    Labelled(noise_extracted, "third", {"pictures": 3, "side": 8}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(tree_searched, "third", {"rounds": 6, "fan": 3}, Expected(WAITS), tolerance=8e-2),
    Labelled(
        activations_watched,
        "third",
        {"layers": 3, "width": 16},
        Expected(WAITS, BREAKS, BREAKS),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(nucleus_sampled, "third", {"texts": 3, "rounds": 3}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2),
    Labelled(advantages, "third", {"worlds": 4, "length": 20}, training=True, tolerance=5e-2),
    Labelled(weights_widened, "third", {"width": 32, "rows": 4}, tolerance=5e-2),
    Labelled(catalogue_scored, "third", {"users": 4, "items": 50}, tolerance=4e-2),
    Labelled(attention_of_pairs, "third", {"molecules": 2, "atoms": 9}, tolerance=6e-2),
    Labelled(cloud_classified, "third", {"clouds": 2, "points": 20}, tolerance=0.1),
    Labelled(mixed_pictures, "third", {"pictures": 1, "width": 32}, training=True, tolerance=5e-2),
    Labelled(long_filters, "third", {"texts": 1, "length": 16}, tolerance=4e-2),
    Labelled(schedule_on_host, "third", {"rows": 6, "width": 16}, tolerance=5e-2),
    Labelled(
        bags_by_library,
        "third",
        {"users": 12, "items": 300},
        Expected("", SPARSE, SPARSE),
        training=True,
        tolerance=5e-2,
    ),
)
