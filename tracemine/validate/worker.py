"""Proves generated kernels in Triton's interpreter: a process of its own that reads jobs and writes verdicts.

Run by pipeline.py as `python -m tracemine.validate.worker`, with TRITON_INTERPRET=1 in its environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
import triton.language as tl

from tracemine.codegen.graph import Graph, Scalar, mutated, reads
from tracemine.codegen.index_inputs import within
from tracemine.codegen.loop_ir import BOOL
from tracemine.codegen.lowering.context import Lowered
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.operators import ulp_of
from tracemine.errors import TracemineError
from tracemine.ops.infer.tensor import overlaps
from tracemine.processes import serve
from tracemine.validate import interpreter, numerics, reference, rng_checks, trials
from tracemine.validate.guarded_memory import Torch, copied, fenced
from tracemine.validate.mutants import SAME, SPARE
from tracemine.validate.record import Fault, Job, Mutant, Proof
from tracemine.validate.resize import free_axes, reduced_axes, resized
from tracemine.validate.trials import Trial

_BROKEN = ("NameError", "SyntaxError", "AttributeError", "IndentationError", "UnboundLocalError", "TypeError")

_REFUSALS = (TracemineError, RuntimeError, IndexError, ValueError)  # of eager
MOST_SOUGHT, MOST_JUDGED = 900, 150  # trials by lot for a wrong kernel that passed all others; on which it differs

IN_PARTS = "\ndef _parts("  # in a source: rows are cut into parts
_NARROW = ("bfloat16", "float16")
_OTHER = {torch.float32: torch.bfloat16, torch.int32: torch.int64}  # a dtype that is not a tensor's; of others int32


@dataclass(slots=True, kw_only=True)
class _Ran:
    """What a fused source gave, and what was seen while it ran."""

    live: tuple[torch.Tensor, ...]
    masks: tuple[torch.Tensor, ...]
    inputs: list[torch.Tensor]
    faults: list[str]
    watch: Any


@dataclass(slots=True, kw_only=True)
class _Case:
    """A trial made ready: the chain at its sizes, inputs, and what eager and float64 give."""

    trial: Trial
    chain: Graph
    inputs: list[torch.Tensor]
    scalars: dict[str, float]
    eager: reference.Run | None = None
    truth: reference.Run | None = None
    noise: reference.Run | None = None


def prove(job: Job) -> Proof:
    """All trials of one chain's kernels, and of the wrong ones beside them."""
    started = time.process_time()
    chain = msgspec.msgpack.decode(job.chain, type=Graph)
    lowered = lower(chain)
    ulp = ulp_of(lowered.templates)
    exact = not lowered.reduces and not ulp and not lowered.drawn
    with tempfile.TemporaryDirectory() as folder:
        prover = _Prover(chain, lowered, Path(folder), job.masks, ulp, exact, IN_PARTS in job.source)
        fused, rounded = prover.load(job.source), prover.load(job.rounded)
        faults: list[Fault] = []
        for case in prover.cases():
            found = prover.faults(fused, case, first=case.trial == Trial())
            if case.trial.wired:
                found += prover.wiring(rounded, case)
                prover.equal_share = prover._share
            faults += [Fault(case.trial.says, text) for text in found]
            if len(faults) > 20:
                break
        mutants = tuple(prover.mutant(fused, *m) for m in job.mutants) if not faults else ()
        faults += prover.late
    return Proof(
        chain=chain.name,
        kernels=job.kernels,
        trials=prover.count,
        skipped=tuple(prover.skipped),
        faults=tuple(faults),
        error=prover.error,
        eager_error=prover.eager_error,
        equal_share=prover.equal_share,
        exact=exact,
        bytes_read=prover.bytes[0],
        bytes_written=prover.bytes[1],
        mutants=tuple(m for m in mutants if m is not None),
        seconds=time.process_time() - started,
    )


