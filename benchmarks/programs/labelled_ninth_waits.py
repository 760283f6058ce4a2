"""Waits for the device in a likelihood bound, a calibration error and an attack: of `labelled_ninth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"


def likelihoods_bounded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 64, channels: int = 256
) -> Built:
    """A ladder of latents by the library's distributions, each of which asks whether its own numbers are valid."""
    num_levels, z_dim, size = 20, 16, 16
    gaussian = functools.partial(Normal, validate_args=False if fixed else None)

    class Level(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Conv2d(2 * channels, channels, 3, padding=1)
            self.posterior, self.prior = nn.Conv2d(channels, 2 * z_dim, 1), nn.Conv2d(channels, 2 * z_dim, 1)
            self.project = nn.Conv2d(z_dim, channels, 1)
            self.res1, self.res2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

        def gaussians(self, h: Tensor, x: Tensor) -> tuple[Normal, Normal]:
            of_both = F.silu(self.enc(torch.cat((h, x), dim=1)))
            q_mean, q_log_std = self.posterior(of_both).float().chunk(2, dim=1)
            p_mean, p_log_std = self.prior(h).float().chunk(2, dim=1)
            posterior = gaussian(q_mean, q_log_std.clamp(-6, 2).exp())  # cause: host_sync, main
            return posterior, gaussian(p_mean, p_log_std.clamp(-6, 2).exp())  # same: host_sync

        def forward(self, h: Tensor, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
            q, p = self.gaussians(h, x)  # same: host_sync
            z = q.mean + q.stddev * noise
            h = h + self.project(z.to(h.dtype))
            h = h + self.res2(F.silu(self.res1(F.silu(h))))
            return h, kl_divergence(q, p).sum(dim=(1, 2, 3))

    class LadderVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, channels, 3, padding=1)
            self.levels = nn.ModuleList(Level() for _ in range(num_levels))
            self.out = nn.Conv2d(channels, 6, 1)

        def forward(self, images: Tensor, noises: Tensor) -> Tensor:
            x = F.silu(self.stem(images))
            h, divergence = torch.zeros_like(x), torch.zeros(len(x), device=x.device)
            for level, noise in zip(self.levels, noises, strict=True):  # near: python_loop  # same: host_sync
                h, kl = level(h, x, noise)
                divergence = divergence + kl
            mean, log_std = self.out(h).float().chunk(2, dim=1)
            decoded = gaussian(mean, log_std.clamp(-3, 2).exp())  # same: host_sync
            return decoded.log_prob(images.float()).sum(dim=(1, 2, 3)) - divergence  # same: host_sync

    bound = wrap(LadderVAE().to(dtype))
    images = torch.randn(batch_size, 3, size, size, dtype=dtype)
    noises = torch.randn(num_levels, batch_size, z_dim, size, size)
    return Built(lambda: bound(images, noises) / (3 * size * size))  # same: host_sync


def forecasts_calibrated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, num_samples: int = 32768, dim: int = 2048
) -> Built:
    """Calibration of a classifier: how sure and how right it is, bin by bin, where a bin may be empty."""
    num_classes, num_bins = 1000, 20
    hidden = [layer for _ in range(3) for layer in (nn.Linear(dim, dim), nn.GELU())]
    classifier = wrap(nn.Sequential(*hidden, nn.Linear(dim, num_classes)).to(dtype))
    features = torch.randn(num_samples, dim, dtype=dtype)
    labels = torch.randint(0, num_classes, (num_samples,))
    sharpness = 40 + 60 * torch.rand(num_samples, 1)

    class ECELoss(nn.Module):
        """Expected calibration error of logits."""

        def __init__(self, n_bins: int) -> None:
            super().__init__()
            boundaries = torch.linspace(0, 1, n_bins + 1)
            self.register_buffer("bin_lowers", boundaries[:-1])
            self.register_buffer("bin_uppers", boundaries[1:])

        def by_bin(self, confidences: Tensor, accuracies: Tensor) -> Tensor:
            ece = torch.zeros(1, device=confidences.device)
            for lower, upper in zip(self.bin_lowers, self.bin_uppers, strict=True):  # may: python_loop
                in_bin = confidences.gt(lower.item()) * confidences.le(upper.item())  # cause: host_sync, main
                prop_in_bin = in_bin.float().mean()
                if prop_in_bin.item() > 0:  # same: host_sync
                    accuracy_in_bin = accuracies[in_bin].float().mean()  # same: host_sync
                    avg_confidence = confidences[in_bin].mean()  # same: host_sync
                    ece += torch.abs(avg_confidence - accuracy_in_bin) * prop_in_bin
            return ece

        def at_once(self, confidences: Tensor, accuracies: Tensor) -> Tensor:
            in_bin = (confidences > self.bin_lowers[:, None]) & (confidences <= self.bin_uppers[:, None])
            apart = (in_bin * (confidences - accuracies.float())).sum(dim=1)
            return apart.abs().sum(dim=0, keepdim=True) / len(confidences)

        def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
            confidences, predictions = logits.softmax(dim=1).max(dim=1)
            accuracies = predictions.eq(labels)
            measure = self.at_once if fixed else self.by_bin
            return measure(confidences, accuracies)  # same: host_sync  # may: python_loop

    criterion = ECELoss(num_bins)

    def evaluate() -> Tensor:
        logits = classifier(features).float() * sharpness
        nll = F.cross_entropy(logits, labels, reduction="none")  # near: linear_cross_entropy
        ece = criterion(logits, labels)  # same: host_sync  # may: python_loop
        return torch.cat((ece, nll[:8]))

    return Built(evaluate)


