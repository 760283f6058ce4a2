"""Jobs of several ranks with one thing planted in the program, and the same job without it.

A job builds, on each rank, its step with the plant and its step without: `planted` and `clean`. What it loses is the
difference of the two, timed without a profiler. A job whose plant is None is a control: nothing may be named in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Step = Callable[[], Any]
EVERYONE, LATE, FIRST = "all", "late", "first"


@dataclass(frozen=True)
class Recipe:
    """Models, sizes and plants of one set of jobs, so that a set can be recorded of which nothing was looked at."""

    large: tuple[int, int] = (2048, 4)  # width and layers; the device is the limit
    small: tuple[int, int] = (768, 6)  # the host is
    gated: bool = False  # layers as in Llama rather than as in GPT-2
    length: int = 512
    batches: tuple[int, int] = (8, 2)  # of the large model and of the small one
    late: int = 1
    late_s: float = 0.008
    read_s: float = 0.008
    moved: int = 2  # samples that one rank computes for the other
    bucket_mb: float = 0.01
    channels: int = 1
    picture: tuple[int, int, int] = (64, 128, 8)  # pixels a side, channels, layers
    tokens: tuple[int, int] = (4096, 4096)  # of layers cut over ranks, and their width
    hot: float = 0.5  # of the tokens, beside an equal share of the others
    stages: int = 3
    microbatches: int = 4
    disturbing: int = 4096


SETS = (
    Recipe(),
    Recipe(
        large=(1536, 6), small=(512, 8), gated=True, length=768, batches=(6, 3), late=0, late_s=0.005, read_s=0.012,
        moved=1, bucket_mb=0.05, channels=2, picture=(48, 192, 6), tokens=(6144, 3072), hot=0.3, stages=4,
        microbatches=3, disturbing=6144,
    ),
    Recipe(
        large=(2560, 3), small=(384, 10), length=1024, batches=(6, 4), late=0, late_s=0.012, read_s=0.006, moved=3,
        bucket_mb=0.02, picture=(56, 160, 7), tokens=(2048, 5120), hot=0.4, stages=5, microbatches=2, disturbing=3072,
    ),
    Recipe(
        large=(1792, 5), small=(640, 5), gated=True, length=640, batches=(10, 3), late_s=0.004, read_s=0.01,
        bucket_mb=0.03, channels=4, picture=(72, 112, 9), tokens=(5120, 2560), hot=0.6, stages=4, microbatches=5,
        disturbing=5120,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One rank of a session."""

    rank: int
    size: int
    device: torch.device
    recipe: Recipe = SETS[0]

    @property
    def full(self) -> bool:
        return self.device.type == "cuda"

    def pick(self, full: int, small: int) -> int:
        return full if self.full else small

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.full else torch.float32

    @property
    def late(self) -> bool:
        return self.rank == self.recipe.late


@dataclass(frozen=True)
class PlantedJob:
    """One job: what was planted, which rules mean it, and whose it is: LATE, FIRST or EVERYONE; None: a control."""

    name: str
    make: Callable[[Place], dict[str, Step]]
    rules: Sequence[str] = ()
    ranks: str | None = None
    session: str = "usual"
    clean_is: str | None = None  # the job whose clean step this one is held against


# -- models ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // 64, 1)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GatedBlock(nn.Module):
    """A layer as in Llama: half as many heads for keys and values, no bias, a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // 64, 2)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.out, self.down = nn.Linear(width, width, bias=False), nn.Linear(3 * width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        q = self.q(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        parts = self.kv(y).chunk(2, -1)
        k, v = (part.unflatten(-1, (self.heads // 2, -1)).transpose(1, 2).repeat_interleave(2, 1) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Pictures(nn.Module):
    def __init__(self, channels: int, layers: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, channels, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(norm(channels) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)) + x)
        return x.mean((2, 3))


def blocks(place: Place, width: int, layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    width = place.pick(width, 64)
    made = GatedBlock if place.recipe.gated else Block
    return nn.Sequential(*(made(width) for _ in range(layers))).to(place.device, place.dtype)


def texts(place: Place, batch: int, width: int) -> Tensor:
    shape = batch, place.pick(place.recipe.length, 16), place.pick(width, 64)
    return torch.randn(shape, device=place.device, dtype=place.dtype)


def parallel(place: Place, model: nn.Module, **options: Any) -> DistributedDataParallel:
    devices = [place.device.index] if place.full else None
    return DistributedDataParallel(model, device_ids=devices, **{"gradient_as_bucket_view": True, **options})


def trained(model: nn.Module, inputs: Callable[[], Tensor], *, waits: bool = False) -> Step:
    """A training step. waits: it reads its loss, as a loop that logs each step does."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs()).float().square().mean()
        loss.backward()
        optimizer.step()
        if waits:
            loss.item()

    return step


