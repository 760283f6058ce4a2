"""Validate a graph's kernels on a CPU: generate them, mutants of them, and judge both in a process of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from tracemine.codegen import Graph, SourceText, Unsupported, generate
from tracemine.codegen.options import LONGEST_ROW, WHATEVER
from tracemine.errors import TracemineError
from tracemine.processes import Closing, Ended, Process, does_not_start
from tracemine.validate.downsize import tried
from tracemine.validate.record import TIME_LIMIT_S, Validation
from tracemine.validate.sandbox import WORKER, Sandbox, environment, make_job, refused

_FOREVER_S = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """What validating a graph's kernels came to: `passed` says it in a word, `validation` in full."""

    source: SourceText  # what was validated, as `generate` gives it
    validation: Validation  # trials, faults, errors and eager's, mutants
    differs: tuple[str, ...]  # how the graph that was run differs from the one given: smaller sizes, shorter lists

    @property
    def passed(self) -> bool:
        """Whether the kernels are right in every trial, and every mutant that differs from them was caught."""
        return self.validation.passed

    @property
    def mutants(self) -> tuple[int, int]:
        """Mutants that were caught, and mutants that could be."""
        return self.validation.killed


def validate(graph: Graph, *, mutants: bool = True, time_limit_s: float = TIME_LIMIT_S) -> ValidationReport:
    """Validate the kernels that `generate` makes of a graph: against eager PyTorch and float64, on a CPU.

    They run in Triton's interpreter, in a process of its own, on values, layouts and sizes that break kernels; a graph
    too large for an interpreter is run at smaller sizes of the same source. `mutants`: whether wrong kernels are tried
    too, each of which must be caught. `time_limit_s`: processor time.

    Raises Unsupported where no kernel can be generated, UsageError where torch or triton cannot be imported,
    TracemineError where the process ends without an answer.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("scaled_relu")
    >>> x = b.input("x", (64, 128), "bfloat16")
    >>> report = validate(b.done(b.call("aten::relu", b.call("aten::mul.Tensor", x, 2.0))))
    >>> report.passed, report.mutants[0] == report.mutants[1] > 0, report.validation.faults
    (True, True, ())
    """
    source = generate(graph, WHATEVER)
    small = tried(graph)
    if small.too_large is not None:
        raise TracemineError(f"{graph.name}: {small.too_large}")
    with Sandbox(time_limit_s) as sandbox:
        found = sandbox.validate(small.small, mutants, small.recorded)
    if isinstance(found, str):
        raise TracemineError(f"{graph.name}: {found}")
    return ValidationReport(source=source, validation=found, differs=small.says)


class Interpreter(Closing):
    """A process that runs kernels in Triton's interpreter, as long as it takes; use it in a `with`, for several graphs.

    `Sandbox` is one with limits.
    """

    def __init__(self) -> None:
        self._process = Process(WORKER, environment())

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def validate(self, graph: Graph, mutants: bool = True, longest_row: int = LONGEST_ROW) -> Validation:
        """Validate a graph's kernels. Raises TracemineError where the process ends without an answer.

        mutants: whether wrong kernels are tried too. longest_row: as in `generate`.
        """
        try:
            job = make_job(graph, mutants, longest_row)
        except Unsupported as refusal:
            return refused(graph, refusal.message)
        try:
            return msgspec.json.decode(self._process.ask(msgspec.json.encode(job), _FOREVER_S), type=Validation)
        except Ended as end:
            if end.unstarted:
                raise does_not_start("the process that interprets kernels", end.said) from None
            raise TracemineError(f"{graph.name}: the process that interprets kernels {end.how}") from None


def validate_graphs(graphs: Iterable[Graph], mutants: bool = True) -> Iterator[Validation]:
    """Validate the kernels of several graphs, in order."""
    with Interpreter() as process:
        for graph in graphs:
            yield process.validate(graph, mutants)
