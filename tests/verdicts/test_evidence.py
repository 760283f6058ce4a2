"""Verdicts read back: what counts for which finding, and what is left out, and that no file crashes the reader."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.report.scans import SCAN
from tests.verdicts.test_verdict import FINDING as PLAIN
from tests.verdicts.test_verdict import VALIDATION, judged, ran
from tracemine.cli import main
from tracemine.errors import InputError
from tracemine.findings.record import Alike, Scan, Share
from tracemine.findings.verdicts import ACCOUNTS, with_verdicts
from tracemine.validate.record import Fault
from tracemine.verdicts.evidence import Evidence, read_evidence, same_gpu
from tracemine.verdicts.stored import LARGEST_BYTES
from tracemine.verdicts.verdict import CallVerdict, Verdict, Verdicts, table

ROOT = Path(__file__).parents[2]
H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
MARK = PLAIN.fingerprint
FINDING = msgspec.structs.replace(
    PLAIN, alike=Alike(occurrences=2, measured_ns=PLAIN.measured_ns, gpu_saving_ns=PLAIN.gpu_saving_ns)
)


def printed(mark: str = MARK, gpu: str = H200, **times: int) -> dict[str, Any]:
    """What a reproduction prints with --json, on this GPU."""
    found = json.loads(json.dumps(ran(**times)))
    found["times"]["device"] = gpu
    return {"fingerprint": mark, "device": gpu, **found}


def verified(gpu: str = H200, **known: Any) -> Verdict:
    """A verdict as `verify` makes it on this GPU."""
    return judged(validation=VALIDATION, ran={**printed(gpu=gpu), **known})


def written(folder: Path, *verdicts: Verdict, gpu: str | None = H200, form: str = "json") -> Path:
    """A file as `verify` writes it."""
    found = Verdicts(trace="t", gpu=gpu, verdicts=verdicts, skipped={})
    path = folder / f"verdicts.{form}"
    if form == "json":
        path.write_bytes(msgspec.json.encode(found))
    else:
        pq.write_table(table(found), path)
    return path


def put(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def scan_of(evidence: Evidence, gpu: str = H200) -> Scan:
    """A scan of the one finding, with the evidence."""
    trace = msgspec.structs.replace(SCAN.trace, gpu=gpu)
    scan = msgspec.structs.replace(SCAN, findings=(FINDING,), trace=trace)
    return with_verdicts(scan, lambda finding: evidence.on(finding, gpu))


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_file_whose_name_is_not_text_is_evidence_all_the_same(tmp_path: Path, form: str) -> None:
    (tmp_path / "\udcfe").mkdir()
    path = written(tmp_path, verified(), form=form).rename(tmp_path / "\udcfe" / f"v\udcfe.{form}")
    for named in (path, path.parent):
        found = read_evidence([named]).on(FINDING, H200)
        assert found is not None
        assert found.file == f"{tmp_path}/?/v?.{form}"


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_what_verify_writes_is_read_back(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, verified(), form=form)
    found = read_evidence([path]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.level, found.device, found.state) == ("measured", "L5", H200, "warm")
    assert (found.eager_ns, found.fused_ns, found.compiled_ns) == (20_000, 5_000, 6_000)
    assert found.saved_share == Share(0.75, 0.75, 0.75)
    assert (found.predicted_ns, found.occurrences) == (FINDING.gpu_saving_ns, 2)
    assert [text[:2] for text in found.not_tested] == ["L6"]
    assert found.file == str(path)


def test_what_a_reproduction_printed_elsewhere_is_judged_as_verify_does(tmp_path: Path) -> None:
    path = put(tmp_path / "out.json", printed())
    found, wanted = read_evidence([path]).on(FINDING, H200), verified()
    assert found is not None
    assert (found.level, found.says, found.eager_ns) == (wanted.level, wanted.says, 20_000)
    assert found.saved_share == Share(0.75, 0.75, 0.75)
    assert any(text.startswith("L2") for text in found.not_tested)


def test_what_reproductions_make_of_their_samples_is_read(tmp_path: Path) -> None:
    """Ratios, noise and judgements by the code that every reproduction holds."""
    timing = pytest.importorskip("tracemine.verify.gpu.timing")
    nominal = {"eager": 20_000, "fused": 8_000, "library": 5_000, "compiled": 6_000, "tuned": 5_500, "copy": 4_000}
    samples = {
        state: {name: {"sum_ns": [scale * ns + 37 * k for k in range(20)]} for name, ns in nominal.items()}
        for state, scale in (("cold", 3), ("warm", 1))
    }
    found = printed() | {"right_others": {"library": {"faults": []}, "compiled": {"faults": []}}}
    found["times"] |= {"samples": samples, "judged": {name: timing.judged(each) for name, each in samples.items()}}
    read = read_evidence([put(tmp_path / "out.json", found)]).on(FINDING, H200)
    assert read is not None
    assert (read.basis, read.level, read.by, read.state) == ("measured", "L5", "a library's call", "warm")
    assert read.saved_share is not None
    assert 0.7 < read.saved_share.low <= read.saved_share.mid <= read.saved_share.high < 0.8


@pytest.mark.parametrize(
    "text",
    [
        f"a warning of torch\n{json.dumps(printed())}\n",
        f"{json.dumps(printed())}\n{json.dumps(printed('f' * 16))}\n",
        json.dumps({"repro_000": printed(), "repro_001": "it ended the process"}),
        json.dumps([printed(), printed("f" * 16)]),
        f"{json.dumps(['repro_000', 'it ended the process'])}\n{json.dumps(['repro_000', printed()])}",
    ],
    ids=["after other output", "one a line", "gathered by name", "a list", "lines with names"],
)
def test_results_are_found_alone_or_gathered(tmp_path: Path, text: str) -> None:
    found = read_evidence([put(tmp_path / "out.json", text)]).on(FINDING, H200)
    assert found is not None
    assert found.basis == "measured"


def test_numbers_that_json_has_not_do_not_spoil_the_rest(tmp_path: Path) -> None:
    wrong = {**printed(), "right": {"faults": ["seed 0, output 0: NaN"], "error": float("nan")}}
    del wrong["times"]
    found = read_evidence([put(tmp_path / "out.json", wrong)]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.says) == ("refuted", "wrong on the GPU: seed 0, output 0: NaN")


RECORDED = ROOT / "fixtures" / "verdicts"


def test_what_reproductions_printed_on_a_gpu_is_read() -> None:
    evidence = read_evidence([RECORDED])
    assert len(evidence.items) == 7
    assert not evidence.notes


@pytest.mark.parametrize("name", ["chain", "decoder_prefill"])
def test_times_of_a_gpu_take_the_place_of_what_was_predicted_of_the_same_trace(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = ROOT / "fixtures" / "captures" / name
    assert main(["scan", str(capture), "--evidence", str(RECORDED), "--format", "json", "--quiet"]) == 0
    scan = json.loads(capsys.readouterr().out)
    verdicts = [finding["verdict"] for finding in scan["findings"] if finding["verdict"]]
    assert len(verdicts) == scan["evidence"]["measured"] > 0
    assert {(each["basis"], each["device"]) for each in verdicts} == {("measured", "NVIDIA H200")}


# --- what it does to a claim ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "basis", "says"),
    [
        ({"fused": 5_000}, "measured", "not slower than torch.compile"),
        ({"fused": 5_000, "compiled": 4_000}, "measured", "slower than torch.compile"),
        ({"fused": 20_000}, "measured", "cannot tell from eager"),
        ({"fused": 30_000}, "refuted", "this fusion loses"),
    ],
)
def test_what_was_timed_counts_where_it_loses_too(tmp_path: Path, times: dict[str, Any], basis: str, says: str) -> None:
    found = read_evidence([put(tmp_path / "out.json", printed(**times))]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.says) == (basis, says)


def test_another_replay_than_the_traces_leaves_the_prediction(tmp_path: Path) -> None:
    other = printed() | {"replay": {"same_names": False, "same_grids": False}}
    found = read_evidence([put(tmp_path / "out.json", other)]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.level) == ("predicted", "L0")


def test_a_proof_without_a_gpu_holds_for_any_gpu(tmp_path: Path) -> None:
    evidence = read_evidence([written(tmp_path, judged(validation=VALIDATION), gpu=None)])
    for gpu in (H200, A100, None):
        found = evidence.on(FINDING, gpu)
        assert found is not None
        assert (found.basis, found.level) == ("predicted", "L2")


def test_times_of_another_gpu_are_counted_and_not_used(tmp_path: Path) -> None:
    evidence = read_evidence([written(tmp_path, verified(gpu=A100))])
    assert evidence.on(FINDING, H200) is None
    scan = scan_of(evidence)
    assert scan.findings == (FINDING,)
    assert evidence.account(scan, H200) == {"other_gpu": 1}


def test_wrong_results_on_a_gpu_that_is_not_named_take_nothing_away(tmp_path: Path) -> None:
    unnamed = {"fingerprint": MARK, "replay": {"same_names": True, "same_grids": True}, "right": {"faults": ["x"]}}
    evidence = read_evidence([put(tmp_path / "out.json", unnamed)])
    assert evidence.account(scan_of(evidence), H200) == {"other_gpu": 1}


def test_one_model_has_several_names_and_a_slice_of_it_is_another() -> None:
    assert same_gpu("NVIDIA H200", "NVIDIA H200 SXM")
    assert same_gpu("My GPU", "my  gpu")
    assert not same_gpu("NVIDIA H200", "NVIDIA H200 MIG 1g.18gb")
    assert not same_gpu("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")


# --- a library's call beside the kernel -------------------------------------------------------------------------------


def with_library(call_ns: int, **times: Any) -> dict[str, Any]:
    """What a reproduction prints that has a call of so many ns beside the kernel."""
    found = printed(**times)
    eager_ns = times.get("eager", 20_000)
    ratio = {"ratio": eager_ns / call_ns, "low": eager_ns / call_ns, "high": eager_ns / call_ns}
    for state, scale in (("cold", 3), ("warm", 1)):
        found["times"]["samples"][state]["library"] = {"sum_ns": [call_ns * scale] * 4}
        found["times"]["judged"][state] |= {
            "library": {**ratio},
            "to_library": {"eager": ratio, "compiled": ratio},
            "library_faster_than_eager": eager_ns > 1.01 * call_ns,
            "library_slower_than_eager": eager_ns < 0.99 * call_ns,
            "library_not_slower_than_compile": True,
        }
    return found | {"right_others": {"library": {"faults": []}}}


@pytest.mark.parametrize(
    ("call_ns", "kernel_ns", "basis", "by", "share"),
    [
        (4_000, 5_000, "measured", "a library's call", 0.8),
        (6_000, 5_000, "measured", "kernel", 0.75),
        (10_000, 30_000, "measured", "a library's call", 0.5),
        (40_000, 5_000, "measured", "kernel", 0.75),
        (40_000, 30_000, "refuted", "kernel", -0.5),
    ],
)
def test_of_kernel_and_library_call_the_faster_counts(
    tmp_path: Path, call_ns: int, kernel_ns: int, basis: str, by: str, share: float
) -> None:
    path = put(tmp_path / "out.json", with_library(call_ns, fused=kernel_ns))
    found = read_evidence([path]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.by, found.fused_ns, found.library_ns) == (basis, by, kernel_ns, call_ns)
    assert found.saved_share is not None
    assert found.saved_share.mid == pytest.approx(share, abs=1e-4)


# --- torch.compile beside the kernel ----------------------------------------------------------------------------------


def with_compiled(compiled_ns: int, faults: tuple[str, ...] = (), **times: Any) -> dict[str, Any]:
    """What a reproduction prints where torch.compile's kernels take so many ns."""
    found = printed(compiled=compiled_ns, **times)
    eager_ns = times.get("eager", 20_000)
    ratio = {"ratio": eager_ns / compiled_ns, "low": eager_ns / compiled_ns, "high": eager_ns / compiled_ns}
    for judged_there in found["times"]["judged"].values():
        judged_there |= {
            "to_compiled": {"eager": ratio},
            "compiled_faster_than_eager": eager_ns > 1.01 * compiled_ns,
            "compiled_slower_than_eager": eager_ns < 0.99 * compiled_ns,
        }
    return found | {"right_others": {"compiled": {"faults": list(faults)}}}


