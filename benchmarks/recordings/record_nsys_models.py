"""Record models with Nsight Systems and PyTorch's execution trace: `python -m benchmarks record_nsys_models OUT`.

Per model of NAMES (record_steps.py has them), in OUT: NAME.sqlite, two steps under `emit_nvtx(record_shapes=True)`
without ranges of its own, and NAME.et.json.gz, the execution trace of the same steps: its record function ids are the
`op_id`s in the ranges' texts, so it says what dataflow really was. Needs what record_steps.py needs, and nsys; see
fixtures/record_nsys.py, which does the exporting.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

import torch
from record_nsys import exported, profiled, scrub

from benchmarks.recordings.record_steps import works

STEPS = 2
NAMES = (
    "llama", "llama_eager_attention", "gpt2", "bert", "t5", "vit", "resnet50", "decoder", "decode_1", "small_mixtral",
    "small_deepseek_v3", "small_mamba", "small_swin", "llama_train", "vit_train", "bert_train", "tiny_mlp_train",
    "lstm_cell", "state_space_scan", "linear_attention", "experts", "graph_network", "cache_by_cat", "branching", "ode",
    "recurrent_training", "accumulated", "data_parallel", "small_policy", "small_llama", "small_gemma2",
)  # fmt: skip


def work(name: str, execution_trace: Path) -> None:
    one = next(one for one in works() if one.name == name)
    with torch.set_grad_enabled(one.training):
        step = one.make()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(execution_trace))
        observer.start()
        with torch.autograd.profiler.emit_nvtx(record_shapes=True):
            for number in range(STEPS):
                with torch.cuda.nvtx.range(f"step {number}"):
                    step()
            torch.cuda.synchronize()
        observer.stop()
        torch.cuda.profiler.stop()
        observer.unregister_callback()


def record(nsys: str, importer: str | None, out: Path, name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report, execution_trace = Path(folder) / name, Path(folder) / "et.json"
        program = [__file__, str(out), "--work", name, "--et", str(execution_trace)]
        said = profiled(nsys, importer, report, [], program)
        if not report.with_suffix(".nsys-rep").exists() or not execution_trace.exists():
            return f"{name}: failed: {said.strip()[-300:]}"
        target = out / f"{name}.sqlite"
        exported(nsys, report, "sqlite", target)
        scrub(target)
        shutil.copy(execution_trace, out / f"{name}.et.json")
    return f"{name}: {target.stat().st_size >> 10} KiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--nsys", default=shutil.which("nsys") or "nsys")
    parser.add_argument("--importer")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--work")
    parser.add_argument("--et", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.et)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.processes) as pool:
        told = [pool.submit(record, options.nsys, options.importer, options.out, name) for name in options.names]
        for one in told:
            print(one.result(), flush=True)


if __name__ == "__main__":
    main()
