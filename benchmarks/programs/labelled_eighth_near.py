"""Programs that look slow and are not: rounds of large work, caches in place, numbers kept back; `labelled_eighth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_eighth_loops import HALF
from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

FUSED = "AdamW was not made to be captured"


class TransformerBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.num_heads, self.norm1, self.norm2 = max(1, dim // 64), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def captions_paired(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 384, dim: int = 512
) -> Built:
    """Pictures and captions by a sigmoid loss: all pairs of a batch at once, temperature and bias learned."""
    depth, vocab_size, image_tokens, text_len = 5, 16000, 196, 64

    class TwoTowers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.words = nn.Linear(768, dim), nn.Embedding(vocab_size, dim)
            self.vision, self.text = (nn.Sequential(*(TransformerBlock(dim) for _ in range(depth))) for _ in range(2))
            self.t, self.b = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-10.0))

        def forward(self, images: Tensor, captions: Tensor) -> Tensor:
            image_emb = F.normalize(self.vision(self.patches(images)).mean(dim=1), dim=-1)
            words = self.words(captions)  # near: embedding_gradient_dense
            text_emb = F.normalize(self.text(words).mean(dim=1), dim=-1)
            return (image_emb @ text_emb.T).float() * self.t.float().exp() + self.b.float()

    model = TwoTowers().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    forward = wrap(model)
    images = torch.randn(batch_size, image_tokens, 768, dtype=dtype)
    captions = torch.randint(0, vocab_size, (batch_size, text_len))
    signs = 2 * torch.eye(batch_size) - 1

    def training_step() -> Tensor:
        logits = forward(images, captions)
        loss = -F.logsigmoid(signs * logits).sum() / batch_size  # near: linear_cross_entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # near: parameter_loop  # near: host_sync
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def scans_reconstructed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, channels: int = 64
) -> Built:
    """Magnetic resonance: cascades of a network and of what was measured, by Fourier transforms of whole scans."""
    size, num_cascades = 320, 6

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = [m for _ in range(3) for m in (nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU())]
            self.net = nn.Sequential(
                nn.Conv2d(2, channels, 3, padding=1), nn.SiLU(), *inner, nn.Conv2d(channels, 2, 3, padding=1)
            )
            self.step_size = nn.Parameter(torch.tensor(0.5))

        def forward(self, image: Tensor) -> Tensor:
            planes = torch.view_as_real(image).permute(0, 3, 1, 2).to(dtype)
            update = self.net(planes).permute(0, 2, 3, 1).float().contiguous()
            return image + 0.1 * torch.view_as_complex(update)

    class VarNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cascades = nn.ModuleList(Denoiser() for _ in range(num_cascades)).to(dtype)

        def forward(self, kspace: Tensor, mask: Tensor) -> Tensor:
            image = torch.fft.ifft2(kspace, norm="ortho")  # near: float32_inference
            for cascade in self.cascades:  # near: python_loop  # near: recurrence_unfused
                image = cascade(image)
                predicted = torch.fft.fft2(image, norm="ortho")  # near: float32_inference
                step = cascade.step_size.float()  # near: host_sync
                image = torch.fft.ifft2(predicted - step * mask * (predicted - kspace), norm="ortho")
            return image.abs()

    mask = (torch.rand(size) < 0.3).float()
    kspace = torch.fft.fft2(torch.randn(batch_size, size, size), norm="ortho") * mask
    reconstruct = wrap(VarNet())
    return Built(lambda: reconstruct(kspace, mask)[:, ::4, ::4])


def plans_by_sampling(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, population: int = 32768, hidden: int = 1024
) -> Built:
    """Planning by the cross-entropy method: many plans go through a wide model, and the best of them stay tensors."""
    state_dim, action_dim, horizon, iterations, num_elites = 32, 8, 8, 4, population // 32
    layers = [nn.Linear(state_dim + action_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()]
    world = wrap(nn.Sequential(*layers, nn.Linear(hidden, state_dim)).to(dtype))
    start = torch.randn(state_dim, dtype=dtype)
    noise = torch.randn(iterations, horizon, population, action_dim, dtype=dtype)
    goal = torch.randn(state_dim, dtype=dtype)

    def returns_of(plans: Tensor) -> Tensor:
        state, returns = start.expand(population, -1), torch.zeros(population, device=plans.device)
        for action in plans:  # near: python_loop  # near: recurrence_unfused
            state = state + 0.1 * world(torch.cat((state, action), dim=-1))
            returns = returns - (state - goal).float().square().mean(dim=-1)
        return returns

    def plan() -> Tensor:
        mean = torch.zeros(horizon, 1, action_dim, dtype=dtype, device=start.device)
        std = torch.ones_like(mean)
        for i in range(iterations):  # near: python_loop  # near: recurrence_unfused
            plans = (mean + std * noise[i]).clamp(-1, 1)
            elites = returns_of(plans).topk(num_elites).indices  # near: host_sync
            best = plans[:, elites]  # near: host_sync
            mean, std = best.mean(dim=1, keepdim=True), best.std(dim=1, keepdim=True) + 0.05
        return torch.cat((mean, std), dim=1).float()

    return Built(plan)


def replies_decoded(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 128, dim: int = 2048
) -> Built:
    """Batched decoding: keys and values have their room, words stay on the device, and each layer reads a long past."""
    num_layers, prompt_len, new_tokens, vocab_size = 4, 1000, 4, 16000
    num_heads, max_len = max(1, dim // 64), 1024

    class CachedLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.register_buffer("cache", torch.randn(2, batch_size, num_heads, max_len, dim // num_heads))

        def forward(self, x: Tensor, position: int, mask: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, num_heads, -1)).unbind(1)
            self.cache[0, :, :, position] = k  # near: cache_grown
            self.cache[1, :, :, position] = v  # near: cache_grown
            keys, values = self.cache
            q = q[:, :, None]
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)  # near: attention_unfused
            x = x + self.proj(attended.flatten(1))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lm_head = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size, bias=False)
            self.layers = nn.ModuleList(CachedLayer() for _ in range(num_layers))

        def forward(self, tokens: Tensor, position: int) -> Tensor:
            x, mask = self.embed(tokens), visible[position]
            for layer in self.layers:  # near: python_loop
                x = layer(x, position, mask)
            return self.lm_head(x)

    visible = (torch.arange(max_len) <= torch.arange(max_len)[:, None])[:, None, None, None]
    decoder = wrap(Decoder().to(dtype))
    prompt_end = torch.randint(0, vocab_size, (batch_size,))

    def generate() -> Tensor:
        tokens, scores = prompt_end, []
        for i in range(new_tokens):  # near: python_loop  # near: recurrence_unfused
            logits = decoder(tokens, prompt_len + i)
            tokens = logits.argmax(dim=-1)  # near: host_sync
            scores.append(logits[:, :32].float())
        return torch.stack(scores)

    return Built(generate)


def streets_segmented(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 16, channels: int = 64
) -> Built:
    """Segmentation training in two large micro-batches, whose confusion matrix is counted on the device."""
    size, num_classes, accumulation = 256, 19, 2

    class Stage(nn.Module):
        def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1)
            self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.conv1(x), inplace=True)
            return x + F.relu(self.conv2(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [3, channels, 2 * channels, 4 * channels]
            self.encoder = nn.Sequential(*(Stage(i, o, 2) for i, o in pairwise(widths)))
            self.head = nn.Conv2d(4 * channels, num_classes, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(self.head(self.encoder(x)), size=(size // 2, size // 2), mode="bilinear")

    model = Net().to(dtype).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    forward = wrap(model)
    images = torch.randn(accumulation, batch_size, 3, size, size, dtype=dtype)
    batches = [part.to(memory_format=torch.channels_last) for part in images]
    labels = torch.randint(0, num_classes, (accumulation, batch_size, size // 2, size // 2))
    confusion = torch.zeros(num_classes * num_classes)

    def training_step() -> Tensor:
        total = torch.zeros((), device=confusion.device)
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        for x, y in zip(batches, labels, strict=True):  # near: python_loop
            logits = forward(x).float()
            loss = F.cross_entropy(logits, y) / accumulation  # near: linear_cross_entropy
            loss.backward()
            pairs = (num_classes * y + logits.detach().argmax(dim=1)).flatten()
            confusion.index_add_(0, pairs, torch.ones_like(pairs, dtype=confusion.dtype))  # near: host_sync
            total += loss.detach()
        optimizer.step()  # near: optimizer_unfused
        return total

    return Built(training_step, [*model.parameters(), confusion])


def voices_synthesised(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 32, channels: int = 256
) -> Built:
    """A vocoder's training: three resolutions of spectra, in float32 as they must be, and a generator in 16 bits."""
    num_frames, hop, num_mels = 64, 128, 80
    resolutions = [(512, 128), (1024, 256), (2048, 512)]
    windows = [torch.hann_window(n_fft) for n_fft, _ in resolutions]

    class ResidualUnit(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.conv = nn.Conv1d(channels, channels, 7, padding=3 * dilation, dilation=dilation)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(F.leaky_relu(x, 0.1))

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv1d(num_mels, channels, 7, padding=3)
            self.units = nn.Sequential(*(ResidualUnit(dilation) for dilation in (1, 3, 9)))
            self.leave = nn.Conv1d(channels, 1, 7, padding=3)

        def forward(self, mel: Tensor) -> Tensor:
            x = self.units(F.interpolate(self.enter(mel), scale_factor=float(hop)))
            return self.leave(F.leaky_relu(x, 0.1)).tanh()[:, 0]

    def spectral_loss(fake: Tensor, real: Tensor) -> Tensor:
        losses = []
        for (n_fft, hop_length), window in zip(resolutions, windows, strict=True):  # near: python_loop
            spectra = torch.stft(torch.cat((fake, real)), n_fft, hop_length, window=window, return_complex=True)
            magnitude = spectra.abs().clamp(min=1e-5)  # near: host_sync
            a, b = magnitude.chunk(2)
            losses.append((a - b).norm() / b.norm() + F.l1_loss(a.log(), b.log()))  # near: host_sync
        return torch.stack(losses).mean()

    generator = Generator().to(dtype)
    optimizer = torch.optim.AdamW(generator.parameters(), lr=2e-4, betas=(0.8, 0.99), fused=True)
    generate = wrap(generator)
    mel = torch.randn(batch_size, num_mels, num_frames, dtype=dtype)
    real = torch.randn(batch_size, num_frames * hop).tanh()

    def training_step() -> Tensor:
        loss = spectral_loss(generate(mel).float(), real)
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(training_step, list(generator.parameters()))


NEAR = (
    Labelled(captions_paired, "eighth", {"batch_size": 3, "dim": 16}, Expected(FUSED), training=True, tolerance=5e-2),
    Labelled(scans_reconstructed, "eighth", {"batch_size": 1, "channels": 4}, tolerance=5e-2),
    Labelled(plans_by_sampling, "eighth", {"population": 64, "hidden": 8}, tolerance=5e-2),
    Labelled(replies_decoded, "eighth", {"batch_size": 2, "dim": 16}, tolerance=5e-2),
    Labelled(streets_segmented, "eighth", {"batch_size": 1, "channels": 4}, training=True, tolerance=5e-2),
    Labelled(
        voices_synthesised, "eighth", {"batch_size": 1, "channels": 4}, Expected(FUSED), training=True, tolerance=5e-2
    ),
)
