"""Record jobs of several ranks with one thing planted, and score what is found: `python benchmarks/programs/jobs.py`.

    jobs.py record OUT [JOB...] [--ranks 2] [--device cpu] [--within 190] [--set 3]
    jobs.py score OUT                             scan each job, and print what was found, missed and invented

Recording needs torch alone: one process a rank on one host, kept over the jobs. Each job is timed without a profiler,
with its plant and without, in blocks that alternate (steps in a row) and step by step (each between synchronisations),
then both are recorded on all ranks. OUT/JOB/{planted,clean}/rankN.json.gz, OUT/JOB/meta.json. A job that raises or
hangs ends its processes, and the next begins with new ones; after --within seconds nothing new begins. The sets have
the same jobs with other models, sizes and plants: all but the last were looked at.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

START_S = 90  # of a session
WARM, STEPS = 4, 3
JOB_S = {"cuda": 30, "cpu": 120}  # by device
BLOCKS, ALONE = {"cuda": 6, "cpu": 1}, {"cuda": 8, "cpu": 1}
BLOCK_S = 0.16  # of steps in a row
LEFT_S = 8  # with less left nothing begins


# -- one rank ----------------------------------------------------------------------------------------------------------


class Rank:
    """One process of a session: it builds, times and records the jobs that it is told to."""

    def __init__(self, rank: int, size: int, device: str, meeting: str, shared: Any, at: int) -> None:
        from datetime import timedelta

        import torch
        import torch.distributed as dist

        from programs.job_programs import SETS, Place

        self.torch, self.dist, self.shared = torch, dist, shared
        torch.set_num_threads(2)
        here = torch.device(device, rank) if device == "cuda" else torch.device("cpu")
        if device == "cuda":
            torch.cuda.set_device(here)
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size,
            timeout=timedelta(seconds=60),
        )  # fmt: skip
        self.place = Place(rank, size, here, SETS[at])
        self.token = torch.zeros(1, device=here)
        self.meet()

    def meet(self) -> None:
        """Wait until all ranks are here, with nothing left on the device."""
        self.settle()
        self.dist.all_reduce(self.token)
        self.settle()

    def settle(self) -> None:
        if self.place.full:
            self.torch.cuda.synchronize()

    def run(self, name: str, out: Path) -> dict[str, Any]:
        from programs.job_programs import by_name

        job = by_name()[name]
        steps = job.make(self.place)
        for variant, step in steps.items():
            self.disturb(name, variant)
            for _ in range(WARM if self.place.full else 1):
                step()
        self.meet()
        times = self.timed(name, steps)
        sizes = {variant: self.record(name, variant, step, out) for variant, step in steps.items()}
        self.disturb(name, "clean")
        del steps
        if self.place.full:
            self.torch.cuda.empty_cache()
        return {"times": times, "bytes": sizes}

    def disturb(self, name: str, variant: str) -> None:
        """Have the other process compute on rank 1's GPU, or not: told by rank 0, and all wait for it."""
        wanted, ready = self.shared
        if name != "ddp_shared_gpu":
            return
        if self.place.rank == 0:
            ready.clear()
            (wanted.set if variant == "planted" else wanted.clear)()
            if variant == "planted":
                ready.wait(10)
            else:
                time.sleep(0.02)
        self.meet()

    def timed(self, name: str, steps: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {variant: {"back_to_back_ms": [], "alone_ms": []} for variant in steps}
        count = self.how_many(next(iter(steps.values())))
        for at in range(BLOCKS[self.place.device.type]):
            for variant in list(steps) if at % 2 == 0 else reversed(list(steps)):
                self.disturb(name, variant)
                found[variant]["back_to_back_ms"].append(self.block(steps[variant], count))
        for variant, step in steps.items():
            self.disturb(name, variant)
            found[variant]["alone_ms"] = [self.block(step, 1) for _ in range(ALONE[self.place.device.type])]
            found[variant]["in_a_row"] = count
        return found

    def how_many(self, step: Callable[[], Any]) -> int:
        """Return how many steps a block has, the same on all ranks."""
        if not self.place.full:
            return 2
        took = self.block(step, 3) / 1000
        told = self.torch.tensor([took], device=self.place.device)
        self.dist.all_reduce(told, self.dist.ReduceOp.MAX)
        whole = int(BLOCK_S / max(float(told), 1e-4))
        return max(min(whole, 40), 3) // 2 * 2 + 2

    def block(self, step: Callable[[], Any], count: int) -> float:
        self.meet()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        self.settle()
        return round((time.perf_counter() - begin) / count * 1000, 4)

    def record(self, name: str, variant: str, step: Callable[[], Any], out: Path) -> int:
        from torch.profiler import ProfilerActivity, profile, schedule

        self.disturb(name, variant)
        seen = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.place.full else [])]
        path = out / name / variant / f"rank{self.place.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.meet()
        with profile(
            activities=seen, record_shapes=True, schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1)
        ) as recorder:
            for at in range(STEPS + 1):
                step()
                if at in (0, STEPS):  # the steps between follow each other as the program has them
                    self.settle()
                recorder.step()
        recorder.export_chrome_trace(str(path))
        packed = path.with_suffix(".json.gz")
        with gzip.GzipFile(packed, "wb", 9, mtime=0) as file:
            file.write(path.read_bytes())
        path.unlink()
        return packed.stat().st_size


