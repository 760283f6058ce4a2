"""Calls as a trace recorded them, and other ways to compute the same: layouts, alignment, precision, another search,
or other calls."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tracemine.verify.gpu.compiling import compiled_variants
from tracemine.verify.gpu.correctness import Described, Work, copies, make_inputs, memory_of, right, widened
from tracemine.verify.gpu.profiling import replayed
from tracemine.verify.gpu.timing import block, by_profiler

ALIGNED = 8  # elements of 16 bits: what one load of a tensor core's operand takes
# What a dtype's products are rounded to on their way in, and up to which it holds all integers. cuDNN computes
# float32 in TF32 unless set otherwise.
_ROUNDED = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-11, torch.float64: 2.0**-48}
# Before NVIDIA's Ampere (8.0) matrix units take no bfloat16.
_OLD = torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability() < (8, 0)
_HALF = torch.float16 if _OLD else torch.bfloat16
_WHOLE = {torch.float16: 2**10, torch.bfloat16: 2**7, torch.float32: 2**20, torch.float64: 2**40}
_SLACK = 4.0  # roundings of a product and of partial sums, each of at most that share of the sum of magnitudes
_SPARSEST = 1e-4  # of numbers that are not 0; below it nothing would be left to compare
_SEEDS = (0, 2)

Tensors = Sequence[torch.Tensor]


Around = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def _setting(read: Callable[[], Any], write: Callable[[Any], object], value: str) -> Iterator[None]:
    """Give a setting another value inside."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


_searched = partial(torch.backends.cudnn.flags, enabled=True, benchmark=True, deterministic=False, allow_tf32=True)
_tf32 = partial(_setting, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
_blas = torch.backends.cuda.preferred_blas_library  # without an argument it says which
_cublaslt = partial(_setting, _blas, _blas, "cublaslt")


def backend(name: str) -> Around:
    """Return a context of one kind of kernels for attention, a name of `SDPBackend`: what it does not take raises."""
    return lambda: torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, name))


def _contiguous(inputs: Tensors) -> list[torch.Tensor]:
    return [tensor.contiguous() for tensor in inputs]


def _in_float32(inputs: Tensors) -> list[torch.Tensor]:
    return [tensor.float() if tensor.dtype == torch.float64 else tensor for tensor in inputs]


def _in_half(inputs: Tensors) -> list[torch.Tensor]:
    return [tensor.to(_HALF) if tensor.dtype == torch.float32 else tensor for tensor in inputs]


def _channels_last(inputs: Tensors) -> list[torch.Tensor]:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return [t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else t for t in inputs]


