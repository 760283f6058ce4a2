"""Waits for the device in augmenters, matchers, loggers and graph networks: of `labelled_eighth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"


def rectangles_erased(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 96, embed_dim: int = 384
) -> Built:
    """Image classification with random erasing, whose rectangles are drawn on the device and applied one by one."""
    image_size, patch_size, num_classes = 224, 16, 100
    num_patches = (image_size // patch_size) ** 2

    class MixerBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
            self.tokens = nn.Linear(num_patches, num_patches)
            self.up, self.down = nn.Linear(embed_dim, 4 * embed_dim), nn.Linear(4 * embed_dim, embed_dim)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embed = nn.Conv2d(3, embed_dim, patch_size, patch_size)
            self.blocks = nn.Sequential(*(MixerBlock() for _ in range(6)))
            self.head = nn.Linear(embed_dim, num_classes)

        def forward(self, images: Tensor) -> Tensor:
            x = self.patch_embed(images).flatten(2).transpose(1, 2)
            return self.head(self.blocks(x).mean(dim=1))

    class RandomErasing:
        def __init__(self, num_draws: int = 4) -> None:
            size = torch.randint(20, 100, (num_draws, batch_size, 2))
            start = (torch.rand(num_draws, batch_size, 2) * (image_size - size)).long()
            self.rectangles, self.calls = torch.cat((start, start + size), -1), 0

        def __call__(self, images: Tensor) -> Tensor:
            rectangles = self.rectangles[self.calls % len(self.rectangles)]
            self.calls += 1
            if fixed:
                return self.by_mask(images, rectangles)
            return self.by_slices(images.clone(), rectangles)  # same: host_sync  # may: python_loop

        def by_slices(self, images: Tensor, rectangles: Tensor) -> Tensor:
            for i in range(images.shape[0]):  # may: python_loop  # same: host_sync
                top, left, bottom, right = (int(v) for v in rectangles[i])  # cause: host_sync, main
                images[i, :, top:bottom, left:right] = 0.0
            return images

        def by_mask(self, images: Tensor, rectangles: Tensor) -> Tensor:
            pixels = torch.arange(image_size, device=images.device)
            low, high = rectangles[:, None, :2], rectangles[:, None, 2:]
            inside = (pixels[:, None] >= low) & (pixels[:, None] < high)
            erased = inside[:, :, None, 0] & inside[:, None, :, 1]
            return images.masked_fill(erased[:, None], 0.0)

    model, erase = Classifier().to(dtype), RandomErasing()
    optimizer, forward = torch.optim.SGD(model.parameters(), lr=0.05, foreach=True), wrap(model)
    images = torch.randn(batch_size, 3, image_size, image_size, dtype=dtype)
    labels = torch.randint(0, num_classes, (batch_size,))

    def training_step() -> Tensor:
        logits = forward(erase(images))  # same: host_sync  # may: python_loop
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)  # near: linear_cross_entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def keypoints_matched(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 16,
    num_keypoints: int = 512,
) -> Built:
    """Feature matching by optimal transport: Sinkhorn's rounds go on until the host has seen them converge."""
    dim, max_iters, tolerance, epsilon = 128, 40, 1e-5, 0.1

    class Descriptor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = [nn.Linear(dim + 2, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU()]
            self.encode = nn.Sequential(*inner, nn.Linear(256, dim))

        def forward(self, descriptors: Tensor, positions: Tensor) -> Tensor:
            return F.normalize(self.encode(torch.cat((descriptors, positions), -1)), dim=-1)

    def half_update(log_kernel: Tensor, potential: Tensor, axis: int) -> Tensor:
        return -torch.logsumexp(log_kernel + potential, dim=axis, keepdim=True)

    def log_sinkhorn(cost: Tensor) -> Tensor:
        log_kernel = -cost / epsilon
        u, v = torch.zeros_like(cost[:, :, :1]), torch.zeros_like(cost[:, :1])
        for _ in range(max_iters):  # may: python_loop  # may: recurrence_unfused  # same: host_sync
            u_new = half_update(log_kernel, v, 2)
            v = half_update(log_kernel, u_new, 1)
            err = (u_new - u).abs().max()
            u = u_new
            if err.item() < tolerance:  # cause: host_sync, main
                break
        return log_kernel + u + v

    def log_sinkhorn_on_device(cost: Tensor) -> Tensor:
        log_kernel = -cost / epsilon
        u, v = torch.zeros_like(cost[:, :, :1]), torch.zeros_like(cost[:, :1])
        converged = torch.zeros((), dtype=torch.bool, device=cost.device)
        for _ in range(max_iters):  # may: python_loop  # may: recurrence_unfused
            u_new = torch.where(converged, u, half_update(log_kernel, v, 2))
            v = torch.where(converged, v, half_update(log_kernel, u_new, 1))
            converged = converged | ((u_new - u).abs().max() < tolerance)  # near: host_sync
            u = u_new
        return log_kernel + u + v

    describe, assign = Descriptor().to(dtype), wrap(log_sinkhorn_on_device if fixed else log_sinkhorn)
    descriptors = torch.randn(2, batch_size, num_keypoints, dim, dtype=dtype)
    positions = torch.rand(2, batch_size, num_keypoints, 2, dtype=dtype)

    def match() -> Tensor:
        left, right = describe(descriptors, positions).float()
        similarity = torch.einsum("bnd,bmd->bnm", left, right)  # may: float32_batched_product
        plan = assign(1 - similarity)  # same: host_sync  # may: recurrence_unfused  # may: python_loop
        return plan.exp().amax(dim=2)

    return Built(match)


def demand_forecast(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 1024, hidden: int = 512
) -> Built:
    """Forecasting by stacked residual blocks, with the norm of every tensor and its gradient sent to the dashboard."""
    lookback, horizon, num_blocks, theta = 192, 48, 16, 32

    class NBeatsBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [lookback, hidden, hidden, hidden]
            self.fc = nn.Sequential(*(layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())))
            self.theta = nn.Linear(hidden, theta)
            self.backcast, self.forecast = nn.Linear(theta, lookback), nn.Linear(theta, horizon)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            theta = self.theta(self.fc(x))
            return self.backcast(theta), self.forecast(theta)

    class NBeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(NBeatsBlock() for _ in range(num_blocks))

        def forward(self, x: Tensor) -> Tensor:
            total: Any = 0
            for block in self.blocks:  # near: python_loop
                backcast, forecast = block(x)
                x, total = x - backcast, total + forecast
            return total

    model = NBeats().to(dtype)
    optimizer, forward = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), wrap(model)
    history, future = torch.randn(batch_size, lookback, dtype=dtype), torch.randn(batch_size, horizon)
    metrics: dict[str, float] = {}

    def log_norms() -> Tensor:
        for name, param in model.named_parameters():  # cause: parameter_loop  # same: host_sync
            if param.grad is None:
                continue
            metrics[f"grad_norm/{name}"] = param.grad.norm().item()  # cause: host_sync, main  # same: parameter_loop
            metrics[f"weight_norm/{name}"] = param.detach().norm().item()  # same: host_sync  # same: parameter_loop
        return torch.tensor(list(metrics.values()))

    def norms_on_device() -> Tensor:
        params = [param for param in model.parameters() if param.grad is not None]
        of_grads = torch._foreach_norm([param.grad for param in params])
        norms = zip(of_grads, torch._foreach_norm([param.detach() for param in params]), strict=True)
        return torch.stack([norm for pair in norms for norm in pair]).float()

    def training_step() -> Tensor:
        loss = F.l1_loss(forward(history).float(), future)
        optimizer.zero_grad()  # near: gradient_zeroing
        loss.backward()
        logged = norms_on_device() if fixed else log_norms()  # same: host_sync  # same: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return logged

    return Built(training_step, list(model.parameters()))


