"""Findings made ready: calls rebuilt, other forms found, kernels generated, reproductions written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from tracemine.codegen.graph import Graph, Unsupported, settled
from tracemine.codegen.lowering.context import ADDS_UP
from tracemine.codegen.triton.source import generate
from tracemine.errors import UsageError
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.validate.downsize import Downsized, smaller, tried
from tracemine.validate.record import Validation
from tracemine.verdicts.candidate import KERNEL_VARIANT, LIBRARY, WITH_PRODUCTS, Candidate
from tracemine.verify.fixes.by_rule import Cause
from tracemine.verify.fixes.record import NoFixedForm
from tracemine.verify.fixes.reproduction import fixed_calls, library_call
from tracemine.verify.fixes.sums import FIX as SUMS
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.library import Replacement, find
from tracemine.verify.library.validation_job import LIBRARY_ULP, Sizes, job
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import PRODUCTS, NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import kernels_of
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.repro.host_copy import pinned_copy
from tracemine.verify.repro.standalone import facts, file_name
from tracemine.verify.repro.text import repro
from tracemine.verify.workers.validators import Machines

_MOST_ON_CPU = 1 << 23  # elements of all tensors of a reproduction's graph
OWN = "one kernel"  # that multiplies and does what stands behind
LET_GO = "what nothing was seen to read is not kept"
_MARK = re.compile(r"[0-9a-f]{16}")

# The fingerprints that a variant may go by in the trace; None: not known.
Identity = Callable[[Finding], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is tried of a finding, made ready before anything runs: its fix, then library calls in its place."""

    finding: Finding
    candidates: tuple[Candidate, ...]
    bugs: Bugs = field(default_factory=Bugs)

    @property
    def texts(self) -> list[str]:
        """Reproductions that a GPU runs."""
        return [text for each in self.candidates if (text := each.own_file) is not None]


def refused(finding: Finding, why: str, bugs: Bugs | None = None) -> Ready:
    """Return a finding of which nothing can be tried."""
    return Ready(finding=finding, candidates=(Candidate(refused=why),), bugs=bugs or Bugs())


def prepared(
    finding: Finding,
    rebuilder: Rebuilder,
    emitter: Emitter,
    identity: Identity | None,
    bugs: Bugs,
    causes: Sequence[Cause],
) -> Ready:
    """Return what is tried of a finding, and write its reproductions."""
    if not _is_of(finding, rebuilder.flow):
        return refused(finding, "its kernels are not in this trace: the findings are another trace's")
    if identity is not None and _mark(finding) not in (identity(finding) or (_mark(finding),)):
        return refused(finding, "its fingerprint is another finding's: scan the trace again")
    try:
        candidates = _candidates(finding, rebuilder, emitter, bugs, causes)
    except (NotRebuilt, NotRecorded) as reason:
        return refused(finding, f"not rebuilt: {reason.message if isinstance(reason, NotRebuilt) else reason}")
    except NoFixedForm as reason:
        return refused(finding, f"no fixed form: {reason}")
    for each in reversed(candidates):  # of library calls the one alone has the file's name, not that with products
        if each.own_file is not None:
            emitter.write(candidate_name(finding, each), each.own_file)
    return Ready(finding=finding, candidates=candidates, bugs=bugs)


def candidate_name(finding: Finding, candidate: Candidate) -> str:
    """Return the name of a candidate's own reproduction."""
    suffix = "library" if candidate.by in (LIBRARY, WITH_PRODUCTS) else ""
    return file_name(finding, _mark(finding), suffix=suffix)


def _candidates(
    finding: Finding, rebuilder: Rebuilder, emitter: Emitter, bugs: Bugs, causes: Sequence[Cause]
) -> tuple[Candidate, ...]:
    """Return what is tried of a finding. Raises NotRebuilt, NotRecorded or NoFixedForm where that is nothing."""
    mark = _mark(finding)
    says = facts(finding, mark)
    fix = (
        pinned_copy(finding, rebuilder.flow, mark, says)
        or library_call(finding, rebuilder.recorded, causes, mark, says)
        or fixed_calls(finding, rebuilder, causes, mark, says)
    )
    if fix is not None:
        return (fix,)
    rebuilt = let_go(rebuilder.rebuild(finding.activities[0], finding.rule))
    search = bugs.tried(lambda: find(rebuilt.graph, rebuilt.unread))
    replacement = None if isinstance(search, str) else search.replacement
    around = bugs.tried(lambda: _around(finding, rebuilder, emitter, bugs))
    kernel = _kernel(finding, rebuilt, rebuilder.flow, replacement, emitter, bugs)
    if replacement is None and kernel.refused is not None and ADDS_UP in kernel.refused:
        with contextlib.suppress(NoFixedForm):
            sums = fixed_calls(finding, rebuilder, causes, mark, says, maker=SUMS)
            return (kernel,) if sums is None else (sums,)
    calls = () if replacement is None else (_call(finding, rebuilt, replacement, rebuilder.flow, kernel),)
    return (kernel, *calls, *(() if around is None or isinstance(around, str) else (around,)))