def _aligned(inputs: Tensors) -> list[torch.Tensor]:
    """Fill the last two dimensions up with zeros to multiples of ALIGNED; a vector's only one."""

    def filled(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() > 1 and tensor.stride(-2) == 1 != tensor.stride(-1):  # a weight as it is multiplied: transposed
            return filled(tensor.mT).mT
        pad = [side for size in reversed(tensor.shape[-2:]) for side in (0, -size % ALIGNED)]
        return torch.nn.functional.pad(tensor, pad) if any(pad) else tensor

    return [filled(tensor) for tensor in inputs]


@dataclass(frozen=True)
class Way:
    """Another way to compute the same. What `prepare` does to its tensors is done once, before: that is what the fix
    asks of what makes them.

    call: in eager's place; None: eager itself. dtype: that it computes in, where that is another than its tensors':
    it is right by what that dtype rounds. behind: eager, and the way, each with what reads its results: they are
    compared in place of the two, where the way leaves no results.
    """

    says: str
    prepare: Callable[[Tensors], Sequence[torch.Tensor]] = list
    within: Around = contextlib.nullcontext
    call: Work | None = None
    dtype: torch.dtype | None = None
    behind: tuple[Work, Work] | None = None


WAYS: Mapping[str, Way] = {
    "channels_last": Way("tensors in channels_last memory", _channels_last),
    "cudnn.benchmark": Way("torch.backends.cudnn.benchmark = True", list, _searched),
    "channels_last, cudnn.benchmark": Way("both", _channels_last, _searched),
    "padded": Way(f"dimensions padded to multiples of {ALIGNED}", _aligned),
    "contiguous": Way("tensors that are contiguous, their last axis fastest", _contiguous),
    "cublasLt": Way('torch.backends.cuda.preferred_blas_library("cublaslt")', list, _cublaslt),
    "float32": Way("the same in float32", _in_float32, dtype=torch.float32),
    "float32, TF32": Way("the same in float32, products by TF32", _in_float32, _tf32, dtype=torch.float32),
    "half": Way(f"the same in {str(_HALF).removeprefix('torch.')}", _in_half, dtype=_HALF),
    "TF32": Way('torch.set_float32_matmul_precision("high")', list, _tf32),
}


def given_by(made: Any) -> list[torch.Tensor]:
    """Return the tensors that a call gave."""
    return [made] if isinstance(made, torch.Tensor) else [each for each in made if isinstance(each, torch.Tensor)]


def without_padding(made: Any, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Return the results without what padding added."""
    return [each[tuple(slice(0, size) for size in shape)] for each, shape in zip(given_by(made), shapes, strict=True)]


def _signs(inputs: Tensors, share: float, seed: int) -> list[torch.Tensor]:
    """Draw −1, 0 or 1, so many of them not 0: products and sums are integers then, in whatever order."""
    generator = torch.Generator(inputs[0].device).manual_seed(seed)
    found = []
    for tensor in inputs:
        drawn = torch.rand(memory_of(tensor).shape, generator=generator, device=tensor.device)
        signs = (drawn < share / 2).to(tensor.dtype) - (drawn > 1 - share / 2).to(tensor.dtype)
        found.append(signs.as_strided(tensor.shape, tensor.stride()))
    return found


def integer_results(
    eager: Work, inputs: Tensors, seed: int, dtype: torch.dtype | None = None
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return inputs whose results are integers that the dtype holds (the inputs' own), and the results in float64."""
    share = 0.5
    while True:
        drawn = _signs(inputs, share, seed)
        wide = given_by(eager(*widened(drawn)))
        if share < _SPARSEST or all(int(t.abs().max()) <= _WHOLE[dtype or inputs[0].dtype] for t in wide):
            return drawn, wide
        share /= 2


def faults_of(
    eager: Work,
    way: Callable[[Tensors], Any],
    described: Described,
    device: str = "cuda",
    dtype: torch.dtype | None = None,
) -> tuple[list[str], float]:
    """Return what is wrong with a way to make a bilinear call, and its largest error as a share of what is allowed.

    Of −1, 0 and 1 every result is an integer, and must be that one: one element left out shows. Of random numbers
    results may be off by roundings of products and sums: _SLACK × rounding × the same call on magnitudes, in float64.
    dtype: as Way's.
    """
    faults, worst = [], 0.0
    for seed in _SEEDS:
        inputs = make_inputs(described, seed, device)
        rounded = _ROUNDED[dtype or inputs[0].dtype]
        drawn, exact = integer_results(eager, inputs, seed, dtype)
        shapes = [t.shape for t in exact]
        for number, (got, wanted) in enumerate(zip(without_padding(way(copies(drawn)), shapes), exact, strict=True)):
            off = int((got.double().round() != wanted).sum())
            if off:
                faults.append(f"result {number}: {off:,} of {wanted.numel():,} integers are not the right ones")
        wide = given_by(eager(*widened(inputs)))
        allowed = given_by(eager(*(t.abs() for t in widened(inputs))))
        for number, (got, true, most) in enumerate(
            zip(without_padding(way(copies(inputs)), shapes), wide, allowed, strict=True)
        ):
            share = ((got.double() - true).abs() / (_SLACK * rounded * most.abs() + 1e-30)).max().item()
            worst = max(worst, share if share == share else float("inf"))
            if not share <= 1:
                faults.append(f"result {number}: off by {share:.3g} times what rounding allows")
    return faults, worst


def _repeatedly(eager: Work, way: Way, inputs: Tensors) -> Callable[[], object]:
    prepared, work = way.prepare(inputs), way.call or eager

    def call() -> object:
        with way.within():
            return work(*prepared)

    return call


def whole_way(eager: Work, way: Way) -> Callable[[Tensors], Any]:
    """Return a way from inputs as recorded to its results: prepared, then called."""

    def made(inputs: Tensors) -> Any:
        with way.within():
            return (way.call or eager)(*way.prepare(inputs))

    return made


def like_eager(eager: Work, way: Way) -> Work:
    """Return a way whose results have eager's shapes: another form may give the same elements in other shapes."""
    made = whole_way(eager, way)

    def call(*inputs: torch.Tensor) -> Any:
        shapes = [t.shape for t in eager(*copies(inputs)) or ()]
        given = made(inputs) or ()
        if len(given) != len(shapes):
            raise RuntimeError(f"it gives {len(given)} results where eager gives {len(shapes)}")
        return [
            t if t is None or t.numel() != shape.numel() else t.reshape(shape)
            for t, shape in zip(given, shapes, strict=True)
        ]

    return call


def ways_tried(
    eager: Work,
    ways: Mapping[str, Way],
    described: Described,
    ulp: float | None,
    device: str = "cuda",
    rounds: Work | None = None,
) -> dict[str, dict[str, Any]]:
    """Return faults and error of each way: of a bilinear call as `faults_of` says, of others by float64 (`right`).

    What a way raised is a fault of it. ulp: that functions may be off by; None: the call is bilinear. rounds: as
    `right` has it.
    """
    found: dict[str, dict[str, Any]] = {}
    runs: dict[str, Work] = {}
    for name, way in ways.items():
        try:
            if ulp is None:
                faults, error = faults_of(eager, whole_way(eager, way), described, device, way.dtype)
                found[name] = {"faults": faults, "error": error}
            elif way.behind is not None:
                behind, call = way.behind
                found[name] = right(behind, {"way": call}, described, ulp, device)["way"]
            else:
                work = like_eager(eager, way)
                work(*make_inputs(described, device=device))
                runs[name] = work
        except torch.cuda.OutOfMemoryError:  # nothing is known of it then
            raise
        except Exception as error:  # what this torch, or this GPU, cannot do is said, and the others go on
            found[name] = _raised(error)
    if runs and ulp is not None:
        found |= _held(partial(right, eager, described=described, ulp=ulp, device=device, rounds=rounds), runs)
    return {name: {"faults": found[name]["faults"], "error": found[name].get("error", 0.0)} for name in ways}


def _held(held: Work, runs: Mapping[str, Work]) -> dict[str, dict[str, Any]]:
    """Return what `right` says of ways; of each alone where one raises on inputs that come later."""
    try:
        return dict(held(variants=runs))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if len(runs) == 1:
            return dict.fromkeys(runs, _raised(error))
    return {name: each for one in runs.items() for name, each in _held(held, dict([one])).items()}


def _raised(error: Exception) -> dict[str, Any]:
    text = (str(error).splitlines() or [""])[0][:200]
    return {"faults": [f"{type(error).__name__}: {text}"], "error": None}


def examined_call(
    eager: Work,
    ways: Mapping[str, Way],
    described: Described,
    recorded: Sequence[Sequence[Any]],
    compiles: Sequence[str],
    compile_s: float,
    seconds: float,
    ulp: float | None = None,
    rounds: Work | None = None,
    within: float = float("inf"),
) -> dict[str, Any]:
    """Return everything about calls: replay, which ways are right, and what eager and the fastest right one take."""
    began = time.monotonic()
    inputs = make_inputs(described)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "replay": replayed(eager, described, recorded)}
    found["ways"] = tried = ways_tried(eager, ways, described, ulp, rounds=rounds)
    right_ones = [name for name, each in tried.items() if not each["faults"]]
    found["right"] = {"faults": [f for each in tried.values() for f in each["faults"]] if not right_ones else []}
    if not right_ones:
        return found
    calls = {"eager": _repeatedly(eager, Way("as it is"), copies(inputs))}
    calls |= {name: _repeatedly(eager, ways[name], copies(inputs)) for name in right_ones}
    order = random.Random(2)  # noqa: S311 - an order, no secret
    quick = block(calls, {"warm": lambda: None}, order, 2)["samples"]["warm"]
    for name in right_ones:
        tried[name]["first_ns"] = round(statistics.median(quick[name]["sum_ns"]))
    found["way"] = best = min(right_ones, key=lambda name: tried[name]["first_ns"])
    variants = {"eager": calls["eager"], "fused": calls[best]}
    made, failed = compiled_variants(eager, copies(inputs), compiles[:1], compile_s)
    own = copies(inputs)
    variants |= {name: partial(work, *own) for name, work in made.items()}
    half = torch.randn(max(sum(t.numel() * t.element_size() for t in inputs) // 8, 1), device="cuda")
    other = torch.empty_like(half)
    variants["copy"] = lambda: torch.neg(half, out=other)
    found["times"] = by_profiler(variants, began + seconds, failed, failed.get("compiled"), began + within)
    return found
