"""What a reproduction does when it is run: check, time, and print a small table.

With a GPU: eager beside the kernel, a library's call and torch.compile, at the recorded sizes. Without one: numerics
alone, in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tracemine.verify.gpu.compiling import MODES, compiled_variants
from tracemine.verify.gpu.correctness import copies, make_inputs
from tracemine.verify.gpu.host_copy import examined_copy
from tracemine.verify.gpu.library_call import WAYS, Way, examined_call, ways_tried
from tracemine.verify.gpu.marks import INTERFACE, KERNEL_BEGINS, KERNEL_ENDS, name_digest
from tracemine.verify.gpu.timing import examined
from tracemine.verify.gpu.tuning import tuned

MOST_ON_CPU = 1 << 23  # elements of all inputs, of calls that a CPU tries as they were recorded
NO_GPU = "this needs a GPU, and torch finds none"
_NAMES = {"compiled": "torch.compile", "tuned": "torch.compile max-autotune", "library": "library call"}
_LONGEST_KERNEL = 60


class Check:
    """What reproductions have in common: options, JSON or a table, and how they end."""

    file: str
    interface: int

    def main(self) -> None:
        """Runs the file as a program. It ends with 1 where something is wrong, or nothing could be checked."""
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
                f"this file is for interface {self.interface} of tracemine_repro.py, the one beside has {INTERFACE}: "
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
        """What compilers make lies in their caches then, and timing has nothing to wait for."""
        return {}

    def results(
        self,
        compiles: Sequence[str] = tuple(MODES),
        compile_s: float = 15.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        """Everything, on this machine's GPU."""
        raise NotImplementedError

    def without_gpu(self) -> dict[str, Any]:
        """What can be checked on a CPU."""
        raise SystemExit(NO_GPU)

    def source(self) -> str:
        """The kernel and its launcher as a piece that stands alone."""
        raise SystemExit("there is no kernel here")

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Lines for a person."""
        raise NotImplementedError

    def wrong(self, found: Mapping[str, Any]) -> bool:
        """Whether something is not right."""
        return any(each and each.get("faults") for each in (found.get("right"), *_others(found)))

    def own(self) -> dict[str, Any]:
        """What names this file in results."""
        return {"source_sha256": hashlib.sha256(Path(self.file).read_bytes()).hexdigest()}


def _others(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of what stands beside the kernel: a library's call, where the file proposes one."""
    others = found.get("right_others") or {}
    return [others["library"]] if "library" in others else []