@pytest.mark.parametrize(
    ("compiled_ns", "kernel_ns", "faults", "basis", "by", "share"),
    [
        (4_000, 30_000, (), "measured", "torch.compile", 0.8),
        (4_000, 5_000, (), "measured", "torch.compile", 0.8),
        (6_000, 5_000, (), "measured", "kernel", 0.75),
        (4_000, 30_000, ("row 3",), "refuted", "kernel", -0.5),
        (25_000, 30_000, (), "refuted", "kernel", -0.5),
    ],
    ids=["the kernel loses", "both win", "the kernel wins", "its results are wrong", "both lose"],
)
def test_a_claim_that_torch_compile_keeps_is_kept(
    tmp_path: Path, compiled_ns: int, kernel_ns: int, faults: tuple[str, ...], basis: str, by: str, share: float
) -> None:
    path = put(tmp_path / "out.json", with_compiled(compiled_ns, faults, fused=kernel_ns))
    found = read_evidence([path]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.by, found.fused_ns, found.compiled_ns) == (basis, by, kernel_ns, compiled_ns)
    assert found.saved_share is not None
    assert found.saved_share.mid == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_what_torch_compile_came_to_is_read_back(tmp_path: Path, form: str) -> None:
    made = judged(validation=VALIDATION, ran=with_compiled(4_000, fused=30_000))
    assert (made.level, made.best) == ("L3", "compiled")
    assert made.compiled is not None
    assert (made.compiled.level, made.compiled.not_tested[-2]) == ("L4", "L5: it is torch.compile's own")
    found = read_evidence([written(tmp_path, made, form=form)]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.by, found.level) == ("measured", "torch.compile", "L4")