def usual(place: Place, size: tuple[int, int], **options: Any) -> Callable[[Callable[[], Tensor]], Step]:
    waits = options.pop("waits", False)
    model = parallel(place, blocks(place, *size), **options)
    return lambda inputs: trained(model, inputs, waits=waits)


# -- replicas ----------------------------------------------------------------------------------------------------------


def ddp_clean(place: Place) -> dict[str, Step]:
    large = place.recipe.large
    x = texts(place, place.recipe.batches[0], large[0])
    return {"clean": usual(place, large)(lambda: x)}


def ddp_clean_small(place: Place) -> dict[str, Step]:
    small = place.recipe.small
    x = texts(place, place.recipe.batches[1], small[0])
    return {"clean": usual(place, small, waits=True)(lambda: x)}


def busy_for(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def late_host(place: Place, size: tuple[int, int], batch: int, *, waits: bool) -> dict[str, Step]:
    step = usual(place, size, waits=waits)
    x = texts(place, batch, size[0])

    def late() -> Tensor:
        if place.late:
            busy_for(place.recipe.late_s)
        return x

    return {"clean": step(lambda: x), "planted": step(late)}


def ddp_late_host(place: Place) -> dict[str, Step]:
    return late_host(place, place.recipe.large, place.recipe.batches[0], waits=True)


def ddp_late_host_ahead(place: Place) -> dict[str, Step]:
    return late_host(place, place.recipe.small, place.recipe.batches[1], waits=False)


def ddp_collects_garbage(place: Place) -> dict[str, Step]:
    import gc

    kept = [[n] for n in range(place.pick(300_000, 1000))]
    step = usual(place, place.recipe.small, waits=True)
    x = texts(place, place.recipe.batches[1], place.recipe.small[0])

    def collects() -> Tensor:
        if place.late and kept:
            gc.collect()
        return x

    return {"clean": step(lambda: x), "planted": step(collects)}


class Reads(Dataset[Tensor]):
    """Samples of the host, which one rank reads slowly."""

    def __init__(self, sample: Tensor, seconds: float) -> None:
        self.sample, self.seconds = sample, seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, at: int) -> Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return self.sample