def relations_passed(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_nodes: int = 20000,
    num_edges: int = 200000,
    dim: int = 256,
) -> Built:
    """Relational graph network: each layer picks the edges of one relation after another by a boolean mask."""
    num_relations, num_layers = 24, 3
    src, dst = torch.randint(0, num_nodes, (2, num_edges))
    edge_type = torch.randint(0, num_relations, (num_edges,))
    # What the data loader would keep beside the graph: edges in the order of their relation, and how many there are.
    order = edge_type.argsort(stable=True)
    counts = torch.bincount(edge_type, minlength=num_relations).tolist()
    sorted_src, sorted_dst = src[order].split(counts), dst[order].split(counts)

    class RelationalConv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(num_relations, dim, dim) / dim**0.5)
            self.self_loop, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim)

        def edges(self) -> Iterator[tuple[Tensor, Tensor]]:
            for relation in range(num_relations):  # may: python_loop  # same: host_sync
                if fixed:
                    yield sorted_src[relation], sorted_dst[relation]
                else:
                    mask = edge_type == relation
                    yield src[mask], dst[mask]  # cause: host_sync, main

        def forward(self, h: Tensor) -> Tensor:
            out = torch.zeros(num_nodes, dim, dtype=torch.float32, device=h.device)
            for relation, (sources, targets) in enumerate(self.edges()):  # may: python_loop  # same: host_sync
                messages = h[sources] @ self.weight[relation]
                out.index_add_(0, targets, messages.float())  # near: host_sync
            return F.relu(self.norm(self.self_loop(h) + out.to(h.dtype) / 8))

    encoder = wrap(nn.Sequential(*(RelationalConv() for _ in range(num_layers))).to(dtype))
    features = torch.randn(num_nodes, dim, dtype=dtype)
    return Built(lambda: encoder(features)[::16].float())  # same: host_sync  # may: python_loop