def test_a_wrong_library_call_counts_for_nothing(tmp_path: Path) -> None:
    wrong = with_library(4_000) | {"right_others": {"library": {"faults": ["element 3"]}}}
    found = read_evidence([put(tmp_path / "out.json", wrong)]).on(FINDING, H200)
    assert found is not None
    assert (found.by, found.fused_ns) == ("kernel", 5_000)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_the_library_call_of_a_verdict_is_read_back(tmp_path: Path, form: str) -> None:
    kernel = verified()
    assert kernel.measured is not None
    took = msgspec.structs.replace(
        kernel.measured, fused_ns=4_000, eager_to_fused={"ratio": 5.0, "low": 4.9, "high": 5.1}
    )
    call = CallVerdict(
        call="F.rms_norm", text="F.rms_norm(x, (64,), w)", level="L5", says="not slower than torch.compile",
        products=False, calls=2, eager_calls=0, measured=took, validation=None, right=None, source=None, assumptions=(),
        not_tested=(),
    )  # fmt: skip
    path = written(tmp_path, msgspec.structs.replace(kernel, library=call), form=form)
    found = read_evidence([path]).on(FINDING, H200)
    assert found is not None
    assert (found.by, found.library, found.library_ns) == (call.text, call.text, 4_000)
    assert found.saved_share is not None
    assert found.saved_share.low == pytest.approx(1 - 1 / 4.9, abs=1e-5)
    assert found.saved_share.mid == 0.8


