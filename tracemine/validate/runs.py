"""Trials of a graph made ready, and generated sources run on them in Triton's interpreter."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton.language as tl

from tracemine.codegen.graph import Graph
from tracemine.codegen.index_inputs import within
from tracemine.codegen.loop_ir import BOOL
from tracemine.codegen.lowering.context import Lowered
from tracemine.errors import TracemineError
from tracemine.ops.infer.tensor import overlaps
from tracemine.validate import interpreter, reference, trials
from tracemine.validate.guarded_memory import Torch, copied, fenced
from tracemine.validate.resize import free_axes, reduced_axes, resized
from tracemine.validate.trials import Trial

REFUSALS = (TracemineError, RuntimeError, IndexError, ValueError)  # of eager


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a fused source gave, and what was seen while it ran."""

    live: tuple[torch.Tensor, ...]
    masks: tuple[torch.Tensor, ...]
    inputs: list[torch.Tensor]
    faults: list[str]
    watch: Any


@dataclass(slots=True, kw_only=True)
class TrialCase:
    """A trial made ready: the graph at its sizes, inputs, and what eager and float64 give."""

    trial: Trial
    graph: Graph
    inputs: list[torch.Tensor]
    scalars: dict[str, float]
    eager: reference.ReferenceRun | None = None
    truth: reference.ReferenceRun | None = None
    noise: reference.Noise | None = None


