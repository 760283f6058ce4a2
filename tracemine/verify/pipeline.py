"""From findings to verdicts: rebuild, generate, validate on the CPU; with a GPU also replay, check and time."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tracemine.errors import TracemineError, UsageError
from tracemine.extras import install
from tracemine.findings.grouping import one_kernel_fixes, variants_of
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.programs import program, python, run
from tracemine.validate.record import Validation
from tracemine.verdicts.candidate import Candidate
from tracemine.verdicts.verdict import Verdict, verdict
from tracemine.verify.fixes.by_rule import Cause
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.prepare import Identity, Ready, prepared, refused
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.workers.quick import LEFT_OUT, Ahead, Quick
from tracemine.verify.workers.validators import Machines, Validators, at_once

GPU_LIMIT_S = 60.0  # a graph
BATCH = 24  # findings that are compiled before the first of them is timed


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What is asked for."""

    gpu: str | None = None  # name of this machine's; None: levels above L2 are not tried
    mutants: bool = False  # whether wrong kernels are tried along with the right ones
    time_limit_s: float = 60.0
    emit: Path | None = None  # where reproductions are written
    identity: Identity | None = None  # None: fingerprints are those of this very scan
    quick: Quick | None = None  # what runs reproductions, where no more is asked than eager and what replaces it


def needed() -> None:
    """Raise UsageError, with the command that helps, where torch or triton are not installed."""
    missing = [name for name in ("torch", "triton") if not _installed(name)]
    if missing:
        raise UsageError(
            f"verify needs {' and '.join(missing)}, which this Python does not have", hint=install("verify")
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # what stands in for it in sys.modules, or in the way of its import
        return False


def has_driver() -> bool:
    """Say whether this machine may have a GPU."""
    return program("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


def gpu_name() -> str | None:
    """Return the name of this machine's GPU; None where torch finds none. Torch is asked in a process of its own."""
    if not has_driver():
        return None
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return run(python("-c", code), 120).stdout.strip() or None
    return None


def fusable(findings: Sequence[Finding]) -> list[Finding]:
    """Return the variants that one kernel would fix; the others close gaps or change copies."""
    return [variant for finding in findings for variant in variants_of(finding) if one_kernel_fixes(variant)]


def verify(
    findings: Sequence[Finding],
    flow: Flow,
    groups: Groups,
    how: How,
    progress: Callable[[int, int], object] = lambda done, all_: None,
    *,
    causes: Sequence[Cause] = (),
) -> Iterator[Verdict]:
    """Generate a verdict on each finding, in order. A crash, a hang, a lack of memory or an internal error is one too.

    For a GPU many are compiled side by side and validated meanwhile; then each is timed alone, as validation goes on.
    Without one, some are validated side by side while the next is made ready. causes: those that bring fixed forms.
    """
    rebuilder = Rebuilder(flow, groups)
    with Validators(how.time_limit_s, at_once(alone=how.gpu is None)) as validators, ExitStack() as stack:
        ahead = None if how.gpu is None else how.quick or stack.enter_context(Ahead(GPU_LIMIT_S))
        emitter = stack.enter_context(Emitter(how.emit))
        begun: deque[tuple[Ready, Future[list[Validation | str | None]]]] = deque()
        done = 0
        try:
            for number, finding in enumerate(findings, 1):
                progress(done, len(findings))
                ready = _ready(finding, rebuilder, emitter, how.identity, causes)
                begun.append((ready, _validations(ready, validators, how)))
                if ahead is not None:
                    ahead.start(ready.texts)
                    if len(begun) < BATCH and number < len(findings):
                        continue
                    ahead.wait()
                waiting = 0 if ahead is not None or number == len(findings) else validators.count
                while len(begun) > waiting:
                    progress(done, len(findings))
                    yield _verdict(*begun.popleft(), ahead)
                    done += 1
        except (KeyboardInterrupt, OSError, TracemineError):  # what is validated by now is not thrown away
            while ahead is None and begun and begun[0][1].done():
                yield _verdict(*begun.popleft(), ahead)
            raise
        progress(done, len(findings))


def _ready(
    finding: Finding, rebuilder: Rebuilder, emitter: Emitter, identity: Identity | None, causes: Sequence[Cause]
) -> Ready:
    bugs = Bugs()
    found = bugs.tried(lambda: prepared(finding, rebuilder, emitter, identity, bugs, causes))
    return refused(finding, found, bugs) if isinstance(found, str) else found


def _validations(ready: Ready, validators: Validators, how: How) -> Future[list[Validation | str | None]]:
    """Check each candidate on the CPU; a text says why that is not done."""

    def validate(machines: Machines) -> list[Validation | str | None]:
        if how.quick is not None:
            return [LEFT_OUT] * len(ready.candidates)
        return [ready.bugs.tried(partial(_checked, each, machines, how.mutants)) for each in ready.candidates]

    return validators.start(validate)


def _checked(candidate: Candidate, machines: Machines, mutants: bool) -> Validation | str | None:
    return candidate.check(machines, mutants) if callable(candidate.check) else candidate.check


def _verdict(ready: Ready, validations: Future[list[Validation | str | None]], ahead: Ahead | None) -> Verdict:
    bugs = ready.bugs
    ran = {} if ahead is None else {text: bugs.tried(partial(ahead.timed, text)) for text in ready.texts}
    validated = validations.result()  # validation goes on while others are timed
    found = bugs.tried(lambda: judged(ready, validated, ran))
    found = verdict(ready.finding, [Candidate(refused=found)]) if isinstance(found, str) else found
    return msgspec.structs.replace(found, bug=bugs.first)


def judged(
    ready: Ready, validations: Sequence[Validation | str | None], ran: Mapping[str, Mapping[str, Any] | str]
) -> Verdict:
    """Return the verdict on a finding. validations: of each candidate; ran: each reproduction's output, or why none."""
    both = zip(ready.candidates, validations, strict=True)
    return verdict(ready.finding, [replace(c, validation=v, ran=ran.get(c.source or "")) for c, v in both])
