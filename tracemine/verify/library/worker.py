"""Validate library calls on a CPU: a process that reads jobs and writes verdicts, as validate/worker.py does.

Run by validate/sandbox.py as `python -m tracemine.verify.library.worker`. The call itself runs, on a CPU: its kernels
there are others than on a GPU, so what is validated is that the call says what the graph says, with these arguments.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from tracemine.codegen.graph import Graph, Ref
from tracemine.errors import TracemineError
from tracemine.processes import serve
from tracemine.validate import numerics, reference, trials
from tracemine.validate.downsize import elements
from tracemine.validate.guarded_memory import copied
from tracemine.validate.record import Fault, Mutant, Validation
from tracemine.validate.sandbox import refused
from tracemine.validate.trials import Trial
from tracemine.verify.library.record import Replacement
from tracemine.verify.library.replace import find
from tracemine.verify.library.table import number
from tracemine.verify.library.validation_job import LIBRARY_ULP, MOST_ELEMENTS, CallJob, Sizes

_MOST_FAULTS = 20
_REFUSES = (TracemineError, RuntimeError, IndexError, ValueError, ArithmeticError)
_REDUCES = re.compile(r"mean|softmax|var|norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    trial: Trial
    graph: Graph
    replacement: Replacement
    inputs: list[torch.Tensor]
    numbers: dict[str, float]  # of the function
    eager: reference.ReferenceRun
    truth: reference.ReferenceRun
    noise: reference.ReferenceRun


def validate(job: CallJob) -> Validation:
    """Return all trials of a library call in place of one graph, and of mutants of it."""
    started = time.process_time()
    packed, unread, with_mutants = job
    graph = msgspec.msgpack.decode(packed, type=Graph)
    validator = _Validator(graph, unread)
    if (large := elements(validator.sizes.graph)) > MOST_ELEMENTS:
        return refused(graph, f"the graph has {large:,} elements that no size makes fewer")
    faults: list[Fault] = []
    try:
        cases = list(validator.cases())
    except _REFUSES as refusal:
        why = (str(refusal).splitlines() or [""])[0][:200]
        return refused(graph, f"eager itself refuses the graph: {why}")
    for case in cases:
        found = validator.faults(case.replacement.text, case, first=case.trial == Trial())
        faults += [Fault(case.trial.says, text) for text in found]
        if len(faults) > _MOST_FAULTS:
            break
    mutants = tuple(validator.mutant(k, cases) for k in range(len(validator.right.mutants))) if not faults else ()
    return Validation(
        chain=graph.name,
        kernels=(validator.right.call,),
        trials=len(cases),
        skipped=tuple(validator.skipped),
        faults=tuple(faults),
        error=validator.error,
        eager_error=validator.eager_error,
        equal_share=validator.equal_share,
        exact=False,
        bytes_read=0,
        bytes_written=0,
        mutants=mutants if with_mutants else (),
        seconds=time.process_time() - started,
    )


class _Validator:
    def __init__(self, graph: Graph, unread: tuple[int, ...]) -> None:
        self.unread = unread
        self.sizes = Sizes(graph, unread)
        if self.sizes.replacement is None:
            raise TracemineError("no library call fits at this size")
        self.right = self.sizes.replacement
        self.skipped: list[str] = []
        self.usual: dict[str, float] = {}
        self.error = self.eager_error = 0.0
        self.equal_share = 1.0

    def _replacement(self, graph: Graph) -> Replacement:
        found = find(graph, self.unread).replacement
        if found is None:
            raise TracemineError("no library call fits at this size")
        return found

    def cases(self) -> Iterator[_Case]:
        """Generate every trial that eager allows, ready."""
        for trial in trials.trials(self.sizes.graph, self.sizes.free):
            if why := self.right.differs.get(trial.kind):
                self.skipped.append(f"{trial.says}: {why}")
                continue
            try:
                yield self._case(trial)
            except _REFUSES as refusal:
                if trial == Trial():
                    raise
                self.skipped.append(f"{trial.says}: {(str(refusal).splitlines() or [''])[0][:160]}")

    def _case(self, trial: Trial) -> _Case:
        graph = self.sizes.at(trial.sizes)
        if any(e.below == 0 and e.spec.elements for e in graph.inputs):
            raise TracemineError("no index fits a table without rows")
        if _to_nothing(graph):
            raise TracemineError("rows of no elements")
        replacement = self._replacement(graph) if trial.sizes else self.right
        inputs = trials.tensors(graph, trial)
        if "gaps" in replacement.differs and not all(map(torch.ops.aten.is_non_overlapping_and_dense, inputs)):
            raise TracemineError(replacement.differs["gaps"])
        for place in replacement.positive:
            inputs[place].abs_()
        scalars, numbers = _numbers(graph, replacement, trial)
        eager, truth, noise = reference.judged(graph, inputs, scalars, {})
        return _Case(
            trial=trial,
            graph=graph,
            replacement=replacement,
            inputs=inputs,
            numbers=numbers,
            eager=eager,
            truth=truth,
            noise=noise(),
        )

    def faults(self, text: str, case: _Case, first: bool = False) -> list[str]:
        """Return what is wrong with a function in one trial."""
        inputs = [copied(t) for t in case.inputs]
        try:
            given = _loaded(text)(*inputs, **case.numbers)
        except Exception as error:  # whatever a call raises is a finding about it
            return [f"it raised {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"]
        graph, found = case.graph, _changed(case, inputs)
        results = [(f"output {k}", t, *_all(case, "live", k)) for k, t in enumerate(given) if t is not None]
        results += [(f"input {graph.inputs[v].name}", inputs[v], *_all(case, "inputs", v)) for v in graph.written]
        for name, ours, eager, truth, noise in results:
            if ours.dtype != eager.dtype:
                found.append(f"{name} is {ours.dtype} where eager has {eager.dtype}")
                continue
            result = numerics.compare(ours, eager, truth, LIBRARY_ULP, self.usual.get(name, 0.0), noise)
            found += [f"{name}: {text}" for text in result.faults]
            if first:
                self.usual[name] = result.eager_error / result.size if result.size > 0 else 0.0
                self.error = max(self.error, result.error)
                self.eager_error = max(self.eager_error, result.eager_error)
                self.equal_share = min(self.equal_share, result.equal_share)
        return found

    def mutant(self, number_: int, cases: list[_Case]) -> Mutant:
        """Return a mutant with the first fault that kills it."""
        mutant, _ = self.right.mutants[number_]
        for case in cases:
            mutants = case.replacement.mutants
            found = self.faults(mutants[number_][1], case) if number_ < len(mutants) else []
            if found:
                return Mutant(mutant.name, mutant.line, killed_by=f"{case.trial.says}: {found[0]}")
        return mutant


def _changed(case: _Case, inputs: Sequence[torch.Tensor]) -> list[str]:
    """Return as faults which inputs hold other values than before, of those that the graph does not write."""
    written = set(case.graph.written)
    tensors = enumerate(zip(case.graph.inputs, inputs, case.inputs, strict=True))
    return [
        f"input {entry.name} was changed"
        for k, (entry, mine, was) in tensors
        if k not in written and not torch.equal(trials.zones(mine), trials.zones(was))
    ]


def _all(case: _Case, part: str, place: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    eager, truth, noise = (getattr(run, part)[place] for run in (case.eager, case.truth, case.noise))
    return eager, truth, noise


def _numbers(graph: Graph, replacement: Replacement, trial: Trial) -> tuple[dict[str, float], dict[str, float]]:
    """Return what the graph's scalars are in a trial, and the numbers of the function, so that both say the same."""
    scalars = {**trials.scalar_values(graph, trial), **replacement.at}
    if not replacement.numbers:
        return scalars, scalars
    numbers = {name: _tried(name, value, trial.scalars) for name, value in replacement.numbers.items()}
    return {name: number(text, numbers) for name, text in replacement.comes_to.items()}, numbers