def _kernel(
    finding: Finding, rebuilt: Rebuilt, flow: Flow, replacement: Replacement | None, emitter: Emitter, bugs: Bugs
) -> Candidate:
    """Return a generated kernel, or why there is none. replacement: the library call that is tried next to it."""
    kernel = Candidate(calls=len(rebuilt.graph.calls), evidence=rebuilt.evidence, assumptions=rebuilt.assumptions)
    try:
        made = bugs.tried(lambda: _generated(finding, rebuilt, flow, replacement))
    except Unsupported as reason:
        made = f"no kernel is generated: {reason.message}"
    if isinstance(made, str):
        return replace(kernel, refused=made)
    text, graphs = made
    check = partial(kernel_validation, graphs)
    return replace(kernel, source=emitter.fitted(text, rebuilt.graph), check=check, check_assumes=graphs.says)


def _generated(
    finding: Finding, rebuilt: Rebuilt, flow: Flow, replacement: Replacement | None
) -> tuple[str, Downsized]:
    """Return the reproduction, and what the CPU validates. Raises Unsupported."""
    try:
        return reproduction(finding, rebuilt, flow, replacement), tried(rebuilt.graph)
    except RecursionError:
        raise Unsupported("the graph is too deep") from None


def kernel_validation(graphs: Downsized, machines: Machines, mutants: bool) -> Validation | str:
    """Return the validation of a graph's kernel on a CPU, or why there is none."""
    try:
        return graphs.too_large or machines.kernels.validate(graphs.small, mutants, graphs.recorded)
    except Unsupported as reason:  # of the build that rounds, or at the sizes that are tried
        return f"no kernel is generated that could be validated: {reason.message}"


def _is_of(finding: Finding, flow: Flow) -> bool:
    """Return whether a trace has what a finding names: it may come from a file, and the trace may be another since.

    Asked are the kernels of its first occurrence and the time of all, which is in whole nanoseconds.
    """
    activities = flow.timeline.activities
    rows = [row for occurrence in finding.activities for row in occurrence]
    if not finding.activities[0] or any(not 0 <= row < activities.num_rows for row in rows):
        return False
    names = activities.column("name").take(list(finding.activities[0])).to_pylist()
    known = len(names) == len(finding.kernels) and all(
        (name or "").startswith(kernel) for name, kernel in zip(names, finding.kernels, strict=True)
    )
    return known and sum(activities.column("dur_ns").take(rows).to_pylist()) == finding.measured_ns


def _around(finding: Finding, rebuilder: Rebuilder, emitter: Emitter, bugs: Bugs) -> Candidate | None:
    """Return what does the products around a chain too: a library call, else a kernel where its class is faster."""
    found = with_products(finding, rebuilder)
    if found is not None:
        return _call(finding, *found, rebuilder.flow, by=WITH_PRODUCTS)
    rebuilt = gated(finding, rebuilder)
    if rebuilt is None:
        return None
    kernel = _kernel(finding, rebuilt, rebuilder.flow, None, emitter, bugs)
    return None if kernel.refused else replace(kernel, by=WITH_PRODUCTS, products=True, call=OWN, says=OWN)


def gated(finding: Finding, rebuilder: Rebuilder) -> Rebuilt | None:
    """Return a chain with the products that it reads, where it is of two or more: a gate; None: it is not."""
    try:
        rebuilt = rebuilder.with_products(finding.activities[0], finding.rule)
    except NotRebuilt:
        return None
    return let_go(rebuilt) if rebuilt is not None and _products(rebuilt) > 1 else None


def let_go(rebuilt: Rebuilt) -> Rebuilt:
    """Return a graph without what nothing was seen to read, where it multiplies: a kernel that keeps products, or wide
    weights, gains nothing.
    """
    graph = rebuilt.graph
    live = tuple(value for value in graph.live if value not in rebuilt.unread)
    if not live or len(live) == len(graph.live) or not _products(rebuilt):
        return rebuilt
    inputs, outputs = rebuilt.lies[: len(graph.inputs)], rebuilt.lies[len(graph.inputs) :]
    return replace(
        rebuilt,
        graph=msgspec.structs.replace(graph, live=live),
        lies=(*inputs, *(lie for value, lie in zip(graph.live, outputs, strict=True) if value in live)),
        unread=(),
        assumptions=(*rebuilt.assumptions, LET_GO),
    )