def test_a_call_where_no_kernel_is_generated_counts_as_one(tmp_path: Path) -> None:
    found = read_evidence([put(tmp_path / "out.json", printed() | {"kernel": False})]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.by, found.fused_ns, found.library_ns) == ("measured", "a library's call", None, 5_000)


def test_results_of_a_chain_with_other_kernels_are_not_of_the_finding(tmp_path: Path) -> None:
    """A call that does the products around the chain too is timed against all of that."""
    around = printed()
    around["replay"]["kernels"] = [["product", [1]], ["a", [1]], ["b", [1]]]
    found = read_evidence([put(tmp_path / "out.json", around)]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.says) == ("predicted", "of another chain: 3 kernels where the finding has 2")


# --- several on one finding -------------------------------------------------------------------------------------------


def test_of_two_the_newest_counts_and_the_other_is_counted(tmp_path: Path) -> None:
    old = put(tmp_path / "b.json", printed(fused=30_000))
    new = put(tmp_path / "a.json", printed(fused=10_000))
    os.utime(old, ns=(1, 1))
    os.utime(new, ns=(2, 2))
    evidence = read_evidence([tmp_path])
    scan = scan_of(evidence)
    assert scan.findings[0].verdict is not None
    assert scan.findings[0].verdict.fused_ns == 10_000
    assert evidence.account(scan, H200) == {"measured": 1, "repeated": 1}


