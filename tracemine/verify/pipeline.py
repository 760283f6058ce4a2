"""From findings to verdicts: rebuild, generate, prove on the CPU; with a GPU also replay, check and time."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tracemine.codegen.graph import Graph, Unsupported, settled
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.operators import ulp_of
from tracemine.codegen.triton.source import generate
from tracemine.errors import TracemineError, UsageError
from tracemine.findings.grouping import variants_of
from tracemine.findings.record import CALL, PINNED, Finding
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.programs import program, python, run
from tracemine.validate.downsize import Tried, smaller, tried
from tracemine.validate.record import Proof
from tracemine.verdicts.outcome import CallVerdict
from tracemine.verdicts.verdict import Verdict, verdict
from tracemine.verify.fixes.record import NoFixedForm
from tracemine.verify.fixes.reproduction import (
    CALL_NOT_PROVED,
    call_reproduction,
    chain_reproduction,
    fixed_calls,
    library_call,
)
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.library import Replacement, find
from tracemine.verify.library.outcome import outcome
from tracemine.verify.library.prove import LIBRARY_ULP, Sizes, job
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import kernels_of
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.repro.facts import facts, file_name
from tracemine.verify.repro.host_copy import NOT_PROVED, HostCopy, copy_reproduction, host_copy
from tracemine.verify.repro.text import repro
from tracemine.verify.workers.ahead import Ahead
from tracemine.verify.workers.provers import Machines, Provers, at_once

GPU_LIMIT_S = 60.0  # a chain
BATCH = 24  # findings that are compiled before the first of them is timed
_MOST_ON_CPU = 1 << 23  # elements of all tensors of a reproduction's chain
_MARK = re.compile(r"[0-9a-f]{16}")

# The fingerprints that a variant may go by in the trace; None: not known.
Identity = Callable[[Finding], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What is asked for."""

    gpu: str | None = None  # name of this machine's; None: levels above L2 are not tried
    mutants: bool = False  # whether wrong kernels are tried beside the right ones
    time_limit_s: float = 60.0
    emit: Path | None = None  # where reproductions are written
    identity: Identity | None = None  # None: fingerprints are those of this very scan


