"""Validate generated kernels in Triton's interpreter: a process of its own that reads jobs and writes verdicts.

Run by sandbox.py as `python -m tracemine.validate.worker`, with TRITON_INTERPRET=1 in its environment.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch

from tracemine.codegen.graph import Graph, Scalar, mutated, reads
from tracemine.codegen.loop_ir import BOOL
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.lowering.product import PRODUCTS
from tracemine.processes import serve
from tracemine.validate import interpreter, numerics, rng_checks, trials
from tracemine.validate.mutants import SAME, SPARE
from tracemine.validate.record import Fault, Mutant, Validation, ValidationJob
from tracemine.validate.reference import Noise
from tracemine.validate.resize import free_axes
from tracemine.validate.runs import REFUSALS, Outcome, Runs, TrialCase, counts_far
from tracemine.validate.trials import Trial

_BROKEN = ("NameError", "SyntaxError", "AttributeError", "IndentationError", "UnboundLocalError", "TypeError")
MOST_SOUGHT, MOST_JUDGED = 900, 150  # trials by lot for a wrong kernel that passed all others; on which it differs

IN_PARTS = "\ndef _num_splits("  # in a source: rows are cut into parts
_NARROW = ("bfloat16", "float16")
_OTHER = {torch.float32: torch.bfloat16, torch.int32: torch.int64}  # a dtype that is not a tensor's; of others int32
_OF_WHOLE = frozenset({"mul", "add", "sub", "relu", "maximum", "minimum", "identity", "where", "neg", "abs"})


def validate(job: ValidationJob) -> Validation:
    """Run all trials of one graph's kernels, and of mutants of them."""
    started = time.process_time()
    graph = msgspec.msgpack.decode(job.graph, type=Graph)
    lowered = lower(graph)
    ulp = lowered.ulp
    exact = not lowered.reduces and not ulp and not lowered.drawn
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(graph, lowered, Path(folder), job.masks, IN_PARTS in job.source)
        judge = _Judge(runs, ulp, exact)
        fused, rounded = runs.load(job.source), runs.load(job.rounded)
        faults: list[Fault] = []
        for case in runs.cases():
            found = judge.faults(fused, case, first=case.trial == Trial())
            if case.trial.wired:
                found += judge.wiring(rounded, case)
                judge.equal_share = judge._share
            faults += [Fault(case.trial.says, text) for text in found]
            if len(faults) > 20:
                break
        mutants = tuple(judge.mutant(fused, *m) for m in job.mutants) if not faults else ()
        faults += judge.late
    return Validation(
        chain=graph.name,
        kernels=job.kernels,
        trials=runs.count,
        skipped=tuple(runs.skipped),
        faults=tuple(faults),
        error=judge.error,
        eager_error=judge.eager_error,
        equal_share=judge.equal_share,
        exact=exact,
        bytes_read=judge.bytes[0],
        bytes_written=judge.bytes[1],
        mutants=tuple(m for m in mutants if m is not None),
        seconds=time.process_time() - started,
    )


_Pair = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor, Callable[[], torch.Tensor]]


def _of(noise: Noise, part: str, place: int) -> torch.Tensor:
    found: torch.Tensor = getattr(noise(), part)[place]
    return found


