"""Does a variant compute what the unchanged step computes? Judged by how far the unchanged step differs from itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import torch

from tracemine.apply.child import RANDOM, TRAINED
from tracemine.apply.questions import Checked, of_rank

_TIMES_NOISE = 8.0  # as far as that from the unchanged step is the same
_MOST_ROUNDINGS, _SIZE_ROUNDINGS = 8.0, 4.0  # of the largest element, and of the length of all together
_LOSS_SHARE = 0.01
_TRAINED_ROUNDING = 1e-5  # roundings grow in many steps, in some elements by more than in others
_SIGN_ROUNDING = 1e-4  # of a parameter's length, where some elements go the other way
_GROWN_BYTES = 16 << 20
_MORE_MEMORY, _DEVICE_SHARE = 1.02, 0.01
_LARGEST = "largest element"
_MEASURES = (_LARGEST, "size")
_SHOWN = 2

Computed = Mapping[str, Any]


def computed_in(file: Path) -> Computed:
    """Return what a process wrote, or each rank: tensors by name, with their shapes."""
    results: dict[str, Any] = torch.load(file, weights_only=True)
    others = takewhile(Path.exists, (of_rank(file, rank) for rank in count(1)))
    for rank, other in enumerate(others, 1):
        theirs: Computed = torch.load(other, weights_only=True)
        results |= {f"{name} of rank {rank}": value for name, value in theirs.items() if name != RANDOM}
        results[RANDOM] += theirs[RANDOM]
    return results


def faults(base: Computed, mine: Computed, runs: Sequence[Computed], rounding: float = 0.0) -> list[str]:
    """Return what is wrong with what a variant computed, the first first.

    runs: of the unchanged step, that may differ from it by chance, the first, or by a rounding of what they begin with.
    rounding: relative, of the arithmetic that the variant asks for.
    """
    if base[RANDOM] != mine[RANDOM]:
        return ["draws other random numbers, so what it computes cannot be compared"]
    names = [name for name, value in base.items() if isinstance(value, tuple)]
    wrong = [f"gives no {name}" for name in names if name not in mine]
    chance = any(_by_chance(base[name], run.get(name)) for name in names for run in runs[:1])
    for name in (name for name in names if name in mine):
        parameter = name.startswith("parameter ")
        coarse = max(rounding, _SIGN_ROUNDING * (chance * parameter), _TRAINED_ROUNDING * (TRAINED in name))
        again = [run[name] for run in runs if name in run]
        # Adam's first steps go by a gradient's sign: rounded or added up otherwise, a small one changes sign.
        why = _apart(base[name], mine[name], again, coarse, whole=parameter and (chance or rounding > 0))
        wrong += [f"{name}: {why}"] if why else []
    return wrong[:_SHOWN] + ([f"and {len(wrong) - _SHOWN} others"] if len(wrong) > _SHOWN else [])


def errors(base: Computed, mine: Computed) -> dict[str, float]:
    """Return how far outputs, gradients and the rest are apart, of their length: of each kind the most."""
    found = dict[str, float]()
    for name, value in base.items():
        if isinstance(value, tuple) and value[1].is_floating_point():
            kind, size = name.split()[0].partition(".")[0], max(_sizes(value[1])[1], 1e-300)
            found[kind] = max(found.get(kind, 0.0), _sizes(value[1] - mine[name][1])[1] / size)
    return {kind: float(f"{error:.2g}") for kind, error in found.items()}


def _by_chance(base: Any, again: Any) -> bool:
    """Return whether a tensor of the unchanged step is another in another process, which does the same."""
    return again is not None and base[1].shape == again[1].shape and not base[1].equal(again[1])


def _apart(base: Any, mine: Any, runs: Sequence[Any], rounding: float, whole: bool) -> str | None:
    """Return how two sampled tensors differ, None where they may. whole: of floats the length of all alone counts."""
    (shape, wanted), (own_shape, given) = base, mine
    if tuple(shape) != tuple(own_shape):
        return f"shape {tuple(own_shape)} in place of {tuple(shape)}"
    if wanted.dtype != given.dtype:
        return f"{given.dtype} in place of {wanted.dtype}".replace("torch.", "")
    again = [run for _, run in runs if run.shape == wanted.shape]
    if wanted.is_floating_point():
        return _rounded(wanted, given, again, rounding, whole)
    wrong, same = int((wanted != given).sum()), max((int((wanted != run).sum()) for run in again), default=0)
    return f"{wrong} of {wanted.numel()} elements differ" if wrong > _TIMES_NOISE * same else None


def _rounded(wanted: Any, given: Any, again: Sequence[Any], rounding: float, whole: bool) -> str | None:
    """Return how far two tensors are apart, None where roundings may come to that."""
    if bool((wanted.isfinite() != given.isfinite()).any()):
        return "it is not finite where the unchanged step's is, or the other way"
    eps, sizes = max(torch.finfo(wanted.dtype).eps, rounding), _sizes(wanted)
    noise = [max(values) for values in zip((0.0, 0.0), *(_sizes(wanted - run) for run in again), strict=True)]
    roundings, apart = (_MOST_ROUNDINGS * eps, _SIZE_ROUNDINGS * eps), _sizes(wanted - given)
    for what, off, size, own, by in zip(_MEASURES, apart, sizes, noise, roundings, strict=True):
        if off > (allowed := _TIMES_NOISE * own + by * size) and not (whole and what is _LARGEST):
            off, may = (value / max(size, 1e-300) for value in (off, allowed))
            return f"off by {off:.1g} of its {what}, where {may:.1g} is rounding"
    return None


def _sizes(tensor: Any) -> tuple[float, float]:
    """Return the largest element's size, and the length of all."""
    wide = tensor.double().nan_to_num(0.0, 0.0, 0.0)
    return (float(wide.abs().max()) if wide.numel() else 0.0), float(wide.norm())


