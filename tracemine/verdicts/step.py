"""The record of replaying a step."""

from __future__ import annotations

from typing import Any

import msgspec

from tracemine.perfmodel import Range


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that are not replayed, for one reason."""

    reason: str
    calls: int
    gpu_ns: int


class InPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in the step. `occurrences`: how often a kernel of it stood there; 0: never, `says` why."""

    fingerprint: str
    title: str
    occurrences: int
    says: str


class StepGain(msgspec.Struct, frozen=True, kw_only=True):
    """What a change saved a step, and what was predicted. Null where it was not predicted or is not comparable."""

    change: str
    measured_ns: int  # of what the replay saved, what holds for the model's own step
    low_ns: int  # a paired bootstrap's 95 % interval
    high_ns: int
    replay_ns: int  # what the replay saved
    predicted_ns: Range | None
    within: bool | None  # whether what was measured lies in the predicted interval
    says: str  # why it is not compared; else ""


class StepVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded step, replayed. Nanoseconds."""

    step: str
    device: str | None  # null: it was not run on a GPU
    says: str
    shorter: bool | None  # whether fused kernels made the eager step shorter beyond noise; null: not tried
    share: float  # of the step's GPU time, what is replayed
    launches: int
    replayed_launches: int
    left: tuple[Left, ...]
    findings: tuple[InPlace, ...]
    refused: dict[str, int]  # occurrences that stay as they are, by reason
    same_names: float | None  # of the replayed launches, those of the trace's own kernels
    medians_ns: dict[str, dict[str, int]]  # of each variant: the step, and until the host was free again
    recorded_ns: int | None  # the model's own step without a recorder
    gpu_ns: dict[str, int]  # of the recorded, the replayed and the fused step's kernels
    changes: tuple[StepGain, ...]
    right: dict[str, Any] | None
    not_captured: dict[str, str]
    assumptions: tuple[str, ...]
    source: str | None
