"""Loops over proposals, histogram bins, weight matrices and ensemble members: of `labelled_eighth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16


def regions_pooled(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_images: int = 4,
    num_proposals: int = 64,
    channels: int = 256,
) -> Built:
    """Two-stage detection: every proposal is resampled from its image's feature map by a call of its own."""
    height, width, out_size, num_classes = 100, 136, 7, 81

    class RegionPooler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centers", (torch.arange(out_size) + 0.5) / out_size)
            self.register_buffer("scale", 2.0 / torch.tensor([width, height], dtype=torch.float32))

        def sampling_grid(self, boxes: Tensor) -> Tensor:
            """(..., 4) corners in pixels -> (..., 7, 7, 2) in [-1, 1]."""
            low, high = boxes[..., None, :2], boxes[..., None, 2:]
            points = (low + self.centers[:, None] * (high - low)) * self.scale - 1
            x, y = points.unbind(-1)
            shape = (*x.shape, out_size)
            return torch.stack((x[..., None, :].expand(shape), y[..., :, None].expand(shape)), -1)

        def crop_one(self, feature_map: Tensor, box: Tensor) -> Tensor:
            grid = self.sampling_grid(box)
            return F.grid_sample(feature_map[None], grid[None], align_corners=False)[0]

        def forward(self, feature_maps: Tensor, proposals: Tensor) -> Tensor:
            if fixed:
                grids = self.sampling_grid(proposals).flatten(1, 2)
                pooled = F.grid_sample(feature_maps, grids, align_corners=False)
                return pooled.unflatten(2, (-1, out_size)).transpose(1, 2).flatten(0, 1)
            pooled = []
            for feature_map, boxes in zip(feature_maps, proposals, strict=True):  # same: python_loop
                for box in boxes:  # cause: python_loop, main
                    pooled.append(self.crop_one(feature_map, box))
            return torch.stack(pooled)

    class BoxHead(nn.Module):
        def __init__(self, hidden: int = 1024) -> None:
            super().__init__()
            self.fc6, self.fc7 = nn.Linear(channels * out_size**2, hidden), nn.Linear(hidden, hidden)
            self.cls_score, self.bbox_pred = nn.Linear(hidden, num_classes), nn.Linear(hidden, 4 * num_classes)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))
            return torch.cat((self.cls_score(x), self.bbox_pred(x)), dim=1)

    pooler, head = wrap(RegionPooler()), BoxHead().to(dtype)
    feature_maps = torch.randn(num_images, channels, height, width)
    corner = torch.rand(num_images, num_proposals, 2) * torch.tensor([80.0, 60.0])
    proposals = torch.cat((corner, corner + 8 + 30 * torch.rand(num_images, num_proposals, 2)), -1)

    def predict() -> Tensor:
        rois = pooler(feature_maps, proposals)  # same: python_loop
        return head(rois.to(dtype)).float()

    return Built(predict)