class Runs:
    """One graph's trials, and the sources that are run on them."""

    def __init__(self, graph: Graph, lowered: Lowered, folder: Path, masks: int, in_parts: bool) -> None:
        """folder: where sources are written. masks: how many of a source's outputs are what it drew."""
        self.graph, self.lowered = graph, lowered
        self.reduced = reduced_axes(lowered)
        self.count = 0
        self.skipped: list[str] = []
        self._folder, self._masks, self._in_parts = folder, masks, in_parts
        self._cases: list[TrialCase] | None = None
        self._loaded = 0

    def load(self, source: str) -> ModuleType:
        """Import a generated source: Triton reads kernels from files."""
        self._loaded += 1
        path = self._folder / f"fused_{self._loaded}.py"
        path.write_text(source, "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def cases(self) -> list[TrialCase]:
        """Return every trial that eager allows, ready; made once."""
        if self._cases is None:
            self._cases = list(self._ready())
        return self._cases

    def _ready(self) -> Iterator[TrialCase]:
        free = free_axes(self.lowered)
        last: TrialCase | None = None
        apart = not any(overlaps(e.spec) for e in self.graph.inputs)  # else numbers are others where they lie otherwise
        for trial in trials.trials(self.graph, free, sorted(self.reduced & free.keys()) if self._in_parts else ()):
            try:
                case = self.case(trial)
                if case is None:
                    continue
                if self.lowered.drawn:  # eager waits for the kernel's masks; with others it still says what it refuses
                    reference.run(case.graph, case.inputs, case.scalars, self._all_kept(case.graph))
                elif last is not None and apart and last.trial.numbers == trial.numbers:  # it lies otherwise, no more
                    case.eager, case.truth, case.noise = last.eager, last.truth, last.noise
                else:
                    self.references(case, {})
            except REFUSALS as refusal:
                if trial == Trial():
                    raise
                self.skipped.append(_refused(trial, refusal))
                continue
            self.count += 1
            last = case
            yield case

    def case(self, trial: Trial) -> TrialCase | None:
        """Return a trial's inputs, without references; None where there is nothing to be tried."""
        graph = within(resized(self.graph, self.lowered, trial.sizes))
        if any(trial.sizes.get(leaf) == 0 for leaf in self.reduced):
            self.skipped.append(f"{trial.says}: rows of no elements")
            return None
        if any(e.below == 0 and e.spec.elements for e in graph.inputs):
            return None  # no index fits a table without rows
        inputs, scalars = trials.tensors(graph, trial), trials.scalar_values(graph, trial)
        return TrialCase(trial=trial, graph=graph, inputs=inputs, scalars=scalars)

    def _all_kept(self, graph: Graph) -> dict[int, torch.Tensor]:
        """Return masks that drop nothing, and draws that are all the same."""
        kinds = {number: torch.bool if of.dtype == BOOL else torch.int32 for number, of in self.lowered.drawn}
        return {n: torch.ones(graph.specs[graph.first_output(n)].shape, dtype=kind) for n, kind in kinds.items()}

    def references(self, case: TrialCase, masks: Mapping[int, torch.Tensor]) -> None:
        case.eager, case.truth, case.noise = reference.judged(case.graph, case.inputs, case.scalars, masks)

    @contextlib.contextmanager
    def skipping(self, case: TrialCase) -> Iterator[None]:
        """Leave a trial out where eager, with other signs of its roundings, comes to what it refuses."""
        try:
            yield
        except REFUSALS as refusal:
            if case.trial == Trial():
                raise
            says = _refused(case.trial, refusal)
            if says not in self.skipped:
                self.skipped.append(says)
                self.count -= 1

    def drawn(self, case: TrialCase, ran: Outcome) -> list[str]:
        """Make a case's references with what a source drew; return a fault where that has other shapes."""
        numbers = [number for number, _ in self.lowered.drawn]
        shapes = [case.graph.specs[case.graph.first_output(number)].shape for number in numbers]
        if [tuple(mask.shape) for mask in ran.masks] != shapes:
            return [f"masks of {[tuple(mask.shape) for mask in ran.masks]} where {shapes} are dropped from"]
        self.references(case, dict(zip(numbers, ran.masks, strict=True)))
        return []

    def run(self, module: ModuleType, case: TrialCase, contracts: bool = True, **numbers: int) -> Outcome:
        """Run a fused source on copies of a trial's inputs. numbers: scalars in addition to the trial's.

        contracts: whether products are made one with the sums that take them, as on a GPU.
        """
        stand_in = Torch()
        module.torch = stand_in  # type: ignore[attr-defined]
        inputs = [copied(t) for t in case.inputs]
        far = case.trial.layout == trials.FAR
        with interpreter.watching() as watch, _counting(module, far):
            stand_in.watch, watch.far, watch.contracts = watch, far, contracts
            for tensor in inputs:
                watch.allow(tensor)
            given = module.fused(*inputs, **case.scalars, **numbers) or ()
        faults = [f"{count} {fault}" for fault, count in watch.faults.items()]
        faults += [f"output {k} is not written everywhere" for k, t in enumerate(given) if not watch.written(t)]
        watched = [(f"input {e.name}", t) for e, t in zip(case.graph.inputs, inputs, strict=True)]
        watched += [("a new tensor", t) for t in stand_in.made]
        faults += [f"memory around {name} was written" for name, t in watched if not fenced(t)]
        written = self.graph.written
        for k, (tensor, original) in enumerate(zip(inputs, case.inputs, strict=True)):
            if k in written:
                continue
            if watch.touched(tensor):
                faults.append(f"input {case.graph.inputs[k].name} was written")
            if not torch.equal(trials.zones(tensor), trials.zones(original)):
                faults.append(f"input {case.graph.inputs[k].name} was changed")
        count = len(given) - self._masks
        return Outcome(live=tuple(given[:count]), masks=tuple(given[count:]), inputs=inputs, faults=faults, watch=watch)


def _refused(trial: Trial, refusal: Exception) -> str:
    return f"{trial.says}: {str(refusal).splitlines()[0][:160]}"


@contextlib.contextmanager
def _counting(module: ModuleType, far: bool) -> Iterator[None]:
    """Count offsets as those of huge tensors meanwhile; plans that say otherwise are not kept."""
    chosen = getattr(module, "_index_type", None)
    if not far or chosen is None:
        yield
        return
    plans = dict(module.PLANS)
    module.PLANS.clear()
    module._index_type = lambda *_: tl.int64  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module._index_type = chosen  # type: ignore[attr-defined]
        module.PLANS.clear()
        module.PLANS.update(plans)


def counts_far(module: ModuleType) -> bool:
    """Return whether places are counted in 64 bits where a tensor reaches so far that 32 do not do."""
    huge = torch.empty_strided((2,), (2**31,), device="meta")
    return not hasattr(module, "_index_type") or bool(module._index_type(huge) == tl.int64)