class _Judge:
    """Judge what sources give in the trials of one graph."""

    def __init__(self, runs: Runs, ulp: float, exact: bool) -> None:
        self.runs, self.graph, self.lowered, self.ulp, self.exact = runs, runs.graph, runs.lowered, ulp, exact
        narrow = _narrowed(self.graph)
        self.narrow = {f"output {k}" for k, v in enumerate(self.graph.live) if narrow[v]}
        self.narrow |= {f"input {self.graph.inputs[v].name}" for v in self.graph.written if narrow[v]}
        multiplies = any(call.operator in PRODUCTS for call in self.graph.calls)
        self.whole = multiplies and {*self.lowered.operations} <= _OF_WHOLE  # of integers it makes integers
        self.usual: dict[str, float] = {}  # of each output: eager's error in the first trial, of the output's size
        self.error = self.eager_error = 0.0
        self.equal_share = self._share = 1.0
        self.bytes = (0, 0)
        self.spare: dict[str, set[str]] = {kind: set() for kind in SPARE}  # kernels of which any launch had such
        self.late: list[Fault] = []  # of the right kernel, where inputs were sought that give a wrong one away
        self._found: list[tuple[TrialCase, Outcome]] = []
        self._telling: list[tuple[TrialCase, Outcome]] = []
        lots = trials.drawn(free_axes(self.lowered)) if not self.lowered.drawn else ()
        self._lots = islice(lots, trials.FIRST_DRAWN, trials.FIRST_DRAWN + MOST_SOUGHT)

    def _sought(self, right: ModuleType) -> Iterator[tuple[TrialCase, Outcome]]:
        """Yield cases by lot beyond those that every graph is tried on, and what the right kernel gives there; kept.

        Those that gave another wrong kernel away come first.
        """
        yield from self._telling
        for at in count():
            while at >= len(self._found):
                trial = next(self._lots, None)
                if trial is None:
                    return
                try:
                    case = self.runs.case(trial)
                    if case is not None:
                        self._found.append((case, self.runs.run(right, case)))
                except Exception as refusal:  # what eager says to such sizes or numbers is not known yet
                    self.runs.skipped.append(f"{trial.says}: {str(refusal).splitlines()[0][:160]}")
            yield self._found[at]

    def _given_away(self, right: ModuleType, wrong: ModuleType) -> str | None:
        """Search for inputs on which a mutant that passed every trial gives other numbers; return its fault there.

        The right kernel is judged on them, too: a judge that refuses both has shown nothing.
        """
        judged = 0
        for case, ran in self._sought(right):
            if judged == MOST_JUDGED:
                break
            try:
                other = self.runs.run(wrong, case)
            except Exception:  # it is for the judge to say what that means
                other = None
            if other is not None and not _differ(ran, other):
                continue
            judged += 1
            try:
                if case.eager is None:
                    self.runs.references(case, {})
                    self.runs.count += 1
                    self.late += [Fault(case.trial.says, text) for text in self.faults(right, case)]
                found = self.faults(wrong, case)
            except REFUSALS:
                continue
            if found:
                self._telling = [(case, ran), *(each for each in self._telling if each[0] is not case)]
                return f"{case.trial.says}: {found[0]}"
        return None

    def faults(self, module: ModuleType, case: TrialCase, first: bool = False) -> list[str]:
        """Return what is wrong with a fused source in one trial."""
        try:
            ran = self.runs.run(module, case)
        except Exception as error:  # whatever a wrong kernel raises is a finding about it
            return [f"it raised {type(error).__name__}: {str(error)[:200]}"]
        self._note_shapes(ran.watch.launches)
        found = list(ran.faults)
        if case.trial.layout == trials.FAR and not counts_far(module):
            found.append("offsets of 2³¹ elements are counted in 32 bits")
        if self.lowered.drawn:
            if wrong := self.runs.drawn(case, ran):
                return [*found, *wrong]
            found += self._drops(module, case, ran)
        found += self._compared(case, ran, first)
        if case.trial == Trial() and not found:
            found += self._takes(module, case)
        if first:
            self.bytes = (ran.watch.bytes_read, ran.watch.bytes_written)
            again = self.runs.run(module, case)
            if not all(_same(a, b) for a, b in zip(ran.live, again.live, strict=True)):
                found.append("two runs differ")
        return found

    def _note_shapes(self, launches: Iterable[Mapping[str, Any]]) -> None:
        """Note which kernels had launches with what SPARE names: without it some mutants change nothing."""
        for launch in launches:
            xblock = rblock = 0
            for part in [name.removeprefix("rows") for name in launch if name.startswith("rows")]:
                # Members that share their code are cut like the first of them.
                xblock, rblock = launch.get(f"XBLOCK{part}", xblock), launch.get(f"RBLOCK{part}", rblock)
                row, columns = launch[f"rows{part}"] % xblock, launch[f"columns{part}"]
                column, steps = columns % rblock, columns > rblock
                groups = launch[f"rows{part}"] > 2 * xblock
                again = launch[f"rows{part}"] > 4 * xblock  # of two multiprocessors, two programs each
                kinds = {"row": row, "column": column, "tail": column, "steps": steps, "groups": groups, "again": again}
                for kind, has in kinds.items():
                    if has:
                        self.spare[kind].add(launch["kernel"])

    def _compared(self, case: TrialCase, ran: Outcome, first: bool) -> list[str]:
        """Hold each result against eager's and float64's. first: errors are kept, to be said and as a measure."""
        found: list[str] = []
        terms = max((t.numel() for t in case.inputs), default=1) if self.runs.reduced else 1
        with self.runs.skipping(case):
            for name, ours, eager, truth, noise in self._pairs(case, ran):
                if self.whole and case.trial.kind == trials.INTEGERS and (text := numerics.inexact(ours, truth)):
                    found.append(f"{name}: {text}")
                if not first and numerics.as_near(ours, eager, truth, self.ulp):
                    continue
                usual = self.usual.get(name, 0.0)
                result = numerics.compare(ours, eager, truth, self.ulp, usual, noise(), terms)
                found += [f"{name}: {text}" for text in result.faults]
                if first and result.size > 0:
                    self.usual[name] = result.eager_error / result.size
                if first:
                    self.error = max(self.error, result.error)
                    self.eager_error = max(self.eager_error, result.eager_error)
        return found

    def wiring(self, module: ModuleType, case: TrialCase) -> list[str]:
        """Return whether the build that rounds as eager does gives what eager gives."""
        try:
            ran = self.runs.run(module, case, contracts=False)  # eager's calls are apart
        except Exception as error:  # as in faults
            return [f"the rounding build raised {type(error).__name__}: {str(error)[:200]}"]
        if self.lowered.drawn and (wrong := self.runs.drawn(case, ran)):
            return wrong
        found = list(ran.faults)
        with self.runs.skipping(case):
            for name, given, eager, truth, noise in self._pairs(case, ran):
                ours = numerics.promised(given, eager, truth)
                equal = numerics.equal(ours, eager)
                wide, cancels = None if name in self.narrow else truth, case.trial.kind in trials.APART
                may = None if self.exact or wide is None or bool(equal.all()) else noise()
                text = numerics.wiring(ours, eager, self.exact, self.ulp, wide, may, cancels)
                found += [f"rounding build, {name}: {text}"] if text else []
                if ours.numel():
                    self._share = min(self._share, float(equal.double().mean()))
        return found

    def _pairs(self, case: TrialCase, ran: Outcome) -> Iterator[_Pair]:
        """Yield for each result its name, ours, eager's, the truth, and what gives what eager may be off by."""
        eager, truth, noise = case.eager, case.truth, case.noise
        if eager is None or truth is None or noise is None:
            raise ValueError("a case that is judged has references")  # made by Runs.references
        for k, ours in enumerate(ran.live):
            yield f"output {k}", ours, eager.live[k], truth.live[k], partial(_of, noise, "live", k)
        for v in self.graph.written:
            name = self.graph.inputs[v].name
            yield f"input {name}", ran.inputs[v], eager.inputs[v], truth.inputs[v], partial(_of, noise, "inputs", v)

    def _takes(self, module: ModuleType, case: TrialCase) -> list[str]:
        """Return which tensors of other dtypes or ranks are not refused; they must be, also where a plan is kept."""
        found: list[str] = []
        for k, entry in enumerate(case.graph.inputs):
            whole = case.inputs[k]
            for other in (whole.to(_OTHER.get(whole.dtype, torch.int32)), whole.unsqueeze(0)):
                inputs = [*case.inputs[:k], other, *case.inputs[k + 1 :]]
                says = f"{entry.name} is taken as {other.dtype} {tuple(other.shape)}"
                try:
                    self.runs.run(module, replace(case, inputs=inputs))
                except ValueError:
                    continue
                except Exception as error:  # it ran until something else gave way
                    found.append(f"{says}, and raises {type(error).__name__}")
                else:
                    found.append(says)
        return found

    def _drops(self, module: ModuleType, case: TrialCase, ran: Outcome) -> list[str]:
        """Return whether as many elements were kept as should be, and each by a draw of its own."""
        shares: list[float] = []
        for number, of in self.lowered.drawn:
            if of.dtype != BOOL:
                shares += [0.5, 0.5]
                continue
            p, keeps = case.graph.calls[number].given()["p"], case.graph.calls[number].operator == "aten::bernoulli_"
            value = min(max(float(case.scalars[p.name]), 0.0), 1.0) if isinstance(p, Scalar) else float(keeps)
            shares.append(value if keeps else 1 - value)
        again = self.runs.run(module, case, seed=1).masks if case.trial == Trial() else ()
        return rng_checks.faults(_coins(ran.masks), shares, _coins(again))

    def mutant(
        self, right: ModuleType, name: str, line: str, source: str, needs: str | None, twin: str | None
    ) -> Mutant | None:
        """Return what kills a mutant, or why nothing can; None where it does not even run.

        twin: the same mistake in the build that rounds as eager does, which a generator that made it would make, too.
        """
        if (why := self._why_equivalent(needs)) is not None:
            return Mutant(name, line, equivalent=why)
        for text, rounds in ((source, needs == "rounding"), *([] if twin is None else [(twin, True)])):
            try:
                module = self.runs.load(text)
            except SyntaxError:
                return None
            if (caught := self._caught(module, rounds)) is not None:
                case, fault = caught
                return None if _does_not_run(fault) else Mutant(name, line, f"{case.trial.says}: {fault}")
        sought = None if needs == "rounding" else self._given_away(right, self.runs.load(source))
        return Mutant(name, line, None if sought is None else f"sought: {sought}")

    def _why_equivalent(self, needs: str | None) -> str | None:
        """Return why a mutant changes no result; None where it may. needs: what it needs to differ."""
        kind, _, kernel = (needs or "").partition(" of ")
        if kind in self.spare and kernel not in self.spare[kind]:
            return SPARE[kind]
        if needs == "rows":
            return "the kernel has a single row"
        return needs.removeprefix(SAME) if needs is not None and needs.startswith(SAME) else None

    def _caught(self, module: ModuleType, rounds: bool) -> tuple[TrialCase, str] | None:
        """Return the first trial in which something is wrong, and what. rounds: the build that rounds as eager does."""
        for case in self.runs.cases():
            if not rounds or case.trial.wired:
                found = self.wiring(module, case) if rounds else self.faults(module, case)
                if found:
                    return case, found[0]
        return None


