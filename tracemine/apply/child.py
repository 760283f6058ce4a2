"""One variant in a process of its own: the user's step is built, run, and timed when asked.

Questions and answers are lines of JSON (`tracemine.processes`): first a `TrialJob`, then how many steps to time,
QUEUED: what the device takes when no launch waits for the host, or LOOK: how coarsely it computes, after which it is
not to be timed.
"""

from __future__ import annotations

import hashlib
import math
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tracemine.apply.questions import CURVE, CURVE_S, LEAST_CURVE, LOOK, QUEUED, Checked, TrialJob
from tracemine.apply.step import NotAStep, Step, built, numbers_in
from tracemine.apply.variants import AFTER, BEFORE
from tracemine.processes import serve

_TF32 = 2.0**-11
_HALF = (torch.float16, torch.bfloat16)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv")


class _Seen(TorchDispatchMode):  # type: ignore[misc]  # torch may have no types here
    """Notes of each operator the coarsest rounding in it."""

    coarsest = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        out = function(*given, **(named or {}))
        first = out[0] if isinstance(out, tuple | list) and out else out
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            self.coarsest = max(self.coarsest, _rounding(str(function.__name__), first))
        return out


def _rounding(name: str, out: Any) -> float:
    if out.dtype in _HALF:
        return float(torch.finfo(out.dtype).eps)
    if out.dtype != torch.float32 or out.device.type == "cpu":
        return 0.0
    kind = name.partition(".")[0]
    products = kind in _PRODUCTS and torch.get_float32_matmul_precision() != "highest"
    by_cudnn = any(part in kind for part in ("convolution", "cudnn")) and torch.backends.cudnn.allow_tf32
    return _TF32 if products or by_cudnn else 0.0


def rounding_of(run: Callable[[], Any]) -> float:
    """Run a step once and return the coarsest rounding in it, relative: of half precision, of TF32, or 0.0."""
    seen = _Seen()
    try:
        with seen:
            run()
    except Exception:  # of what does not run so, nothing more is known
        return seen.coarsest
    return seen.coarsest


SAMPLED = 1 << 17  # elements of a tensor that are compared, evenly spread
CHECKED = 8  # batches, each shape first
TRAINED, RANDOM = "after training", "random"
WARM = 2  # steps before a block is timed on a GPU, that another process has had in between
_WAITED_S = 0.1
_QUEUED, _QUEUED_BATCHES = 2, 4  # rounds, and batches of each
_SPIN_CYCLES, _MOST_CYCLES = 4, 400_000_000  # a nanosecond of the step: twice as long at 2 GHz


