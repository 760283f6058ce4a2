"""What a verdict says for what was tried, what failed, and what was not tried."""

from __future__ import annotations

from typing import Any

import msgspec

from tracemine.findings.record import NOTHING, Finding, Identity
from tracemine.perfmodel import Range
from tracemine.validate.record import Fault, Validation
from tracemine.verdicts.candidate import Candidate
from tracemine.verdicts.verdict import Verdict, Verdicts, table, verdict
from tracemine.verify.repro.standalone import answered

FINDING = Finding(
    fingerprint="0123456789abcdef",
    identity=Identity("0123456789abcdef"),
    cause="chain", rule="memory_bound_chain", title="One kernel could do", evidence="proven",
    severity="high", occurrences=2, activities=((0, 1), (2, 3)), ops=("aten::mul", "aten::add"), kernels=("a", "b"),
    shapes=None, dtype="float32", module=None, source=(), measured_ns=40_000, fused_ns=Range(10_000, 12_000, 14_000),
    traffic_bytes=None, flops=None, arithmetic_intensity=None, intermediate_bytes=None,
    gpu_saving_ns=Range(26_000, 28_000, 30_000), step_saving_ns=NOTHING, why="", fix="", assumptions=(),
)  # fmt: skip
VALIDATION = Validation(
    chain="c", kernels=("k",), trials=9, skipped=(), faults=(), error=0.0, eager_error=0.0, equal_share=1.0,
    exact=True, bytes_read=1, bytes_written=1, mutants=(), seconds=0.1,
)  # fmt: skip


def ran(eager: int = 20_000, fused: int = 5_000, compiled: int = 6_000, **more: Any) -> dict[str, Any]:
    def state(scale: int) -> dict[str, Any]:
        times = {"eager": eager, "fused": fused, "compiled": compiled, "copy": 4_000}
        return {name: {"sum_ns": [ns * scale] * 4, "span_ns": [ns * scale] * 4} for name, ns in times.items()}

    judged = {
        "eager_against_itself": {"ratio": 1.0, "low": 1.0, "high": 1.0},
        "eager": {"ratio": eager / fused, "low": eager / fused, "high": eager / fused},
        "compiled": {"ratio": compiled / fused, "low": compiled / fused, "high": compiled / fused},
        "faster_than_eager": eager > 1.01 * fused,
        "slower_than_eager": eager < 0.99 * fused,
        "not_slower_than_compile": compiled >= 0.99 * fused,
    }
    samples = {"cold": state(3), "warm": state(1)}
    times: dict[str, Any] = {"samples": samples, "judged": {"cold": judged, "warm": judged}, "device": "G"}
    times |= {"unstable": [], "too_fast": [], "least_ns": 1_000}
    replay = {"same_count": True, "same_names": True, "same_grids": True, "kernels": []}
    return {"replay": replay, "right": {"faults": []}, "times": times} | more


def judged(**known: Any) -> Verdict:
    return verdict(FINDING, [Candidate(calls=2, evidence="proven", **known)])


def test_all_levels_but_the_step_are_reached_where_everything_holds() -> None:
    found = judged(validation=VALIDATION, ran=ran())
    assert found.level == "L5"
    assert found.measured is not None
    assert found.measured.state == "warm"  # in which eager takes what it took in the trace
    assert (found.predicted_ns.mid, found.measured_ns, found.error_ns) == (14_000, 15_000, 1_000)
    assert found.within_interval is True
    assert [text[:2] for text in found.not_tested] == ["L6"]


def test_without_a_gpu_the_proof_on_the_cpu_is_the_last_level() -> None:
    found = judged(validation=VALIDATION)
    assert (found.level, found.measured_ns) == ("L2", None)
    assert [text[:2] for text in found.not_tested] == ["L1", "L3", "L4", "L5", "L6"]


def test_a_fusion_that_loses_says_so() -> None:
    found = judged(validation=VALIDATION, ran=ran(fused=30_000))
    assert (found.level, found.says) == ("L3", "this fusion loses")
    assert found.within_interval is False