def test_one_that_settles_the_matter_goes_before_a_newer_one_that_does_not(tmp_path: Path) -> None:
    timed = put(tmp_path / "timed.json", printed())
    validated = written(tmp_path, judged(validation=VALIDATION), gpu=None)
    os.utime(timed, ns=(1, 1))
    os.utime(validated, ns=(2, 2))
    found = read_evidence([tmp_path]).on(FINDING, H200)
    assert found is not None
    assert found.basis == "measured"


def validated(source: str, **known: Any) -> Verdict:
    """A verdict on a machine without a GPU, of this reproduction."""
    return msgspec.structs.replace(judged(validation=msgspec.structs.replace(VALIDATION, **known)), source=source)


def test_a_proof_of_the_file_that_was_run_is_part_of_the_verdict(tmp_path: Path) -> None:
    written(tmp_path, validated("the file"), gpu=None)
    same, other = (hashlib.sha256(text).hexdigest() for text in (b"the file", b"another"))
    for mark, untried in ((same, ["L6"]), (other, ["L2", "L6"])):
        put(tmp_path / "out.json", printed() | {"source_sha256": mark})
        found = read_evidence([tmp_path]).on(FINDING, H200)
        assert found is not None
        assert (found.basis, found.level) == ("measured", "L5")
        assert [text[:2] for text in found.not_tested] == untried


def test_what_is_fast_on_a_gpu_and_wrong_by_the_proof_of_the_same_file_is_refuted(tmp_path: Path) -> None:
    wrong = validated("the file", faults=(Fault("normal", "error 3"),))
    written(tmp_path, wrong, gpu=None)
    path = put(tmp_path / "out.json", printed() | {"source_sha256": hashlib.sha256(b"the file").hexdigest()})
    os.utime(path, ns=(2**62, 2**62))  # newer
    found = read_evidence([tmp_path]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.says) == ("refuted", "wrong on a CPU: normal: error 3")


def test_the_table_beside_its_json_is_not_read_twice(tmp_path: Path) -> None:
    written(tmp_path, verified(), form="json")
    written(tmp_path, verified(), form="parquet")
    evidence = read_evidence([tmp_path])
    assert evidence.account(scan_of(evidence), H200) == {"measured": 1}


# --- what is wrong with files -----------------------------------------------------------------------------------------