def joints_located(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, channels: int = 64
) -> Built:
    """Pose estimation: heatmaps go to the host, where each joint's peak is shifted towards its higher neighbour."""
    num_joints, height, width = 17, 96, 72
    neighbours = torch.tensor([1, -1, width, -width])

    class PoseNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = nn.Conv2d(3, channels, 3, 2, 1), nn.Conv2d(channels, channels, 3, 2, 1)
            self.stem = nn.Sequential(convs[0], nn.ReLU(), convs[1])
            self.stages = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(8))
            self.final = nn.Conv2d(channels, num_joints, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for conv in self.stages:  # near: python_loop
                x = x + conv(F.relu(x))
            return self.final(x)

    def get_final_preds(heatmaps: Tensor) -> Tensor:
        heatmaps = heatmaps.float().cpu()  # cause: host_sync, main
        index = heatmaps.flatten(2).argmax(-1)
        coords = torch.stack((index % width, index // width), -1).float()
        for n in range(coords.shape[0]):  # same: host_sync  # may: step_begins_late
            for j in range(coords.shape[1]):
                hm = heatmaps[n, j]
                px, py = (int(c) for c in coords[n, j])
                if 0 < px < width - 1 and 0 < py < height - 1:
                    dx = float(hm[py, px + 1] - hm[py, px - 1])
                    dy = float(hm[py + 1, px] - hm[py - 1, px])
                    coords[n, j, 0] += 0.25 * ((dx > 0) - (dx < 0))
                    coords[n, j, 1] += 0.25 * ((dy > 0) - (dy < 0))
        return coords

    def get_final_preds_batched(heatmaps: Tensor) -> Tensor:
        flat = heatmaps.float().flatten(2)
        index = flat.argmax(-1, keepdim=True)
        px, py = index % width, index // width
        around = flat.gather(2, (index + neighbours).clamp(0, height * width - 1))
        inside = (px > 0) & (px < width - 1) & (py > 0) & (py < height - 1)
        delta = torch.stack((around[..., 0] - around[..., 1], around[..., 2] - around[..., 3]), -1)
        return torch.cat((px, py), -1).float() + 0.25 * delta.sign() * inside  # near: host_sync

    net = wrap(PoseNet().to(dtype))
    images = torch.randn(batch_size, 3, 4 * height, 4 * width, dtype=dtype)
    locate = get_final_preds_batched if fixed else get_final_preds
    return Built(lambda: locate(net(images)))  # same: host_sync  # may: step_begins_late


WAITING = (
    Labelled(
        rectangles_erased, "eighth", {"batch_size": 2, "embed_dim": 8}, Expected(WAITS), training=True, tolerance=5e-2
    ),
    Labelled(keypoints_matched, "eighth", {"batch_size": 2, "num_keypoints": 12}, Expected(WAITS), tolerance=5e-2),
    Labelled(
        demand_forecast, "eighth", {"batch_size": 4, "hidden": 16}, Expected(WAITS), training=True, tolerance=5e-2
    ),
    Labelled(
        relations_passed, "eighth", {"num_nodes": 30, "num_edges": 100, "dim": 8}, Expected(WAITS), tolerance=5e-2
    ),
    Labelled(joints_located, "eighth", {"batch_size": 2, "channels": 4}, Expected(WAITS), tolerance=5e-2),
)
