"""The host behind fixes of the device: where it needs longer for a step than the device does then."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tracemine.findings.context import ScanContext
from tracemine.findings.payback import AS_GRAPH, COMPILE, GRAPH_MODE
from tracemine.findings.record import Finding
from tracemine.units import time_text

_HOLDS = frozenset({"works", "little"})


def with_graph_mode(context: ScanContext, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, those that torch.compile does with what keeps the host from holding up what is left of a step:
    a CUDA graph, where one can hold the step and the host was timed alone.
    """
    host_ns, step_ns = context.timeline.meta.host_step_ns, context.unprofiled.mid_ns
    compiling = [one for one in findings if one.reported and one.per_step and _compiles(one)]
    left_ns = step_ns - sum(one.per_step.step_saving_ns.mid for one in compiling if one.per_step is not None)
    if not compiling or not host_ns or not left_ns < host_ns < step_ns or context.environment.compiled:
        return list(findings)
    graph = context.would_graph
    if graph.kind not in _HOLDS or graph.held < 1:
        return list(findings)
    chosen = {one.fingerprint for one in compiling}
    said = f"The host needs {time_text(host_ns)} for a step, and a CUDA graph can hold it: {AS_GRAPH}."
    return [replace(one, fix=f"{one.fix}\n\n{said}") if one.fingerprint in chosen else one for one in findings]


def _compiles(finding: Finding) -> bool:
    return COMPILE in finding.fix and GRAPH_MODE not in finding.fix