def serve(pipe: Connection, rank: int, size: int, device: str, meeting: str, out: str, more: Any, env: Any) -> None:
    """Be one rank of a session: answer each job's name with what was measured, or with why not."""
    # Without reductions in the switch, which some hosts have and others not.
    os.environ.update({"OMP_NUM_THREADS": "2", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_NVLS_ENABLE": "0", **env})
    try:
        import torch  # noqa: F401

        pipe.send({"imported": True})
        if pipe.recv() is None:
            return
        here = Rank(rank, size, device, meeting, *more)
        versions = versions_of(device)
        pipe.send({"ready": True, **versions})
    except Exception:
        pipe.send({"error": traceback.format_exc()[-1500:]})
        return
    while (name := pipe.recv()) is not None:
        try:
            pipe.send(here.run(name, Path(out)))
        except Exception:
            pipe.send({"error": traceback.format_exc()[-1500:]})
            return
    with suppress(Exception):
        here.dist.destroy_process_group()


def versions_of(device: str) -> dict[str, Any]:
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if device == "cuda" else None
    gpu = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {
        "torch": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl, "gpu": gpu,
        "python": sys.version.split()[0],
    }  # fmt: skip


# -- all ranks ---------------------------------------------------------------------------------------------------------


class Session:
    """The processes of one environment, one a rank. They import torch at once, and meet when the session begins."""

    def __init__(self, out: Path, size: int, device: str, env: dict[str, str], more: Any) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.versions: dict[str, Any] = {}
        meeting = out / f"meeting_{time.monotonic_ns()}"
        self.meeting, self.pipes, self.processes = meeting, [], []
        for rank in range(size):
            pipe, end = self.context.Pipe()
            arguments = (end, rank, size, device, str(meeting.resolve()), str(out), more, env)
            process = self.context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            self.pipes.append(pipe)
            self.processes.append(process)

    def begin(self) -> bool:
        """Have the ranks meet. Return whether they did."""
        if any("error" in said for said in self.heard(START_S)):
            return False
        said = self.asked("begin", START_S)
        failed = next((each["error"] for each in said if "error" in each), None)
        if failed:
            print(failed, file=sys.stderr, flush=True)
        self.versions = {key: value for key, value in said[0].items() if key not in ("ready", "error")}
        return failed is None

    def asked(self, what: str, limit_s: float) -> list[dict[str, Any]]:
        """Tell all ranks, and return what they answer within a time: an error from those that do not."""
        for pipe in self.pipes:
            with suppress(OSError):
                pipe.send(what)
        return self.heard(limit_s)

    def heard(self, limit_s: float) -> list[dict[str, Any]]:
        until = time.monotonic() + limit_s
        answers: list[dict[str, Any]] = []
        for pipe in self.pipes:
            try:
                left = until - time.monotonic()
                answers.append(pipe.recv() if pipe.poll(max(left, 0)) else {"error": "no answer"})
            except (EOFError, OSError):
                answers.append({"error": "the process ended"})
            if "error" in answers[-1]:
                until = min(until, time.monotonic() + 4)  # the others wait for it
        return answers

    def end(self, *, at_once: bool = False) -> None:
        for pipe in self.pipes:
            with suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(0 if at_once else 3)
            process.kill()
        self.meeting.unlink(missing_ok=True)


def record(out: Path, names: Sequence[str], size: int, device: str, within_s: float, at: int) -> None:
    """Record jobs, those of one environment after those of another."""
    from programs.job_programs import JOBS, SESSIONS, SETS, disturb, of_rank

    until = time.monotonic() + within_s
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    wanted, ready, ended = (context.Event() for _ in range(3))
    disturber = context.Process(target=disturb, args=(device, SETS[at], wanted, ready, ended), daemon=True)
    disturber.start()
    chosen = [job for job in JOBS if not names or job.name in names]
    waiting: Session | None = None
    for environment, env in SESSIONS.items():
        left = [job for job in chosen if job.session == environment]
        later = [job for job in chosen if job.session != environment]
        session, waiting = waiting or Session(out, size, device, env, ((wanted, ready), at)), None
        if environment == "usual" and later and len(SESSIONS) > 1:
            waiting = Session(out, size, device, SESSIONS["no_peers"], ((wanted, ready), at))
        while left and time.monotonic() < until - LEFT_S:
            if not session.versions and not session.begin():
                print(f"{environment}: the ranks did not meet", file=sys.stderr, flush=True)
                break
            job = left.pop(0)
            began = time.monotonic()
            said = session.asked(job.name, min(JOB_S[device], until - began))
            wrote = write_meta(out, job, of_rank(job, SETS[at]), said, {**session.versions, "set": at, "ranks": size})
            print(f"{job.name}: {wrote} ({time.monotonic() - began:.1f} s)", flush=True)
            if any("error" in each for each in said):
                wanted.clear()
                session.end(at_once=True)
                session = Session(out, size, device, env, ((wanted, ready), at))
        session.end()
        for job in left:
            print(f"{job.name}: no time left", flush=True)
    if waiting is not None:
        waiting.end()
    ended.set()
    wanted.set()
    disturber.join(3)
    disturber.kill()


def write_meta(out: Path, job: Any, ranks: Any, said: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """Write what was planted and measured, and return it in a line."""
    (out / job.name).mkdir(parents=True, exist_ok=True)
    errors = [each["error"] for each in said if "error" in each]
    meta: dict[str, Any] = {
        "planted": {"rules": list(job.rules), "ranks": ranks, "clean_is": job.clean_is}, **about,
        "held_out": held_out(job.name),
    }  # fmt: skip
    if errors:
        meta["error"] = next((error for error in errors if "Traceback" in error), errors[0])
    else:
        meta["times"] = {variant: [each["times"][variant] for each in said] for variant in said[0]["times"]}
    (out / job.name / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    if errors:
        return meta["error"].strip().splitlines()[-1][:300]
    steps = {variant: step_ms(times) for variant, times in meta["times"].items()}
    texts = (f"{variant} {row:.2f} in a row, {alone:.2f} alone" for variant, (row, alone) in steps.items())
    sizes = sum(sum(each["bytes"].values()) for each in said)
    return f"{'; '.join(texts)} ms; {sizes / 1000:.0f} kB"


def held_out(name: str) -> bool:
    """Return whether a job is only judged with: by a hash of its name, so that nobody chose it.

    >>> held_out("ddp_clean")
    False
    """
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def step_ms(times: Iterable[dict[str, list[float]]]) -> tuple[float, float]:
    """Return a job's step: steps in a row, the median of blocks; each alone, of the rank that takes longest."""
    times = list(times)
    row = statistics.median(max(block) for block in zip(*(each["back_to_back_ms"] for each in times), strict=True))
    alone = statistics.median(max(step) for step in zip(*(each["alone_ms"] for each in times), strict=True))
    return row, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "score"))
    parser.add_argument("out", type=Path)
    parser.add_argument("jobs", nargs="*")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--within", type=float, default=190)
    parser.add_argument("--set", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.what == "record":
        record(chosen.out, chosen.jobs, chosen.ranks, chosen.device, chosen.within, chosen.set)
    else:
        from programs.job_score import score

        score(chosen.out)


if __name__ == "__main__":
    main()
