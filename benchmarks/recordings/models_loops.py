"""Steps whose host sets the pace: Python loops over time, experts, graphs, decoding, data-parallel training.

Each function of LOOPS and TRAINED builds tensors on the default device and gives the step. Loops read slices of one
tensor and write rows of another, so that what is a dependence and what is not has to be told by offsets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], Any]


# -- recurrences -------------------------------------------------------------------------------------------------------


def lstm_cell(steps: int = 24, size: int = 256) -> Step:
    """An LSTM cell in a loop over slices of one tensor, gates by chunk."""
    inputs, weight_in, weight = torch.randn(32, steps, size), torch.randn(4 * size, size), torch.randn(4 * size, size)

    def step() -> Tensor:
        hidden = cell = inputs.new_zeros(32, size)
        outs = []
        for at in range(steps):
            gates = F.linear(inputs[:, at], weight_in) + F.linear(hidden, weight)
            i, f, g, o = gates.chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outs.append(hidden)
        return torch.stack(outs, 1)

    return step


def gru_cell(steps: int = 24, size: int = 256) -> Step:
    """PyTorch's GRU cell in a loop, its state written into a buffer."""
    cell, inputs = nn.GRUCell(size, size), torch.randn(steps, 32, size)
    out = torch.empty(steps, 32, size)

    def step() -> Tensor:
        hidden = inputs.new_zeros(32, size)
        for at in range(steps):
            hidden = cell(inputs[at], hidden)
            out[at].copy_(hidden)
        return out.sum(0)

    return step


def state_space_scan(steps: int = 32, width: int = 128, states: int = 16) -> Step:
    """A selective state space written in Python: one slice of every tensor a step of time."""
    inputs, delta = torch.randn(4, steps, width), torch.rand(4, steps, width)
    decay, into, out_of = -torch.rand(width, states), torch.randn(4, steps, states), torch.randn(4, steps, states)

    def step() -> Tensor:
        kept = torch.exp(delta[..., None] * decay)
        added = delta[..., None] * into[:, :, None] * inputs[..., None]
        state, outs = inputs.new_zeros(4, width, states), []
        for at in range(steps):
            state = kept[:, at] * state + added[:, at]
            outs.append((state * out_of[:, at, None]).sum(-1))
        return torch.stack(outs, 1) * F.silu(inputs)

    return step


def linear_attention(steps: int = 24, size: int = 64) -> Step:
    """A gated delta rule, a token at a time, in place."""
    q, k, v = (torch.randn(8, steps, size) for _ in range(3))
    gate, out = torch.rand(8, steps), torch.empty(8, steps, size)

    def step() -> Tensor:
        memory = q.new_zeros(8, size, size)
        for at in range(steps):
            key = F.normalize(k[:, at], dim=-1)
            memory = memory * gate[:, at, None, None]
            change = v[:, at] - torch.bmm(memory, key[..., None]).squeeze(-1)
            memory = memory + change[..., None] * key[:, None]
            out[:, at] = torch.bmm(memory, q[:, at, :, None]).squeeze(-1)
        return out

    return step


def ode(steps: int = 8) -> Step:
    """Runge and Kutta's fourth order over a small network."""
    net, start = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)), torch.randn(256, 64)

    def step() -> Tensor:
        x, h = start, 0.1
        for _ in range(steps):
            a = net(x)
            b = net(x + 0.5 * h * a)
            c = net(x + 0.5 * h * b)
            d = net(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return x

    return step


def denoising(steps: int = 6) -> Step:
    """A sampler of a diffusion model: a small network and a line of arithmetic, again and again."""
    net = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 4, 3, padding=1))
    start, noise = torch.randn(4, 4, 32, 32), torch.randn(steps, 4, 4, 32, 32)

    def step() -> Tensor:
        x = start
        for at in range(steps):
            alpha, before = 0.9 - 0.1 * at, 0.95 - 0.1 * at
            predicted = net(x)
            clean = ((x - (1 - alpha) ** 0.5 * predicted) / alpha**0.5).clamp(-1, 1)
            x = before**0.5 * clean + (1 - before) ** 0.5 * predicted + 0.1 * noise[at]
        return x

    return step


