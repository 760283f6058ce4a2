"""What `scan` answers on small inputs and captures whose right answer is known: right or wrong, each with what it says.

    python -m benchmarks answers --inputs FOLDER [--captures FOLDER]

The folders are no part of this project. An input is one file of a kind that was answered wrongly once; what is right
was computed from its events. A row without its file is counted, not passed over. Ends with 1 where an answer is wrong.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000
Finding = dict[str, Any]
STALLS = ("host_stall", "first_launch_late", "launch_gap")


@dataclass(frozen=True)
class Answer:
    """What came of one scan."""

    code: int
    text: str
    scan: dict[str, Any]
    error: str

    @property
    def shown(self) -> list[Finding]:
        return [one for one in self.scan.get("findings", ()) if one["reported"]]

    @property
    def first(self) -> Finding:
        return self.shown[0] if self.shown else {}

    @property
    def rules(self) -> list[str]:
        return [one["rule"] for one in self.shown]

    def of(self, rule: str) -> list[Finding]:
        """Findings of a rule that are shown."""
        return [one for one in self.shown if one["rule"] == rule]

    @property
    def step(self) -> dict[str, Any]:
        return self.scan["summary"]["per_step"] or {}

    @property
    def bound(self) -> dict[str, Any]:
        return self.scan["summary"]["bound"] or {}

    @property
    def fixes(self) -> str:
        return " ".join(one["fix"] for one in self.shown)

    def saving(self, rule: str) -> float:
        """Milliseconds a step that the findings of a rule save."""
        every = [one for one in self.scan["findings"] if one["rule"] == rule and one["per_step"]]
        return float(sum(one["per_step"]["step_saving_ns"]["mid"] for one in every)) / MS


@dataclass(frozen=True)
class Row:
    """An input, what was wrong of it, what is right, and whether an answer is."""

    name: str
    wrong: str  # what was
    right: str
    holds: Callable[[Answer], bool]


@dataclass(frozen=True)
class Public:
    """A public file, or a pair: names that it is known by, what was wrong of it, what is right, and whether an answer
    is."""

    names: tuple[str, ...]
    wrong: str
    right: str
    holds: Callable[[Answer], bool]
    after: str = ""  # the file that it is compared with
    alone: bool = False  # a capture's trace, without its execution trace


def refused(*words: str) -> Callable[[Answer], bool]:
    """Return whether a scan ended with 2 and one line that names these."""
    return lambda a: a.code == 2 and not a.text.strip() and all(word in a.error for word in words)


def near(value: float, true: float, by: float = 0.02) -> bool:
    return abs(value - true) <= by * true


def says(*words: str) -> Callable[[Answer], bool]:
    return lambda a: all(word in " ".join(a.text.split()) for word in words)


def busy_ms(a: Answer) -> float:
    return float(a.step["gpu_busy_p50_ns"]) / MS


INPUTS = (
    Row(
        "k3_warmup_apportioned_to_steps",
        "240 ms a step to save, 2367 % of it: a warm-up's stalls spread over steps by count",
        "stalls cost 0.44 ms a step; a step keeps its 9.72 ms of GPU work",
        lambda a: (
            near(sum(one["per_step"]["measured_ns"] for one in a.scan["findings"] if one["rule"] in STALLS) / MS, 0.44)
            and a.step["step_saving_ns"]["mid"] <= 0.5 * MS
        ),
    ),
    Row(
        "k2a_loader_workers0",
        "GPU-bound, nothing worth closing: a quarter of the step waits for the loader",
        "waiting for the loader is first, 28 ms a step as recorded",
        lambda a: a.first.get("rule") == "data_loading" and near(a.first["per_step"]["measured_ns"] / MS, 28.2),
    ),
    Row(
        "i1b_mi300_dur_overflow",
        "401 ms of GPU work in a step of 6: a record of 1.6 s lies over its successors",
        "4.6 ms a step; a record over its successors is said first",
        lambda a: near(busy_ms(a), 4.6) and "ended where the next begins" in " ".join(a.text.split()),
    ),
    Row(
        "i21b_negative_dur",
        "18 kernels of negative duration vanished without a word, and an H100 was not in the table",
        "18 negative durations are counted; the count of multiprocessors is unlike the table's",
        says("18 records of negative duration", "unlike the device table's 132"),
    ),
    Row(
        "i3_kernels_at_ts0",
        "clocks were said to disagree: 16 records had lost their times",
        "16 records without any time are lost ones, and still counted",
        lambda a: a.scan["trace"]["activities"] == 160 and "16 GPU records" in a.text,
    ),
    Row("i4_control_char", "nothing: a control", "read", lambda a: a.code == 0 and a.scan["trace"]["activities"] > 0),
    Row("i4b_invalid_utf8", "nothing: a control", "read", lambda a: a.code == 0 and a.scan["trace"]["activities"] > 0),
    Row(
        "i5_windows_backslash",
        "nothing: a control",
        "read",
        lambda a: a.code == 0 and a.scan["trace"]["activities"] > 0,
    ),
    Row(
        "i6_kernels_missing",
        "advice to record on a machine with a GPU, and exit 0",
        "160 launches, no kernel: lost",
        says("160 launches", "lost", "No verdict"),
    ),
    Row(
        "i7_fsdp_serial",
        "no finding of 8 of 20 ms of bare communication; a convolution's and attention's fixes for a product",
        "exposed communication is the headline, and a finding; a product's advice fits one",
        lambda a: (
            a.bound["by"] == "communication"
            and "communication_exposed" in a.rules
            and not any(word in a.fixes for word in ("channels_last", "cudnn.benchmark", "sdpa"))
        ),
    ),
    Row(
        "i7b_fsdp_overlap",
        "nothing: a control",
        "communication is hidden: nothing to say of it",
        lambda a: "communication" not in str(a.rules),
    ),
    Row(
        "i9_vllm_blank_between_steps",
        "16.6 ms between two steps became 1.31; torch.save and gc.freeze as the fix",
        "the scheduler's frame spans the gap; idle 63 % as recorded",
        lambda a: "schedule" in json.dumps(a.first.get("source")) and near(a.bound["idle_share"], 0.63, 0.05),
    ),
    Row(
        "i20_dataparallel_2_devices",
        "one share of idle time for two devices that are unequally busy",
        "a line a device: 4.0 and 1.0 of 6 ms",
        lambda a: all(word in " ".join(a.text.split()) for word in ("4.00 ms", "1.00 ms")),
    ),
    Row(
        "j2_kernels_deferred_burst",
        "a verdict on kernels that begin after the host had waited for them",
        "times cannot be used: no verdict",
        lambda a: "cannot be used" in " ".join(a.text.split()) and not a.rules and not a.bound,
    ),
    Row("j5_xpu", "a CUDA device was asked for", "XPU is named", says("XPU")),
    Row(
        "j6_deepep_fork_no_operator",
        "all-to-all of a fork was no communication; H800 not known",
        "dispatch and combine are communication, 28 % of the step exposed",
        lambda a: a.bound["by"] == "communication" and near(a.bound["bare_communication_share"], 0.28, 0.06),
    ),
    Row(
        "j7_graph_capture_pass",
        "22.7 ms to save of a pass that captures graphs, by torch.save and gc.freeze",
        "a pass that captures graphs; nothing to mend",
        lambda a: "captured" in a.text and not a.rules,
    ),
    Row(
        "m1_mi300x_cpx",
        "an MI300X was not in the table, and --gpu mi300x the advice",
        "a partition of an MI300X",
        says("partition", "38 of 304"),
    ),
    Row(
        "n1_one_memcpy_in_a_session",
        "GPU-bound, busy 100 %: of one memset of 1.47 µs",
        "nothing to judge",
        lambda a: "nothing to judge" in a.text and not a.rules,
    ),
    Row(
        "n3_no_gpu_activity",
        "torch's advice before that of the recorder that wrote it, exit 0",
        "nsys advice alone",
        lambda a: "activities=" not in a.text + a.error,
    ),
    Row(
        "n4_graph_trace_only",
        "a stall at cudaGraphLaunch first, with torch.save and gc.freeze",
        "the note about node tracing; no torch.save, no gc.freeze",
        lambda a: "cuda-graph-trace" in a.text and "torch.save" not in a.fixes and "gc.freeze" not in a.fixes,
    ),
    Row("p1_proton", "read as a trace of nothing, exit 0", "refused by name", refused("Proton")),
    Row("x1.xplane", "not JSON, so no trace", "refused by name", refused("XLA")),
    Row(
        "t2_rocm_flows_without_correlation",
        "ten kernels without an operator, and no launch said to be recorded",
        "all ten kernels have their operator",
        lambda a: a.scan["trace"]["unattributed"] == 0,
    ),
    Row(
        "t3_b300_sglang_decode",
        "cause unknown above two proven findings; advice to replay what is replayed; B300 not known",
        "causes add up and are named; no advice to replay what is replayed; B300 known",
        lambda a: (
            (a.bound["cause_share"] or 0) >= 0.5
            and "for _ in range" not in a.fixes
            and "--cuda-graph-max-bs" not in a.fixes
            and "B300" in (a.scan["trace"]["estimated_for"] or "")
        ),
    ),
    Row(
        "e1_mi300_add_in_a_loop",
        "one kernel could do ten adds of a benchmark's loop: 91.5 %, high",
        "ten runs of one add: no chain",
        lambda a: "memory_bound_chain" not in a.rules,
    ),
)
CAPTURES = (
    Row(
        "deberta_infer",
        "five stalls, 29 % of the step, that are ordinary operators under the recorder",
        "no stall: recording takes the host 8 times as long",
        lambda a: "host_stall" not in a.rules,
    ),
    Row(
        "gemma2_prefill",
        "a soft cap was told SDPA, which leaves it out without an error",
        "a soft cap gets flex_attention",
        lambda a: all(
            "flex_attention" in one["fix"].split("scaled_dot_product_attention")[0]
            for one in a.scan["findings"]
            if one["rule"] == "attention_unfused" and one["reported"]
        ),
    ),
    Row(
        "own_llm_decode",
        "the launch gap was to save 2.31 ms",
        "gaps save at most 1.72 ms idle",
        lambda a: 0 < a.saving("launch_gap") <= 1.72,
    ),
    Row(
        "segformer_infer",
        "the launch gap was to save 2.80 ms",
        "gaps save at most 1.84 ms idle",
        lambda a: 0 < a.saving("launch_gap") <= 1.84,
    ),
    Row(
        "gat_infer",
        "the launch gap was to save all 2.45 ms of what back to back is 0.47, and reduce-overhead its fix",
        "gaps save at most 2.95 ms idle",
        lambda a: 0 < a.saving("launch_gap") <= 2.95,
    ),
)


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run tracemine, wide enough for its longest lines."""
    whole = [sys.executable, "-m", "tracemine", *map(str, words)]
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return subprocess.run(whole, capture_output=True, text=True, env=environment, check=False)