class _Prover:
    def __init__(
        self, chain: Graph, lowered: Lowered, folder: Path, masks: int, ulp: float, exact: bool, in_parts: bool
    ) -> None:
        self.chain, self.lowered, self.folder, self.masks = chain, lowered, folder, masks
        self.ulp, self.exact, self.in_parts = ulp, exact, in_parts
        narrow = _narrowed(chain)
        self.narrow = {f"output {k}" for k, v in enumerate(chain.live) if narrow[v]}
        self.narrow |= {f"input {chain.inputs[v].name}" for v in chain.written if narrow[v]}
        self.count = 0
        self.usual: dict[str, float] = {}  # of each output: eager's error in the first trial, of the output's size
        self.reduced = reduced_axes(lowered)
        self.skipped: list[str] = []
        self.error = self.eager_error = 0.0
        self.equal_share = self._share = 1.0
        self.bytes = (0, 0)
        self.spare: dict[str, set[str]] = {kind: set() for kind in SPARE}  # kernels of which any launch had such
        self.late: list[Fault] = []  # of the right kernel, where inputs were sought that give a wrong one away
        self._cases: list[_Case] | None = None
        self._found: list[tuple[_Case, _Ran]] = []
        self._telling: list[tuple[_Case, _Ran]] = []
        lots = trials.drawn(free_axes(lowered)) if not lowered.drawn else ()
        self._lots = islice(lots, trials.FIRST_DRAWN, trials.FIRST_DRAWN + MOST_SOUGHT)
        self._loaded = 0

    def load(self, source: str) -> ModuleType:
        """A generated source as a module: Triton reads kernels from files."""
        self._loaded += 1
        path = self.folder / f"fused_{self._loaded}.py"
        path.write_text(source, "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def cases(self) -> list[_Case]:
        """Every trial that eager allows, ready; made once."""
        if self._cases is None:
            self._cases = list(self._ready())
        return self._cases

    def _ready(self) -> Iterator[_Case]:
        free = free_axes(self.lowered)
        last: _Case | None = None
        apart = not any(overlaps(e.spec) for e in self.chain.inputs)  # else numbers are others where they lie otherwise
        for trial in trials.trials(self.chain, free, sorted(self.reduced & free.keys()) if self.in_parts else ()):
            try:
                case = self._case(trial)
                if case is None:
                    continue
                if self.lowered.drawn:  # eager waits for the kernel's masks; with others it still says what it refuses
                    reference.run(case.chain, case.inputs, case.scalars, self._all_kept(case.chain))
                elif last is not None and apart and last.trial.numbers == trial.numbers:  # it lies otherwise, no more
                    case.eager, case.truth, case.noise = last.eager, last.truth, last.noise
                else:
                    self._references(case, {})
            except _REFUSALS as refusal:
                if trial == Trial():
                    raise
                self.skipped.append(f"{trial.says}: {str(refusal).splitlines()[0][:160]}")
                continue
            self.count += 1
            last = case
            yield case

    def _case(self, trial: Trial) -> _Case | None:
        """A trial's inputs, without references; None where there is nothing to be tried."""
        chain = within(resized(self.chain, self.lowered, trial.sizes))
        if any(trial.sizes.get(leaf) == 0 for leaf in self.reduced):
            self.skipped.append(f"{trial.says}: rows of no elements")
            return None
        if any(e.below == 0 and e.spec.elements for e in chain.inputs):
            return None  # no index fits a table without rows
        inputs, scalars = trials.tensors(chain, trial), trials.scalar_values(chain, trial)
        return _Case(trial=trial, chain=chain, inputs=inputs, scalars=scalars)

    def _sought(self, right: ModuleType) -> Iterator[tuple[_Case, _Ran]]:
        """Cases by lot beyond those that every chain is tried on, and what the right kernel gives there; kept.

        Those that gave another wrong kernel away come first.
        """
        yield from self._telling
        for at in count():
            while at >= len(self._found):
                trial = next(self._lots, None)
                if trial is None:
                    return
                try:
                    case = self._case(trial)
                    if case is not None:
                        self._found.append((case, self.run(right, case)))
                except Exception as refusal:  # what eager says to such sizes or numbers is not known yet
                    self.skipped.append(f"{trial.says}: {str(refusal).splitlines()[0][:160]}")
            yield self._found[at]

    def _given_away(self, right: ModuleType, wrong: ModuleType) -> str | None:
        """What a wrong kernel that passed every trial shows where inputs are sought on which it gives other numbers.

        The right kernel is judged on them, too: a judge that refuses both has told nothing.
        """
        judged = 0
        for case, ran in self._sought(right):
            if judged == MOST_JUDGED:
                break
            try:
                other = self.run(wrong, case)
            except Exception:  # it is for the judge to say what that means
                other = None
            if other is not None and not _differ(ran, other):
                continue
            judged += 1
            try:
                if case.eager is None:
                    self._references(case, {})
                    self.count += 1
                    self.late += [Fault(case.trial.says, text) for text in self.faults(right, case)]
                found = self.faults(wrong, case)
            except _REFUSALS:
                continue
            if found:
                self._telling = [(case, ran), *(each for each in self._telling if each[0] is not case)]
                return f"{case.trial.says}: {found[0]}"
        return None

    def _all_kept(self, chain: Graph) -> dict[int, torch.Tensor]:
        """Masks that drop nothing, and draws that are all the same."""
        kinds = {number: torch.bool if of.dtype == BOOL else torch.int32 for number, of in self.lowered.drawn}
        return {n: torch.ones(chain.specs[chain.first_output(n)].shape, dtype=kind) for n, kind in kinds.items()}

    def _references(self, case: _Case, masks: Mapping[int, torch.Tensor]) -> None:
        case.eager, case.truth, case.noise = reference.judged(case.chain, case.inputs, case.scalars, masks)

    def run(self, module: ModuleType, case: _Case, contracts: bool = True, **numbers: int) -> _Ran:
        """Run a fused source on copies of a trial's inputs. numbers: scalars beside the trial's.

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
        watched = [(f"input {e.name}", t) for e, t in zip(case.chain.inputs, inputs, strict=True)]
        watched += [("a new tensor", t) for t in stand_in.made]
        faults += [f"memory around {name} was written" for name, t in watched if not fenced(t)]
        written = self.chain.written
        for k, (tensor, original) in enumerate(zip(inputs, case.inputs, strict=True)):
            if k in written:
                continue
            if watch.touched(tensor):
                faults.append(f"input {case.chain.inputs[k].name} was written")
            if not torch.equal(trials.zones(tensor), trials.zones(original)):
                faults.append(f"input {case.chain.inputs[k].name} was changed")
        count = len(given) - self.masks
        return _Ran(live=tuple(given[:count]), masks=tuple(given[count:]), inputs=inputs, faults=faults, watch=watch)

    def faults(self, module: ModuleType, case: _Case, first: bool = False) -> list[str]:
        """What is wrong with a fused source in one trial."""
        try:
            ran = self.run(module, case)
        except Exception as error:  # whatever a wrong kernel raises is a finding about it
            return [f"it raised {type(error).__name__}: {str(error)[:200]}"]
        for launch in ran.watch.launches:
            xblock = rblock = 0
            for part in [name.removeprefix("rows") for name in launch if name.startswith("rows")]:
                # Members that share their code are cut like the first of them.
                xblock, rblock = launch.get(f"XBLOCK{part}", xblock), launch.get(f"RBLOCK{part}", rblock)
                row, columns = launch[f"rows{part}"] % xblock, launch[f"columns{part}"]
                column, steps = columns % rblock, columns > rblock
                for kind, has in {"row": row, "column": column, "tail": column, "steps": steps}.items():
                    if has:
                        self.spare[kind].add(launch["kernel"])
        found = list(ran.faults)
        if case.trial.layout == trials.FAR and not _counts_far(module):
            found.append("places of 2³¹ elements are counted in 32 bits")
        if self.lowered.drawn:
            numbers = [number for number, _ in self.lowered.drawn]
            shapes = [case.chain.specs[case.chain.first_output(number)].shape for number in numbers]
            if [tuple(mask.shape) for mask in ran.masks] != shapes:
                return [*found, f"masks of {[tuple(mask.shape) for mask in ran.masks]} where {shapes} are dropped from"]
            self._references(case, dict(zip(numbers, ran.masks, strict=True)))
            found += self._drops(module, case, ran)
        for name, ours, eager, truth, noise in self._pairs(case, ran):
            terms = max((t.numel() for t in case.inputs), default=1) if self.reduced else 1
            result = numerics.compare(ours, eager, truth, self.ulp, self.usual.get(name, 0.0), noise, terms)
            if first and result.size > 0:
                self.usual[name] = result.eager_error / result.size
            found += [f"{name}: {text}" for text in result.faults]
            if first:
                self.error = max(self.error, result.error)
                self.eager_error = max(self.eager_error, result.eager_error)
        if case.trial == Trial() and not found:
            found += self._takes(module, case)
        if first:
            self.bytes = (ran.watch.bytes_read, ran.watch.bytes_written)
            again = self.run(module, case)
            if not all(_same(a, b) for a, b in zip(ran.live, again.live, strict=True)):
                found.append("two runs differ")
        return found

    def wiring(self, module: ModuleType, case: _Case) -> list[str]:
        """Whether the build that rounds as eager does gives what eager gives."""
        try:
            ran = self.run(module, case, contracts=False)  # eager's calls are apart
        except Exception as error:  # as in faults
            return [f"the rounding build raised {type(error).__name__}: {str(error)[:200]}"]
        if self.lowered.drawn:
            numbers = [number for number, _ in self.lowered.drawn]
            self._references(case, dict(zip(numbers, ran.masks, strict=True)))
        found = list(ran.faults)
        for name, given, eager, truth, noise in self._pairs(case, ran):
            ours = numerics.promised(given, eager, truth)
            wide, cancels = None if name in self.narrow else truth, case.trial.kind in trials.APART
            text = numerics.wiring(ours, eager, self.exact, self.ulp, wide, noise, cancels)
            found += [f"rounding build, {name}: {text}"] if text else []
            if ours.numel():
                self._share = min(self._share, float(numerics.equal(ours, eager).double().mean()))
        return found

    def _pairs(self, case: _Case, ran: _Ran) -> Iterator[tuple[str, *tuple[torch.Tensor, ...]]]:
        """Name, ours, eager's, the truth, and what eager may be off by."""
        against = (case.eager, case.truth, case.noise)  # made by _references
        for k, ours in enumerate(ran.live):
            yield f"output {k}", ours, *(run.live[k] for run in against if run is not None)
        for v in self.chain.written:
            name = self.chain.inputs[v].name
            yield f"input {name}", ran.inputs[v], *(run.inputs[v] for run in against if run is not None)

    def _takes(self, module: ModuleType, case: _Case) -> list[str]:
        """Tensors of other dtypes or ranks than kernels are for must be refused, also where a plan is kept already."""
        found: list[str] = []
        for k, entry in enumerate(case.chain.inputs):
            whole = case.inputs[k]
            for other in (whole.to(_OTHER.get(whole.dtype, torch.int32)), whole.unsqueeze(0)):
                inputs = [*case.inputs[:k], other, *case.inputs[k + 1 :]]
                says = f"{entry.name} is taken as {other.dtype} {tuple(other.shape)}"
                try:
                    self.run(module, replace(case, inputs=inputs))
                except ValueError:
                    continue
                except Exception as error:  # it ran until something else gave way
                    found.append(f"{says}, and raises {type(error).__name__}")
                else:
                    found.append(says)
        return found

    def _drops(self, module: ModuleType, case: _Case, ran: _Ran) -> list[str]:
        """Whether as many elements were kept as should be, and each by a draw of its own."""
        shares: list[float] = []
        for number, of in self.lowered.drawn:
            if of.dtype != BOOL:
                shares += [0.5, 0.5]
                continue
            p, keeps = case.chain.calls[number].given()["p"], case.chain.calls[number].operator == "aten::bernoulli_"
            value = min(max(float(case.scalars[p.name]), 0.0), 1.0) if isinstance(p, Scalar) else float(keeps)
            shares.append(value if keeps else 1 - value)
        again = self.run(module, case, seed=1).masks if case.trial == Trial() else ()
        return rng_checks.faults(_coins(ran.masks), shares, _coins(again))

    def mutant(
        self, right: ModuleType, name: str, line: str, source: str, needs: str | None, twin: str | None
    ) -> Mutant | None:
        """What gives a wrong source away; None where it does not even run.

        twin: the same mistake in the build that rounds as eager does, which a generator that made it would make, too.
        """
        kind, _, kernel = (needs or "").partition(" of ")
        if kind in self.spare and kernel not in self.spare[kind]:
            return Mutant(name, line, equivalent=SPARE[kind])
        if needs == "rows":
            return Mutant(name, line, equivalent="the kernel has a single row")
        if needs is not None and needs.startswith(SAME):
            return Mutant(name, line, equivalent=needs.removeprefix(SAME))
        for text, rounds in ((source, needs == "rounding"), *([] if twin is None else [(twin, True)])):
            try:
                module = self.load(text)
            except SyntaxError:
                return None
            for case in self.cases():
                if rounds and not case.trial.wired:
                    continue
                found = self.wiring(module, case) if rounds else self.faults(module, case)
                if found:
                    return None if _does_not_run(found[0]) else Mutant(name, line, f"{case.trial.says}: {found[0]}")
        sought = None if needs == "rounding" else self._given_away(right, self.load(source))
        return Mutant(name, line, None if sought is None else f"sought: {sought}")


def _differ(ran: _Ran, other: _Ran) -> bool:
    """Whether a kernel gives other numbers than another, or is seen to do what that one does not."""
    if len(ran.live) != len(other.live) or ran.faults != other.faults:
        return True
    for a, b in zip((*ran.live, *ran.inputs), (*other.live, *other.inputs), strict=True):
        same = numerics.equal(a, b) if a.shape == b.shape else torch.zeros(())
        if not bool(same.all()):
            return True
    return False


def _narrowed(chain: Graph) -> list[bool]:
    """Of each value whether a number of 16 bits was made on the way to it."""
    behind = chain.memory
    found = [False] * len(behind)  # by the value whose memory it is in
    for number, call in enumerate(chain.calls):
        outputs = range(chain.first_output(number), chain.first_output(number) + len(call.outputs))
        narrow = any(o.dtype in _NARROW for o in call.outputs) or any(found[behind[v]] for v in reads(call))
        for value in (*outputs, *mutated(call)):
            found[behind[value]] |= narrow or chain.specs[value].dtype in _NARROW
    return [found[root] for root in behind]


def _coins(masks: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What drops elements as it is; of draws coins."""
    return [coin for m in masks for coin in ((m,) if m.dtype == torch.bool else rng_checks.coins(m))]


@contextlib.contextmanager
def _counting(module: ModuleType, far: bool) -> Iterator[None]:
    """Inside, places are counted as those of huge tensors are; plans that say otherwise are not kept."""
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


def _counts_far(module: ModuleType) -> bool:
    """Whether places are counted in 64 bits where a tensor reaches so far that 32 do not do."""
    huge = torch.empty_strided((2,), (2**31,), device="meta")
    return not hasattr(module, "_index_type") or bool(module._index_type(huge) == tl.int64)


def _does_not_run(fault: str) -> bool:
    """No kernel at all, rather than a wrong one."""
    return any(f"raised InterpreterError: {kind}" in fault or f"raised {kind}" in fault for kind in _BROKEN)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(numerics.equal(a, b).all())


def main() -> None:
    """Jobs from standard input, one a line; a proof of each to standard output."""
    warnings.simplefilter("ignore")  # numpy's, from inside the interpreter: overflow is what some trials are about
    torch.set_num_threads(1)
    interpreter.install()  # type: ignore[no-untyped-call]
    decoder = msgspec.json.Decoder(Job)
    serve(lambda line: msgspec.json.encode(prove(decoder.decode(line))))


if __name__ == "__main__":
    main()