def _differ(ran: Outcome, other: Outcome) -> bool:
    """Return whether a kernel gives other numbers than another, or is seen to do what that one does not."""
    if len(ran.live) != len(other.live) or ran.faults != other.faults:
        return True
    pairs = zip((*ran.live, *ran.inputs), (*other.live, *other.inputs), strict=True)
    return not all(a.shape == b.shape and _same(a, b) for a, b in pairs)


def _narrowed(graph: Graph) -> list[bool]:
    """Return for each value whether half precision was met on the way to it."""
    behind = graph.memory
    found = [False] * len(behind)  # by the value whose memory it is in
    for number, call in enumerate(graph.calls):
        outputs = range(graph.first_output(number), graph.first_output(number) + len(call.outputs))
        narrow = any(o.dtype in _NARROW for o in call.outputs) or any(found[behind[v]] for v in reads(call))
        for value in (*outputs, *mutated(call)):
            found[behind[value]] |= narrow or graph.specs[value].dtype in _NARROW
    return [found[root] for root in behind]


def _coins(masks: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return what drops elements as it is; of draws coins."""
    return [coin for m in masks for coin in ((m,) if m.dtype == torch.bool else rng_checks.coins(m))]


def _does_not_run(fault: str) -> bool:
    """Return whether a fault says that there is no kernel at all, rather than a mutant."""
    return any(f"raised InterpreterError: {kind}" in fault or f"raised {kind}" in fault for kind in _BROKEN)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(numerics.equal(a, b).all())


def main() -> None:
    """Read jobs from standard input, one a line; write a validation of each to standard output."""
    warnings.simplefilter("ignore")  # numpy's, from inside the interpreter: overflow is what some trials are about
    torch.set_num_threads(1)
    interpreter.install()  # type: ignore[no-untyped-call]
    decoder = msgspec.json.Decoder(ValidationJob)
    serve(lambda line: msgspec.json.encode(validate(decoder.decode(line))))


if __name__ == "__main__":
    main()
