"""What is said of work that gives the same in every step."""

from __future__ import annotations

from collections.abc import Callable

from tests.causes.loop_invariant.test_invariants import CONVOLUTION, MM, MUL, NUMBER, PLAIN, SIN, TRIU, VAR, Loop, batch
from tests.flow.programs import ADD
from tracemine.causes import load_rules
from tracemine.findings import Scan
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.units import Threshold


def scanned(step: Callable[[Loop, int], None]) -> Scan:
    loop = Loop()
    for number in range(2):
        loop.step()
        step(loop, number)
    rules = [rule for rule in load_rules() if rule.id in ("loop_invariant", "memory_bound_chain")]
    return mined(analysed(loop.recorded()), ScanOptions(rules=rules, threshold=Threshold(ns=1)))


def two_layers(loop: Loop, number: int) -> None:
    x = batch(loop, number)
    for layer in "ab":
        weight = loop.tensor(f"w{layer}", 4, 4)
        spread = loop.op(VAR, [weight], loop.tensor("spread", 4, 4), "[1]", "0", "True")
        ready = loop.op(MUL, [weight, spread], loop.tensor("ready", 4, 4))
        x = loop.op(CONVOLUTION, [x, ready], loop.tensor(f"out{layer}", 4, 4), *PLAIN)


def test_the_layers_of_a_step_are_one_finding_that_saves_all_of_the_work_and_names_it() -> None:
    (finding,) = scanned(two_layers).findings
    assert finding.title.startswith("Weight standardised every step")
    assert (finding.rule, finding.evidence, finding.occurrences) == ("loop_invariant", "proven", 4)
    assert finding.ops == ("aten::var", "aten::mul")
    assert finding.measured_ns == finding.gpu_saving_ns.mid == 4 * 2 * 5
    assert finding.gpu_saving_ns.low < finding.gpu_saving_ns.mid
    assert "Standardise each weight once" in finding.fix
    assert not any("stay as they are" in text for text in finding.assumptions)


def test_a_number_that_was_not_recorded_is_said_to_be_taken_as_the_same() -> None:
    def step(loop: Loop, number: int) -> None:
        loop.dtypes["number"] = "double"
        scaled = loop.op(ADD, [loop.filled(loop.tensor("ones", 4, 4), 1), NUMBER], loop.tensor("scaled", 4, 4), "1")
        table = loop.op(SIN, [scaled], loop.tensor("table", 4, 4))
        loop.op(MM, [batch(loop, number), table], loop.tensor("out", 4, 4))

    (finding,) = scanned(step).findings
    assert finding.title.startswith("Sine table rebuilt every step")
    assert finding.evidence == "consistent"
    assert any("numbers that were not recorded" in text for text in finding.assumptions)


def test_what_is_kept_is_no_chain_to_fuse_as_well() -> None:
    def step(loop: Loop, number: int) -> None:
        ones = loop.filled(loop.tensor("ones", 4, 4), 1)
        upper = loop.op(TRIU, [ones], loop.tensor("upper", 4, 4), "1")
        loop.op(MM, [batch(loop, number), upper], loop.tensor("out", 4, 4))

    (finding,) = scanned(step).findings
    assert finding.title.startswith("Mask rebuilt every step")
    assert len({row for rows in finding.activities for row in rows}) == 4