class Running:
    """A step, and where among its batches it is."""

    def __init__(self, job: TrialJob) -> None:
        _seed(job.seed)
        for name in job.variants:
            if name in BEFORE:
                BEFORE[name]()
        self.step: Step = built(job.entry, job.folder)
        for name in job.variants:
            if name in AFTER:
                AFTER[name](self.step)
        self.on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        self.step_ns = self._at = 0

    def next(self) -> Any:
        """Run one step on the next batch."""
        self._at += 1
        return self.step.run(self.step.batches[self._at % len(self.step.batches)])

    def timed_ns(self, steps: int) -> int:
        """Return nanoseconds a step, of a run of steps: by the clock, from an idle device until it is idle again.

        Each run begins with the same batch: those of another shape take longer.
        """
        self._at = 0
        if self.on_gpu:
            for _ in range(WARM if steps > 2 * WARM else 1):
                self.next()
            torch.cuda.synchronize()
        started = time.perf_counter_ns()
        for _ in range(steps):
            self.next()
        if self.on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter_ns() - started) // steps

    def queued_ns(self) -> int:
        """Return nanoseconds that a step takes of the device when no launch waits for the host; 0: not known."""
        if not self.on_gpu:
            return 0
        rounds = []
        for _ in range(_QUEUED):
            self._at = 0
            rounds.append([self._queued_ns() for _ in self.step.batches[:_QUEUED_BATCHES]])
        return min(sum(took) // len(took) if all(took) else 0 for took in rounds)

    def _queued_ns(self) -> int:
        """Launch a step while the device is busy with nothing; 0 where the host waits in it, or took longer."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(min(_SPIN_CYCLES * self.step_ns, _MOST_CYCLES))
        begin.record()
        self.next()
        late = begin.query()
        end.record()
        torch.cuda.synchronize()
        return 0 if late else int(begin.elapsed_time(end) * 1e6)

    def bytes_used(self) -> int:
        """Return how much memory is in use."""
        if self.on_gpu:
            return int(torch.cuda.memory_allocated())
        pages = Path("/proc/self/statm")  # not on every system
        return int(pages.read_text("ascii").split()[1]) * resource.getpagesize() if pages.exists() else 0

    def peak_bytes(self) -> int:
        """Return how much memory was in use at once; what CUDA graphs hold is in use though nothing says so."""
        if not self.on_gpu:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        held = [s for s in torch.cuda.memory_snapshot() if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]
        return int(torch.cuda.max_memory_allocated() + sum(s["total_size"] - s["allocated_size"] for s in held))


def checked(job: TrialJob) -> tuple[Running, Checked]:
    """Build a step and run it: write what it computes, and say what it took."""
    began = time.monotonic()
    running = Running(job)
    step, results = running.step, dict[str, Any]()
    _begin_alike(step, job)
    computed(step, results, job.seed, reduced=job.ranks > 1)
    first_s, losses, used = time.monotonic() - began, list[float | None](), [0, 0]
    step_ns = max(running.timed_ns(1), 1)  # asked of each, for each goes on from there
    curve = job.curve or max(LEAST_CURVE, min(CURVE, int(CURVE_S * 1e9) // step_ns))
    for at in range(curve):
        if at == curve // 2 and running.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        loss = _loss(step, running.next())
        losses += [] if loss is None else [loss if math.isfinite(loss) else None]
        used[at > curve // 2] = running.bytes_used()
    results |= {f"parameter {name} {TRAINED}": sampled(p) for name, p in step.named_parameters().items()}
    torch.save(results, job.out)
    peak_bytes = running.peak_bytes()
    running.step_ns = min(running.timed_ns(1) for _ in range(3))
    return running, Checked(
        device=torch.cuda.get_device_name() if running.on_gpu else "cpu",
        first_s=first_s,
        step_ns=running.step_ns,
        free_bytes=torch.cuda.mem_get_info()[0] if running.on_gpu else 0,
        peak_bytes=peak_bytes,
        grown_bytes=max(used[1] - used[0], 0),
        losses=tuple(losses),
        curve=curve,
    )


def computed(step: Step, results: dict[str, Any], seed: int, *, reduced: bool = False) -> None:
    """Run chosen batches once, and keep outputs, gradients, buffers and what parameters come to.

    Then the first of them again, when all is compiled: how many random numbers that draws. reduced: gradients are those
    of all ranks where the step leaves them: when they are accumulated they still are a rank's own.
    """
    parameters, gradients = step.named_parameters(), dict[str, Any]()

    def keep(name: str, parameter: Any) -> Any:
        def of_parameter(_: Any) -> None:
            gradients[name] = sampled(parameter.grad)

        return parameter.register_post_accumulate_grad_hook(of_parameter)

    hooks = [keep(name, p) for name, p in parameters.items() if p.requires_grad and p.is_leaf]
    for number in chosen(step):
        gradients.clear()
        _seed(seed + number)
        outputs = numbers_in(step.run(step.batches[number]), "output")
        results |= {f"{name} of batch {number}": sampled(value) for name, value in outputs}
        left = [name for name in gradients if reduced and parameters[name].grad is not None]
        gradients |= {name: sampled(parameters[name].grad) for name in left}
        results |= {f"gradient of {name}, batch {number}": value for name, value in gradients.items()}
    for hook in hooks:
        hook.remove()
    results |= {f"buffer {name}": sampled(buffer) for name, buffer in step.named_buffers().items()}
    results |= {f"parameter {name}": sampled(parameter) for name, parameter in parameters.items()}
    _seed(seed)
    step.run(step.batches[0])
    results[RANDOM] = _random_state()


def chosen(step: Step) -> list[int]:
    """Return which batches are looked at, in order: each shape's first, then others."""
    shapes = [str([getattr(t, "shape", t) for _, t in numbers_in(batch, "")]) for batch in step.batches]
    return sorted(sorted(range(len(shapes)), key=lambda k: shapes[k] in shapes[:k])[:CHECKED])


def sampled(value: Any) -> Any:
    """Return a tensor's shape, and its elements on the host: at most SAMPLED, and no more than twice that.

    They are an odd number apart, so that they lie in all columns.
    """
    tensor = torch.as_tensor(value).detach()
    flat = (tensor.to_dense() if tensor.layout != torch.strided else tensor).reshape(-1)
    return tuple(tensor.shape), flat[:: flat.numel() // SAMPLED | 1].clone().cpu()


def _begin_alike(step: Step, job: TrialJob) -> None:
    """Give parameters the values that the unchanged step began with, and move them by a rounding if asked."""
    parameters, start = step.named_parameters(), Path(job.start)
    if job.first:
        torch.save({name: p.detach().cpu().clone() for name, p in parameters.items()}, f"{start}.new")
        Path(f"{start}.new").rename(start)
    else:
        while not start.exists():  # whoever asks has a limit
            time.sleep(_WAITED_S)
        theirs = torch.load(start, weights_only=True)
        if {n: p.shape for n, p in theirs.items()} != {n: p.shape for n, p in parameters.items()}:
            raise ValueError("it has other parameters than the unchanged step")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(theirs[name])
    if job.nudge is not None:
        inputs = [value for batch in step.batches for _, value in numbers_in(batch, "")]
        for value in (*parameters.values(), *inputs):
            _nudge(value, job.nudge)


def _nudge(value: Any, least: float) -> None:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        signs = torch.randint(0, 2, value.shape, generator=torch.Generator().manual_seed(value.numel())) * 2 - 1
        with torch.no_grad():
            value.copy_(value.double() * (1 + max(torch.finfo(value.dtype).eps, least) * signs.to(value.device)))


def _loss(step: Step, given: Any) -> float | None:
    loss = step.loss(given) if step.loss else given
    return float(loss) if isinstance(loss, float) or getattr(loss, "numel", lambda: 0)() == 1 else None


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


def _random_state() -> str:
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]
    return hashlib.sha256(b"".join(state.numpy().tobytes() for state in states)).hexdigest()


def place_of(error: BaseException, folder: str) -> str:
    """Return the line of the user's that raised, "" where none did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(folder)]
    own = [f for f in frames if "site-packages" not in Path(f.filename).parts]  # an environment may lie in the folder
    return f" ({Path(own[-1].filename).relative_to(folder)}:{own[-1].lineno})" if own else ""


def _asked(running: Running, question: bytes) -> float:
    if question == QUEUED:
        return running.queued_ns()
    return rounding_of(running.next) if question == LOOK else running.timed_ns(int(question))


def main() -> None:
    """Answer until nothing more is asked."""
    running: list[Running] = []

    def answer(line: bytes) -> bytes:
        if running:
            return msgspec.json.encode(_asked(running[0], line.strip()))
        job = msgspec.json.decode(line, type=TrialJob)
        try:
            step, said = checked(job)
            running.append(step)
        except Exception as error:  # whatever the user's code or a variant raises is a result
            while "previous error" in str(error) and isinstance(error.__context__, Exception):
                error = error.__context__  # what ended the capture of a graph
            text = (str(error).strip().splitlines() or [""])[0]
            what = text if isinstance(error, NotAStep) else f"{type(error).__name__}: {text}"
            said = Checked(error=f"{what[:300]}{place_of(error, job.folder)}")
        return msgspec.json.encode(said)

    serve(answer)


if __name__ == "__main__":
    main()
