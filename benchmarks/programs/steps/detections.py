"""What follows a detector: boxes decoded, picture after picture, and overlapping ones left out one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sizes import DEVICE, size
from torch import Tensor

PICTURES, ANCHORS, KEPT = size(2, 2), size(4000, 60), size(50, 12)


def decoded(anchors: Tensor, moves: Tensor) -> Tensor:
    centre = anchors[:, :2] + moves[..., :2] * anchors[:, 2:]
    extent = anchors[:, 2:] * moves[..., 2:].exp()
    return torch.cat((centre - extent / 2, centre + extent / 2), -1)


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas, their = ((each[:, 2:] - each[:, :2]).prod(-1) for each in (boxes, others))
    return shared / (areas[:, None] + their[None] - shared)


def suppressed(boxes: Tensor) -> list[int]:
    kept: list[int] = []
    for at in range(len(boxes)):
        if not kept or overlaps(boxes[at : at + 1], boxes[kept]).max().item() <= 0.5:
            kept.append(at)
    return kept


def build() -> Any:
    places, extents = torch.rand(ANCHORS, 2, device=DEVICE) * 800, 20 + torch.rand(ANCHORS, 2, device=DEVICE) * 180
    anchors = torch.cat((places, extents), 1)
    batches = [
        (torch.randn(PICTURES, ANCHORS, 4, device=DEVICE) * 0.1, torch.randn(PICTURES, ANCHORS, device=DEVICE))
        for _ in range(2)
    ]

    def run(batch: tuple[Tensor, Tensor]) -> list[Tensor]:
        found = []
        for moves, scores in zip(*batch, strict=True):
            best = scores.sigmoid().topk(KEPT)
            boxes = decoded(anchors, moves)[best.indices]
            kept = suppressed(boxes)
            found.append(torch.cat((boxes[kept], best.values[kept, None]), 1))
        return found

    return SimpleNamespace(run=run, batches=batches)