SAID = {"fingerprint": MARK, "level": "L4", "says": "x"}
TIMED = {
    "device": H200,
    "state": "cold",
    "eager_ns": 20,
    "fused_ns": 10,
    "eager_to_fused": {"low": 1.9, "ratio": 2.0, "high": 2.1},
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is cut off, or no JSON"),
        (json.dumps(printed())[:-9], "is cut off, or no JSON"),
        ("[" * 100_000, "is cut off, or no JSON"),
        ("1" * 5_000, "is cut off, or no JSON"),
        ("{}", "holds no verdicts"),
        ('{"traceEvents": []}', "holds no verdicts"),
        (json.dumps({"schema_version": 9, "verdicts": [SAID]}), "are of version 9; this tracemine reads 2"),
        (json.dumps({"verdicts": [SAID]}), "its verdicts are of version None"),
        (json.dumps(SAID | {"fingerprint": "../../etc"}), "holds no verdicts"),
        (json.dumps(SAID | {"level": "L9"}), "holds no verdicts"),
        (json.dumps(SAID | {"measured": TIMED | {"eager_ns": -1}}), "holds no verdicts"),
        (json.dumps(SAID | {"measured": TIMED | {"eager_ns": 10**30}}), "holds no verdicts"),
        (json.dumps(SAID | {"measured": TIMED | {"eager_ns": 30}}), "holds no verdicts"),
        (json.dumps(SAID | {"measured": TIMED | {"eager_to_fused": {"low": 3, "ratio": 2, "high": 4}}}), "no verdicts"),
        (json.dumps(printed() | {"times": {"samples": {}, "judged": {}, "device": H200}}), "holds no verdicts"),
        (json.dumps(printed() | {"replay": None}), "holds no verdicts"),
    ],
)
def test_a_named_file_that_holds_no_verdicts_is_an_error_of_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = put(tmp_path / "v.json", text)
    with pytest.raises(InputError) as raised:
        read_evidence([path])
    message = str(raised.value).partition("\n  hint:")[0]
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "\n" not in message


def test_in_a_folder_it_is_left_out_with_a_note_and_the_rest_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a.json", printed())
    put(tmp_path / "b.json", SAID | {"level": "L9"})
    put(tmp_path / "c.json", json.dumps(printed())[:-9])
    put(tmp_path / "findings.json", {"schema_version": 1, "trace": {}, "findings": [{"fingerprint": MARK}]})
    put(tmp_path / "d.json", {"traceEvents": []})
    (tmp_path / "e.parquet").write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"name": ["kernel"]}), tmp_path / "timeline.parquet")
    put(tmp_path / "f.jsonl", f"{json.dumps(printed())}\n{json.dumps(printed())[:50]}\n")
    evidence = read_evidence([tmp_path])
    assert evidence.account(scan_of(evidence), H200) == {"measured": 1, "repeated": 1}
    notes = "\n".join(evidence.notes)
    assert f"{tmp_path / 'b.json'}: left out, it holds no verdicts that can be used" in notes
    assert f"{tmp_path / 'c.json'}: left out, it is cut off, or no JSON" in notes
    assert f"{tmp_path / 'e.parquet'}: left out, it is no Parquet file" in notes
    assert f"{tmp_path / 'f.jsonl'}: left out, 1 line: cut off, or no JSON" in notes
    assert f"{tmp_path}: left out, no verdicts: 3 files" in notes


def test_in_a_folder_verdicts_beside_that_of_a_step_are_read(tmp_path: Path) -> None:
    verdicts = json.loads(written(tmp_path, verified()).read_text())
    put(tmp_path / "verdicts.json", verdicts | {"step": {"findings": [{"fingerprint": MARK, "title": ""}]}})
    evidence = read_evidence([tmp_path])
    assert evidence.notes == []
    assert evidence.on(FINDING, H200) is not None


def test_a_verdict_with_a_key_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    half = SAID | {"half \ud800": 1}
    path = put(tmp_path / "v.json", f"{json.dumps(SAID)}\n{json.dumps(half)}\n")
    evidence = read_evidence([path])
    assert evidence.notes == [f"{path}: left out, 1 verdict: a key in it is no text"]
    assert evidence.on(FINDING, H200) is not None


