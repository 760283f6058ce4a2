"""The device waits for what a host parses and scales, of games and of scans: of `labelled_eighth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
COPIES = "copies from ordinary memory"


def positions_evaluated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 1024, channels: int = 128
) -> Built:
    """Chess: positions come as FEN strings, which the evaluation server parses while the network waits."""
    num_batches, symbols, rng = 4, "PNBRQKpnbrqk", random.Random(int(torch.initial_seed()) % 1000)
    plane_of, device = {symbol: i for i, symbol in enumerate(symbols)}, torch.get_default_device()

    def random_fen() -> str:
        rows = []
        for _ in range(8):
            row, empty = "", 0
            for _ in range(8):
                if rng.random() < 0.45:
                    row, empty = row + (str(empty) if empty else "") + rng.choice(symbols), 0
                else:
                    empty += 1
            rows.append(row + (str(empty) if empty else ""))
        return "/".join(rows) + " " + rng.choice("wb")

    def board_to_planes(fen: str, out: bytearray, offset: int) -> None:
        placement, side = fen.split(" ")
        square = 0
        for char in placement:  # cause: step_begins_late, main
            if char in plane_of:
                out[offset + 64 * plane_of[char] + square] = 1
                square += 1
            elif char.isdigit():
                square += int(char)
        if side == "w":
            out[offset + 64 * 12 : offset + 64 * 13] = b"\x01" * 64

    def encode(fens: Sequence[str]) -> Tensor:
        buffer = bytearray(len(fens) * 13 * 64)
        for i, fen in enumerate(fens):  # same: step_begins_late
            board_to_planes(fen, buffer, i * 13 * 64)
        planes = torch.frombuffer(buffer, dtype=torch.uint8)
        return planes.view(-1, 13, 8, 8).to(device)  # may: pageable_copy  # same: step_begins_late

    class ResBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.conv2(F.relu(self.conv1(x))))

    trunk = [nn.Conv2d(13, channels, 3, padding=1), nn.ReLU(), *(ResBlock() for _ in range(6))]
    value_head = [nn.Conv2d(channels, 4, 1), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh()]
    net = wrap(nn.Sequential(*trunk, *value_head).to(dtype))
    batches = [[random_fen() for _ in range(batch_size)] for _ in range(num_batches)]
    encoded = [encode(fens) for fens in batches] if fixed else []
    step_count = 0

    def evaluate() -> Tensor:
        nonlocal step_count
        index = step_count % num_batches
        step_count += 1
        planes = encoded[index] if fixed else encode(batches[index])  # same: step_begins_late  # may: pageable_copy
        return net(planes.to(dtype)).float()

    return Built(evaluate)


def slices_windowed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, num_slices: int = 16, size: int = 384
) -> Built:
    """CT scans: slices of 16-bit integers become windowed floats on the host, one by one, and are sent as these."""
    channels, slope, intercept, low, high = 32, 1.0, -1024.0, -160.0, 240.0
    device = torch.get_default_device()
    volume = [torch.randint(600, 1500, (size, size), dtype=torch.int16, device=device).cpu() for _ in range(num_slices)]
    stacked = torch.stack(volume)
    stacked = stacked.pin_memory() if device.type == "cuda" else stacked

    def apply_window(pixels: Tensor) -> Tensor:
        hounsfield = pixels.float() * slope + intercept  # same: step_begins_late
        return ((hounsfield - low) / (high - low)).clamp(0.0, 1.0)  # cause: step_begins_late, main

    def load_volume() -> Tensor:
        if fixed:
            return apply_window(stacked.to(device, non_blocking=True))  # may: transfer_exposed
        slices = [apply_window(pixels) for pixels in volume]  # same: step_begins_late
        return torch.stack(slices).to(device)  # cause: pageable_copy  # same: step_begins_late

    def conv_block(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(in_channels, out_channels, 3, stride, 1)
        return nn.Sequential(conv, nn.LeakyReLU(0.1))

    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.down1 = conv_block(1, channels), conv_block(channels, 2 * channels, 2)
            self.down2, self.up = conv_block(2 * channels, 4 * channels, 2), nn.Upsample(scale_factor=4)
            self.leave = nn.Conv2d(5 * channels, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            fine = self.enter(x)
            coarse = self.down2(self.down1(fine))
            return self.leave(torch.cat((fine, self.up(coarse)), dim=1))

    segment = wrap(Segmenter().to(dtype))

    def infer() -> Tensor:
        x = load_volume()  # same: step_begins_late  # same: pageable_copy  # may: transfer_exposed
        return segment(x[:, None].to(dtype)).float().softmax(dim=1).mean(dim=(2, 3))

    return Built(infer)


HOSTS = (
    Labelled(positions_evaluated, "eighth", {"batch_size": 3, "channels": 4}, Expected(COPIES), tolerance=5e-2),
    Labelled(slices_windowed, "eighth", {"num_slices": 2, "size": 16}, Expected(COPIES), tolerance=5e-2),
)