def _products(rebuilt: Rebuilt) -> int:
    return sum(call.operator in PRODUCTS for call in rebuilt.graph.calls)


def with_products(finding: Finding, rebuilder: Rebuilder) -> tuple[Rebuilt, Replacement] | None:
    """Return a finding's graph with the products around it and a library call for all of it; None: there is none."""
    try:
        rebuilt = rebuilder.with_products(finding.activities[0], finding.rule)
    except NotRebuilt:
        return None
    replacement = None if rebuilt is None else find(rebuilt.graph, rebuilt.unread).replacement
    if rebuilt is None or replacement is None or not replacement.products:
        return None
    return rebuilt, replacement


def _call(
    finding: Finding,
    rebuilt: Rebuilt,
    replacement: Replacement,
    flow: Flow,
    kernel: Candidate | None = None,
    by: str = LIBRARY,
) -> Candidate:
    """Return a library call in a graph's place: next to the kernel, or in a file of its own where there is none."""

    def check(machines: Machines, mutants: bool) -> Validation | str:
        return machines.calls.answer(job(rebuilt.graph, rebuilt.unread, mutants))

    beside = None if kernel is None else kernel.source
    return Candidate(
        by=by,
        source=beside or reproduction(finding, rebuilt, flow, replacement, kernel=False),
        variant=KERNEL_VARIANT if beside is None else LIBRARY,
        call=replacement.call,
        says=replacement.says,
        calls=len(rebuilt.graph.calls),
        eager_calls=replacement.eager_calls,
        products=replacement.products,
        evidence=rebuilt.evidence,
        traced_ns=None if beside is None else finding.measured_ns / max(finding.occurrences, 1),
        assumptions=replacement.assumptions,
        check=replacement.gpu_only or check,
    )


def reproduction(
    finding: Finding, rebuilt: Rebuilt, flow: Flow, replacement: Replacement | None, *, kernel: bool = True
) -> str:
    """Return the file that reproduces a finding, with the library call that says the same next to the kernel.

    replacement: that call; None: there is none. kernel: False leaves it out.
    Raises Unsupported where no kernel can be generated.
    """
    return graph_text(
        rebuilt.graph,
        fingerprint=_mark(finding),
        title=finding.title,
        says=facts(finding, _mark(finding)),
        recorded=kernels_of(flow.timeline, rebuilt.activities),
        assumptions=rebuilt.assumptions,
        unread=rebuilt.unread,
        replacement=replacement,
        kernel=kernel,
    )


def graph_text(
    graph: Graph,
    *,
    fingerprint: str,
    title: str,
    says: Sequence[str] = (),
    recorded: Sequence[tuple[str, Sequence[int] | None]] = (),
    assumptions: Sequence[str] = (),
    unread: Sequence[int] = (),
    replacement: Replacement | None = None,
    kernel: bool = True,
) -> str:
    """Return the file that reproduces a graph: as `repro`, with all that is made of the graph. Raises Unsupported.

    replacement: what `find` gave for the graph, whose calls stand next to the kernel or in its place.
    """
    graph = graph if replacement is None else settled(graph, replacement.at)
    said = () if replacement is None else replacement.assumptions
    source = generate(graph) if kernel else None
    return repro(
        graph,
        source,
        fingerprint=fingerprint,
        title=title,
        says=says,
        ulp=LIBRARY_ULP if source is None else source.ulp,
        recorded=recorded,
        assumptions=(*assumptions, *(f"for the library's call, {text}" for text in said)),
        draws=source is not None and source.draws,
        library=None if replacement is None else replacement.text,
        positive=() if replacement is None else replacement.positive,
        small=_on_cpu(graph, replacement, tuple(unread), kernel=kernel),
    )


def _on_cpu(graph: Graph, replacement: Replacement | None, unread: tuple[int, ...], *, kernel: bool) -> Graph | str:
    """Return the graph at sizes at which a CPU tries a reproduction's own text; or why it does not."""
    if not kernel and replacement is not None and replacement.gpu_only is not None:
        return replacement.gpu_only
    small = graph
    if kernel:
        small = smaller(graph)
    elif replacement is not None:
        sizes = Sizes(graph, unread, replacement)
        small = sizes.graph if sizes.replacement is not None and sizes.replacement.text == replacement.text else graph
    count = sum(spec.elements for spec in small.specs)
    return small if count <= _MOST_ON_CPU else f"{count:,} elements, which no argument makes fewer"


def _mark(finding: Finding) -> str:
    """Return the fingerprint, if it is one: findings may come from a file, and this names another."""
    if not _MARK.fullmatch(finding.fingerprint):
        raise UsageError(f"{finding.fingerprint[:40]!a} is no fingerprint of a finding")
    return finding.fingerprint