def test_a_folder_without_verdicts_says_so(tmp_path: Path) -> None:
    assert read_evidence([tmp_path]).notes == [f"{tmp_path}: no verdict lies in this folder or below it"]


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    with path.open("wb") as file:
        file.write(b'{"fingerprint": "')
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(InputError, match="is larger than 67,108,864 bytes"):
        read_evidence([path])


def test_a_table_that_repeats_long_texts_is_too_large(tmp_path: Path) -> None:
    path = written(tmp_path, judged(validation=VALIDATION), form="parquet")
    rows = pq.read_table(path)
    long = rows.set_column(rows.schema.get_field_index("says"), "says", pa.array(["x" * 10_000]))
    pq.write_table(pa.concat_tables([long] * 10_000).combine_chunks(), path)
    with pytest.raises(InputError, match="is too large for verdicts"):
        read_evidence([path])


def test_a_table_whose_gpu_is_no_text_names_none(tmp_path: Path) -> None:
    path = written(tmp_path, judged(validation=VALIDATION), gpu=None, form="parquet")
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(rows.schema.get_field_index("gpu"), "gpu", pa.array([5])), path)
    found = read_evidence([path]).on(FINDING, H200)
    assert found is not None
    assert (found.basis, found.level, found.device) == ("predicted", "L2", None)


def test_a_table_of_another_version_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"fingerprint": [MARK]}).replace_schema_metadata({"tracemine.verdicts": "9"}), path)
    with pytest.raises(InputError, match="no table of verdicts, or one of another version"):
        read_evidence([path])


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="nowhere: there is no such file"):
        read_evidence([Path("nowhere")])


def test_texts_of_a_file_can_be_written_anywhere(tmp_path: Path) -> None:
    said = SAID | {"says": "half \ud800 " + "x" * 10_000, "not_tested": ["L6: \udfff"] * 1_000}
    found = read_evidence([put(tmp_path / "v.json", said)]).on(FINDING, H200)
    assert found is not None
    assert len(found.says) <= 500
    assert len(found.not_tested) <= 50
    assert msgspec.json.encode(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(MARK) | st.just("L4"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def spoiled(draw: st.DrawFn) -> object:
    """A verdict or a result with one or two of its values replaced by anything, or missing."""
    value: Any = draw(
        st.sampled_from([printed(), SAID | {"measured": TIMED}, {"schema_version": 1, "gpu": H200, "verdicts": [SAID]}])
    )
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 2))):
        at: Any = None
        key: Any = None
        inner = value
        while isinstance(inner, dict | list) and inner and (at is None or draw(st.booleans())):
            at, key = inner, draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
            inner = at[key]
        if at is None:
            break
        if isinstance(at, dict) and draw(st.booleans()):
            del at[key]
        else:
            at[key] = draw(JSON)
    return value


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=spoiled(), cut=st.integers(0, 3_000), whole=st.booleans())
def test_no_file_crashes_the_reader_and_every_verdict_is_accounted_for(
    tmp_path: Path, value: object, cut: int, whole: bool
) -> None:
    text = json.dumps(value)
    path = put(tmp_path / "v.json", text if whole else text[:cut])
    try:
        evidence = read_evidence([path])
    except InputError as error:
        assert str(error).startswith(str(path))
        return
    scan = scan_of(evidence)
    counts = evidence.account(scan, H200)
    assert set(counts) <= set(ACCOUNTS)
    assert sum(counts.values()) == sum(map(len, evidence.items.values()))
    saving = scan.findings[0].gpu_saving_ns
    assert 0 <= saving.low <= saving.mid <= saving.high <= FINDING.measured_ns
    assert msgspec.json.decode(msgspec.json.encode(scan), type=Scan) == scan