def course_faults(base: Checked, mine: Checked, runs: Sequence[Checked]) -> list[str]:
    """Return what is wrong with how a variant went on: its losses, and its memory."""
    wrong = []
    if len(base.losses) != len(mine.losses):
        wrong.append("gives a loss in other steps")
    elif base.losses:
        wanted, given = _last(base), _last(mine)
        noise = max((abs(_last(run) - wanted) for run in runs if run.losses), default=0.0)
        if math.isfinite(wanted) and not abs(given - wanted) <= _TIMES_NOISE * noise + _LOSS_SHARE * abs(wanted):
            wrong.append(f"the loss comes to {given:.4g} in place of {wanted:.4g}")
    if mine.grown_bytes > max(run.grown_bytes for run in (base, *runs)) + _GROWN_BYTES:
        wrong.append(f"leaks: {mine.grown_bytes >> 20} MiB more in use after {mine.curve // 2} steps")
    much = mine.peak_bytes - base.peak_bytes > _DEVICE_SHARE * base.free_bytes
    if base.device != "cpu" and much and mine.peak_bytes > _MORE_MEMORY * base.peak_bytes:
        wrong.append(f"takes {mine.peak_bytes / max(base.peak_bytes, 1):.2f} times the memory")
    return wrong


def loss_error(base: Checked, mine: Checked) -> dict[str, float]:
    """Return how far the loss lies apart after training, of its size; nothing where there is none."""
    wanted, given = (_last(checked) if checked.losses else math.nan for checked in (base, mine))
    error = abs(given - wanted) / max(abs(wanted), 1e-300)
    return {"loss": float(f"{error:.2g}")} if math.isfinite(error) else {}


def _last(checked: Checked) -> float:
    """Return the mean loss of the last quarter."""
    last = [math.nan if loss is None else loss for loss in checked.losses[-max(len(checked.losses) // 4, 1) :]]
    return sum(last) / len(last)