def ddp_slow_loader(place: Place) -> dict[str, Step]:
    width, layers = place.recipe.large
    sample = texts(place, place.recipe.batches[0] // 2, width).cpu()
    step = usual(place, (width, layers // 2), waits=True)

    def read(seconds: float) -> Step:
        rows = iter(DataLoader(Reads(sample, seconds), batch_size=None))
        return step(lambda: next(rows).to(place.device))

    return {"clean": read(0), "planted": read(place.recipe.read_s if place.late else 0)}


def ddp_longer_batch(place: Place) -> dict[str, Step]:
    """The planted ranks hold as many samples together as the clean ones."""
    large, each, moved = place.recipe.large, place.recipe.batches[0], place.recipe.moved
    step = usual(place, large)
    equal = texts(place, each, large[0])
    own = texts(place, each + moved * (place.size - 1) if place.late else each - moved, large[0])
    return {"clean": step(lambda: equal), "planted": step(lambda: own)}


def ddp_lengths(place: Place) -> dict[str, Step]:
    """Another rank has the long batch in each step; together they hold as much as in the clean one."""
    large, each, moved = place.recipe.large, place.recipe.batches[0], place.recipe.moved + 1
    step = usual(place, large)
    equal = texts(place, each, large[0])
    few, many = (texts(place, batch, large[0]) for batch in (each - moved, each + moved * (place.size - 1)))
    count = [0]

    def one() -> Tensor:
        count[0] += 1
        return many if count[0] % place.size == place.rank else few

    return {"clean": step(lambda: equal), "planted": step(one)}


def ddp_one_evaluates(place: Place) -> dict[str, Step]:
    """One rank computes the loss of another batch in each step, as for a curve of validation."""
    large = place.recipe.large
    x = texts(place, place.recipe.batches[0], large[0])
    model = parallel(place, blocks(place, *large))
    plain = trained(model, lambda: x)

    def evaluates() -> None:
        if place.late:
            with torch.no_grad():
                model.module(x).float().square().mean()
        plain()

    return {"clean": plain, "planted": evaluates}


def ddp_small_buckets(place: Place) -> dict[str, Step]:
    small, bucket_mb = place.recipe.small, place.recipe.bucket_mb
    x = texts(place, place.recipe.batches[1], small[0])
    return {"clean": usual(place, small)(lambda: x), "planted": usual(place, small, bucket_cap_mb=bucket_mb)(lambda: x)}


def after_backward(place: Place, size: tuple[int, int], batch: int) -> dict[str, Step]:
    x = texts(place, batch, size[0])
    model = blocks(place, *size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).float().square().mean().backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= place.size
        optimizer.step()

    return {"clean": usual(place, size)(lambda: x), "planted": step}


def no_overlap(place: Place) -> dict[str, Step]:
    return after_backward(place, place.recipe.small, place.recipe.batches[1])


def no_overlap_large(place: Place) -> dict[str, Step]:
    return after_backward(place, place.recipe.large, place.recipe.batches[0])


def ddp_rank_0_logs(place: Place) -> dict[str, Step]:
    """Rank 0 reads the norm of each parameter in each step."""
    width, layers = place.recipe.large
    x = texts(place, place.recipe.batches[0] // 2, width)
    model = parallel(place, blocks(place, width, layers - 1))
    plain = trained(model, lambda: x)

    def logs() -> None:
        plain()
        if place.rank == 0:
            sum(parameter.detach().float().norm().item() for parameter in model.parameters())

    return {"clean": plain, "planted": logs}


def ddp_shared_gpu(place: Place) -> dict[str, Step]:
    x = texts(place, place.recipe.batches[0], place.recipe.large[0])
    step = usual(place, place.recipe.large)(lambda: x)
    return {"clean": step, "planted": step}


def limited_group(place: Place) -> Any:
    """A process group whose messages go by few channels."""
    ranks = list(range(place.size))
    if not place.full:
        return dist.new_group(ranks)
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas = options.config.max_ctas = place.recipe.channels
    return dist.new_group(ranks, backend="nccl", pg_options=options)


def ddp_one_channel(place: Place) -> dict[str, Step]:
    large = place.recipe.large
    x = texts(place, place.recipe.batches[0] // 2, large[0])
    return {
        "clean": usual(place, large)(lambda: x),
        "planted": usual(place, large, process_group=limited_group(place))(lambda: x),
    }


def ddp_no_peers(place: Place) -> dict[str, Step]:
    x = texts(place, place.recipe.batches[0], place.recipe.large[0])
    return {"planted": usual(place, place.recipe.large)(lambda: x)}


def pictures(place: Place, norm: Callable[[int], nn.Module], **options: Any) -> Step:
    torch.manual_seed(0)
    pixels, wide, layers = place.recipe.picture
    side, channels = place.pick(pixels, 8), place.pick(wide, 8)
    model = Pictures(channels, layers, norm).to(place.device, memory_format=torch.channels_last)
    x = torch.randn(place.pick(32, 2), 16, side, side, device=place.device).to(memory_format=torch.channels_last)
    return trained(parallel(place, model, **options), lambda: x)


def sync_batch_norm(place: Place) -> dict[str, Step]:
    return {
        "clean": pictures(place, nn.BatchNorm2d, broadcast_buffers=False),
        "planted": pictures(place, nn.SyncBatchNorm, broadcast_buffers=False),
    }


def broadcast_buffers(place: Place) -> dict[str, Step]:
    return {
        "clean": pictures(place, nn.BatchNorm2d, broadcast_buffers=False),
        "planted": pictures(place, nn.BatchNorm2d, broadcast_buffers=True),
    }


# -- shards ------------------------------------------------------------------------------------------------------------


def sharded(place: Place, *, microbatches: int = 1, reshard: bool = True) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(place.device.type, (place.size,))
    model = blocks(place, *place.recipe.large)
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    x = texts(place, max(place.recipe.batches[0] // microbatches, 1), place.recipe.large[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(microbatches):
            model(x).float().square().mean().backward()
        optimizer.step()

    return step


def fsdp2_clean(place: Place) -> dict[str, Step]:
    return {"clean": sharded(place)}


def fsdp2_gathers_again(place: Place) -> dict[str, Step]:
    count = place.recipe.microbatches
    return {"clean": sharded(place, microbatches=count, reshard=False), "planted": sharded(place, microbatches=count)}


def fsdp2_late_host(place: Place) -> dict[str, Step]:
    """A host that is late in a loop that waits for each step."""
    step = sharded(place)

    def waited(seconds: float) -> None:
        busy_for(seconds)
        step()
        if place.full:
            torch.cuda.synchronize()

    late_s = 2 * place.recipe.late_s if place.late else 0
    return {"clean": lambda: waited(0), "planted": lambda: waited(late_s)}


def cut(place: Place) -> tuple[int, int, int]:
    tokens, width = place.recipe.tokens
    return place.pick(width, 64), 6, place.pick(tokens, 32)


def gathered(place: Place, times: int) -> Step:
    """Layers of which each rank holds a part of the input: gathered once, or once for each reader."""
    width, layers, length = cut(place)
    wide = width // place.size
    make = [torch.randn(width, wide, device=place.device, dtype=place.dtype) * 0.02 for _ in range(2 * layers)]
    x = torch.randn(length // place.size, width, device=place.device, dtype=place.dtype)
    whole = [torch.empty(length, width, device=place.device, dtype=place.dtype) for _ in range(2)]

    def step() -> Tensor:
        part = x
        with torch.no_grad():
            for layer in range(layers):
                dist.all_gather_into_tensor(whole[0], part)
                up = whole[0] @ make[2 * layer]
                if times == 2:
                    dist.all_gather_into_tensor(whole[1], part)
                gate = whole[times - 1] @ make[2 * layer + 1]
                mixed = (F.silu(gate) * up)[: part.shape[0]]
                part = part + F.pad(mixed, (0, width - wide))
        return part

    return step


def tp_gathers_twice(place: Place) -> dict[str, Step]:
    return {"clean": gathered(place, 1), "planted": gathered(place, 2)}


def tp_infer(place: Place) -> dict[str, Step]:
    """Layers cut over ranks: an all-reduce after each. The clean step has none: what hiding all would give."""
    width, layers, length = cut(place)
    wide = 4 * width // place.size
    up = [torch.randn(width, wide, device=place.device, dtype=place.dtype) * 0.02 for _ in range(layers)]
    down = [torch.randn(wide, width, device=place.device, dtype=place.dtype) * 0.02 for _ in range(layers)]
    x = torch.randn(length, width, device=place.device, dtype=place.dtype)

    def run(reduces: bool) -> Tensor:
        h = x
        with torch.no_grad():
            for first, second in zip(up, down, strict=True):
                out = F.gelu(h @ first) @ second
                if reduces:
                    dist.all_reduce(out)
                h = h + out
        return h

    return {"clean": lambda: run(False), "planted": lambda: run(True)}


# -- stages ------------------------------------------------------------------------------------------------------------


def piped(place: Place, layers: Sequence[int]) -> Step:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    width = place.recipe.large[0]
    module = blocks(place, width, layers[place.rank])
    stage = PipelineStage(module, place.rank, place.size, place.device)
    last = place.rank == place.size - 1
    schedule = ScheduleGPipe(
        stage,
        n_microbatches=place.recipe.microbatches,
        loss_fn=lambda out, target: (out - target).float().square().mean(),
    )
    x = texts(place, 4 * place.recipe.microbatches, width)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        schedule.step(*((x,) if place.rank == 0 else ()), **({"target": x} if last else {}))
        optimizer.step()

    return step


def pp_uneven_stages(place: Place) -> dict[str, Step]:
    even = [place.recipe.stages] * place.size
    uneven = [even[0] - 1, *even[1:-1], even[-1] + 1]
    return {"clean": piped(place, even), "planted": piped(place, uneven)}


# -- experts -----------------------------------------------------------------------------------------------------------


def experts(place: Place, share: float) -> Step:
    """Each rank sends this share of its tokens to rank 0, and the others equal parts of what is left."""
    width, tokens = place.pick(2048, 64), place.pick(8192, 64)
    to_0 = int(tokens * share)
    rest = (tokens - to_0) // max(place.size - 1, 1)
    sends = [tokens - rest * (place.size - 1)] + [rest] * (place.size - 1)
    gets = [sends[place.rank]] * place.size
    layers = [
        [
            torch.randn(*shape, device=place.device, dtype=place.dtype) * 0.02
            for shape in ((width, 4 * width), (4 * width, width))
        ]
        for _ in range(4)
    ]
    x = torch.randn(tokens, width, device=place.device, dtype=place.dtype)

    def step() -> Tensor:
        h = x
        with torch.no_grad():
            for up, down in layers:
                got = h.new_empty(sum(gets), width)
                dist.all_to_all_single(got, h, gets, sends)
                out = F.gelu(got @ up) @ down
                back = torch.empty_like(h)
                dist.all_to_all_single(back, out, sends, gets)
                h = h + back
        return h

    return step


def moe_overflow(place: Place) -> dict[str, Step]:
    hot = place.recipe.hot
    return {"clean": experts(place, 1 / place.size), "planted": experts(place, hot + (1 - hot) / place.size)}


# -- all of them, those first that are worth most ----------------------------------------------------------------------

HOST = ("straggler_host", "late_host")
WORK = ("straggler_work", "rank_dependent", "straggler_host")
LINK = ("slow_link", "link_below_rate")
STAGE = ("stage_imbalance", "pipeline_bubble")

JOBS: Sequence[PlantedJob] = (
    PlantedJob("ddp_clean", ddp_clean),
    PlantedJob("ddp_late_host", ddp_late_host, HOST, LATE),
    PlantedJob("ddp_longer_batch", ddp_longer_batch, ("straggler_work",), LATE),
    PlantedJob("ddp_shared_gpu", ddp_shared_gpu, ("straggler_gpu",), LATE),
    PlantedJob("ddp_slow_loader", ddp_slow_loader, ("straggler_input",), LATE),
    PlantedJob("no_overlap", no_overlap, ("not_overlapped",), EVERYONE),
    PlantedJob("ddp_one_channel", ddp_one_channel, LINK, EVERYONE),
    PlantedJob("moe_overflow", moe_overflow, ("expert_imbalance",), FIRST),
    PlantedJob("pp_uneven_stages", pp_uneven_stages, STAGE, EVERYONE),
    PlantedJob("fsdp2_clean", fsdp2_clean),
    PlantedJob("tp_infer", tp_infer, ("exposed_collective",), EVERYONE),
    PlantedJob("ddp_lengths", ddp_lengths, ("length_imbalance",), EVERYONE),
    PlantedJob("ddp_small_buckets", ddp_small_buckets, ("small_collectives", "not_overlapped"), EVERYONE),
    PlantedJob("sync_batch_norm", sync_batch_norm, ("sync_batch_norm", "small_collectives"), EVERYONE),
    PlantedJob("fsdp2_gathers_again", fsdp2_gathers_again, ("redundant_gather", "exposed_collective"), EVERYONE),
    PlantedJob("tp_gathers_twice", tp_gathers_twice, ("redundant_gather",), EVERYONE),
    PlantedJob("ddp_one_evaluates", ddp_one_evaluates, WORK, LATE),
    PlantedJob("fsdp2_late_host", fsdp2_late_host, HOST, LATE),
    PlantedJob("ddp_clean_small", ddp_clean_small),
    PlantedJob("no_overlap_large", no_overlap_large, ("not_overlapped", "exposed_collective"), EVERYONE),
    PlantedJob("ddp_late_host_ahead", ddp_late_host_ahead, HOST, LATE),
    PlantedJob("broadcast_buffers", broadcast_buffers, ("buffers_broadcast", "small_collectives"), EVERYONE),
    PlantedJob("ddp_rank_0_logs", ddp_rank_0_logs, WORK, FIRST),
    PlantedJob("ddp_collects_garbage", ddp_collects_garbage, HOST, LATE),
    PlantedJob("ddp_no_peers", ddp_no_peers, LINK, EVERYONE, session="no_peers", clean_is="ddp_clean"),
)  # fmt: skip

# Environments of a session's processes.
SESSIONS: dict[str, dict[str, str]] = {"usual": {}, "no_peers": {"NCCL_P2P_DISABLE": "1"}}


def of_rank(job: PlantedJob, recipe: Recipe) -> int | str | None:
    """Return the rank that a job's plant is of, or EVERYONE."""
    ranks: dict[str | None, int] = {LATE: recipe.late, FIRST: 0}
    return ranks.get(job.ranks, job.ranks)


def by_name() -> dict[str, PlantedJob]:
    return {job.name: job for job in JOBS}


def disturb(device: str, recipe: Recipe, wanted: Any, ready: Any, ended: Any) -> None:
    """Compute on a rank's GPU while wanted: another process that shares it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = torch.device(device, recipe.late) if device == "cuda" else torch.device("cpu")
    wide = recipe.disturbing if device == "cuda" else 128
    x = torch.randn(wide, wide, device=place)
    while not ended.is_set():
        if not wanted.wait(0.2):
            continue
        for _ in range(8):
            torch.mm(x, x)
        if device == "cuda":
            torch.cuda.synchronize(place)
        ready.set()