def images_registered(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 8,
    size: int = 128,
    num_bins: int = 48,
) -> Built:
    """Medical image registration: a few steps of gradient descent on mutual information, its histogram bin by bin."""
    num_steps, learning_rate = 3, 0.02
    bin_centers = torch.linspace(0, 1, num_bins)
    bandwidth = 1.0 / num_bins
    target = torch.rand(batch_size, 1, size // 8, size // 8)
    target = F.interpolate(target, size=(size, size), mode="bilinear", align_corners=True)
    source = target.roll(3, -1) ** 1.5
    identity = torch.eye(2, 3).expand(batch_size, 2, 3)

    def parzen_window(intensity: Tensor, center: Tensor) -> Tensor:
        return torch.exp(-0.5 * ((intensity - center) / bandwidth) ** 2)

    def soft_histogram(image: Tensor) -> Tensor:
        """(B, N) intensities -> (B, bins, N) memberships that add up to one."""
        if fixed:
            weights = parzen_window(image[:, None], bin_centers[:, None])
        else:
            weights = torch.stack([parzen_window(image, c) for c in bin_centers], dim=1)  # cause: python_loop, main
        return weights / weights.sum(dim=1, keepdim=True)

    def mutual_information(a: Tensor, b: Tensor) -> Tensor:
        pa, pb = soft_histogram(a.flatten(1)), soft_histogram(b.flatten(1))  # same: python_loop
        joint = torch.bmm(pa, pb.transpose(1, 2)) / pa.shape[-1]  # may: float32_batched_product
        independent = joint.sum(dim=2, keepdim=True) * joint.sum(dim=1, keepdim=True)
        return (joint * ((joint + 1e-8).log() - (independent + 1e-8).log())).sum(dim=(1, 2))

    objective = wrap(mutual_information)

    def register() -> Tensor:
        theta = identity.clone().requires_grad_()
        for _ in range(num_steps):  # may: python_loop  # may: recurrence_unfused  # may: loop_invariant
            grid = F.affine_grid(theta, source.shape, align_corners=False)
            warped = F.grid_sample(source, grid, align_corners=False)
            similarity = objective(target, warped)  # same: python_loop  # may: loop_invariant
            (gradient,) = torch.autograd.grad(similarity.sum(), theta)  # same: python_loop
            theta = (theta + learning_rate * gradient).detach().requires_grad_()
        return torch.cat((theta.flatten(1), similarity[:, None]), dim=1)

    return Built(register)


def matrices_orthogonalised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, dim: int = 768
) -> Built:
    """Muon, as people paste it: each weight matrix's momentum goes through its own Newton-Schulz iteration."""
    depth, seq_len, num_heads = 10, 128, max(1, dim // 64)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.gate, self.proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            h = F.rms_norm(x, (dim,))
            q, k, v = (f(h).unflatten(-1, (num_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(attended.transpose(1, 2).flatten(2))
            return x + self.proj(F.relu(self.gate(F.rms_norm(x, (dim,)))).square())

    def zeropower_via_newtonschulz5(g: Tensor, steps: int = 5) -> Tensor:
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(steps):  # may: recurrence_unfused  # same: parameter_loop
            xxt = x @ x.mT
            x = a * x + (b * xxt + c * xxt @ xxt) @ x
        return x

    class Muon(torch.optim.Optimizer):
        def __init__(self, params: Iterable[Tensor], lr: float = 2e-3, momentum: float = 0.95) -> None:
            super().__init__(params, {"lr": lr, "momentum": momentum})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                lr, momentum = group["lr"], group["momentum"]
                if fixed:
                    self.step_stacked(group["params"], lr, momentum)
                    continue
                for p in group["params"]:  # cause: parameter_loop, main
                    state = self.state[p]
                    if "buf" not in state:
                        state["buf"] = torch.zeros_like(p)
                    buf = state["buf"]
                    buf.mul_(momentum).add_(p.grad)
                    update = zeropower_via_newtonschulz5(p.grad.add(buf, alpha=momentum))
                    p.add_(update, alpha=-lr)

        def step_stacked(self, params: list[Tensor], lr: float, momentum: float) -> None:
            grads = torch.stack([p.grad for p in params])
            if "buf" not in self.state:
                self.state["buf"] = torch.zeros_like(grads)
            buf = self.state["buf"]
            buf.mul_(momentum).add_(grads)
            update = zeropower_via_newtonschulz5(grads.add(buf, alpha=momentum))
            torch._foreach_add_(params, list(update.unbind()), alpha=-lr)

    model = nn.Sequential(*(Block() for _ in range(depth))).to(dtype)
    optimizer, forward = Muon(model.parameters()), wrap(model)
    x, target = torch.randn(2, batch_size, seq_len, dim, dtype=dtype)

    def training_step() -> Tensor:
        loss = F.mse_loss(forward(x).float(), target.float())
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # same: parameter_loop
        return loss.detach()

    return Built(training_step, list(model.parameters())[:6])


def tasks_continued(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 256, width: int = 512
) -> Built:
    """Continual learning: what earlier tasks need is kept by a quadratic penalty, summed over named parameters."""
    depth, num_classes, ewc_lambda, lr = 24, 20, 0.4, 0.05

    class ResidualMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(784, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
            self.head = nn.Linear(width, num_classes)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for norm, layer in zip(self.norms, self.layers, strict=True):  # near: python_loop
                x = x + F.relu(layer(norm(x)))
            return self.head(x)

    model = ResidualMLP().to(dtype)
    anchors = {n: p.detach() + 0.01 * torch.randn_like(p) for n, p in model.named_parameters()}
    importances = {n: torch.rand_like(p) for n, p in model.named_parameters()}
    images, labels = torch.randn(batch_size, 784, dtype=dtype), torch.randint(0, num_classes, (batch_size,))
    optimizer, forward = torch.optim.SGD(model.parameters(), lr=lr, foreach=True), wrap(model)

    def ewc_penalty() -> Tensor:
        penalty = 0.0
        for name, param in model.named_parameters():  # cause: parameter_loop, main
            penalty = penalty + (importances[name] * (param - anchors[name]) ** 2).float().sum()
        return penalty

    @torch.no_grad()
    def add_ewc_gradients() -> Tensor:
        params = list(model.parameters())
        drift = torch._foreach_sub(params, list(anchors.values()))
        pull = torch._foreach_mul(drift, list(importances.values()))
        torch._foreach_add_([p.grad for p in params], pull, alpha=2 * ewc_lambda)
        return torch.stack(torch._foreach_norm(torch._foreach_mul(pull, drift), 1)).float().sum()

    def training_step() -> Tensor:
        task_loss = F.cross_entropy(forward(images).float(), labels)  # near: linear_cross_entropy
        optimizer.zero_grad()  # near: gradient_zeroing
        if fixed:
            task_loss.backward()
            loss = task_loss.detach() + ewc_lambda * add_ewc_gradients()
        else:
            loss = task_loss + ewc_lambda * ewc_penalty()  # same: parameter_loop
            loss.backward()  # same: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def dynamics_by_ensemble(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_particles: int = 8192,
    hidden_size: int = 200,
    num_members: int = 10,
) -> Built:
    """Model-based control: particles are rolled out through an ensemble of dynamics models, member by member."""
    state_dim, action_dim, horizon = 24, 8, 12
    sizes = [state_dim + action_dim, hidden_size, hidden_size, hidden_size, 2 * state_dim]

    class Member(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers[:-1]:  # may: python_loop
                x = F.silu(layer(x))
            return self.layers[-1](x)

    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(Member() for _ in range(num_members)).to(dtype)
            per_layer = list(zip(*(m.layers for m in self.members), strict=True))
            self.weights = [torch.stack([layer.weight for layer in layers]).mT.contiguous() for layers in per_layer]
            self.biases = [torch.stack([layer.bias for layer in layers])[:, None] for layers in per_layer]

        def batched(self, x: Tensor) -> Tensor:
            *inner, last = zip(self.biases, self.weights, strict=True)
            for bias, weight in inner:  # near: python_loop
                x = F.silu(torch.baddbmm(bias, x, weight))
            return torch.baddbmm(last[0], x, last[1])

        def forward(self, x: Tensor) -> Tensor:
            """Let each member see its own particles: (members, particles, features)."""
            if fixed:
                return self.batched(x)
            pairs = zip(self.members, x, strict=True)
            return torch.stack([member(part) for member, part in pairs])  # cause: python_loop, main

    ensemble = Ensemble()
    predict = wrap(ensemble)
    initial_state = torch.randn(num_members, num_particles // num_members, state_dim, dtype=dtype)
    actions = torch.randn(horizon, num_members, num_particles // num_members, action_dim, dtype=dtype).tanh()
    noise = torch.randn(horizon, *initial_state.shape, dtype=dtype)

    def rollout() -> Tensor:
        state, total_reward = initial_state, torch.zeros_like(initial_state[..., 0])
        for t in range(horizon):  # may: recurrence_unfused  # may: python_loop
            mean, log_std = predict(torch.cat((state, actions[t]), -1)).chunk(2, -1)  # same: python_loop
            state = state + mean + noise[t] * log_std.clamp(-10, -1).exp()
            total_reward = total_reward + state[..., 0] - 0.1 * actions[t].square().sum(-1)
        return total_reward.float()

    return Built(rollout)


LOOPS = (
    Labelled(regions_pooled, "eighth", {"num_images": 2, "num_proposals": 3, "channels": 4}, tolerance=5e-2),
    Labelled(images_registered, "eighth", {"batch_size": 2, "size": 32, "num_bins": 6}, training=True, tolerance=5e-2),
    Labelled(matrices_orthogonalised, "eighth", {"batch_size": 2, "dim": 16}, training=True, tolerance=5e-2),
    Labelled(tasks_continued, "eighth", {"batch_size": 4, "width": 16}, training=True, tolerance=5e-2),
    Labelled(
        dynamics_by_ensemble,
        "eighth",
        {"num_particles": 12, "hidden_size": 8, "num_members": 3},
        Expected(),
        tolerance=5e-2,
    ),
)
