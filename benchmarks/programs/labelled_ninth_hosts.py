"""The device waits for what a loader unpacks, and for many small copies in either direction: of `labelled_ninth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
COPIES = "copies from or to ordinary memory"


def quakes_picked(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 32, channels: int = 128
) -> Built:
    """Seismology: a loader without workers inflates the archive's traces in the step; or they are kept in memory."""
    num_samples, num_batches, device = 6000, 4, torch.get_default_device()

    class WaveformDataset(Dataset[Tensor]):
        def __init__(self, archive: Sequence[bytes], in_memory: bool) -> None:
            self.archive = archive
            self.cache = [self.read(index) for index in range(len(archive))] if in_memory else None

        def read(self, index: int) -> Tensor:
            raw = bytearray(zlib.decompress(self.archive[index]))  # cause: step_begins_late, main
            counts = torch.frombuffer(raw, dtype=torch.int16).view(3, -1).float()  # same: step_begins_late
            detrended = counts - counts.mean(dim=1, keepdim=True)  # same: step_begins_late
            return detrended / detrended.std(dim=1, keepdim=True).clamp(min=1e-6)  # same: step_begins_late

        def __len__(self) -> int:
            return len(self.archive)

        def __getitem__(self, index: int) -> Tensor:
            return self.read(index) if self.cache is None else self.cache[index]  # same: step_begins_late

    class PhasePicker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv1d(3, channels, 7, 2, 3)
            self.convs = nn.ModuleList(nn.Conv1d(channels, channels, 7, padding=3) for _ in range(10))
            self.head = nn.Conv1d(channels, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for conv in self.convs:  # near: python_loop
                x = x + F.relu(conv(x))
            return self.head(x)

    noise = torch.randn(num_batches * batch_size, 3, num_samples, device=device).cpu()
    archive = [zlib.compress((40 * trace).short().numpy().tobytes(), 1) for trace in noise]
    loader = DataLoader(WaveformDataset(archive, in_memory=fixed), batch_size=batch_size, num_workers=0)
    picker = wrap(PhasePicker().to(dtype))

    def forever() -> Iterator[Tensor]:
        while True:
            yield from loader  # same: step_begins_late

    batches = forever()

    def pick() -> Tensor:
        waveforms = next(batches).to(device)  # same: step_begins_late  # may: pageable_copy
        return picker(waveforms.to(dtype))[:, :, ::10].float().softmax(dim=1)

    return Built(pick)


def payments_screened(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 4096, hidden: int = 4096
) -> Built:
    """Fraud detection: a batch is a dictionary of columns, each of which is moved by a copy of its own."""
    num_numeric, num_categories, cardinality, emb_dim, num_batches = 120, 60, 1000, 16, 2
    device = torch.get_default_device()
    schema = [f"amount_{i}" for i in range(num_numeric)], [f"code_{i}" for i in range(num_categories)]

    def collate() -> dict[str, Any]:
        numeric = torch.randn(num_numeric, batch_size, device=device).cpu()
        codes = torch.randint(0, cardinality, (num_categories, batch_size), device=device).cpu()
        if fixed:
            blocks = {"numeric": numeric, "codes": codes}
            return {name: block.pin_memory() if device.type == "cuda" else block for name, block in blocks.items()}
        columns = {name: column.clone() for name, column in zip(schema[0], numeric, strict=True)}
        return {"numeric": columns, "codes": {n: c.clone() for n, c in zip(schema[1], codes, strict=True)}}

    def move_to_device(data: Any) -> Any:
        """Move whatever tensors a nested batch holds."""
        if isinstance(data, Mapping):
            return {key: move_to_device(value) for key, value in data.items()}  # same: pageable_copy
        if isinstance(data, Sequence):
            return [move_to_device(value) for value in data]
        if fixed:
            return data.to(device, non_blocking=True)  # may: transfer_exposed
        return data.to(device)  # cause: pageable_copy, main

    class FraudNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offsets", torch.arange(num_categories)[:, None] * cardinality)
            self.embedding = nn.Embedding(num_categories * cardinality, emb_dim)
            widths = [num_numeric + num_categories * emb_dim, *(hidden for _ in range(6))]
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
            self.head = nn.Linear(hidden, 1)

        def forward(self, numeric: Tensor, codes: Tensor) -> Tensor:
            embedded = self.embedding(codes + self.offsets).transpose(0, 1).flatten(1)
            x = torch.cat((numeric.T.to(embedded.dtype), embedded), dim=1)
            for layer in self.layers:  # near: python_loop
                x = F.relu(layer(x))
            return self.head(x)

    model = wrap(FraudNet().to(dtype))
    batches, step_count = [collate() for _ in range(num_batches)], 0

    def screen() -> Tensor:
        nonlocal step_count
        batch = move_to_device(batches[step_count % num_batches])  # same: pageable_copy  # may: transfer_exposed
        step_count += 1
        numeric, codes = batch["numeric"], batch["codes"]
        if not fixed:
            numeric, codes = (torch.stack(list(columns.values())) for columns in (numeric, codes))
        return model(numeric, codes).float().sigmoid()

    return Built(screen)


def actors_informed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 640, width: int = 768
) -> Built:
    """Distributed reinforcement: after each update the learner hands its weights to the actors' copy on the host."""
    depth, obs_dim, num_actions = 20, 256, 18

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            return x + F.relu(self.linear(self.norm(x)))

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(obs_dim, width)
            self.trunk = nn.Sequential(*(Residual() for _ in range(depth)))
            self.policy, self.baseline = nn.Linear(width, num_actions), nn.Linear(width, 1)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            x = self.trunk(self.embed(obs))
            return self.policy(x).float(), self.baseline(x).float()[:, 0]

    learner = ActorCritic().to(dtype)
    on_device = obs = torch.randn(batch_size, obs_dim, dtype=dtype)
    actor = copy.deepcopy(learner).requires_grad_(False).cpu()
    if fixed and on_device.is_cuda:
        for param in actor.parameters():
            param.data = param.data.pin_memory()
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.01, momentum=0.9, foreach=True)
    forward = wrap(learner)
    actions, returns = torch.randint(0, num_actions, (batch_size,)), torch.randn(batch_size)

    @torch.no_grad()
    def publish() -> None:
        if not fixed:
            actor.load_state_dict(learner.state_dict())  # cause: pageable_copy, main
            return
        for theirs, mine in zip(actor.parameters(), learner.parameters(), strict=True):  # may: python_loop
            theirs.copy_(mine, non_blocking=True)  # may: transfer_exposed

    def learn() -> Tensor:
        logits, values = forward(obs)
        advantages = returns - values.detach()
        log_probs = logits.log_softmax(dim=-1)
        policy_loss = -(log_probs.gather(1, actions[:, None])[:, 0] * advantages).mean()
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1).mean()
        loss = policy_loss + 0.5 * F.mse_loss(values, returns) - 0.01 * entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 40.0)  # near: parameter_loop  # near: host_sync
        optimizer.step()  # near: optimizer_unfused
        publish()  # same: pageable_copy  # may: transfer_exposed
        return loss.detach()

    return Built(learn, [*learner.parameters(), *actor.parameters()])


HOSTS = (
    Labelled(quakes_picked, "ninth", {"batch_size": 2, "channels": 4}, Expected(COPIES), tolerance=5e-2),
    Labelled(payments_screened, "ninth", {"batch_size": 4, "hidden": 16}, Expected(COPIES), tolerance=5e-2),
    Labelled(actors_informed, "ninth", {"batch_size": 6, "width": 16}, Expected(COPIES), training=True, tolerance=5e-2),
)
