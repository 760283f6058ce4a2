"""Run a reproduction: check, time, and print a small table.

With a GPU: eager against what replaces it, at the recorded sizes. Without one: numerics alone, on the CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tracemine.verify.gpu.compiling import MODES
from tracemine.verify.gpu.marks import INTERFACE

NO_GPU = "this needs a GPU, and torch finds none"


@dataclass(frozen=True, kw_only=True)
class Check:
    """What reproductions have in common: options, JSON or a table, and how they end.

    trace: short name, digest of the name, and grid of each kernel that the trace has for it.
    """

    file: str
    interface: int
    fingerprint: str
    title: str
    trace: Sequence[tuple[str, str, Any]]

    def main(self) -> None:
        """Run the file as a program. It ends with 1 where something is wrong, or nothing could be checked."""
        parser = argparse.ArgumentParser(description=f"Reproduction {Path(self.file).name}.")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--source", action="store_true", help="print kernel and launcher as one stand-alone piece")
        parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
        parser.add_argument("--no-tune", action="store_true", help="leave its max-autotune out")
        parser.add_argument("--compile-seconds", type=float, default=15.0, help="most that a compilation may take")
        parser.add_argument("--seconds", type=float, default=10.0, help="no block of samples is begun after this")
        parser.add_argument("--compile-only", action="store_true", help="time nothing: fill the compilers' caches")
        asked = parser.parse_args()
        if self.interface != INTERFACE:
            raise SystemExit(
                f"this file is for interface {self.interface} of tracemine_repro.py, the one here has {INTERFACE}: "
                "they come from different versions of tracemine. Write both again: tracemine verify --emit"
            )
        if asked.source:
            sys.stdout.write(self.source())
            return
        modes = () if asked.no_compile else ("compiled",) if asked.no_tune else tuple(MODES)
        if not torch.cuda.is_available():
            found = self.without_gpu()
        elif asked.compile_only:
            sys.stdout.write(f"{json.dumps(self.compile_only(modes))}\n")
            return
        else:
            found = self.results(modes, asked.compile_seconds, asked.seconds)
        said = json.dumps(found) if asked.json else "\n".join(self.table(found))
        sys.stdout.write(f"{said}\n")
        if self.wrong(found):
            raise SystemExit(1)

    def compile_only(
        self, compiles: Sequence[str] = (), compile_s: float = 60.0, within: float = float("inf")
    ) -> dict[str, Any]:
        """Fill the compilers' caches, so that timing has nothing to wait for."""
        return {}

    def results(
        self,
        compiles: Sequence[str] = tuple(MODES),
        compile_s: float = 15.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        """Check and time everything, on this machine's GPU."""
        raise NotImplementedError

    def without_gpu(self) -> dict[str, Any]:
        """Return what can be checked on a CPU."""
        raise SystemExit(NO_GPU)

    def source(self) -> str:
        """Return the kernel and its launcher as a piece that stands alone."""
        raise SystemExit("there is no kernel here")

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines for a person."""
        raise NotImplementedError

    def wrong(self, found: Mapping[str, Any]) -> bool:
        """Return whether something is not right."""
        return any(each and each.get("faults") for each in (found.get("right"), *_others(found)))

    def own(self) -> dict[str, Any]:
        """Return what names this file in results."""
        return {"source_sha256": hashlib.sha256(Path(self.file).read_bytes()).hexdigest()}


def inputs_of(eager: Callable[..., Any], rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return a row for each input in eager's order, of rows for several equal ones, whose names are one text."""
    found = {name: (name, *rest) for names, *rest in rows for name in names.split()}
    given = inspect.signature(eager).parameters.values()
    return [found[name] for name in ([p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD] or found)]


def _others(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what is said of a library's call next to the kernel, where the file proposes one."""
    others = found.get("right_others") or {}
    return [others["library"]] if "library" in others else []


def median_us(samples: Mapping[str, Any], name: str) -> float | None:
    return statistics.median(samples[name]["sum_ns"]) / 1000 if name in samples else None


def table_rows(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table's lines: the first column to the left, numbers to the right."""
    found = list(rows)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    for first, *rest in found:
        yield "  ".join([first.ljust(widths[0]), *(t.rjust(w) for t, w in zip(rest, widths[1:], strict=True))]).rstrip()
