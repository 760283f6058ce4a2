"""What torch.compile is known to make slower is said where a trace has it, and where torch.compile is the advice."""

from __future__ import annotations

import msgspec
import pytest

from tests.flow.programs import RELU, Program
from tests.report.scans import GAP, NORM
from tests.timelines import Trace
from tracemine.findings.compile_losses import compile_losses
from tracemine.findings.record import Finding
from tracemine.flow import Flow, flow

STACK = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor"
COMPILED = msgspec.structs.replace(NORM, fix="Compile it:\n\n    f = torch.compile(f)")
OTHER = msgspec.structs.replace(NORM, fix="optimizer = AdamW(…, fused=True)")


def joined(count: int, *, computed: bool = True) -> Flow:
    """A step that stacks so many tensors."""
    program = Program()
    parts = [program.tensor(f"x{at}", 8) for at in range(count)]
    source = program.tensor("source", 8)
    for part in parts if computed else ():
        program.call(RELU, [source], [part])
    program.call(STACK, [parts], [program.tensor("out", count, 8)])
    return program.flow()


def said(of: Flow, *findings: Finding) -> tuple[str, ...]:
    return compile_losses(of.timeline, of, findings or (COMPILED,))


def test_a_stack_of_many_computed_tensors_is_named_with_what_was_measured() -> None:
    (note,) = said(joined(16))
    assert note.startswith(
        "torch.compile may slow down a `stack` of 16 computed tensors: write into one tensor that was made before"
    )


@pytest.mark.parametrize("of", [joined(15), joined(40, computed=False)], ids=["of few", "of what nobody computed"])
def test_a_stack_that_is_cheap_compiled_too_is_not(of: Flow) -> None:
    assert said(of) == ()


@pytest.mark.parametrize(
    "findings", [(OTHER, GAP), (msgspec.structs.replace(COMPILED, reported=False),), (OTHER,)], ids=range(3)
)
def test_where_torch_compile_is_no_advice_nothing_is_said(findings: tuple[Finding, ...]) -> None:
    assert said(joined(16), *findings) == ()


def attention(causal: str, file: str) -> Flow:
    trace = Trace()
    stack = trace.frame(f"{file}(12): sdpa_attention_forward")
    scalars = ["", "", "", "", "0.0", causal, "", ""]
    shapes = [[2, 4, 64, 64]] * 3
    op = trace.op("aten::scaled_dot_product_attention", 0, 10, shapes, ["float"] * 3, None, scalars, stack_row=stack)
    trace.kernel("flash_fwd_kernel", 20, 100, launch=(2, 2), op=op)
    return flow(trace.timeline())


def test_causal_attention_of_a_library_that_decides_while_it_runs_is_named() -> None:
    (note,) = said(attention("True", "site-packages/transformers/integrations/sdpa_attention.py"))
    assert note.startswith("transformers calls `scaled_dot_product_attention` with is_causal (1 time), and compiled,")
    assert "271 to 671 µs" in note


@pytest.mark.parametrize(
    ("causal", "file"), [("False", "site-packages/transformers/sdpa_attention.py"), ("True", "my_model/attention.py")]
)
def test_attention_with_a_mask_or_of_one_s_own_is_not(causal: str, file: str) -> None:
    assert said(attention(causal, file)) == ()
