"""After how many steps compiling has paid for itself."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.scans import GAP, NORM, SCAN
from tracemine.documents.step_words import payback_text
from tracemine.findings.payback import payback
from tracemine.findings.record import Finding, PerStep, Range


def compiled(ns: int, fix: str = "f = torch.compile(f)") -> Finding:
    per_step = PerStep(
        measured_ns=ns, gpu_saving_ns=Range(0, 0, 0), step_saving_ns=Range(0, ns, ns), share_of_unprofiled=0.0
    )
    return msgspec.structs.replace(NORM, fix=fix, per_step=per_step)


def test_it_pays_after_as_many_steps_as_save_what_compiling_takes() -> None:
    found = payback([compiled(2_000_000), compiled(2_230_000), compiled(9_000_000, "optimizer = AdamW(fused=True)")])
    assert found is not None
    assert (found.step_saving_ns, found.low_steps, found.high_steps) == (4_230_000, 1_000, 28_639)


@given(st.integers(1, 10**12))
def test_one_step_less_has_not_paid_for_it(ns: int) -> None:
    found = payback([compiled(ns)])
    assert found is not None
    for steps, cost_ns in ((found.low_steps, found.compile_low_ns), (found.high_steps, found.compile_high_ns)):
        assert (steps - 1) * ns < cost_ns <= steps * ns


@pytest.mark.parametrize(
    "findings",
    [(), (GAP,), (compiled(0),), (msgspec.structs.replace(compiled(5_000), per_step=None),)],
    ids=["nothing found", "nothing to compile", "nothing saved", "no steps known"],
)
def test_what_saves_no_step_anything_by_compiling_pays_never(findings: tuple[Finding, ...]) -> None:
    assert payback(findings) is None


def test_the_report_says_so_with_the_range_of_what_compiling_takes() -> None:
    summary = msgspec.structs.replace(SCAN.summary, payback=payback([compiled(4_230_000)]))
    text = payback_text(msgspec.structs.replace(SCAN, summary=summary))
    assert text == "takes 4.23–121 s once (27 models, H100): regained after 1,000–29,000 steps"
    assert payback_text(SCAN) == ""
