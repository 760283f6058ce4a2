"""From findings to verdicts: rebuild, generate, prove on the CPU; with a GPU also replay, check and time."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracemine.columns import string_ids
from tracemine.errors import UsageError
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.verify import alone
from tracemine.verify.chain import Chain, Unsupported
from tracemine.verify.kernels.lower import lower
from tracemine.verify.kernels.operators import error_ulp
from tracemine.verify.kernels.resources import fitting, resources
from tracemine.verify.kernels.source import generate
from tracemine.verify.library import Replacement, find, settled
from tracemine.verify.library.outcome import LibraryVerdict, outcome
from tracemine.verify.library.prove import LIBRARY_ULP, job
from tracemine.verify.library.prove import WORKER as LIBRARY_WORKER
from tracemine.verify.proof.record import Proof
from tracemine.verify.proof.sandbox import MOST_ELEMENTS, Sandbox, elements, smaller
from tracemine.verify.proof.shorten import shorter
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.repro import repro
from tracemine.verify.verdicts.verdict import Verdict, verdict

GPU_LIMIT_S = 60.0  # a chain: of which torch.compile may take half
_LONGEST_NAME = 2000
_MARK = re.compile(r"[0-9a-f]{16}")
SHORTER = "the proof on the CPU is of a few members of each kind of its lists, whose code the others share"
SMALLER = "the proof on the CPU is of the same source at smaller sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What is asked for."""

    gpu: str | None = None  # name of this machine's; None: levels above L2 are not tried
    mutants: bool = False  # whether wrong kernels are tried beside the right ones
    time_limit_s: float = 60.0
    emit: Path | None = None  # where reproductions are written


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
    if shutil.which("nvidia-smi") is None and not Path("/proc/driver/nvidia").exists():
        return None
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)  # noqa: S603
        return asked.stdout.strip() or None
    return None