def needed() -> None:
    """Raises UsageError, with the command that helps, where torch or triton are not installed."""
    missing = [name for name in ("torch", "triton") if not _installed(name)]
    if missing:
        raise UsageError(
            f"verify needs {' and '.join(missing)}, which this Python does not have",
            hint='pip install "tracemine[verify]"',
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # what stands in for it in sys.modules, or in the way of its import
        return False


def gpu_name() -> str | None:
    """The name of this machine's GPU; None where torch finds none. Torch is asked in a process of its own."""
    if program("nvidia-smi") is None and not Path("/proc/driver/nvidia").exists():
        return None
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return run(python("-c", code), 120).stdout.strip() or None
    return None


def fusable(findings: Sequence[Finding]) -> list[Finding]:
    """The variants that one kernel would mend; the others close gaps or change copies."""
    variants = [variant for finding in findings for variant in variants_of(finding)]
    return [v for v in variants if v.fused_ns is not None and v.activities and v.gpu_saving_ns.high > 0]


@dataclass(frozen=True, slots=True)
class _Call:
    """A library call that stands in place of a kernel, with a reproduction of its own."""

    rebuilt: Rebuilt
    replacement: Replacement
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Otherwise:
    """A finding's calls, beside other ways to compute the same."""

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
    made: _Otherwise | None = None  # the same call made in another way, or a fixed form of several, takes their place
    refused: str | None = None  # why there is no kernel
    text: str | None = None  # the reproduction, with the kernel
    tried: Tried | None = None  # what the CPU proves
    assumptions: tuple[str, ...] = ()
    replacement: Replacement | None = None  # a call that says the same
    alone: _Call | None = None  # that call, where no kernel is generated beside which it could be timed
    around: _Call | None = None  # one that does the products too
    bugs: Bugs = field(default_factory=Bugs)

    @property
    def texts(self) -> list[str]:
        """Reproductions that a GPU runs."""
        return [text for text in (self.text, *(c.text for c in (self.alone, self.around) if c)) if text is not None]


def verify(
    findings: Sequence[Finding],
    flow: Flow,
    groups: Groups,
    how: How,
    progress: Callable[[int, int], object] = lambda done, all_: None,
) -> Iterator[Verdict]:
    """A verdict on each finding, in order. A crash, a hang, a lack of memory or a bug of ours is one like any other.

    For a GPU many are compiled side by side, and proved meanwhile; then each is timed alone, while proofs go on.
    Without one, some are proved side by side while the next is made ready.
    """
    rebuilder = Rebuilder(flow, groups)
    with Provers(how.time_limit_s, at_once(alone=how.gpu is None)) as provers, ExitStack() as stack:
        ahead = None if how.gpu is None else stack.enter_context(Ahead(GPU_LIMIT_S))
        emitter = stack.enter_context(Emitter(how.emit))
        begun: deque[tuple[Ready, Future[dict[str, Proof | str]]]] = deque()
        done = 0
        try:
            for number, finding in enumerate(findings, 1):
                progress(done, len(findings))
                ready = _ready(finding, rebuilder, emitter, how.identity)
                begun.append((ready, _proofs(ready, provers, how)))
                if ahead is not None:
                    ahead.start(ready.texts)
                    if len(begun) < BATCH and number < len(findings):
                        continue
                    ahead.wait()
                waiting = 0 if ahead is not None or number == len(findings) else provers.count
                while len(begun) > waiting:
                    progress(done, len(findings))
                    yield _verdict(*begun.popleft(), ahead)
                    done += 1
        except (KeyboardInterrupt, OSError, TracemineError):  # what is proved by now is not thrown away
            while ahead is None and begun and begun[0][1].done():
                yield _verdict(*begun.popleft(), ahead)
            raise
        progress(done, len(findings))


def _ready(finding: Finding, rebuilder: Rebuilder, emitter: Emitter, identity: Identity | None) -> Ready:
    bugs = Bugs()
    found = bugs.tried(lambda: prepared(finding, rebuilder, emitter, identity, bugs))
    return Ready(finding=finding, refused=found, bugs=bugs) if isinstance(found, str) else found


def prepared(finding: Finding, rebuilder: Rebuilder, emitter: Emitter, identity: Identity | None, bugs: Bugs) -> Ready:
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
        other = _otherwise(finding, rebuilder)
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
    call = bugs.tried(lambda: find(rebuilt.chain, rebuilt.unread))
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
        made = bugs.tried(lambda: _generated(finding, rebuilt, rebuilder.flow, library=not isinstance(call, str)))
    except Unsupported as reason:
        made = f"no kernel is generated: {reason.message}"
    if isinstance(made, str):
        instead = ready.replacement
        alone = None if instead is None else _call(finding, rebuilt, instead, rebuilder, emitter)
        return replace(ready, refused=made, alone=alone)
    text, proved = made
    text = emitter.fitted(text)
    emitter.write(file_name(finding, _mark(finding)), text)
    return replace(ready, text=text, tried=proved, assumptions=(*ready.assumptions, *proved.says))


def _otherwise(finding: Finding, rebuilder: Rebuilder) -> _Otherwise | None:
    """Other ways to compute what a finding's calls do; None where its fix is a kernel. Raises NotRebuilt, NotRecorded
    or NoFixedForm.
    """
    mark = _mark(finding)
    call = library_call(finding, rebuilder.recorded)
    if call is not None:
        text = call_reproduction(finding, call, mark, facts(finding, mark))
        return _Otherwise(text=text, traced_ns=call.traced_ns, assumptions=call.assumptions)
    found = fixed_calls(finding, rebuilder)
    if found is None:
        return None
    rebuilt, fixed = found
    timeline = rebuilder.flow.timeline
    kernels = kernels_of(timeline, rebuilt.activities)
    return _Otherwise(
        text=chain_reproduction(finding, rebuilt, fixed, kernels, mark, facts(finding, mark)),
        traced_ns=sum(timeline.activities.column("dur_ns").take(list(rebuilt.activities)).to_pylist()),
        calls=len(rebuilt.chain.calls),
        evidence=rebuilt.evidence,
        assumptions=(*rebuilt.assumptions, *fixed.assumptions),
    )


def _generated(finding: Finding, rebuilt: Rebuilt, flow: Flow, *, library: bool) -> tuple[str, Tried]:
    """The reproduction, and what the CPU proves. Raises Unsupported."""
    try:
        return reproduction(finding, rebuilt, flow, library=library), tried(rebuilt.chain)
    except RecursionError:
        raise Unsupported("the chain is too deep") from None


def _proofs(ready: Ready, provers: Provers, how: How) -> Future[dict[str, Proof | str]]:
    """On the CPU: of the kernel, of a call in its place, and of one around it; a text says why there is none."""

    def prove(machines: Machines) -> dict[str, Proof | str]:
        found: dict[str, Proof | str] = {}
        bugs = ready.bugs
        if (chains := ready.tried) is not None:
            found["kernel"] = bugs.tried(lambda: kernel_proof(chains, machines, mutants=how.mutants))
        rebuilt, replacement = ready.rebuilt, ready.replacement
        if rebuilt is not None and replacement is not None:
            found["library"] = bugs.tried(lambda: _proved(rebuilt, replacement, machines, how))
        if (around := ready.around) is not None:
            found["around"] = bugs.tried(lambda: _proved(around.rebuilt, around.replacement, machines, how))
        return found

    return provers.start(prove)


def _verdict(ready: Ready, proofs: Future[dict[str, Proof | str]], ahead: Ahead | None) -> Verdict:
    bugs = ready.bugs
    ran = {} if ahead is None else {text: bugs.tried(partial(ahead.timed, text)) for text in ready.texts}
    proved = proofs.result()  # proofs go on while others are timed
    found = bugs.tried(lambda: judged(ready, proved, ran))
    found = verdict(ready.finding, refused=found) if isinstance(found, str) else found
    return msgspec.structs.replace(found, bug=bugs.first)


def judged(ready: Ready, proofs: Mapping[str, Proof | str], ran: Mapping[str, Mapping[str, Any] | str]) -> Verdict:
    """The verdict on a finding. proofs: by what is proved; ran: what each reproduction said, or why it said nothing."""
    finding, rebuilt, said = ready.finding, ready.rebuilt, ran.get(ready.text or "")
    if ready.copy is not None:
        return verdict(finding, calls=1, evidence="proven", proof=NOT_PROVED, ran=said, source=ready.text, by=PINNED)
    if ready.made is not None:
        return verdict(
            finding, calls=ready.made.calls, evidence=ready.made.evidence, proof=CALL_NOT_PROVED, ran=said,
            source=ready.text, by=CALL, assumptions=ready.assumptions, traced_ns=ready.made.traced_ns,
        )  # fmt: skip
    if rebuilt is None:
        return verdict(finding, refused=ready.refused)
    library = None
    if ready.alone is not None:
        library = _outcome(ready.alone, proofs["library"], ran.get(ready.alone.text))
    elif ready.replacement is not None:
        library = outcome(
            ready.replacement,
            calls=len(rebuilt.chain.calls),
            traced_ns=finding.measured_ns / max(finding.occurrences, 1),
            proof=proofs["library"],
            ran=said,
        )
    around = ready.around
    return verdict(
        finding,
        calls=len(rebuilt.chain.calls),
        evidence=rebuilt.evidence,
        refused=ready.refused,
        proof=proofs.get("kernel"),
        ran=said,
        source=ready.text,
        assumptions=ready.assumptions,
        library=library,
        with_products=None if around is None else _outcome(around, proofs["around"], ran.get(around.text)),
    )


def _outcome(call: _Call, proof: Proof | str, ran: Mapping[str, Any] | str | None) -> CallVerdict:
    calls = len(call.rebuilt.chain.calls)
    return outcome(call.replacement, calls=calls, traced_ns=None, proof=proof, ran=ran, source=call.text)


def _is_of(finding: Finding, flow: Flow) -> bool:
    """Whether a trace has what a finding names: it may come from a file, and the trace may be another since.

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


def _around(finding: Finding, rebuilder: Rebuilder, emitter: Emitter) -> _Call | None:
    found = with_products(finding, rebuilder)
    return None if found is None else _call(finding, *found, rebuilder, emitter)


def with_products(finding: Finding, rebuilder: Rebuilder) -> tuple[Rebuilt, Replacement] | None:
    """A finding's chain with the products around it, and the library call that does all of it; None: there is none."""
    try:
        rebuilt = rebuilder.with_products(finding.activities[0], finding.rule)
    except NotRebuilt:
        return None
    replacement = None if rebuilt is None else find(rebuilt.chain, rebuilt.unread).replacement
    if rebuilt is None or replacement is None or not replacement.products:
        return None
    return rebuilt, replacement


def _call(
    finding: Finding, rebuilt: Rebuilt, replacement: Replacement, rebuilder: Rebuilder, emitter: Emitter
) -> _Call:
    text = reproduction(finding, rebuilt, rebuilder.flow, kernel=False)
    emitter.write(file_name(finding, _mark(finding), suffix="library"), text)
    return _Call(rebuilt, replacement, text)


def kernel_proof(chains: Tried, machines: Machines, *, mutants: bool) -> Proof | str:
    """The proof of a chain's kernel on a CPU, or why there is none."""
    try:
        return chains.too_large or machines.kernels.prove(chains.small, mutants, chains.recorded)
    except Unsupported as reason:  # of the build that rounds, or at the sizes that are tried
        return f"no kernel is generated that could be proved: {reason.message}"


def _proved(rebuilt: Rebuilt, replacement: Replacement, machines: Machines, how: How) -> Proof | str:
    """The proof of a library call on a CPU, or why there is none."""
    if replacement.gpu_only is not None:
        return replacement.gpu_only
    return machines.calls.answer(job(rebuilt.chain, rebuilt.unread, how.mutants))


def reproduction(finding: Finding, rebuilt: Rebuilt, flow: Flow, *, kernel: bool = True, library: bool = True) -> str:
    """The file that reproduces a finding, with the library call that says the same beside the kernel.

    kernel, library: False leaves it out. Raises Unsupported where no kernel can be generated.
    """
    return chain_text(
        rebuilt.chain,
        fingerprint=_mark(finding),
        title=finding.title,
        says=facts(finding, _mark(finding)),
        recorded=recorded_kernels(rebuilt, flow),
        assumptions=rebuilt.assumptions,
        unread=rebuilt.unread,
        kernel=kernel,
        library=library,
    )


def recorded_kernels(rebuilt: Rebuilt, flow: Flow) -> list[tuple[str, list[int] | None]]:
    """Name and grid of each kernel that a chain had in the trace."""
    return kernels_of(flow.timeline, rebuilt.activities)


def chain_text(
    chain: Graph,
    *,
    fingerprint: str,
    title: str,
    says: Sequence[str] = (),
    recorded: Sequence[tuple[str, Sequence[int] | None]] = (),
    assumptions: Sequence[str] = (),
    unread: Sequence[int] = (),
    kernel: bool = True,
    library: bool = True,
) -> str:
    """The file that reproduces a chain: as `repro`, with all that is made of the chain. Raises Unsupported."""
    replacement = find(chain, unread).replacement if library else None
    chain = chain if replacement is None else settled(chain, replacement.at)
    said = () if replacement is None else replacement.assumptions
    lowered = lower(chain) if kernel else None
    return repro(
        chain,
        generate(chain) if kernel else None,
        fingerprint=fingerprint,
        title=title,
        says=says,
        ulp=LIBRARY_ULP if lowered is None else ulp_of(lowered.templates),
        recorded=recorded,
        assumptions=(*assumptions, *(f"for the library's call, {text}" for text in said)),
        draws=lowered is not None and bool(lowered.drawn),
        library=None if replacement is None else replacement.text,
        positive=() if replacement is None else replacement.positive,
        small=_on_cpu(chain, replacement, tuple(unread), kernel=kernel),
    )


def _on_cpu(chain: Graph, replacement: Replacement | None, unread: tuple[int, ...], *, kernel: bool) -> Graph | str:
    """The chain at sizes at which a CPU tries a reproduction's own text; or why it does not."""
    if not kernel and replacement is not None and replacement.gpu_only is not None:
        return replacement.gpu_only
    small = chain
    if kernel:
        small = smaller(chain)
    elif replacement is not None:
        sizes = Sizes(chain, unread).chain
        made = find(sizes, unread).replacement
        small = sizes if made is not None and made.text == replacement.text else chain
    count = sum(spec.elements for spec in small.specs)
    return small if count <= _MOST_ON_CPU else f"{count:,} elements, which no argument makes fewer"


def _mark(finding: Finding) -> str:
    """The fingerprint, if it is one: findings may come from a file, and this names another."""
    if not _MARK.fullmatch(finding.fingerprint):
        raise UsageError(f"{finding.fingerprint[:40]!a} is no fingerprint of a finding")
    return finding.fingerprint
