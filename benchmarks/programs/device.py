"""Programs whose device has the work: norms, attention, losses, tables and convolutions as people spell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.program import Program, Step, unchanged

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

# -- attention and norms, spelled out ----------------------------------------------------------------------------------


def spelled_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v


def library_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def spelled_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def library_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, attend: Attend, norm: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.heads, self.attend, self.norm = heads, attend, norm
        self.before, self.after = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x, self.before)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        hidden = self.norm(x, self.after)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


def prefill(
    wrap: Any = unchanged, attend: Attend = spelled_attention, norm: Callable[[Tensor, Tensor], Tensor] = spelled_norm
) -> Step:
    """A decoder reads long prompts; attention and norms are written out."""
    model = nn.Sequential(*(Layer(1024, 16, attend, norm) for _ in range(4)))
    model = model.to(torch.bfloat16).requires_grad_(False)
    x, function = torch.randn(4, 2048, 1024, dtype=torch.bfloat16), wrap(model)
    return lambda: function(x)


def prefill_attention(wrap: Any = unchanged) -> Step:
    return prefill(wrap, attend=library_attention)


def prefill_norms(wrap: Any = unchanged) -> Step:
    return prefill(wrap, norm=library_norm)


def prefill_both(wrap: Any = unchanged) -> Step:
    return prefill(wrap, library_attention, library_norm)


# -- a loss over a large vocabulary ------------------------------------------------------------------------------------


def language_loss(wrap: Any = unchanged, chunks: int = 1, labelled: bool = False) -> Step:
    """Loss over 50,304 words in float32; three quarters of the rows are prompt and have no label."""
    hidden = (torch.randn(4096, 1024, dtype=torch.bfloat16) * 0.5).requires_grad_()
    head = nn.Linear(1024, 50304, bias=False).to(torch.bfloat16)
    labels = torch.randint(0, 50304, (4096,))
    labels[:3072] = -100
    rows = torch.arange(3072, 4096)

    def loss_of(x: Tensor) -> Tensor:
        if labelled:
            return F.cross_entropy(head(x[rows]).float(), labels[rows])
        return F.cross_entropy(head(x).float(), labels, ignore_index=-100)

    function = wrap(loss_of)

    def step() -> Tensor:
        hidden.grad = head.weight.grad = None
        loss = function(hidden)
        loss.backward()
        return loss.detach()

    return step


def labelled_rows_alone(wrap: Any = unchanged) -> Step:
    return language_loss(wrap, labelled=True)


# -- tables ------------------------------------------------------------------------------------------------------------


def recommender(wrap: Any = unchanged, sparse: bool = False, tables: int = 16, joined: bool = False) -> Step:
    """Many tables, few rows of each read, and an optimizer that goes over all rows."""
    embeddings = nn.ModuleList(nn.Embedding(100_000, 32, sparse=sparse) for _ in range(tables))
    if joined:
        embeddings = nn.ModuleList(
            [nn.Embedding.from_pretrained(torch.cat([one.weight for one in embeddings]), freeze=False)]
        )
    top = nn.Sequential(nn.Linear(32 * tables, 256), nn.ReLU(), nn.Linear(256, 1))
    dense = list(top.parameters()) if sparse else [*embeddings.parameters(), *top.parameters()]
    optimizers: list[Any] = [torch.optim.Adagrad(dense, lr=1e-3)]
    if sparse:
        optimizers.append(torch.optim.SparseAdam(list(embeddings.parameters()), lr=1e-3))
    places, clicks = torch.randint(0, 100_000, (tables, 2048)), torch.rand(2048, 1)

    first = 100_000 * torch.arange(tables)

    def forward(places: Tensor) -> Tensor:
        if joined:
            return top(embeddings[0](places.T + first).flatten(1))
        return top(torch.cat([table(places[at]) for at, table in enumerate(embeddings)], 1))

    function = wrap(forward)

    def step() -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(function(places), clicks)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


def recommender_sparse(wrap: Any = unchanged) -> Step:
    return recommender(wrap, sparse=True)


def recommender_joined(wrap: Any = unchanged) -> Step:
    return recommender(wrap, joined=True)


# -- pictures ----------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.after = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.after(self.second(F.relu(self.norm(self.first(x))))))


def pictures(wrap: Any = unchanged, dtype: torch.dtype = torch.float32, last: bool = False) -> Step:
    """A residual network in float32 and in the layout that tensors have by default."""
    model = nn.Sequential(nn.Conv2d(3, 128, 3, padding=1), *(Residual(128) for _ in range(6)))
    model = model.eval().requires_grad_(False).to(dtype)
    x = torch.randn(32, 3, 56, 56).to(dtype)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    function = wrap(model)
    return lambda: function(x)


def pictures_half(wrap: Any = unchanged) -> Step:
    return pictures(wrap, torch.bfloat16, last=True)


def pictures_last(wrap: Any = unchanged) -> Step:
    return pictures(wrap, last=True)


def products(wrap: Any = unchanged, allowed: bool = False) -> Step:
    """A perceptron in float32, whose products leave tensor cores unused unless told."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(2048, 2048), nn.GELU())))
    x, function = torch.randn(4096, 2048), wrap(model.requires_grad_(False))
    return lambda: function(x)


