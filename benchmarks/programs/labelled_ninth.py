"""Labelled programs whose kernels or recurrences set the pace: of crops, genomes, citations and scenes.

With those of `labelled_ninth_*.py` they were labelled from their sources before anything looked at them. Labels:
`labels.py`; `labelled.py score` counts them apart.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_ninth_chains import CHAINS
from programs.labelled_ninth_hosts import HALF, HOSTS
from programs.labelled_ninth_loops import LOOPS
from programs.labelled_ninth_near import NEAR
from programs.labelled_ninth_waits import WAITING
from programs.labels import Built, Labelled
from programs.program import unchanged


def crops_classified(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, dim: int = 512
) -> Built:
    """Crops from satellites: the library's attention hands out its weights as well, by default; nobody reads them."""
    depth, num_patches, num_bands, num_classes = 4, 1024, 40, 24

    class EncoderBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.MultiheadAttention(dim, max(1, dim // 64), batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm1(x)
            if fixed:
                attended, _ = self.attn(h, h, h, need_weights=False)  # near: attention_unfused
            else:
                attended, _ = self.attn(h, h, h)  # cause: attention_unfused, main
            x = x + attended
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class CropClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Linear(num_bands, dim), nn.Parameter(torch.zeros(num_patches, dim))
            self.blocks = nn.Sequential(*(EncoderBlock() for _ in range(depth)))
            self.head = nn.Linear(dim, num_classes)

        def forward(self, patches: Tensor) -> Tensor:
            x = self.embed(patches) + self.position
            return self.head(self.blocks(x))  # same: attention_unfused

    model = CropClassifier().to(dtype)
    optimizer, forward = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, foreach=True), wrap(model)
    patches = torch.randn(batch_size, num_patches, num_bands, dtype=dtype)
    crops = torch.randint(0, num_classes, (batch_size, num_patches))

    def training_step() -> Tensor:
        logits = forward(patches)  # same: attention_unfused
        loss = F.cross_entropy(logits.flatten(0, 1).float(), crops.flatten())  # near: linear_cross_entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()  # same: attention_unfused
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def genomes_scanned(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 8,
    seq_len: int = 128,
    dim: int = 256,
) -> Built:
    """Genomes by a selective state space model whose reference scan, base after base, was never replaced."""
    num_layers, state_dim, inner, rank, conv_width = 2, 16, 2 * dim, max(1, dim // 16), 4

    def selective_scan_ref(decay: Tensor, driven: Tensor) -> Tensor:
        """(B, L, D, N) decays and inputs -> states."""
        state, states = torch.zeros_like(driven[:, 0]), []
        for i in range(driven.shape[1]):  # cause: recurrence_unfused, main  # may: python_loop
            state = decay[:, i] * state + driven[:, i]
            states.append(state)
        return torch.stack(states, dim=1)

    def scan_by_doubling(decay: Tensor, driven: Tensor) -> Tensor:
        shift = 1
        while shift < driven.shape[1]:  # may: python_loop  # may: recurrence_unfused
            grown = driven[:, shift:] + decay[:, shift:] * driven[:, :-shift]
            driven = torch.cat((driven[:, :shift], grown), dim=1)
            decay = torch.cat((decay[:, :shift], decay[:, shift:] * decay[:, :-shift]), dim=1)
            shift *= 2
        return driven

    class MambaBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.in_proj = nn.RMSNorm(dim), nn.Linear(dim, 2 * inner, bias=False)
            self.conv1d = nn.Conv1d(inner, inner, conv_width, padding=conv_width - 1, groups=inner)
            self.x_proj, self.dt_proj = nn.Linear(inner, rank + 2 * state_dim, bias=False), nn.Linear(rank, inner)
            self.register_buffer("a_log", torch.log(torch.arange(1, state_dim + 1).float()).repeat(inner, 1))
            self.out_proj, self.skip = nn.Linear(inner, dim, bias=False), nn.Parameter(torch.ones(inner))

        def ssm(self, x: Tensor) -> Tensor:
            dt, b, c = self.x_proj(x).split((rank, state_dim, state_dim), dim=-1)
            delta = F.softplus(self.dt_proj(dt)).float()
            decay = torch.exp(delta[..., None] * -torch.exp(self.a_log.float()))
            driven = (delta * x.float())[..., None] * b.float()[:, :, None]
            scan = scan_by_doubling if fixed else selective_scan_ref
            states = scan(decay, driven)  # same: recurrence_unfused
            y = torch.einsum("bldn,bln->bld", states, c.float())  # may: float32_batched_product
            return y.to(x.dtype) + self.skip * x

        def forward(self, x: Tensor) -> Tensor:
            inward, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
            mixed = self.conv1d(inward.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
            y = self.ssm(F.silu(mixed))  # same: recurrence_unfused
            return x + self.out_proj(y * F.silu(gate))

    class GenomeModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(6, dim), nn.Linear(dim, 6)
            self.layers = nn.ModuleList(MambaBlock() for _ in range(num_layers))

        def forward(self, bases: Tensor) -> Tensor:
            x = self.embed(bases)
            for layer in self.layers:  # near: python_loop
                x = layer(x)  # same: recurrence_unfused
            return self.head(x)

    model = wrap(GenomeModel().to(dtype))
    bases = torch.randint(0, 6, (batch_size, seq_len))
    return Built(lambda: model(bases).float())  # same: recurrence_unfused


def papers_propagated(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_nodes: int = 100_000,
    num_edges: int = 1_500_000,
    in_features: int = 512,
) -> Built:
    """A citation graph that never changes: each round of propagation works out degrees and weights of edges anew."""
    num_rounds, hidden, num_classes, alpha = 10, 256, 16, 0.1

    def gcn_norm(edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Add loops to a graph, and weigh its edges by both degrees."""
        loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
        edge_index = torch.cat((edge_index, loops), dim=1)  # same: loop_invariant
        src, dst = edge_index
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)  # same: loop_invariant
        deg = torch.zeros(num_nodes, device=edge_index.device).index_add_(0, dst, weight)  # same: loop_invariant
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt = deg_inv_sqrt.masked_fill(deg_inv_sqrt == float("inf"), 0.0)
        return edge_index, deg_inv_sqrt[src] * weight * deg_inv_sqrt[dst]  # cause: loop_invariant, main

    class Propagation(nn.Module):
        def __init__(self, cached: bool) -> None:
            super().__init__()
            self.cached, self.kept = cached, None

        def normalised(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            if self.kept is not None:
                return self.kept
            edges = gcn_norm(edge_index)  # same: loop_invariant
            if self.cached:
                self.kept = edges
            return edges

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            (src, dst), weight = self.normalised(edge_index)  # same: loop_invariant
            return torch.zeros_like(x).index_add_(0, dst, weight[:, None] * x[src])  # near: host_sync

    class APPNP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(in_features, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)]
            self.encoder, self.propagate = nn.Sequential(*layers).to(dtype), Propagation(cached=fixed)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.encoder(x).float()
            z = h
            for _ in range(num_rounds):  # near: python_loop  # may: recurrence_unfused  # same: loop_invariant
                z = (1 - alpha) * self.propagate(z, edge_index) + alpha * h  # same: loop_invariant
            return z.log_softmax(dim=-1)

    model = wrap(APPNP())
    features = torch.randn(num_nodes, in_features, dtype=dtype)
    citations = torch.randint(0, num_nodes, (2, num_edges))
    return Built(lambda: model(features, citations)[::16])  # same: loop_invariant


def scenes_sampled(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 4, dim: int = 1536
) -> Built:
    """A flow's sampler under autocast, with averaged weights in float32 that need no gradient: each call casts them."""
    depth, num_tokens, latent_dim, num_steps = 12, 256, 64, 4
    device_type = torch.get_default_device().type

    class DiTBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads, self.norm1, self.norm2 = max(1, dim // 64), nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))  # same: weights_cast
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v)
            x = x + self.proj(attended.transpose(1, 2).flatten(2))  # same: weights_cast
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))  # cause: weights_cast, main

    class VelocityField(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Linear(latent_dim, dim), nn.Linear(dim, latent_dim)
            self.time = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
            self.blocks = nn.Sequential(*(DiTBlock() for _ in range(depth)))

        def forward(self, x: Tensor, embedded_time: Tensor) -> Tensor:
            h = self.enter(x) + self.time(embedded_time)  # same: weights_cast
            return self.leave(self.blocks(h))  # same: weights_cast

    ema = VelocityField().requires_grad_(False)
    field = wrap(ema.to(dtype) if fixed else ema)
    noise = torch.randn(batch_size, num_tokens, latent_dim)
    angles = torch.arange(num_steps)[:, None] / num_steps * torch.logspace(0, 3, dim // 2)
    times = torch.cat((angles.sin(), angles.cos()), dim=-1)

    @torch.autocast(device_type, dtype=HALF, enabled=dtype == HALF and not fixed)
    def velocity(x: Tensor, step: int) -> Tensor:
        precision = dtype if fixed else x.dtype
        return field(x.to(precision), times[step].to(precision)).float()  # same: weights_cast

    def sample() -> Tensor:
        x = noise
        for step in range(num_steps):  # near: python_loop  # may: recurrence_unfused  # same: weights_cast
            x = x + velocity(x, step) / num_steps  # same: weights_cast
        return x

    return Built(sample)


KERNELS = (
    Labelled(crops_classified, "ninth", {"batch_size": 1, "dim": 16}, training=True, tolerance=5e-2),
    Labelled(genomes_scanned, "ninth", {"batch_size": 2, "seq_len": 12, "dim": 16}, tolerance=5e-2),
    Labelled(papers_propagated, "ninth", {"num_nodes": 60, "num_edges": 200, "in_features": 8}, tolerance=5e-2),
    Labelled(scenes_sampled, "ninth", {"batch_size": 1, "dim": 16}, tolerance=5e-2),
)
NINTH = (*HOSTS, *WAITING, *LOOPS, *KERNELS, *CHAINS, *NEAR)
