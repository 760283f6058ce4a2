"""What `scan --ncu` and `counters` print: findings say what was counted, and follow it; nothing of the host does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.counters.tables import MEMORY, READ, SM, TIME, WRITTEN, Launch, raw

RECORDED = Path(__file__).parents[2] / "fixtures" / "ncu"
CHAIN = RECORDED / "chain"
SECRET = "hunter2-0123456789abcdef"  # noqa: S105 - planted to be looked for

Said = tuple[int, str, str]
Run = Callable[..., Said]


def chain_report(path: Path, sm: str, memory: str) -> Path:
    """A report of the chain's four kernels with these throughputs, as the second of them has everywhere."""
    events = json.loads(gzip.decompress((CHAIN / "trace.json.gz").read_bytes()))["traceEvents"]
    kernels = sorted((each for each in events if each.get("cat") == "kernel"), key=lambda each: each["ts"])[:4]
    launches: list[Launch] = [
        (each["name"], tuple(each["args"]["grid"]), tuple(each["args"]["block"]), ("20.00", "31.3", "10.1", sm, memory))
        for each in kernels
    ]
    path.write_text(raw({TIME: "us", READ: "Mbyte", WRITTEN: "Mbyte", SM: "%", MEMORY: "%"}, launches))
    return path


def findings(run: Run, *arguments: object) -> dict[str, Any]:
    code, out, _ = run("scan", *arguments, "--format", "json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def chains(scan: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in scan["findings"] if finding["rule"] == "memory_bound_chain"]


def test_without_a_report_nothing_is_counted(run: Run) -> None:
    scan = findings(run, CHAIN / "trace.json.gz")
    assert chains(scan)
    assert all(finding["counters"] is None for finding in scan["findings"])


def test_a_finding_says_what_was_counted_of_its_kernels(run: Run) -> None:
    scan = findings(run, CHAIN / "trace.json.gz", "--ncu", CHAIN / "raw.csv.gz")
    (chain,) = chains(scan)
    counted = chain["counters"]
    assert (counted["kernels"], counted["known"], counted["exact"], counted["derived"]) == (8, 8, 8, False)
    assert counted["dram_bytes"] > 300_000_000
    assert 0 < counted["arithmetic_intensity"] < counted["ridge"] < 20
    assert sum(counted["bounds"].values()) == 8
    assert "compute" not in counted["bounds"]
    assert any(text.startswith("Of 8 kernels that Nsight Compute profiled, 8 were found") for text in scan["warnings"])


def test_measured_traffic_takes_the_models_place_and_the_finding_says_so(run: Run) -> None:
    (modelled,) = chains(findings(run, CHAIN / "trace.json.gz"))
    (measured,) = chains(findings(run, CHAIN / "trace.json.gz", "--ncu", CHAIN / "raw.csv.gz"))
    before, after = (each["traffic_bytes"]["before"] for each in (modelled, measured))
    assert before < after < 1.01 * before  # the kernels read little more than they must
    assert measured["traffic_bytes"]["after"] == modelled["traffic_bytes"]["after"]
    said = [text for text in measured["assumptions"] if "Nsight Compute counted" in text]
    assert len(said) == 1
    assert not any("Nsight Compute" in text for text in modelled["assumptions"])


def test_traffic_stays_modelled_where_a_kernel_was_not_counted(run: Run, tmp_path: Path) -> None:
    path = chain_report(tmp_path / "r.csv", sm="20.00", memory="85.00")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (chain,) = chains(findings(run, CHAIN / "trace.json.gz", "--ncu", path))
    assert (chain["counters"]["known"], chain["counters"]["kernels"]) == (6, 8)
    assert not any("Nsight Compute counted" in text for text in chain["assumptions"])


def test_a_kernel_that_memory_limits_stays_a_link_of_a_chain(run: Run, tmp_path: Path) -> None:
    report = chain_report(tmp_path / "r.csv", sm="20.00", memory="85.00")
    (chain,) = chains(findings(run, CHAIN / "trace.json.gz", "--ncu", report))
    assert chain["counters"]["bounds"] == {"memory": 8}


@pytest.mark.parametrize("extra", [(), ("--et",)])
def test_a_kernel_that_compute_limits_is_no_link_of_a_chain(run: Run, tmp_path: Path, extra: tuple[str, ...]) -> None:
    report = chain_report(tmp_path / "r.csv", sm="85.00", memory="20.00")
    trace: tuple[object, ...] = (CHAIN / "trace.json.gz",)
    if extra:  # dataflow is proven there, so kernels are groups and not neighbours
        capture = RECORDED.parent / "captures" / "chain"
        trace = (capture / "trace.json.gz", "--et", capture / "et.json.gz")
    assert chains(findings(run, *trace))
    scan = findings(run, *trace, "--ncu", report)
    assert chains(scan) == []
    assert any("would count as memory-bound are bound by compute" in text for text in scan["warnings"])


def test_savings_add_up_with_a_report_as_without(run: Run) -> None:
    scan = findings(
        run, RECORDED / "decoder_prefill" / "trace.json.gz", "--ncu", RECORDED / "decoder_prefill" / "raw.csv.gz"
    )
    assert sum(each["gpu_saving_ns"]["mid"] for each in scan["findings"]) == scan["summary"]["gpu_saving_ns"]["mid"]
    assert any(each["counters"] for each in scan["findings"])


@pytest.mark.parametrize("report", ["text", "markdown"])
def test_the_reports_for_people_say_it(run: Run, report: str) -> None:
    arguments = (CHAIN / "trace.json.gz", "--ncu", CHAIN / "raw.csv.gz")
    code, out, _ = run("scan", *arguments, "--format", report, "--all")
    assert code == 0
    assert "8 of 8 kernels: 34" in " ".join(out.split())


def test_a_report_that_is_none_is_one_line_and_no_scan(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(b"")
    code, out, err = run("scan", CHAIN / "trace.json.gz", "--ncu", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: is empty\n  hint: ")


def test_rows_that_were_left_out_are_said(run: Run, tmp_path: Path) -> None:
    path = chain_report(tmp_path / "r.csv", sm="20.00", memory="85.00")
    path.write_text(path.read_text()[:-9])
    code, out, err = run("top", path)
    assert code == 0
    assert err == f"{path}: left out 1 row cut off, or broken by other output\n"
    assert len(out.splitlines()) == 4


def test_counters_prints_a_line_a_kernel_with_its_place_on_the_roofline(run: Run) -> None:
    code, out, err = run("top", CHAIN / "trace.json.gz", "--ncu", CHAIN / "raw.csv.gz")
    assert code == 0
    title, *lines = out.splitlines()
    assert [word in title for word in ("modelled", "FLOP/byte", "ridge", "bound")] == [True] * 4
    assert len(lines) == 4
    assert "found here, 8 by name, grid and order" in err
    code, out, _ = run("top", CHAIN / "raw.csv.gz", "--format", "json")
    assert [each["launches"] for each in json.loads(out)] == [2, 2, 2, 2]


def test_nothing_of_the_host_or_the_user_is_printed(run: Run, tmp_path: Path) -> None:
    text = chain_report(tmp_path / "r.csv", sm="20.00", memory="85.00").read_text()
    planted = text.replace('"python3","127.0.0.1"', f'"{SECRET}","{SECRET}.example.org"').replace('"7"', '"7"')
    header, units, *rows = planted.splitlines()
    complaint = f"==PROF== Connected to process 7 (/home/{SECRET}/bin/python3)"
    nvtx = [header + ',"thread Domain:Push/Pop_Range"', units + ',""', *(f'{row},"{SECRET}"' for row in rows)]
    path = tmp_path / "planted.csv"
    path.write_text("\n".join([complaint, *nvtx, f"user {SECRET}", ""]))
    printed = ""
    for form in ("text", "json", "markdown"):
        for command in (
            ("scan", CHAIN / "trace.json.gz", "--ncu", path),
            ("top", CHAIN / "trace.json.gz", "--ncu", path),
        ):
            code, out, err = run(*command, "--format", form)
            assert code == 0
            printed += out + err
    assert "8 of 8 kernels" in " ".join(printed.split())
    assert SECRET not in printed
