"""A reproduction of a graph: eager, the kernel, a library's call and torch.compile; on a CPU, interpreted."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tracemine.verify.gpu.check import NO_GPU, Check, median_us, table_rows
from tracemine.verify.gpu.compiling import MODES, compiled_variants
from tracemine.verify.gpu.correctness import copies, make_inputs
from tracemine.verify.gpu.marks import KERNEL_BEGINS, KERNEL_ENDS, name_digest
from tracemine.verify.gpu.timing import examined
from tracemine.verify.gpu.tuning import tuned

_NAMES = {"compiled": "torch.compile", "tuned": "torch.compile max-autotune", "library": "library call"}
_LONGEST_KERNEL = 60


@dataclass(frozen=True, kw_only=True)
class Reproduction(Check):
    """A graph, and what stands in its place.

    inputs: name, shape, dtype, strides and values of each (`make_inputs`). on_cpu: for inputs that are smaller there,
    several names in one text, shape, strides and values; a text says why the CPU cannot try it. sizes_on_cpu: arguments
    of `eager` that say sizes.
    """

    eager: Callable[..., Any]
    fused: Callable[..., Any] | None = None
    library: Callable[..., Any] | None = None
    blocks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    inputs: Sequence[tuple[Any, ...]]
    on_cpu: Mapping[str, tuple[Any, ...]] | str
    sizes_on_cpu: Mapping[str, Any] = field(default_factory=dict)
    ulp: float
    nbytes: int
    read_bytes: int
    draws: bool = False

    def _smaller(self) -> dict[str, tuple[Any, ...]]:
        """Return what is smaller on a CPU, by name."""
        assert not isinstance(self.on_cpu, str)  # noqa: S101
        return {name: small for names, small in self.on_cpu.items() for name in names.split()}

    def _variants(self) -> dict[str, Callable[..., Any]]:
        if self.fused is None:
            assert self.library is not None  # noqa: S101
            return {"fused": self.library}
        return {"fused": self.fused} | ({} if self.library is None else {"library": self.library})

    def _tuned(self, within: float, **how: int) -> dict[str, Any]:
        return {} if self.fused is None else tuned(self.fused, self.blocks, self.inputs, within, **how)

    def compile_only(
        self, compiles: Sequence[str] = tuple(MODES), compile_s: float = 60.0, within: float = float("inf")
    ) -> dict[str, Any]:
        end = time.monotonic() + within
        self._tuned(within / 2, rounds=0)
        for work in self._variants().values():
            work(*copies(make_inputs(self.inputs)))
        for name in compiles:
            if (left := end - time.monotonic()) > 0:
                compiled_variants(self.eager, copies(make_inputs(self.inputs)), [name], min(compile_s, left))
        torch.cuda.synchronize()
        return {}

    def results(
        self,
        compiles: Sequence[str] = tuple(MODES),
        compile_s: float = 15.0,
        seconds: float = 10.0,
        within: float = float("inf"),
    ) -> dict[str, Any]:
        end = time.monotonic() + within
        tile_configs = self._tuned(within / 4)
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
        return {"fingerprint": self.fingerprint, "kernel": kernel, **self.own(), "tile_configs": tile_configs, **found}

    def without_gpu(self) -> dict[str, Any]:
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
        if self.fused is None:
            raise SystemExit("there is no kernel here, but a library's call: `library` in this file")
        text = Path(self.file).read_text("utf-8")
        piece = text.partition(KERNEL_BEGINS)[2].partition("\n")[2].partition(KERNEL_ENDS)[0].strip("\n")
        return stand_alone(piece, Path(__file__).read_text("utf-8"))

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        yield f"{self.title} ({self.fingerprint})"
        on_cpu = found.get("on_cpu", False)
        if on_cpu:
            yield "No GPU here: numerics alone, on the CPU, in Triton's interpreter. Nothing is timed."
            yield f"Sizes: {self._sizes_text(found['inputs'])}."
        else:
            yield f"{found['device']}, torch {torch.__version__}"
        yield ""
        yield from table_rows(self._measured(found))
        yield ""
        if self.draws:
            yield "it draws random numbers: not compared with eager's"
        for name, each in (("fused", found["right"]), *(found.get("right_others") or {}).items()):
            if each is not None:
                yield f"{self._label(name)}: {self._judged(each)}"
                yield from (f"  {fault}" for fault in each["faults"][:8])
        if not on_cpu:
            yield from self._replayed(found)

    def _sizes_text(self, inputs: Mapping[str, Sequence[int]]) -> str:
        smaller = [f"{name} {tuple(shape)}" for name, shape in inputs.items() if name in self._smaller()]
        if not smaller:
            return "as recorded"
        more = f" and {len(smaller) - 3} more" if len(smaller) > 3 else ""
        return f"smaller than recorded: {', '.join(smaller[:3])}{more}"

    def _judged(self, variant: Mapping[str, Any]) -> str:
        if variant.get("not_tried"):
            return f"not tried here: {variant['not_tried']}"
        if variant["faults"]:
            return "WRONG"
        return "nothing wrong was seen" if self.draws else "right"

    def _label(self, name: str) -> str:
        return "library call" if name == "fused" and self.fused is None else _NAMES.get(name, name)

    def _measured(self, found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        """Yield the table's rows: a variant, its error and eager's, its medians."""
        rights = {"fused": found["right"], **(found.get("right_others") or {})}
        samples = (found.get("times") or {}).get("samples") or {}
        yield ("", "error (float64)", *(f"{state} us" for state in samples), *(["eager / it"] if samples else []))
        errors = {name: each["error"] for name, each in rights.items() if each and each.get("error") is not None}
        errors |= next(
            ({"eager": each["eager_error"]} for each in rights.values() if each and "eager_error" in each), {}
        )
        timed = set().union(*samples.values()) if samples else {"eager", *rights}
        for name in ("eager", "fused", "library", "compiled", "tuned"):
            if name in timed:
                error = f"{errors[name]:.2e}" if name in errors else "-"
                yield (self._label(name), error, *_medians([*samples.values()], name))

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


def _medians(states: Sequence[Mapping[str, Any]], name: str) -> Iterator[str]:
    """Yield a variant's median in each state of the cache, and how many times as long eager takes in the first."""
    medians = [median_us(samples, name) for samples in states]
    yield from ("-" if us is None else f"{us:.2f}" for us in medians)
    if states:
        eager = median_us(states[0], "eager")
        yield f"{eager / medians[0]:.2f}x" if medians[0] and eager else "-"


def stand_alone(piece: str, harness: str) -> str:
    """Return kernels and their launcher with imports, and with the functions that the harness has for several such."""
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