def _tried(name: str, value: float, how: str) -> float:
    """Return another value for a number of an optimizer: valid, and large enough to show in 16 bits."""
    if how == "recorded":
        return value
    if name == "step":
        return 3.0
    if name in ("beta1", "beta2", "momentum"):
        return {"changed": 0.7, "zero": 0.5, "one": 0.95}.get(how, 0.8) ** (2 if name == "beta2" else 1)
    return value * {"tiny": 1e-3, "one": 1.0}.get(how, 40.0)


def _to_nothing(graph: Graph) -> bool:
    """Return whether a reduction along the last axis finds no elements there."""
    specs = graph.specs
    sources = [call.arguments[0] for call in graph.calls if _REDUCES.search(call.operator)]
    return any(isinstance(s, Ref) and specs[s.value].shape[-1:] == (0,) for s in sources)


def _loaded(text: str) -> Any:
    """Return the function, on a CPU. Its text is made of the operator table's names and this package's own."""
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text.replace('device="cuda"', 'device="cpu"'), "library", "exec"), space)  # noqa: S102
    return space["library"]


def main() -> None:
    """Read jobs from standard input, one a line, and write a validation of each to standard output."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    decoder = msgspec.json.Decoder(CallJob)
    serve(lambda line: msgspec.json.encode(validate(decoder.decode(line))))


if __name__ == "__main__":
    main()
