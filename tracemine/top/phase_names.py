"""Phases of a step, and the names of annotations and operators that tell them."""

from __future__ import annotations

from typing import Final

from tracemine.patterns import deferred
from tracemine.rows.iterations.annotations import marks

FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER = "forward", "recomputed forward", "backward", "optimizer"
BETWEEN: Final = "between backward and optimizer"
_ZEROING, _PREFILL, _DECODE, _BOTH = "zeroing of gradients", "prefill", "decode", "prefill and decode"
PHASES: Final = (FORWARD, RECOMPUTE, BACKWARD, BETWEEN, OPTIMIZER, _ZEROING, _PREFILL, _DECODE, _BOTH)

_LONGEST_NAME = 512  # characters that are looked at: names come from strangers
_NAMED: Final = tuple(
    (deferred(pattern), phase)
    for pattern, phase in (
        (r"^autograd::engine::", BACKWARD),
        (r"^Optimizer\.step#|^## optimizer ##$|^DeepSpeedEngine\.step$|^(?i:optimizer([_. ]step)?)$", OPTIMIZER),
        (r"^Optimizer\.zero_grad#|^## zero_grad ##$|^(?i:zero_grad)$", _ZEROING),
        (r"^## backward ##$|^DeepSpeedEngine\.backward$|^(?i:backward([_ ](pass|step))?)$", BACKWARD),
        (r"^## forward ##$|^\w{1,60}(Parallel|Engine)\.forward$|^(?i:forward([_ ](pass|step))?)$", FORWARD),
        (r"^(?i:prefill)([^a-zA-Z]|_?step|$)", _PREFILL),
        (r"^(?i:decode)([^a-zA-Z]|_?step|$)", _DECODE),
    )
)
_MODES: Final = {"EXTEND": _PREFILL, "PREFILL": _PREFILL, "DECODE": _DECODE, "MIXED": _BOTH}  # of SGLang


def phase_of(name: str) -> str | None:
    """Return the phase that an annotation's or operator's name tells; None: it tells none.

    >>> phase_of("Optimizer.step#AdamW.step"), phase_of("aten::add"), phase_of("step[DECODE bs=32]")
    ('optimizer', None, 'decode')
    >>> phase_of("execute_context_1(888)_generation_0(0)"), phase_of("execute_context_2(9)_generation_3(3)")
    ('prefill', 'prefill and decode')
    """
    name = name[:_LONGEST_NAME]
    found = next((phase for pattern, phase in _NAMED if pattern.search(name)), None)
    return found or _of_batch(name)


def _of_batch(name: str) -> str | None:
    """Return the phase of a serving engine's batch."""
    for mark in marks():
        said = mark.kinds.search(name) if mark.kinds is not None and mark.pattern.search(name) else None
        if said is None:
            continue
        groups = said.groupdict()
        if mode := groups.get("mode"):
            return _MODES.get(mode)
        prefill, decode = (int(groups.get(each) or 0) > 0 for each in ("prefill", "decode"))
        return _BOTH if prefill and decode else _PREFILL if prefill else _DECODE if decode else None
    return None