def inputs_of(eager: Callable[..., Any], rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A row for each input in eager's order, of rows for several that are alike, whose names are one text."""
    found = {name: (name, *rest) for names, *rest in rows for name in names.split()}
    given = inspect.signature(eager).parameters.values()
    return [found[name] for name in ([p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD] or found)]


@dataclass(frozen=True, kw_only=True)
class Reproduction(Check):
    """A chain, and what stands in its place.

    inputs: name, shape, dtype, strides and values of each (`make_inputs`). on_cpu: for inputs that are smaller there,
    several names in one text, shape, strides and values; a text says why the CPU cannot try it. sizes_on_cpu: arguments
    of `eager` that say sizes. trace: short name, digest of the name, and grid of each kernel that the trace has for it.
    """

    file: str
    interface: int
    fingerprint: str
    title: str
    eager: Callable[..., Any]
    fused: Callable[..., Any] | None = None
    library: Callable[..., Any] | None = None
    blocks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    inputs: Sequence[tuple[Any, ...]]
    on_cpu: Mapping[str, tuple[Any, ...]] | str
    sizes_on_cpu: Mapping[str, Any] = field(default_factory=dict)
    trace: Sequence[tuple[str, str, Any]]
    ulp: float
    nbytes: int
    read_bytes: int
    draws: bool = False

    def _smaller(self) -> dict[str, tuple[Any, ...]]:
        """What is smaller on a CPU, by name."""
        assert not isinstance(self.on_cpu, str)  # noqa: S101
        return {name: small for names, small in self.on_cpu.items() for name in names.split()}

    def _variants(self) -> dict[str, Callable[..., Any]]:
        if self.fused is None:
            assert self.library is not None  # noqa: S101
            return {"fused": self.library}
        return {"fused": self.fused} | ({} if self.library is None else {"library": self.library})

    def _tuned(self, within: float) -> dict[str, Any]:
        return {} if self.fused is None else tuned(self.fused, self.blocks, self.inputs, within)

    def compile_only(
        self, compiles: Sequence[str] = tuple(MODES), compile_s: float = 60.0, within: float = float("inf")
    ) -> dict[str, Any]:
        """As Check's."""
        end = time.monotonic() + within
        cuts = self._tuned(within / 2)
        for work in self._variants().values():
            work(*copies(make_inputs(self.inputs)))
        for name in compiles:
            if (left := end - time.monotonic()) > 0:
                compiled_variants(self.eager, copies(make_inputs(self.inputs)), [name], min(compile_s, left))
        torch.cuda.synchronize()
        return {"cuts": cuts}

    def results(
        self,
        compiles: Sequence[str] = tuple(MODES),
        compile_s: float = 15.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        """As Check's."""
        end = time.monotonic() + within
        cuts = self._tuned(within / 4)
        found = examined(
            self.eager,
            self._variants(),
            self.inputs,
            self.trace,
            ulp=self.ulp,
            nbytes=self.nbytes,
            read_bytes=self.read_bytes,
            draws=self.draws,
            compiles=compiles,
            compile_s=compile_s,
            seconds=seconds,
            within=end - time.monotonic(),
        )
        kernel = self.fused is not None
        return {"fingerprint": self.fingerprint, "kernel": kernel, **self.own(), "cuts": cuts, **found}

    def without_gpu(self) -> dict[str, Any]:
        """As Check's."""
        from tracemine.verify.gpu import on_cpu  # triton's interpreter is touched by nothing else

        if isinstance(self.on_cpu, str):
            raise SystemExit(f"{NO_GPU}: {self.on_cpu}")
        inputs = [
            row if (small := self._smaller().get(row[0])) is None else (row[0], small[0], row[2], *small[1:])
            for row in self.inputs
        ]

        def eager(*given: Any) -> Any:
            return self.eager(*given, **self.sizes_on_cpu)

        kernels = {} if self.fused is None else {"fused": self.fused}
        calls = {} if self.library is None else {"fused" if self.fused is None else "library": self.library}
        right = on_cpu.checked(eager, kernels, calls, inputs, self.blocks, self.ulp, self.draws)
        return {
            "fingerprint": self.fingerprint,
            "kernel": self.fused is not None,
            **self.own(),
            "on_cpu": True,
            "inputs": {row[0]: list(row[1]) for row in inputs},
            "right": right.pop("fused"),
            "right_others": right,
        }

    def source(self) -> str:
        """As Check's."""
        if self.fused is None:
            raise SystemExit("there is no kernel here, but a library's call: `library` in this file")
        text = Path(self.file).read_text("utf-8")
        piece = text.partition(KERNEL_BEGINS)[2].partition("\n")[2].partition(KERNEL_ENDS)[0].strip("\n")
        return stand_alone(piece, Path(__file__).read_text("utf-8"))

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        """As Check's."""
        yield f"{self.title} ({self.fingerprint})"
        on_cpu = found.get("on_cpu", False)
        if on_cpu:
            yield "No GPU here: numerics alone, on the CPU, in Triton's interpreter. Nothing is timed."
            smaller = [f"{name} {tuple(shape)}" for name, shape in found["inputs"].items() if name in self._smaller()]
            shown = ", ".join(smaller[:3]) + (f" and {len(smaller) - 3} more" if len(smaller) > 3 else "")
            yield f"Sizes: {f'smaller than recorded: {shown}' if smaller else 'as recorded'}."
        else:
            yield f"{found['device']}, torch {torch.__version__}"
        yield ""
        yield from _rows(self._measured(found))
        yield ""
        if self.draws:
            yield "it draws random numbers: not compared with eager's"
        for name, each in (("fused", found["right"]), *(found.get("right_others") or {}).items()):
            if each is None:
                continue
            said = each.get("not_tried")
            label = self._label(name)
            right = "not tried here: " + said if said else "right" if not each["faults"] else "WRONG"
            yield f"{label}: {right}" if not (self.draws and right == "right") else f"{label}: nothing wrong was seen"
            yield from (f"  {fault}" for fault in each["faults"][:8])
        if not on_cpu:
            yield from self._replayed(found)

    def _label(self, name: str) -> str:
        return "library call" if name == "fused" and self.fused is None else _NAMES.get(name, name)

    def _measured(self, found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        """Rows of the table: a variant, its error beside eager's, its medians."""
        rights = {"fused": found["right"], **(found.get("right_others") or {})}
        times = found.get("times") or {}
        states = list(times.get("samples") or {})
        yield ("", "error (float64)", *(f"{state} us" for state in states), *(["eager / it"] if states else []))
        known: Mapping[str, Any] = next((each for each in rights.values() if each and "eager_error" in each), {})
        timed = set().union(*(times["samples"][state] for state in states)) if states else {"eager", *rights}
        for name in ("eager", "fused", "library", "compiled", "tuned"):
            if name not in timed:
                continue
            error = known.get("eager_error") if name == "eager" else (rights.get(name) or {}).get("error")
            medians = [_median_us(times["samples"][state], name) for state in states]
            row = ["-" if us is None else f"{us:.2f}" for us in medians]
            if states:
                first = _median_us(times["samples"][states[0]], "eager")
                row.append(f"{first / medians[0]:.2f}x" if medians[0] and first else "-")
            yield (self._label(name), "-" if error is None else f"{error:.2e}", *row)

    def _replayed(self, found: Mapping[str, Any]) -> Iterator[str]:
        for state, verdict in ((found.get("times") or {}).get("judged") or {}).items():
            ratio = verdict["eager"]
            faster = verdict["faster_than_eager"], verdict["slower_than_eager"]
            says = "faster" if faster[0] else "slower" if faster[1] else "no different beyond noise"
            yield f"{state}: eager / fused {ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}): {says}"
        for name, why in ((found.get("times") or {}).get("left_out") or {}).items():
            yield f"left out: {_NAMES.get(name, name)}: {why}"
        names = {digest: short for short, digest, _ in self.trace}
        kernels = found["replay"]["kernels"]
        yield f"eager launched {'the' if found['replay']['same_names'] else 'NOT the'} trace's own kernels:"
        for name, grid in kernels[:12]:
            yield f"  {names.get(name_digest(name), name[:_LONGEST_KERNEL]):{_LONGEST_KERNEL}} {grid}"
        if len(kernels) > 12:
            yield f"  and {len(kernels) - 12} more"


@dataclass(frozen=True, kw_only=True)
class CopyCheck(Check):
    """A copy between host and device, pageable beside pinned memory. The rest as in Reproduction."""

    file: str
    interface: int
    fingerprint: str
    title: str
    nbytes: int
    to_device: bool
    trace: Sequence[tuple[str, str, Any]]

    def results(
        self,
        compiles: Sequence[str] = (),
        compile_s: float = 0.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        """As Check's."""
        found = {"fingerprint": self.fingerprint, "kernel": True, "by": "pinned memory", **self.own()}
        return found | examined_copy(self.nbytes, self.to_device, self.trace, seconds)

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        """As Check's."""
        yield f"{self.title} ({self.fingerprint})"
        yield f"{found['device']}, {self.nbytes:,} bytes {'to' if self.to_device else 'from'} the device"
        samples = found.get("times", {}).get("samples", {})
        rows = [("", *(f"{state} us" for state in samples))]
        for says, name in (("pageable", "eager"), ("pinned", "fused")):
            rows.append((says, *(f"{_median_us(samples[state], name):.2f}" for state in samples)))
        yield from ("", *_rows(rows), "")
        yield from found["right"]["faults"] or ["right: the bytes that were sent arrived"]
        yield f"the trace's own copy: {'yes' if found['replay']['same_names'] else 'no'}"


@dataclass(frozen=True, kw_only=True)
class CallCheck(Check):
    """Calls as recorded, beside other ways to compute the same: keys of WAYS, and the file's own. The rest as in
    Reproduction.

    fixed: the file's own ways, by name. ulp: that functions of the calls may be off by; None: a call that is bilinear.
    rounds: the calls' computation in another order, as the ways have it: what it rounds they may round.
    """

    file: str
    interface: int
    fingerprint: str
    title: str
    eager: Callable[..., Any]
    ways: Sequence[str] = ()
    fixed: Mapping[str, Way] = field(default_factory=dict)
    inputs: Sequence[tuple[Any, ...]]
    trace: Sequence[tuple[str, str, Any]]
    ulp: float | None = None
    rounds: Callable[..., Any] | None = None

    @property
    def _all(self) -> dict[str, Way]:
        return {name: WAYS[name] for name in self.ways} | dict(self.fixed)

    def compile_only(
        self, compiles: Sequence[str] = tuple(MODES), compile_s: float = 60.0, within: float = float("inf")
    ) -> dict[str, Any]:
        """As Check's."""
        compiled_variants(self.eager, copies(make_inputs(self.inputs)), compiles[:1], min(compile_s, within))
        torch.cuda.synchronize()
        return {}

    def results(
        self,
        compiles: Sequence[str] = (),
        compile_s: float = 15.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        """As Check's."""
        found = {"fingerprint": self.fingerprint, "kernel": True, "by": "another call", **self.own()}
        return found | examined_call(
            self.eager,
            self._all,
            self.inputs,
            self.trace,
            compiles,
            compile_s,
            min(seconds, within),
            self.ulp,
            self.rounds,
        )

    def without_gpu(self) -> dict[str, Any]:
        """As Check's: which ways are right on a CPU, at the recorded sizes."""
        count = sum(math.prod(shape) for _, shape, *_ in self.inputs)
        if count > MOST_ON_CPU:
            raise SystemExit(NO_GPU)
        tried = ways_tried(self.eager, self._all, self.inputs, self.ulp, "cpu", self.rounds)
        faults = [f for each in tried.values() for f in each["faults"]]
        right = any(not each["faults"] for each in tried.values())
        found = {"fingerprint": self.fingerprint, "on_cpu": True, "ways": tried, **self.own()}
        return found | {"right": {"faults": [] if right else faults}}

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        """As Check's."""
        yield f"{self.title} ({self.fingerprint})"
        yield f"{found.get('device', 'No GPU here: on the CPU')}, torch {torch.__version__}"
        samples = found.get("times", {}).get("samples", {})
        rows = [("", *(f"{state} us" for state in samples), *(["eager / it"] if samples else []))]
        for label, name in (("eager", "eager"), (found.get("way", ""), "fused"), ("torch.compile", "compiled")):
            medians = [us for each in samples.values() if (us := _median_us(each, name)) is not None]
            eager = _median_us(next(iter(samples.values()), {}), "eager")
            if medians and eager is not None:
                ratio = f"{eager / medians[0]:.2f}x" if medians[0] else "-"
                rows.append((label, *(f"{us:.2f}" for us in medians), ratio))
        yield from ("", *_rows(rows), "")
        for name, each in found["ways"].items():
            took = f", {each['first_ns'] / 1000:.2f} us" if "first_ns" in each else ""
            by = "of what rounding allows" if self.ulp is None else "from float64"
            says = each["faults"][0] if each["faults"] else f"right ({each['error']:.2g} {by}){took}"
            yield f"{name}: {says}" + ("" if name not in self._all else f" - {self._all[name].says}")
        if "replay" in found:
            yield f"eager launched {'the' if found['replay']['same_names'] else 'NOT the'} trace's own kernels"


def _median_us(samples: Mapping[str, Any], name: str) -> float | None:
    return statistics.median(samples[name]["sum_ns"]) / 1000 if name in samples else None


def _rows(rows: Any) -> Iterator[str]:
    """A table: the first column to the left, numbers to the right."""
    found = list(rows)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    for first, *rest in found:
        yield "  ".join([first.ljust(widths[0]), *(t.rjust(w) for t, w in zip(rest, widths[1:], strict=True))]).rstrip()


def stand_alone(piece: str, harness: str) -> str:
    """Kernels and their launcher with imports, and with the functions that the harness has for several such."""
    nodes = {node.name: node for node in ast.parse(harness).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    lines = harness.splitlines()

    def text(name: str) -> str:
        node = nodes[name]
        return "\n".join(lines[min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 : node.end_lineno])

    def called(by: str, names: Sequence[str], found: dict[str, str]) -> dict[str, str]:
        for name in names:
            if name not in found and re.search(rf"(?<!\w){name}\b", by):
                called(text(name).partition(":")[2], names, found)
                found[name] = text(name)
        return found

    kernels, mark, launcher = piece.replace("\n\n", "\n\n\n").partition("\n\n\nPLANS = {}")
    device = called(kernels, _named(harness, "DEVICE"), {})
    launching = called(launcher, _named(harness, "LAUNCHING"), {})
    imports = "import torch\nimport triton\nimport triton.language as tl"
    if any("libdevice." in each for each in (kernels, *device.values())):
        imports += "\nfrom triton.language.extra import libdevice"
    own = [launching[name] for name in _named(harness, "LAUNCHING") if name in launching]
    return "\n\n\n".join([imports, *device.values(), kernels, *own, f"{mark}{launcher}".strip("\n")]) + "\n"


def _named(harness: str, table: str) -> Sequence[str]:
    found = re.search(rf"^{table} = (.*)$", harness, re.MULTILINE)
    return ast.literal_eval(found[1]) if found else ()
