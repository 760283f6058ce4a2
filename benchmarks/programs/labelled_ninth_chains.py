"""Kernels that go over memory again and again, of photos and of crystals: of `labelled_ninth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_ninth_hosts import HALF
from programs.labels import Built, Labelled
from programs.program import unchanged


def photos_jittered(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 256, embed_dim: int = 384
) -> Built:
    """Augmentation on the device: brightness, contrast, saturation and hue one after another; each is an affine map."""
    size, patch_size, num_classes = 224, 16, 100
    to_gray = torch.tensor([0.299, 0.587, 0.114])
    to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    identity, from_yiq = torch.eye(3), torch.linalg.inv(to_yiq)

    def blend(one: Tensor, other: Tensor, ratio: Tensor) -> Tensor:
        return ratio * one + (1 - ratio) * other  # cause: chain_unfused, main

    def grayscale(images: Tensor) -> Tensor:
        return (images * to_gray[:, None, None]).sum(dim=1, keepdim=True)  # same: chain_unfused

    def hue_rotation(hue: Tensor) -> Tensor:
        cos, sin, zero = hue.cos(), hue.sin(), torch.zeros_like(hue)
        turn = torch.stack((zero + 1, zero, zero, zero, cos, -sin, zero, sin, cos), dim=-1).unflatten(-1, (3, 3))
        return from_yiq @ turn @ to_yiq

    class ColorJitter:
        def __init__(self, num_draws: int) -> None:
            self.factors = 1 + 0.4 * (2 * torch.rand(num_draws, 3, batch_size) - 1)
            self.hues, self.calls = 0.3 * (2 * torch.rand(num_draws, batch_size) - 1), 0

        def __call__(self, images: Tensor) -> Tensor:
            draw = self.calls % len(self.hues)
            self.calls += 1
            apply = self.as_one_map if fixed else self.one_by_one
            return apply(images.float(), *self.factors[draw], self.hues[draw])  # same: chain_unfused

        def one_by_one(self, images: Tensor, bright: Tensor, contrast: Tensor, color: Tensor, hue: Tensor) -> Tensor:
            bright, contrast, color = (ratio[:, None, None, None] for ratio in (bright, contrast, color))
            images = images / 255.0 * bright  # same: chain_unfused
            images = blend(images, grayscale(images).mean(dim=(2, 3), keepdim=True), contrast)  # same: chain_unfused
            images = blend(images, grayscale(images), color)  # same: chain_unfused
            images = torch.einsum("bij,bjhw->bihw", hue_rotation(hue), images)  # may: float32_batched_product
            return (images - mean[:, None, None]) / std[:, None, None]  # same: chain_unfused

        def as_one_map(self, images: Tensor, bright: Tensor, contrast: Tensor, color: Tensor, hue: Tensor) -> Tensor:
            bright, contrast, color = (ratio[:, None, None] for ratio in (bright, contrast, color))
            saturate = color * identity + (1 - color) * to_gray.expand(3, 3)
            rotate = hue_rotation(hue) @ saturate / std[:, None]
            gray = (images.mean(dim=(2, 3)) * to_gray).sum(dim=1)[:, None, None] * bright / 255.0
            offset = rotate.sum(dim=2, keepdim=True) * (1 - contrast) * gray - (mean / std)[:, None]
            linear = rotate * contrast * bright / 255.0
            pixels = torch.baddbmm(offset, linear, images.flatten(2))  # may: float32_batched_product
            return pixels.view_as(images)

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            tokens = (size // patch_size) ** 2
            self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
            self.across, self.up = nn.Linear(tokens, tokens), nn.Linear(embed_dim, 4 * embed_dim)
            self.down = nn.Linear(4 * embed_dim, embed_dim)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embed = nn.Conv2d(3, embed_dim, patch_size, patch_size)
            self.blocks, self.head = nn.Sequential(*(Mixer() for _ in range(4))), nn.Linear(embed_dim, num_classes)

        def forward(self, images: Tensor) -> Tensor:
            x = self.patch_embed(images).flatten(2).transpose(1, 2)
            return self.head(self.blocks(x).mean(dim=1))

    jitter, encoder = ColorJitter(num_draws=4), wrap(Encoder().to(dtype))
    photos = torch.randint(0, 256, (batch_size, 3, size, size), dtype=torch.uint8)

    def pseudo_label() -> Tensor:
        images = jitter(photos)  # same: chain_unfused
        return encoder(images.to(dtype)).float()

    return Built(pseudo_label)


def crystals_relaxed(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_atoms: int = 20_000,
    num_edges: int = 400_000,
    hidden: int = 128,
) -> Built:
    """Materials: positions come in float64 from the simulation's file, and so distances are expanded in float64."""
    num_rbf, cutoff, num_layers, num_species = 128, 6.0, 2, 90

    class RadialBasis(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centers", torch.linspace(0.0, cutoff, num_rbf))
            self.gamma = (num_rbf / cutoff) ** 2 / 4

        def forward(self, distance: Tensor) -> Tensor:
            envelope = 0.5 * (torch.cos(distance * math.pi / cutoff) + 1.0) * (distance < cutoff)
            spread = torch.exp(-self.gamma * (distance[:, None] - self.centers) ** 2)  # cause: float64_beside, main
            return spread * envelope[:, None]  # same: float64_beside

    class Interaction(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filters = nn.Sequential(nn.Linear(num_rbf, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
            self.inward, self.outward = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

        def forward(self, h: Tensor, edge_index: Tensor, rbf: Tensor) -> Tensor:
            src, dst = edge_index
            messages = self.inward(h)[src] * self.filters(rbf)
            received = torch.zeros(h.shape, device=h.device).index_add_(0, dst, messages.float())  # near: host_sync
            return h + self.outward(F.silu(received.to(h.dtype) / 8))

    class Potential(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.species, self.basis = nn.Embedding(num_species, hidden).to(dtype), RadialBasis()
            self.layers = nn.ModuleList(Interaction() for _ in range(num_layers)).to(dtype)
            self.readout = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, 1)).to(dtype)

        def forward(self, species: Tensor, positions: Tensor, edge_index: Tensor) -> Tensor:
            src, dst = edge_index
            displacement = positions[dst] - positions[src]
            if fixed:
                displacement = displacement.float()
            distance = displacement.norm(dim=-1)  # same: float64_beside
            rbf, h = self.basis(distance).to(dtype), self.species(species)  # same: float64_beside
            for layer in self.layers:  # near: python_loop
                h = layer(h, edge_index, rbf)
            return self.readout(h).float()

    potential = wrap(Potential())
    positions = 4 * torch.rand(num_atoms, 3, dtype=torch.float64)
    species = torch.randint(0, num_species, (num_atoms,))
    edge_index = torch.randint(0, num_atoms, (2, num_edges))
    return Built(lambda: potential(species, positions, edge_index))  # same: float64_beside


CHAINS = (
    Labelled(photos_jittered, "ninth", {"batch_size": 2, "embed_dim": 8}, tolerance=5e-2),
    Labelled(crystals_relaxed, "ninth", {"num_atoms": 20, "num_edges": 60, "hidden": 8}, tolerance=5e-2),
)
