"""What `scan` answers on public files that were answered wrongly once: what was wrong, what it says now, and a verdict.

    python -m benchmarks answers_public [FOLDER]... [--only NAME...]

The files are no part of this project: each is looked for by its name, at any depth of the folders, in their order; by
default of the folder that TRACEMINE_COMPAT_TRACES names. To the public files come those of answers.py, and what else
was wrong of these (answers_captures.py). `--only` asks for rows whose file's name has one of these in it. A verdict is
`right`, `wrong`, `refused` (in one line that names what the file is, where no more can be said), or `not at hand`,
where no folder holds the file. Ends with 1 where an answer is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.answers import CAPTURES, INPUTS, MS, Answer, Public, near, refused, says, unpacked
from benchmarks.answers.answers_captures import MORE, told


def _told(told: Answer) -> str:
    return " ".join(told.text.split())


def _whole(told: Answer) -> bool:
    """Return whether no finding saves more of a step than there is of one, idle time and GPU work apart."""
    step = told.step
    return not step or step["step_saving_ns"]["mid"] <= step["unprofiled_ns"]["mid"]


NO_REPLAY = ("for _ in range", "--cuda-graph-max-bs")
PUBLIC = (
    Public(
        ("kineto_resnet50_nw0_a.json.gz",),
        "a warm-up's stalls were apportioned to steps by count; loader 2 %, step by mean",
        "39 % idle as recorded, most of it for the loader; no more saved than there is",
        lambda a: near(a.step["span_p50_ns"] / MS, 176, 0.02) and "for data loading" in _told(a) and _whole(a),
    ),
    Public(
        ("kineto_resnet50_nw4_b.json.gz",),
        "first and last step counted in its mean",
        "median 122 ms; the first and the last step apart",
        lambda a: near(a.step["span_p50_ns"] / MS, 122, 0.02) and "apart, in no figure: 2 steps" in _told(a),
    ),
    Public(
        ("nsysai_h100_2gpu_1s.sqlite",),
        '"GPU-bound: busy 99 %", no finding',
        "copies fill the time: 51.0 GB at 27.7 GB/s, and a finding of them",
        lambda a: a.bound["by"] == "transfer" and a.first["rule"] == "transfer_exposed",
    ),
    Public(
        ("tracelens_vllm_decode_full_graph.json.gz", "graph_execution.json.gz"),
        '"idles 44 %, cause unknown": time before the first activity, which the window did not see',
        "between its first and last activity nothing is idle; no advice to replay",
        lambda a: (a.bound["idle_share"] or 0) < 0.02 and not any(word in a.fixes for word in NO_REPLAY),
    ),
    Public(
        ("tracelens_sglang_qwen3-8b_decode.json.gz", "sglang_Qwen3-8B_decode.json.gz"),
        '463 of 474 ms idle "without a recorded cause"',
        "one blocking `hipMemcpyWithStream` in `aten::copy_` is named; no advice to replay",
        lambda a: (
            "hipMemcpyWithStream" in _told(a)
            and "cause unknown" not in _told(a)
            and not any(word in a.fixes for word in NO_REPLAY)
        ),
    ),
    Public(
        ("tracelens_vllm_decode_full_capture.json.gz",),
        '"saves 85 to 99 %" of a pass that captures graphs',
        "called that, and nothing to mend",
        lambda a: "graphs being captured" in _told(a) and not a.rules,
    ),
    Public(
        ("sglang_decode_capture.json.gz", "bs_32_rank0.json.gz"),
        '"saves 85 to 99 %" of a pass that captures graphs',
        "called that, and nothing to mend",
        lambda a: "graphs being captured" in _told(a) and not a.rules,
    ),
    Public(
        ("vllm_piecewise_capture.json.gz",),
        '"saves 85 to 99 %" of a pass that captures graphs',
        "called that, and nothing to mend",
        lambda a: "graphs being captured" in _told(a) and not a.rules,
    ),
    Public(
        ("tracelens_vllm_piecewise_graph.json.gz",),
        "a trace whose work is replayed was told to replay",
        "no advice to replay",
        lambda a: a.code < 2 and not any(word in a.fixes for word in NO_REPLAY),
    ),
    Public(
        ("elem_01_add_poor_bw.json",),
        '"one kernel could do: add ×10", 91.5 %, high',
        "a benchmark's loop: no chain, and the rate that each call reaches",
        lambda a: not a.rules and "same call each time" in _told(a) and "TB/s" in _told(a),
    ),
    Public(
        ("sdpa_01_long_seq_low_eff.json",),
        '"Nothing", of attention at a fifth of the peak',
        "what attention could fall to is said, against the data sheet's peak",
        lambda a: "attention by" in _told(a),
    ),
    Public(
        ("gemm_04_memory_tall_skinny.json",),
        "ten kernels without an operator: their launches' flows were not followed",
        "all have theirs; what stands twice is read once",
        lambda a: a.scan["trace"]["unattributed"] == 0 and "once more" in _told(a),
    ),
    Public(
        ("mi210_gpu_only.json.gz", "gpu_only_trace.json.gz"),
        "a GPU that is not known, with another's name as advice",
        "named, no estimate; no operator is claimed",
        says("MI210", "without an operator"),
    ),
    Public(
        ("tracelens_b200_eager.json.gz",),
        '"can save" above what is idle',
        "gaps save no more than is idle",
        lambda a: _whole(a) and a.saving("launch_gap") <= a.step["unprofiled_ns"]["mid"] * 0.72 / MS,
    ),
    Public(
        ("tracelens_mi300_qwen1.5-0.5b.json.gz",),
        "what the limit line promises no finding explained",
        "a norm that is spelled out is first; the limit says how much of it findings reach",
        lambda a: a.first["rule"] == "rmsnorm_unfused" and "the findings reach" in _told(a),
    ),
    Public(
        ("tracelens_xdit_flux1_sage.json.gz",),
        "a stall counted as recorded, with torch.save and gc.freeze as its fix",
        "the line that the device waits for; neither of them",
        lambda a: "torch.save" not in a.fixes and "gc.freeze" not in a.fixes and _whole(a),
    ),
    Public(
        ("casio_nerf_output-file.sqlite",),
        "torch's words for a program without torch",
        "a program of XLA is told of XLA alone",
        lambda a: "torch" not in a.fixes,
    ),
    Public(
        ("nsightful_power_iteration_baseline.sqlite",),
        "torch's words for a program without torch",
        "no fix says torch",
        lambda a: "torch" not in a.fixes,
    ),
    *(
        Public(
            (name,),
            '"is not JSON, so it is not a trace"',
            "a profile of XLA, named, with the way out",
            refused("XLA", "hint"),
        )
        for name in ("jax_conv_08.xplane.pb", "jax_conv_legacy.xplane.pb", "jax_te.xplane.pb")
    ),
    Public(
        ("rocprofv3_908.json.gz", "908_results.json.gz"),
        '"an entry of more than 32 MB … see what wrote the file", after 12 s',
        "rocprofv3, named, with the way out",
        refused("rocprofv3", "hint"),
    ),
    Public(
        ("proton_synthetic.hatchet",),
        '"record on a machine with a GPU", exit 0',
        "Triton's Proton, named",
        refused("Proton", "hint"),
    ),
    Public(
        ("ort_cpu_off.json.gz",), "read as a trace of nothing", "ONNX Runtime, named", refused("ONNX Runtime", "hint")
    ),
    Public(
        ("resnet-qat.onnx.engine.profile.json",),
        "read as a trace of nothing",
        "trtexec, named",
        refused("TensorRT", "hint"),
    ),
    Public(
        ("pytorch_trace.json",),
        '"record on a machine with a GPU"',
        "launches, and no kernel: records were lost",
        says("launches", "lost", "No verdict"),
    ),
    Public(
        ("train.json",),
        "113 of 129 ms of all-to-all, 4.1 exposed: not a word",
        "communication, and what of it is exposed",
        says("communication", "Communication beside which nothing else runs"),
    ),
)
COLUMNS = "| file | was wrong | right is | verdict | its first words now |\n|---|---|---|---|---|"


def found_in(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Return the first file of these names; None where no folder has one."""
    return next((one for name in names for folder in folders for one in sorted(folder.rglob(name))), None)