def no_parameter_grads(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Leave the attacked network's parameters out of what is differentiated."""

    @functools.wraps(method)
    def attacked(network: nn.Module, *arguments: Any) -> Tensor:
        network.requires_grad_(False)
        return method(network, *arguments)

    return attacked


def adversaries_found(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 128, channels: int = 64
) -> Built:
    """A robustness benchmark: projected ascent that keeps the worst picture found so far, written through masks."""
    num_classes, size, epsilon, num_steps, depth = 10, 32, 8 / 255, 10, 8

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.conv2(F.relu(self.conv1(x))))

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(3, channels, 3, 1, 1), nn.Linear(channels, num_classes)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth // 2)))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))

    network = Classifier().to(dtype)
    images = torch.rand(batch_size, 3, size, size)
    labels = torch.randint(0, num_classes, (batch_size,))
    start = (2 * torch.rand_like(images) - 1) * epsilon
    logits_of = wrap(network)

    def loss_and_grad(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        losses = F.cross_entropy(logits_of(x.to(dtype)).float(), labels, reduction="none")
        (grad,) = torch.autograd.grad(losses.sum(), x)
        return losses.detach(), grad

    class Worst:
        """What raised the loss of each picture most so far."""

        def __init__(self, x: Tensor, losses: Tensor, grad: Tensor) -> None:
            self.x, self.losses, self.grad = x.clone(), losses.clone(), grad.clone()

        def update(self, x: Tensor, losses: Tensor, grad: Tensor) -> None:
            improved = losses > self.losses
            if fixed:
                of_pictures = improved[:, None, None, None]
                self.x, self.grad = torch.where(of_pictures, x, self.x), torch.where(of_pictures, grad, self.grad)
                self.losses = torch.where(improved, losses, self.losses)  # near: host_sync
                return
            self.x[improved] = x[improved]  # cause: host_sync, main
            self.grad[improved] = grad[improved]  # same: host_sync
            self.losses[improved] = losses[improved]  # same: host_sync

    @no_parameter_grads
    def perturb(network: nn.Module, x: Tensor) -> Tensor:
        x_adv = (x + start).clamp(0, 1)
        worst, step_size = Worst(x_adv, *loss_and_grad(x_adv)), 2 * epsilon
        x_old, grad = x_adv, worst.grad
        for i in range(num_steps):  # may: recurrence_unfused  # may: python_loop  # same: host_sync
            momentum = 0.75 if i else 1.0
            z = x_adv + step_size * grad.sign()
            z = torch.minimum(torch.maximum(z, x - epsilon), x + epsilon).clamp(0, 1)
            z = x_adv + momentum * (z - x_adv) + (1 - momentum) * (x_adv - x_old)
            x_new = torch.minimum(torch.maximum(z, x - epsilon), x + epsilon).clamp(0, 1)
            x_old, x_adv = x_adv, x_new
            losses, grad = loss_and_grad(x_adv)
            worst.update(x_adv, losses, grad)  # same: host_sync
            if i % 4 == 3:
                step_size, x_adv, grad = step_size / 2, worst.x.clone(), worst.grad.clone()
        return worst.losses

    return Built(lambda: perturb(network, images))  # same: host_sync


WAITING = (
    Labelled(likelihoods_bounded, "ninth", {"batch_size": 2, "channels": 8}, Expected(WAITS), tolerance=5e-2),
    Labelled(forecasts_calibrated, "ninth", {"num_samples": 200, "dim": 16}, Expected(WAITS), tolerance=5e-2),
    Labelled(
        adversaries_found, "ninth", {"batch_size": 3, "channels": 4}, Expected(WAITS), training=True, tolerance=5e-2
    ),
)