def fusable(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that one kernel would mend; the others close gaps or change copies."""
    return [f for f in findings if f.fused_ns is not None and f.activities and f.gpu_saving_ns.high > 0]


def verify(
    findings: Sequence[Finding],
    flow: Flow,
    groups: Groups,
    how: How,
    progress: Callable[[int, int], object] = lambda done, all_: None,
) -> Iterator[Verdict]:
    """A verdict on each finding, in order. A crash, a hang or a lack of memory is a verdict like any other."""
    rebuilder = Rebuilder(flow, groups)
    with (
        Sandbox(time_limit_s=how.time_limit_s) as sandbox,
        Sandbox(time_limit_s=how.time_limit_s, command=LIBRARY_WORKER) as calls,
    ):
        for number, finding in enumerate(findings):
            progress(number, len(findings))
            yield _verified(finding, rebuilder, sandbox, calls, how)
        progress(len(findings), len(findings))


def _verified(finding: Finding, rebuilder: Rebuilder, sandbox: Sandbox, calls: Sandbox, how: How) -> Verdict:
    rows = finding.activities[0]
    if not _is_of(finding, rebuilder.flow):
        return verdict(finding, refused="its kernels are not in this trace: the findings are another trace's")
    try:
        rebuilt = rebuilder.rebuild(rows, _name(finding.rule))
    except NotRebuilt as reason:
        return verdict(finding, refused=f"not rebuilt: {reason.message}")
    known: dict[str, Any] = {
        "calls": len(rebuilt.chain.calls),
        "evidence": rebuilt.evidence,
        "assumptions": rebuilt.assumptions,
    }
    replacement = find(rebuilt.chain, rebuilt.unread).replacement
    known["with_products"] = _around(finding, rebuilder, calls, how)
    try:
        text = reproduction(finding, rebuilt, rebuilder.flow)
        tried = shorter(rebuilt.chain)
        small = smaller(tried)
    except (Unsupported, RecursionError) as reason:
        why = reason.message if isinstance(reason, Unsupported) else "the chain is too deep"
        if replacement is not None:
            known["library"] = _alone(finding, rebuilt, replacement, rebuilder, calls, how)
        return verdict(finding, **known, refused=f"no kernel is generated: {why}")
    said = [SHORTER] * (tried != rebuilt.chain) + [SMALLER] * (small != tried)
    known["assumptions"] = (*rebuilt.assumptions, *said)
    if elements(small) > 64 * MOST_ELEMENTS:
        proof: Any = f"the chain has {elements(small):,} elements that no size of an argument makes fewer"
    else:
        proof = sandbox.prove(small, how.mutants, tried)
    if how.emit is not None:
        text = fitting(text, resources(text))
    _emit(how, f"repro_{_mark(finding)}.py", text)
    ran = run(text) if how.gpu is not None else None
    if replacement is not None:
        known["library"] = outcome(
            replacement,
            calls=len(rebuilt.chain.calls),
            traced_ns=finding.measured_ns / max(finding.occurrences, 1),
            proof=_proved(rebuilt, replacement, calls, how),
            ran=ran,
        )
    return verdict(finding, **known, proof=proof, ran=ran, source=text)


def _is_of(finding: Finding, flow: Flow) -> bool:
    """Whether a trace has what a finding names: it may come from a file, and the trace may be another since.

    Asked are the kernels of its first occurrence and the time of all, which is in whole nanoseconds.
    """
    activities = flow.timeline.activities
    rows = [row for occurrence in finding.activities for row in occurrence]
    if any(not 0 <= row < activities.num_rows for row in rows):
        return False
    names = activities.column("name").take(list(finding.activities[0])).to_pylist()
    known = len(names) == len(finding.kernels) and all(
        (name or "").startswith(kernel) for name, kernel in zip(names, finding.kernels, strict=True)
    )
    return known and sum(activities.column("dur_ns").take(rows).to_pylist()) == finding.measured_ns


def _emit(how: How, name: str, text: str) -> None:
    if how.emit is not None:
        how.emit.mkdir(parents=True, exist_ok=True)
        (how.emit / name).write_text(text, "utf-8")


def _around(finding: Finding, rebuilder: Rebuilder, calls: Sandbox, how: How) -> LibraryVerdict | None:
    """The library call that does the products around a finding's chain too; None where there is none."""
    try:
        rebuilt = rebuilder.with_products(finding.activities[0], _name(finding.rule))
    except NotRebuilt:
        return None
    replacement = None if rebuilt is None else find(rebuilt.chain, rebuilt.unread).replacement
    if rebuilt is None or replacement is None or not replacement.products:
        return None
    return _alone(finding, rebuilt, replacement, rebuilder, calls, how)


def _alone(
    finding: Finding, rebuilt: Rebuilt, replacement: Replacement, rebuilder: Rebuilder, calls: Sandbox, how: How
) -> LibraryVerdict:
    """What a library call comes to that stands in place of a kernel, in a reproduction of its own."""
    text = reproduction(finding, rebuilt, rebuilder.flow, kernel=False)
    _emit(how, f"repro_{_mark(finding)}_library.py", text)
    return outcome(
        replacement,
        calls=len(rebuilt.chain.calls),
        traced_ns=None,
        proof=_proved(rebuilt, replacement, calls, how),
        ran=run(text) if how.gpu is not None else None,
        source=text,
    )


def _proved(rebuilt: Rebuilt, replacement: Replacement, calls: Sandbox, how: How) -> Proof | str:
    """The proof of a library call on a CPU, or why there is none."""
    if replacement.gpu_only is not None:
        return replacement.gpu_only
    return calls.answer(job(rebuilt.chain, rebuilt.unread, how.mutants))


def reproduction(finding: Finding, rebuilt: Rebuilt, flow: Flow, kernel: bool = True) -> str:
    """The file that reproduces a finding, with the library call that says the same beside the kernel.

    kernel: False leaves the kernel out. Raises Unsupported where none can be generated.
    """
    return chain_text(
        rebuilt.chain,
        fingerprint=_mark(finding),
        title=finding.title,
        recorded=recorded_kernels(rebuilt, flow),
        assumptions=rebuilt.assumptions,
        unread=rebuilt.unread,
        kernel=kernel,
    )


def recorded_kernels(rebuilt: Rebuilt, flow: Flow) -> list[tuple[str, list[int] | None]]:
    """Name and grid of each kernel that a chain had in the trace."""
    activities = flow.timeline.activities
    codes, names = string_ids(activities.column("name"))
    grids = activities.column("grid").take(list(rebuilt.activities)).to_pylist()
    kernels = [names[codes[row]][:_LONGEST_NAME] for row in rebuilt.activities]
    return list(zip(kernels, grids, strict=True))


def chain_text(
    chain: Chain,
    *,
    fingerprint: str,
    title: str,
    recorded: Sequence[tuple[str, Sequence[int] | None]] = (),
    assumptions: Sequence[str] = (),
    unread: Sequence[int] = (),
    kernel: bool = True,
) -> str:
    """The file that reproduces a chain: as `repro`, with all that is made of the chain. Raises Unsupported."""
    replacement = find(chain, unread).replacement
    chain = chain if replacement is None else settled(chain, replacement.at)
    said = () if replacement is None else replacement.assumptions
    lowered = lower(chain) if kernel else None
    return repro(
        chain,
        generate(chain) if kernel else None,
        fingerprint=fingerprint,
        title=title,
        ulp=LIBRARY_ULP if lowered is None else float(sum(error_ulp().get(t, 0) for t in lowered.templates)),
        recorded=recorded,
        assumptions=(*assumptions, *(f"for the library's call, {text}" for text in said)),
        draws=lowered is not None and bool(lowered.drawn),
        library=None if replacement is None else replacement.text,
        positive=() if replacement is None else replacement.positive,
    )


def run(text: str, limit_s: float = GPU_LIMIT_S) -> Mapping[str, Any] | str:
    """What a reproduction says on this machine's GPU, in a process of its own; or why it says nothing."""
    return alone.run(text, ["--json"], limit_s, what="the reproduction", slow="the GPU", holds="replay")


def _mark(finding: Finding) -> str:
    """The fingerprint, if it is one: findings may come from a file, and this names another."""
    if not _MARK.fullmatch(finding.fingerprint):
        raise UsageError(f"{finding.fingerprint[:40]!a} is no fingerprint of a finding")
    return finding.fingerprint


def _name(rule: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", rule.lower())[:40] or "chain"