def verdict_of(row: Public, told: Answer) -> str:
    """Return what an answer is worth."""
    try:
        right = bool(row.holds(told))
    except (KeyError, TypeError, IndexError):
        right = False
    if not right:
        return "**wrong**"
    return "refused" if told.code == 2 else "right"


def every_row() -> tuple[Public, ...]:
    """Return the rows of public files, of inputs and of captures."""
    known = [(f"{row.name}.*", row) for row in INPUTS] + [(f"{row.name}/run", row) for row in CAPTURES]
    return (*PUBLIC, *(Public((name,), row.wrong, row.right, row.holds) for name, row in known), *MORE)


Asked = tuple[Path, Path | None, bool]


def asked(row: Public, folders: Sequence[Path], scratch: Path) -> Asked | None:
    """Return what is to be answered: a file, the one after it, and whether without its execution trace; None where it
    is not at hand."""
    path = found_in(folders, row.names)
    after = found_in(folders, [row.after]) if row.after else None
    if path is None or (row.after and after is None):
        return None
    return unpacked(path, scratch), after, row.alone


def label(row: Public) -> str:
    """Return a row's name: its file's, and what of it."""
    name = row.names[0].removesuffix(".*").removesuffix("/run")
    return f"{name} → {row.after}" if row.after else f"{name}, trace alone" if row.alone else name


def first_words(said: Answer) -> str:
    """Return how an answer begins, without the folders in which its file is."""
    words = [word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in (said.text or said.error).split()]
    return " ".join(words)[:140].replace("|", "/")


def table(rows: Sequence[Public], answers: Sequence[Answer | None]) -> tuple[list[str], Counter[str]]:
    """Return a line for each row, and how many there are of each verdict."""
    lines, verdicts = [], Counter[str]()
    for row, said in zip(rows, answers, strict=True):
        verdict = "not at hand" if said is None else verdict_of(row, said)
        verdicts[verdict.strip("*")] += 1
        words = "" if said is None else first_words(said)
        lines.append(f"| {label(row)} | {row.wrong} | {row.right} | {verdict} | {words} |")
    return lines, verdicts


def main() -> int:
    """Print a row for each file, and how many are right; return 1 where one is wrong, or none is at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME")
    options = parser.parse_args()
    traces = os.environ.get("TRACEMINE_COMPAT_TRACES")
    folders = options.folders or ([Path(traces)] if traces else [])
    rows = [row for row in every_row() if any(name in label(row) for name in options.only)]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as threads:
        what = [asked(row, folders, Path(scratch)) for row in rows]
        once = [one for one in dict.fromkeys(what) if one is not None]
        said: dict[Asked | None, Answer] = dict(zip(once, threads.map(lambda one: told(*one), once), strict=True))
        lines, verdicts = table(rows, [said.get(one) for one in what])
    print("\n".join([COLUMNS, *lines]))
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return int(verdicts["wrong"] > 0 or not verdicts - Counter({"not at hand": verdicts["not at hand"]}))


if __name__ == "__main__":
    sys.exit(main())
