"""Record loops that wait for their data, with none and with four workers: `python -m benchmarks record_loading OUT`.

For each loader of LOADERS, in OUT/NAME: `trace/`, what tracemine.capture records of the loop with `num_workers=0`, and
`step.json`: what a step takes with nothing recording, with none and with `WORKERS` workers. What a step costs on the
device is set by REPEATS products. Needs torch with CUDA, and Pillow for the images.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.recordings.record_models import machine
from tracemine.recording import capture

WORKERS, BATCH, TIMED = 4, 16, 24
SCRATCH = Path(tempfile.gettempdir()) / "record_loading"


def image_bytes(size: int) -> bytes:
    from PIL import Image

    random = np.random.default_rng(0)
    coarse = random.integers(0, 255, (size // 16, size // 16, 3), dtype=np.uint8)
    held = io.BytesIO()
    Image.fromarray(coarse).resize((size, size)).save(held, "JPEG", quality=92)
    return held.getvalue()


class Items(Dataset[Any]):
    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


@dataclass(frozen=True)
class Image:
    """Decodes a JPEG and crops it."""

    size: int
    encoded: bytes

    def __call__(self, index: int) -> torch.Tensor:
        from PIL import Image as Pillow

        pixels = np.asarray(Pillow.open(io.BytesIO(self.encoded)).convert("RGB").resize((224, 224)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255)


@dataclass(frozen=True)
class Words:
    """Splits a text and looks its words up."""

    length: int

    def __call__(self, index: int) -> list[int]:
        words = " ".join(f"w{(index * 7 + k) % 5000}" for k in range(self.length)).split()
        table = {f"w{k}": k for k in range(5000)}
        return [table[word] for word in words]


@dataclass(frozen=True)
class File:
    """Reads a file past the page cache."""

    megabytes: int

    def __call__(self, index: int) -> torch.Tensor:
        path = SCRATCH / f"{self.megabytes}_{index % 32}.bin"
        with path.open("rb", buffering=0) as held:
            data = bytearray(held.read())
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return torch.frombuffer(data, dtype=torch.uint8)[: 3 * 224 * 224].float().view(3, 224, 224)


@dataclass(frozen=True)
class Noise:
    """Augments in numpy."""

    passes: int

    def __call__(self, index: int) -> torch.Tensor:
        random = np.random.default_rng(index)
        pixels = random.random((3, 224, 224), dtype=np.float32)
        for _ in range(self.passes):
            pixels = np.clip(np.roll(pixels, 1, 1) * 0.9 + 0.1 * pixels.mean(), 0, 1)
        return torch.from_numpy(pixels)


def padded(batch: list[list[int]]) -> torch.Tensor:
    """Pads in Python."""
    longest = max(map(len, batch))
    rows = [row + [0] * (longest - len(row)) for row in batch]
    for _ in range(20):
        rows = [[(value * 3 + 1) % 5000 for value in row] for row in rows]
    return torch.tensor(rows)


@dataclass(frozen=True)
class Loader:
    item: Callable[[int], Any]
    repeats: int  # products of 4096 a step
    collate: Callable[[list[Any]], torch.Tensor] | None = None


def loaders() -> dict[str, Loader]:
    return {
        "decode": Loader(Image(768, image_bytes(768)), 10),
        "decode_little_work": Loader(Image(1024, image_bytes(1024)), 2),
        "augment": Loader(Noise(3), 30),
        "collate": Loader(Words(256), 10, padded),
        "tokenize": Loader(Words(1024), 4, torch.tensor),
        "disk": Loader(File(2), 10),
        "disk_and_work": Loader(File(1), 60),
    }


def batches(loader: Loader, workers: int) -> Iterator[torch.Tensor]:
    options = {"prefetch_factor": 4, "persistent_workers": True} if workers else {}
    return iter(
        DataLoader(
            Items(loader.item), BATCH, num_workers=workers, collate_fn=loader.collate, pin_memory=True, **options
        )
    )


def step_of(loader: Loader) -> Callable[[torch.Tensor], None]:
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

    def step(batch: torch.Tensor) -> None:
        given = batch.to("cuda", non_blocking=True)
        x = weights + given.float().mean().half()
        for _ in range(loader.repeats):
            x = torch.relu(x @ weights)

    return step


def timed_ns(loader: Loader, workers: int) -> int:
    step, data = step_of(loader), batches(loader, workers)
    for _ in range(10):
        step(next(data))
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(TIMED):
        step(next(data))
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - begin) // TIMED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    SCRATCH.mkdir(exist_ok=True)
    for megabytes in (1, 2):
        for each in range(32):
            (SCRATCH / f"{megabytes}_{each}.bin").write_bytes(os.urandom(megabytes << 20))
    os.sync()
    about = machine()
    for name, loader in loaders().items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)  # as a worker has
        none = [timed_ns(loader, 0), timed_ns(loader, 0)]
        found: dict[str, Any] = {"workers": WORKERS, "workers_ns": timed_ns(loader, WORKERS)}
        step = step_of(loader)
        with capture(folder / "trace", steps=4, warmup=2, timed=0, execution_trace=False, quiet=True) as recording:
            for batch in recording.steps(batches(loader, 0)):
                step(batch)
        none.append(timed_ns(loader, 0))
        found |= {"none_ns": sorted(none)[1], "none_means_ns": none}
        (folder / "step.json").write_text(json.dumps({"name": name, **about, **found}, indent=1) + "\n")
        print(name, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
