"""Findings made ready: calls rebuilt, other forms found, kernels generated, reproductions written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tracemine.codegen.graph import Graph, Unsupported, settled
from tracemine.codegen.triton.source import generate
from tracemine.errors import UsageError
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.validate.downsize import Downsized, smaller, tried
from tracemine.verify.fixes.by_rule import Cause
from tracemine.verify.fixes.record import NoFixedForm
from tracemine.verify.fixes.reproduction import call_reproduction, fixed_calls, graph_reproduction, library_call
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.library import Replacement, find
from tracemine.verify.library.validation_job import LIBRARY_ULP, Sizes
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import kernels_of
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.repro.facts import facts, file_name
from tracemine.verify.repro.host_copy import HostCopy, copy_reproduction, host_copy
from tracemine.verify.repro.text import repro

_MOST_ON_CPU = 1 << 23  # elements of all tensors of a reproduction's graph
_MARK = re.compile(r"[0-9a-f]{16}")

# The fingerprints that a variant may go by in the trace; None: not known.
Identity = Callable[[Finding], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class CallInstead:
    """A library call that stands in place of a kernel, with a reproduction of its own."""

    rebuilt: Rebuilt
    replacement: Replacement
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCalls:
    """A finding's calls, and other ways to compute the same."""

    text: str
    traced_ns: int  # that all their kernels take
    calls: int = 1
    evidence: str = "proven"
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is made of a finding before anything runs."""

    finding: Finding
    rebuilt: Rebuilt | None = None
    copy: HostCopy | None = None  # between host and device: no kernel takes its place, but pinned memory
    made: OtherCalls | None = None  # the same call made in another way, or a fixed form of several, takes their place
    refused: str | None = None  # why there is no kernel
    text: str | None = None  # the reproduction, with the kernel
    tried: Downsized | None = None  # what the CPU validates
    assumptions: tuple[str, ...] = ()
    replacement: Replacement | None = None  # a call that says the same
    alone: CallInstead | None = None  # that call, where no kernel is generated to time it against
    around: CallInstead | None = None  # one that does the products too
    bugs: Bugs = field(default_factory=Bugs)

    @property
    def texts(self) -> list[str]:
        """Reproductions that a GPU runs."""
        return [text for text in (self.text, *(c.text for c in (self.alone, self.around) if c)) if text is not None]


def prepared(
    finding: Finding,
    rebuilder: Rebuilder,
    emitter: Emitter,
    identity: Identity | None,
    bugs: Bugs,
    causes: Sequence[Cause],
) -> Ready:
    if not _is_of(finding, rebuilder.flow):
        return Ready(finding=finding, refused="its kernels are not in this trace: the findings are another trace's")
    if identity is not None and _mark(finding) not in (identity(finding) or (_mark(finding),)):
        return Ready(finding=finding, refused="its fingerprint is another finding's: scan the trace again")
    copy = host_copy(finding, rebuilder.flow)
    if copy is not None:
        mark = _mark(finding)
        text = copy_reproduction(finding, copy, mark, facts(finding, mark))
        emitter.write(file_name(finding, mark), text)
        return Ready(finding=finding, copy=copy, text=text, bugs=bugs)
    try:
        other = _otherwise(finding, rebuilder, causes)
        if other is not None:
            emitter.write(file_name(finding, _mark(finding)), other.text)
            return Ready(finding=finding, made=other, text=other.text, assumptions=other.assumptions, bugs=bugs)
        rebuilt = rebuilder.rebuild(finding.activities[0], finding.rule)
    except NotRebuilt as reason:
        return Ready(finding=finding, refused=f"not rebuilt: {reason.message}")
    except NotRecorded as reason:
        return Ready(finding=finding, refused=f"not rebuilt: {reason}")
    except NoFixedForm as reason:
        return Ready(finding=finding, refused=f"no fixed form: {reason}")
    call = bugs.tried(lambda: find(rebuilt.graph, rebuilt.unread))
    around = bugs.tried(lambda: _around(finding, rebuilder, emitter))
    ready = Ready(
        finding=finding,
        rebuilt=rebuilt,
        replacement=None if isinstance(call, str) else call.replacement,
        around=None if isinstance(around, str) else around,
        assumptions=rebuilt.assumptions,
        bugs=bugs,
    )
    try:
        made = bugs.tried(lambda: _generated(finding, rebuilt, rebuilder.flow, ready.replacement))
    except Unsupported as reason:
        made = f"no kernel is generated: {reason.message}"
    if isinstance(made, str):
        instead = ready.replacement
        alone = None if instead is None else _call(finding, rebuilt, instead, rebuilder, emitter)
        return replace(ready, refused=made, alone=alone)
    text, validated = made
    text = emitter.fitted(text)
    emitter.write(file_name(finding, _mark(finding)), text)
    return replace(ready, text=text, tried=validated, assumptions=(*ready.assumptions, *validated.says))


def _otherwise(finding: Finding, rebuilder: Rebuilder, causes: Sequence[Cause]) -> OtherCalls | None:
    """Return other ways to compute a finding's calls; None where its fix is a kernel. Raises NotRebuilt, NotRecorded
    or NoFixedForm.
    """
    mark = _mark(finding)
    call = library_call(finding, rebuilder.recorded)
    if call is not None:
        text = call_reproduction(finding, call, mark, facts(finding, mark))
        return OtherCalls(text=text, traced_ns=call.traced_ns, assumptions=call.assumptions)
    found = fixed_calls(finding, rebuilder, causes)
    if found is None:
        return None
    rebuilt, fixed = found
    timeline = rebuilder.flow.timeline
    kernels = kernels_of(timeline, rebuilt.activities)
    return OtherCalls(
        text=graph_reproduction(finding, rebuilt, fixed, kernels, mark, facts(finding, mark)),
        traced_ns=sum(timeline.activities.column("dur_ns").take(list(rebuilt.activities)).to_pylist()),
        calls=len(rebuilt.graph.calls),
        evidence=rebuilt.evidence,
        assumptions=(*rebuilt.assumptions, *fixed.assumptions),
    )


def _generated(
    finding: Finding, rebuilt: Rebuilt, flow: Flow, replacement: Replacement | None
) -> tuple[str, Downsized]:
    """Return the reproduction, and what the CPU validates. Raises Unsupported."""
    try:
        return reproduction(finding, rebuilt, flow, replacement), tried(rebuilt.graph)
    except RecursionError:
        raise Unsupported("the graph is too deep") from None


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


def _around(finding: Finding, rebuilder: Rebuilder, emitter: Emitter) -> CallInstead | None:
    found = with_products(finding, rebuilder)
    return None if found is None else _call(finding, *found, rebuilder, emitter)


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
    finding: Finding, rebuilt: Rebuilt, replacement: Replacement, rebuilder: Rebuilder, emitter: Emitter
) -> CallInstead:
    text = reproduction(finding, rebuilt, rebuilder.flow, replacement, kernel=False)
    emitter.write(file_name(finding, _mark(finding), suffix="library"), text)
    return CallInstead(rebuilt, replacement, text)


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
        recorded=recorded_kernels(rebuilt, flow),
        assumptions=rebuilt.assumptions,
        unread=rebuilt.unread,
        replacement=replacement,
        kernel=kernel,
    )


def recorded_kernels(rebuilt: Rebuilt, flow: Flow) -> list[tuple[str, list[int] | None]]:
    """Name and grid of each kernel that a graph had in the trace."""
    return kernels_of(flow.timeline, rebuilt.activities)


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