def answer(path: Path) -> Answer:
    """Scan a file for people and for programs."""
    told, written = command("scan", path), command("scan", path, "--format", "json")
    scan = json.loads(written.stdout) if written.stdout.strip() else {}
    return Answer(told.returncode, told.stdout, scan, told.stderr)


def compared(before: Path, after: Path) -> Answer:
    """Compare two files for people."""
    told = command("diff", before, after)
    return Answer(told.returncode, told.stdout, {}, told.stderr)


def found_in(folder: Path | None, name: str, scratch: Path) -> Path | None:
    """Return the file of a row, unpacked where it is a database; None where there is none."""
    files = [] if folder is None else sorted(folder.glob(f"{name}.*")) or sorted(folder.glob(f"{name}/run"))
    return unpacked(files[0], scratch) if files else None


def unpacked(path: Path, scratch: Path) -> Path:
    """Return a file, unpacked where it is a database."""
    if not path.name.endswith(".sqlite.gz"):
        return path
    copy = scratch / path.name.removesuffix(".gz")
    copy.write_bytes(gzip.decompress(path.read_bytes()))
    return copy


def judged(rows: Sequence[Row], folder: Path | None) -> list[bool | None]:
    """Print each row's answer; return whether it is right, None where its file is not at hand."""
    verdicts: list[bool | None] = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            path = found_in(folder, row.name, Path(scratch))
            if path is None:
                verdicts.append(None)
                print(f"| {row.name} | {row.right} | not at hand | |")
                continue
            told = answer(path)
            try:
                verdicts.append(bool(row.holds(told)))
            except (KeyError, TypeError):
                verdicts.append(False)
            says = " ".join((told.text or told.error).split())[:110].replace("|", "/")
            print(f"| {row.name} | {row.right} | {'right' if verdicts[-1] else '**wrong**'} | {says} |", flush=True)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--captures", type=Path)
    options = parser.parse_args()
    print("| input | right is | answered | its first words |\n|---|---|---|---|")
    verdicts = judged(INPUTS, options.inputs) + judged(CAPTURES, options.captures)
    print(f"\n{verdicts.count(True)} right, {verdicts.count(False)} wrong, {verdicts.count(None)} not at hand")
    return int(False in verdicts or not any(verdicts))


if __name__ == "__main__":
    sys.exit(main())
