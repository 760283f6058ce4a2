"""Compiles the catalogue's kernels on this GPU and compares them with eager: a smoke test, no timing and no verdict.

    python -m benchmarks verify_gpu [CHAIN …]

One line a chain: whether both builds compiled, and the largest difference from eager relative to eager's own scale.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from tests.codegen.catalogue import CATALOGUE, LONGEST_ROW
from tracemine.codegen import generate
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.options import LONGEST_ROW as USUAL
from tracemine.codegen.options import CodegenOptions
from tracemine.validate.numerics import compare
from tracemine.validate.reference import run, spread
from tracemine.validate.trials import Trial, scalar_values, tensors


def load(text: str, folder: Path, name: str):
    path = folder / f"{name}.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(name: str, rounds: bool, folder: Path) -> str:
    chain = CATALOGUE[name]()
    lowered = lower(chain)
    ulp = lowered.ulp
    options = CodegenOptions(rounds=rounds, export_masks=True, longest_row=LONGEST_ROW.get(name, USUAL))
    source = generate(chain, options)
    module = load(source.text, folder, f"{name}_{int(rounds)}")
    found = []
    for kind in ("normal", "planted NaN and infinities"):
        trial = Trial(kind=kind)
        inputs, scalars = tensors(chain, trial), scalar_values(chain, trial)
        given = [t.cuda() for t in inputs]
        results = [t.cpu() for t in module.fused(*given, **scalars) or ()]
        count = len(results) - source.masks
        masks = dict(zip([number for number, _ in lowered.drawn], results[count:], strict=True))
        eager, truth = (run(chain, inputs, scalars, masks, double) for double in (False, True))
        ours = [*results[:count], *(given[v].cpu() for v in chain.written)]
        theirs = [*eager.live, *(eager.inputs[v] for v in chain.written)]
        exact = [*truth.live, *(truth.inputs[v] for v in chain.written)]
        off = spread(chain, inputs, scalars, masks, truth)
        noise = [*off.live, *(off.inputs[v] for v in chain.written)]
        for o, e, t, n in zip(ours, theirs, exact, noise, strict=True):
            found += [f"{kind}: {fault}" for fault in compare(o, e, t, ulp, noise=n).faults]
    return "right" if not found else f"WRONG {found[0]}"


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    chosen = sys.argv[1:] or list(CATALOGUE)
    right = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            began = time.perf_counter()
            verdicts = []
            for rounds in (False, True):
                try:
                    verdicts.append(check(name, rounds, Path(folder)))
                except Exception as error:
                    verdicts.append(f"FAILED {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
            right += verdicts == ["right", "right"]
            print(f"{name:28} {time.perf_counter() - began:5.1f} s  {' | '.join(verdicts)}", flush=True)
    print(f"{right} of {len(chosen)} chains right in both builds")


if __name__ == "__main__":
    main()