# -- experts, graphs, tables -------------------------------------------------------------------------------------------


def experts(count: int = 4, size: int = 256) -> Step:
    """A mixture of experts by masks: every expert on the tokens that chose it, added up by index."""
    tokens, router = torch.randn(256, size), nn.Linear(size, count)
    ups = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(count))
    downs = nn.ModuleList(nn.Linear(2 * size, size) for _ in range(count))

    def step() -> Tensor:
        chances, chosen = router(tokens).softmax(-1).topk(2, dim=-1)
        chances = chances / chances.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for each in range(count):
            row, place = torch.where(chosen == each)
            out.index_add_(0, row, downs[each](F.silu(ups[each](tokens[row]))) * chances[row, place, None])
        return out

    return step


def graph_network(nodes: int = 4096, edges: int = 32768, width: int = 64) -> Step:
    """Messages along edges: gather, multiply, add up by index; twice, with a norm between."""
    features, source, target = torch.randn(nodes, width), *torch.randint(0, nodes, (2, edges)).unbind(0)
    weights, mix = torch.rand(edges, 1), nn.ModuleList(nn.Linear(width, width) for _ in range(2))
    norm = nn.LayerNorm(width)

    def step() -> Tensor:
        x = features
        for layer in mix:
            sent = x[source] * weights
            got = torch.zeros_like(x).index_add_(0, target, sent)
            count = x.new_zeros(x.shape[0], 1).index_add_(0, target, weights)
            x = norm(F.relu(layer(got / count.clamp(min=1e-6)) + x))
        return x

    return step


def graph_attention(nodes: int = 2048, edges: int = 16384, width: int = 64) -> Step:
    """Attention over a node's edges: a softmax by scatter."""
    features, source, target = torch.randn(nodes, width), *torch.randint(0, nodes, (2, edges)).unbind(0)
    project, left, right = nn.Linear(width, width), torch.randn(width), torch.randn(width)

    def step() -> Tensor:
        x = project(features)
        score = F.leaky_relu((x * left).sum(-1)[source] + (x * right).sum(-1)[target], 0.2)
        most = score.new_full((nodes,), -torch.inf).scatter_reduce_(0, target, score, "amax")
        weight = torch.exp(score - most[target])
        total = weight.new_zeros(nodes).scatter_add_(0, target, weight)
        return torch.zeros_like(x).index_add_(0, target, x[source] * (weight / total[target])[:, None])

    return step


def bags(tables: int = 12, width: int = 32) -> Step:
    """Embedding bags, pairwise products and a small network."""
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
    embeddings = nn.ModuleList(nn.EmbeddingBag(1000, width, mode="sum") for _ in range(tables))
    top = nn.Sequential(nn.Linear(width + (tables + 1) * tables // 2, 64), nn.ReLU(), nn.Linear(64, 1))
    dense, places = torch.randn(512, 13), torch.randint(0, 1000, (tables, 512, 4))
    low, high = torch.tril_indices(tables + 1, tables + 1, -1)

    def step() -> Tensor:
        first = bottom(dense)
        rows = torch.stack([first, *(bag(places[at]) for at, bag in enumerate(embeddings))], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))[:, low, high]
        return torch.sigmoid(top(torch.cat([first, pairs], 1)))

    return step


# -- decoding ----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention spelled out over keys and values that grow by `cat`."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        scores = q @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5)
        return self.out((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))


def cache_by_cat(layers: int = 4, size: int = 256, heads: int = 4) -> Step:
    """A token through a few layers whose cache grows by `cat`."""
    attend = nn.ModuleList(Attention(size, heads) for _ in range(layers))
    norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(layers))
    token, past = torch.randn(4, 1, size), torch.randn(2, layers, 4, heads, 256, size // heads)

    def step() -> Tensor:
        x = token
        for at, (layer, norm) in enumerate(zip(attend, norms, strict=True)):
            x = x + layer(norm(x), past[0, at], past[1, at])
        return x

    return step


def branching(layers: int = 6) -> Step:
    """Residual branches of one input that are normed in different ways, and joined."""
    norms = nn.ModuleList((nn.LayerNorm(256), nn.RMSNorm(256), nn.GroupNorm(8, 256)))
    mixes, start = nn.ModuleList(nn.Linear(256, 256) for _ in range(layers)), torch.randn(512, 256)

    def step() -> Tensor:
        x = start
        for layer in mixes:
            apart = [norm(x) for norm in norms]
            spread = (x - x.mean(0)) / (x.std(0) + 1e-5)
            x = x + F.gelu(layer(sum(apart) * torch.sigmoid(spread)))
        return x

    return step


LOOPS = (
    lstm_cell, gru_cell, state_space_scan, linear_attention, ode, denoising, experts, graph_network, graph_attention,
    bags, cache_by_cat, branching,
)  # fmt: skip


# -- training ----------------------------------------------------------------------------------------------------------


def small_network(layers: int = 6, size: int = 256) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(size, size), nn.LayerNorm(size), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*parts)


