"""Findings of variants: one a cause and place, told apart by title, in the order of what a step gains."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.findings.build import BIG, kernel, matches, rows_of_timeline, rule, timeline_of
from tracemine import pipeline
from tracemine.findings import Finding, Range, Scan, Source, device_of, find
from tracemine.findings.grouping import grouped, scan_of_variants, variants_of, with_variants
from tracemine.findings.identity import Place
from tracemine.findings.ranking import ordered
from tracemine.findings.record import PerStep
from tracemine.findings.stored import decoded
from tracemine.matching.rule import Matches
from tracemine.perfmodel import NOTHING
from tracemine.timeline import Timeline
from tracemine.verdicts.evidence import read_evidence

US = 1_000
FIXTURES = Path(__file__).parents[2] / "fixtures"
NORM = ("aten::pow", "aten::mean", "aten::rsqrt", "aten::mul")


def chain(start_us: int, ops: tuple[str, ...] = NORM, dur_us: int = 60, **more: Any) -> list[dict[str, Any]]:
    """Kernels of these operators, one after another."""
    return [kernel((start_us + i * dur_us) * US, dur_us * US, op=op, **more) for i, op in enumerate(ops)]


def scan_of(timeline: Timeline, *found: Matches, least: int | None = 0) -> Scan:
    rows = rows_of_timeline(timeline)
    return find(timeline, rows, found, device_of(timeline), min_saving_ns=least)


def norms(*modules: str | None, first: tuple[str, ...] = ("aten::add", *NORM), **more: Any) -> Scan:
    """A norm in each module; the first has a residual addition before it."""
    members: list[dict[str, Any]] = []
    chains = []
    for number, module in enumerate(modules):
        ops = first if number == 0 else NORM
        chains.append(range(len(members), len(members) + len(ops)))
        members += chain(1_000 * number, ops, module=module, **more)
    return scan_of(timeline_of(members), matches(rule(), *chains))


def test_first_and_last_layers_are_variants_of_one_finding() -> None:
    (finding,) = norms("Llama_0.Layer_0.Norm_0", "Llama_0.Layer_1.Norm_1", "Llama_0.Norm_2").findings
    assert finding.occurrences == 3
    assert sorted(v.occurrences for v in finding.variants) == [1, 2]
    assert finding.title.endswith(": Norm")


def test_another_class_of_module_is_another_finding() -> None:
    assert len(norms("Llama_0.Norm_0", "Llama_0.Other_1").findings) == 2


def test_a_finding_is_the_sum_of_its_variants_and_lists_their_occurrences_in_turn() -> None:
    (finding,) = norms("A_0.Norm_0", "A_0.Norm_1", "A_0.B_0.Norm_2").findings
    parts = variants_of(finding)
    assert [one.fingerprint for one in parts] == [v.identity.finding for v in finding.variants]
    assert finding.measured_ns == sum(v.measured_ns for v in finding.variants)
    assert finding.gpu_saving_ns == sum((v.gpu_saving_ns for v in finding.variants), NOTHING)
    assert finding.step_saving_ns == sum((v.step_saving_ns for v in finding.variants), NOTHING)
    assert tuple(once for one in parts for once in one.activities) == finding.activities
    assert [len(one.activities[0]) for one in parts] == [len(one.kernels) for one in parts]
    assert with_variants(finding, parts) == finding


def test_a_recording_without_modules_is_found_by_the_alias() -> None:
    (named,) = norms("A_0.Norm_0", "A_0.Norm_1").findings
    (unnamed,) = norms(None, None).findings
    assert unnamed.identity.aliases == ()
    assert unnamed.fingerprint in named.identity.aliases
    assert unnamed.fingerprint != named.fingerprint


def test_operators_that_are_not_the_same_are_no_alias() -> None:
    (named,) = norms("A_0.Norm_0", "A_0.Norm_1").findings
    other = scan_of(timeline_of(chain(0, ("aten::exp", "aten::mul"))), matches(rule(), [0, 1])).findings[0]
    assert other.fingerprint not in (named.fingerprint, *named.identity.aliases)


def test_neither_time_nor_order_nor_threshold_nor_length_is_in_an_identity() -> None:
    (plain,) = norms("A_0.Norm_0", "A_0.Norm_1").findings
    (later,) = norms("A_7.Norm_4", "A_7.Norm_5", "A_7.Norm_6", dur_us=90).findings
    assert later.fingerprint == plain.fingerprint
    assert {v.identity for v in later.variants} == {v.identity for v in plain.variants}


def test_the_module_and_the_signature_are_those_of_what_reduces() -> None:
    members = [*chain(0, ("aten::add",), module="A_0.Layer_0"), *chain(60, NORM, module="A_0.Layer_0.Norm_0")]
    (finding,) = scan_of(timeline_of(members), matches(rule(), range(5))).findings
    assert finding.module == "A_*.Layer_*.Norm_*"
    elementwise = [
        *chain(0, ("aten::add",), module="A_0.Layer_0"),
        *chain(60, ("aten::exp",), module="A_0.Layer_0.Act_0"),
    ]
    (other,) = scan_of(timeline_of(elementwise), matches(rule(), range(2))).findings
    assert other.module == "A_*.Layer_*"


def test_variants_too_small_to_be_worth_anything_alone_are_worth_it_together() -> None:
    members = [k for i in range(10) for k in chain(1_000 * i, shapes=((64 + i, 8), (64 + i, 8)), module="A_0.Norm_0")]
    found = matches(rule(), *(range(i, i + 4) for i in range(0, 40, 4)))
    timeline = timeline_of(members)
    (whole,) = scan_of(timeline, found).findings
    assert len(whole.variants) == 10
    least = whole.gpu_saving_ns.mid - 1
    assert all(v.gpu_saving_ns.mid < least for v in whole.variants)
    assert len(scan_of(timeline, found, least=least).reported) == 1
    assert scan_of(timeline, found, least=10**9).reported == ()


def test_titles_tell_findings_apart() -> None:
    half = ("c10::Half",) * 2
    members = [
        *chain(0, module="A_0.Norm_0"),
        *chain(1_000, module="A_0.Norm_0", dtypes=half),
        *chain(2_000, ("aten::exp", "aten::mul")),
        *chain(3_000, ("aten::sin", "aten::mul")),
    ]
    scan = scan_of(timeline_of(members), matches(rule(), range(4), range(4, 8), (8, 9), (10, 11)))
    assert len(scan.findings) == 4
    assert len({f.title for f in scan.findings}) == 4
    assert sum("exp, mul" in f.title for f in scan.findings) == 1


def worth(finding: Finding) -> tuple[bool, int, int]:
    of = finding if finding.per_step is None else finding.per_step
    return finding.reported, of.step_saving_ns.mid, of.gpu_saving_ns.mid


def test_behind_the_first_three_the_step_comes_first_and_gpu_time_settles_what_is_equal() -> None:
    scan = pipeline.scan(FIXTURES / "kineto/decoder_decode.json.gz")
    keys = [worth(one) for one in scan.findings]
    assert len(keys) > 3
    assert keys[3:] == sorted(keys[3:], reverse=True)
    assert keys[0] == max(keys)


def made(mark: str, step_ns: int, gpu_ns: int, **more: Any) -> Finding:
    """A finding of two steps, all of it in them."""
    (found,) = norms("A_0.Norm_0").findings
    step, gpu = (Range(0, each, each) for each in (step_ns, gpu_ns))
    each = PerStep(measured_ns=1, gpu_saving_ns=gpu // 2, step_saving_ns=step // 2, share_of_unprofiled=0.0)
    fields = {"per_step": each, "step_saving_ns": step, "gpu_saving_ns": gpu} | more
    return msgspec.structs.replace(found, fingerprint=mark, **fields)


def marks(findings: list[Finding], gpu_time_ns: int = 1_000) -> str:
    return "".join(one.fingerprint for one in ordered(findings, gpu_time_ns))


def test_a_large_saving_of_gpu_time_is_among_the_first_three_whatever_the_host_does() -> None:
    small = [made(mark, step_ns, 0) for mark, step_ns in zip("abcd", (400, 300, 200, 100), strict=True)]
    assert marks(small) == "abcd"
    assert marks([*small, made("g", 0, 99)]) == "abcdg"  # less than a tenth
    assert marks([*small, made("g", 0, 100)]) == "abgcd"
    assert marks([*small, made("g", 0, 100), made("h", 0, 300)]) == "ahgbcd"
    assert marks([*small, made("g", 0, 100), made("h", 0, 300), made("i", 0, 200)]) == "ahibcdg"
    assert marks([*small, made("g", 0, 300, reported=False)]) == "abcdg"


def test_idle_time_that_the_headline_names_takes_none_of_the_three_places() -> None:
    idle = made("i", 500, 0, fused_ns=None)
    small = [idle, *(made(mark, step_ns, 0) for mark, step_ns in zip("abc", (400, 300, 200), strict=True))]
    assert marks([*small, made("g", 0, 100)]) == "iabgc"
    assert marks([*small, *(made(mark, 0, 100 + 10 * at) for at, mark in enumerate("gh"))]) == "iahgbc"


def test_a_large_saving_that_the_step_feels_stays_where_it_is() -> None:
    found = [made("a", 400, 300), made("b", 300, 0), made("c", 200, 200), made("d", 100, 0)]
    assert marks(found) == "abcd"


def test_what_lies_outside_of_the_steps_never_stands_before_what_a_step_gains() -> None:
    none = PerStep(measured_ns=0, gpu_saving_ns=NOTHING, step_saving_ns=NOTHING, share_of_unprofiled=0.0)
    outside = made("o", 10**9, 900, per_step=none)
    assert marks([outside, made("a", 2, 0), made("b", 0, 2)])[0] == "a"
    assert marks([outside, made("b", 0, 2)])[0] == "b"


@pytest.mark.parametrize(("lines", "count"), [((70, 70), 1), ((70, 99), 2)])
def test_a_function_that_several_modules_call_is_one_thing_to_change(lines: tuple[int, int], count: int) -> None:
    members = []
    for number in range(len(lines)):
        members += chain(1_000 * number, module=f"A_0.Norm{number}_0")
    timeline = timeline_of(members)
    variants = [
        one for each in scan_of(timeline, matches(rule(), range(4), range(4, 8))).findings for one in variants_of(each)
    ]
    placed = {one.fingerprint: Place(one.fingerprint[::-1], (), f"Norm{at}") for at, one in enumerate(variants)}
    sourced = [
        msgspec.structs.replace(one, source=(Source(file="norm.py", line=line, function="norm", begins=True),))
        for one, line in zip(variants, lines, strict=True)
    ]
    found = grouped(sourced, placed)
    assert len(found) == count
    assert len(grouped(variants, placed)) == 2  # of unknown lines nothing is known to be the same
    names = {name for one in found for name in one.names}
    assert {one.fingerprint[::-1] for one in variants} <= names
    assert sum(one.occurrences for one in found) == 2


def steps(*spans: tuple[int, int]) -> list[tuple[int, int]]:
    return [(begin * US, length * US) for begin, length in spans]


def test_a_step_gains_what_lies_in_steps_and_the_share_is_of_the_unprofiled_step() -> None:
    members = [
        *chain(1_000, module="A_0.Norm_0", step_row=0),
        *chain(2_000, module="A_0.Norm_0", step_row=1),
        *chain(3_000, module="A_0.Norm_0"),
        *chain(4_000, module="A_0.Norm_0"),
    ]
    timeline = timeline_of(members, steps=steps((900, 1_000), (1_900, 1_000)))
    scan = scan_of(timeline, matches(rule(), *(range(i, i + 4) for i in range(0, 16, 4))))
    (finding,) = scan.findings
    assert finding.per_step is not None
    assert finding.per_step.gpu_saving_ns.mid == finding.gpu_saving_ns.mid // 4
    assert finding.per_step.step_saving_ns.mid == finding.step_saving_ns.mid // 4
    assert scan.summary.per_step is not None
    alone = scan.summary.per_step.unprofiled_ns
    assert alone is not None
    share = finding.per_step.step_saving_ns.mid / alone.mid
    assert finding.per_step.share_of_unprofiled == pytest.approx(share, abs=1e-4)


def test_where_no_steps_are_known_nothing_is_said_of_one() -> None:
    scan = norms("A_0.Norm_0", "A_0.Norm_1")
    assert scan.summary.per_step is None
    assert scan.summary.unprofiled_ns is not None
    assert scan.findings[0].per_step is None


def test_below_a_hundredth_of_the_step_and_of_gpu_time_is_not_reported_by_default() -> None:
    little = chain(0, module="A_0.Norm_0", dur_us=30)
    busy = [kernel(200 * US, 20_000 * US, op="aten::mm")]
    found = matches(rule(), range(4))
    hidden = scan_of(timeline_of([*little, *busy]), found, least=None)
    assert [f.reported for f in hidden.findings] == [False]
    shown = scan_of(timeline_of([*little, kernel(200 * US, 2_000 * US, op="aten::mm")]), found, least=None)
    assert [f.reported for f in shown.findings] == [True]


def test_one_optimizer_is_one_finding_however_many_shapes_its_parameters_have() -> None:
    scan = pipeline.scan(FIXTURES / "kineto/convnet_train.json.gz")
    (finding,) = [f for f in scan.findings if f.title.endswith(": SGD")]
    assert len(finding.variants) == 1
    assert finding.occurrences == scan.trace.steps == 2
    assert len(finding.activities[0]) == 33


def test_findings_of_version_1_are_read_each_as_a_finding_of_its_own() -> None:
    scan = norms("A_0.Norm_0", "A_0.Norm_1")
    old = msgspec.to_builtins(scan_of_variants(scan))
    old["schema_version"] = 1
    for finding in old["findings"]:
        for name in ("identity", "cause", "per_step", "variants", "reported"):
            del finding[name]
    del old["summary"]["unprofiled_ns"]
    read = decoded(msgspec.json.encode(old))
    assert read.schema_version == 2
    assert [f.fingerprint for f in read.findings] == [f["fingerprint"] for f in old["findings"]]
    assert all(f.reported and f.cause == f.rule for f in read.findings)
    assert all(variants_of(f) == (f,) for f in read.findings)


@pytest.mark.parametrize(("capture", "count"), [("chain", 1), ("decoder_decode", 2), ("decoder_prefill", 2)])
def test_verdicts_that_name_findings_of_version_1_count_for_variants(capture: str, count: int) -> None:
    """The fixture's verdicts were written before there were variants."""
    evidence = read_evidence([FIXTURES / "verdicts"])
    scan = pipeline.scan(FIXTURES / "captures" / capture, pipeline.ScanOptions(evidence=evidence))
    assert scan.evidence is not None
    assert scan.evidence["measured"] == count
    assert sum(scan.evidence.values()) == 7
    judged = [v for f in scan.findings for v in f.variants if v.verdict is not None]
    assert len(judged) == count


def random_parts(finding: Finding, seed: int) -> list[Finding]:
    parts = list(variants_of(finding))
    random.Random(seed).shuffle(parts)
    return parts


def test_the_order_of_variants_does_not_matter_to_what_they_are_together() -> None:
    (finding,) = norms("A_0.Norm_0", "A_0.Norm_1", shapes=(BIG, BIG)).findings
    assert {with_variants(finding, random_parts(finding, seed)) == finding for seed in range(4)} == {True}
