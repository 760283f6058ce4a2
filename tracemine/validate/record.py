"""Records of validating a graph's kernels on a CPU."""

from __future__ import annotations

import msgspec

TIME_LIMIT_S = 60.0  # of a processor, for a graph


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: in which trial, and what."""

    trial: str
    says: str


class Mutant(msgspec.Struct, frozen=True):
    """A kernel with a planted mistake. killed_by: what gave it away; equivalent: why nothing could."""

    name: str
    line: str
    killed_by: str | None = None
    equivalent: str | None = None


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one graph's kernels. `faults` is empty where they passed every trial."""

    chain: str
    kernels: tuple[str, ...]
    trials: int
    skipped: tuple[str, ...]  # trials that eager itself does not allow, with the reason
    faults: tuple[Fault, ...]
    error: float  # worst output of the first trial, root mean square against float64
    eager_error: float
    equal_share: float  # of elements that equal eager's in the build that rounds as eager does
    exact: bool  # that build must equal eager bit for bit
    bytes_read: int  # that the kernels asked for in the first trial
    bytes_written: int
    mutants: tuple[Mutant, ...]
    seconds: float  # of processor time
    refused: str | None = None  # why no kernel was generated

    @property
    def passed(self) -> bool:
        """Whether it is right in every trial, and every mutant that differs was killed."""
        return self.refused is None and not self.faults and all(m.killed_by or m.equivalent for m in self.mutants)

    @property
    def killed(self) -> tuple[int, int]:
        """Mutants that were killed, and mutants that could be."""
        able = [m for m in self.mutants if m.equivalent is None]
        return sum(m.killed_by is not None for m in able), len(able)


class ValidationJob(msgspec.Struct, frozen=True, kw_only=True):
    """A graph to validate: the record as MessagePack, for JSON has no infinities; with its sources and mutants."""

    graph: bytes
    source: str
    rounded: str
    masks: int
    kernels: tuple[str, ...]
    # Name, line, source, what it needs to differ, and the build that rounds with the same mistake.
    mutants: tuple[tuple[str, str, str, str | None, str | None], ...]