def test_times_that_two_clocks_do_not_agree_on_or_memory_does_not_allow_prove_nothing() -> None:
    found = ran()
    found["times"] |= {"unstable": ["fused", "compiled"]}
    assert (judged(validation=VALIDATION, ran=found).level, judged(validation=VALIDATION, ran=found).says) == (
        "L3",
        "unstable: two clocks differ on fused",
    )
    found["times"] |= {"unstable": ["eager"], "other_clock_ns": {"eager": {"ns": 14_000}}}
    assert judged(validation=VALIDATION, ran=found).says == "unstable: two clocks differ on eager"
    found["times"] |= {"unstable": ["compiled"], "too_fast": ["fused"], "least_ns": 6_000}
    assert judged(validation=VALIDATION, ran=found).says == "not believed: faster than memory allows, 6,000 ns"


def test_a_kernel_that_is_faster_by_either_clock_is_faster_and_its_interval_holds_both() -> None:
    found = ran()
    found["times"] |= {
        "unstable": ["eager"],
        "other_clock_ns": {"eager": {"ns": 54_000}},
    }  # cold, where 60,000 were seen
    came_to = judged(validation=VALIDATION, ran=found)
    assert came_to.level == "L5"
    assert came_to.measured is not None
    assert came_to.measured.eager_to_fused == {"low": 3.6, "ratio": 4.0, "high": 4.0}
    found["times"] |= {"unstable": ["fused"], "other_clock_ns": {"fused": {"ns": 20_000}}}  # 15,000 were seen
    assert judged(validation=VALIDATION, ran=found).level == "L5"
    found["times"]["other_clock_ns"]["fused"]["ns"] = 61_000
    assert judged(validation=VALIDATION, ran=found).says == "unstable: two clocks differ on fused"


def test_slower_than_torch_compile_stays_below_its_level() -> None:
    assert judged(validation=VALIDATION, ran=ran(compiled=4_000)).level == "L4"


def test_another_replay_ends_it_however_fast_the_kernel_is() -> None:
    other = {"same_count": True, "same_names": False, "same_grids": False, "kernels": []}
    found = judged(validation=VALIDATION, ran=ran(replay=other))
    assert found.level == "L0"
    assert "other kernels than the trace has" in found.says


def test_wrong_results_end_it() -> None:
    wrong = msgspec.structs.replace(VALIDATION, faults=(Fault("normal", "error 3 where eager's is 0"),))
    assert judged(validation=wrong).level == "L0"
    assert judged(validation=wrong).says == "wrong on a CPU: normal: error 3 where eager's is 0"
    found = judged(validation=VALIDATION, ran=ran(right={"faults": ["element 3"]}))
    assert (found.level, found.says) == ("L2", "wrong on the GPU: element 3")


def test_a_proof_that_hung_is_not_tested_and_the_gpu_may_go_on() -> None:
    found = judged(validation="validating took longer than 60 s")
    assert (found.level, found.says) == ("L0", "validating took longer than 60 s")
    assert judged(validation="validating took longer than 60 s", ran=ran()).level == "L5"


def test_a_crash_on_the_gpu_is_a_verdict() -> None:
    text = answered(-11, "", [], what="the reproduction")
    found = judged(validation=VALIDATION, ran=text)
    assert (found.level, found.says) == ("L2", "the reproduction was ended by SIGSEGV")


def test_verdicts_are_a_table_too() -> None:
    found = (judged(validation=VALIDATION, ran=ran()), judged(refused="not rebuilt: why"))
    rows = table(Verdicts(trace="t", gpu=None, verdicts=found, skipped={})).to_pylist()
    assert [row["level"] for row in rows] == ["L5", "L0"]
    assert rows[0]["error_ns"] == 1_000
    assert rows[1]["measured_ns"] is None
    assert table(Verdicts(trace="t", gpu=None, verdicts=(), skipped={})).num_rows == 0