def trained(model: nn.Module, loss: Callable[[], Tensor], **options: Any) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def data_parallel() -> Step:
    """Data-parallel training of one process: buckets are reduced on the collectives' own stream."""
    import torch.distributed as dist

    if not dist.is_initialized():
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29517")
        dist.init_process_group("nccl", rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(small_network().cuda(), device_ids=[0], bucket_cap_mb=0.5)
    inputs, wanted = torch.randn(256, 256), torch.randn(256, 256)
    return trained(model, lambda: F.mse_loss(model(inputs), wanted), foreach=True)


def recurrent_training() -> Step:
    """A recurrence of twelve steps, there and back."""
    cell, inputs, wanted = nn.LSTMCell(128, 128), torch.randn(12, 64, 128), torch.randn(64, 128)

    def loss() -> Tensor:
        hidden, kept = inputs.new_zeros(64, 128), inputs.new_zeros(64, 128)
        for each in inputs:
            hidden, kept = cell(each, (hidden, kept))
        return F.mse_loss(hidden, wanted)

    return trained(cell, loss, foreach=False)


def checkpointed() -> Step:
    """Blocks whose activations are computed twice."""
    from torch.utils.checkpoint import checkpoint

    model = nn.ModuleList(small_network(2) for _ in range(3))
    inputs = torch.randn(256, 256)

    def loss() -> Tensor:
        x = inputs
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        return x.pow(2).mean()

    return trained(model, loss, fused=True)


def adversarial() -> Step:
    """A generator and a critic in turn, with a penalty on the critic's gradient."""
    makes = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64))
    judges = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    noise, real = torch.randn(256, 64), torch.randn(256, 64)
    both = [torch.optim.Adam(net.parameters(), foreach=False) for net in (makes, judges)]

    def step() -> None:
        made = makes(noise).detach()
        between = (0.5 * real + 0.5 * made).requires_grad_()
        (slope,) = torch.autograd.grad(judges(between).sum(), between, create_graph=True)
        cost = judges(made).mean() - judges(real).mean() + 10 * (slope.norm(2, dim=1) - 1).pow(2).mean()
        both[1].zero_grad(set_to_none=True)
        cost.backward()
        both[1].step()
        both[0].zero_grad(set_to_none=True)
        (-judges(makes(noise)).mean()).backward()
        both[0].step()

    return step


def accumulated() -> Step:
    """Gradients of four small batches added up, clipped, then one step of the optimizer, weights averaged."""
    model = small_network(4)
    batches, average = torch.randn(4, 64, 256), [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            (model(batch).pow(2).mean() / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for kept, weight in zip(average, model.parameters(), strict=True):
                kept.mul_(0.99).add_(weight, alpha=0.01)

    return step


TRAINED = (data_parallel, recurrent_training, checkpointed, adversarial, accumulated)