def products_tf32(wrap: Any = unchanged) -> Step:
    return products(wrap, allowed=True)


# -- messages over edges -----------------------------------------------------------------------------------------------


def graph_attention(wrap: Any = unchanged, nodes: int = 20_000, edges: int = 200_000) -> Step:
    """Attention over a graph's edges: gathers, a softmax per node, a scatter."""
    source, target = torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))
    weight, left, right = torch.randn(64, 64) * 0.1, torch.randn(64, 1) * 0.1, torch.randn(64, 1) * 0.1
    x = torch.randn(nodes, 64)

    def forward(x: Tensor) -> Tensor:
        for _ in range(3):
            h = x @ weight
            score = F.leaky_relu((h[source] @ left + h[target] @ right).squeeze(1), 0.2).exp()
            total = x.new_zeros(nodes).index_add_(0, target, score)
            message = h[source] * (score / total[target].clamp(min=1e-6))[:, None]
            x = F.elu(torch.zeros_like(h).index_add_(0, target, message))
        return x

    function = wrap(forward)
    return lambda: function(x)


def graph_attention_by_node(wrap: Any = unchanged, nodes: int = 20_000, edges: int = 200_000) -> Step:
    """The same, with the products of gathered rows taken on nodes, and only then gathered."""
    source, target = torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))
    weight, left, right = torch.randn(64, 64) * 0.1, torch.randn(64, 1) * 0.1, torch.randn(64, 1) * 0.1
    x = torch.randn(nodes, 64)

    def forward(x: Tensor) -> Tensor:
        for _ in range(3):
            h = x @ weight
            score = F.leaky_relu((h @ left).squeeze(1)[source] + (h @ right).squeeze(1)[target], 0.2).exp()
            total = x.new_zeros(nodes).index_add_(0, target, score)
            message = h[source] * (score / total[target].clamp(min=1e-6))[:, None]
            x = F.elu(torch.zeros_like(h).index_add_(0, target, message))
        return x

    function = wrap(forward)
    return lambda: function(x)


DEVICE = (
    Program(
        "prefill",
        prefill,
        {
            "attention": (("attention_unfused",), prefill_attention),
            "norms": (("rmsnorm_unfused",), prefill_norms),
            "attention_and_norms": (("attention_unfused", "rmsnorm_unfused"), prefill_both),
        },
        then_compiled=("attention",),
        capturable=True,
    ),
    Program(
        "language_loss", language_loss, {"labelled_rows": (("logits_written",), labelled_rows_alone)}, training=True
    ),
    Program(
        "recommender",
        recommender,
        {"sparse": ((), recommender_sparse), "one_table": (("python_loop",), recommender_joined)},
        training=True,
    ),
    Program(
        "pictures",
        pictures,
        {"channels_last": (("channels_last",), pictures_last), "bfloat16_channels_last": ((), pictures_half)},
        then_compiled=("channels_last",),
        capturable=True,
        tolerance=0.1,
    ),
    Program("products", products, {"tf32": (("float32_without_tf32",), products_tf32)}, capturable=True),
    Program("graph_attention", graph_attention, {"products_on_nodes": ((), graph_attention_by_node)}, capturable=True),
)
