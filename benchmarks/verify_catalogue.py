"""Proves the catalogue of production chains in Triton's interpreter, on a CPU, wrong kernels included.

    python benchmarks/verify_catalogue.py [--no-mutants] [CHAIN …]

One line a chain: kernels generated, trials, verdict, wrong kernels caught of those that could be, processor seconds.
Exits with 1 if a chain did not pass.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.verify.catalogue import CATALOGUE, LONGEST_ROW
from tracemine.verify import Interpreter, Proof
from tracemine.verify.kernels.shapes import LONGEST_ROW as USUAL


def verdict(proof: Proof) -> str:
    if proof.refused is not None:
        return f"refused: {proof.refused}"
    return "right" if not proof.faults else f"WRONG: {proof.faults[0].trial}: {proof.faults[0].says}"


def main() -> int:
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")] or list(CATALOGUE)
    mutants = "--no-mutants" not in sys.argv
    proofs: list[Proof] = []
    head = f"{'chain':28} {'kernels':>7} {'trials':>6} {'caught':>7} {'same':>5} {'bits':>6} {'error':>9} {'eager':>9}"
    print(f"{head} {'seconds':>7}  verdict")
    with Interpreter() as process:
        for name in chosen:
            proof = process.prove(CATALOGUE[name](), mutants, LONGEST_ROW.get(name, USUAL))
            caught, able = proof.killed
            same = sum(m.equivalent is not None for m in proof.mutants)
            seconds, says = proof.seconds, verdict(proof)
            print(
                f"{name:28} {len(proof.kernels):7} {proof.trials:6} {caught:3}/{able:3} {same:5} "
                f"{proof.equal_share:6.1%} {proof.error:9.2e} {proof.eager_error:9.2e} {seconds:7.1f}  {says}",
                flush=True,
            )
            for m in proof.mutants:
                if m.killed_by is None and m.equivalent is None:
                    print(f"    not caught: {m.name}: {m.line}", flush=True)
            proofs.append(proof)
    caught, able = (sum(column) for column in zip(*(p.killed for p in proofs), strict=True))
    right = sum(p.refused is None and not p.faults for p in proofs)
    seconds = statistics.median(p.seconds for p in proofs)
    caught_of = f"{caught} of {able} wrong kernels caught"
    print(f"{right} of {len(proofs)} chains right, {caught_of}, median {seconds:.1f} s a chain")
    return 0 if all(p.passed for p in proofs) else 1


if __name__ == "__main__":
    sys.exit(main())
