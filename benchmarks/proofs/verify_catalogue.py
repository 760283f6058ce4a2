"""Proves the catalogue of production chains in Triton's interpreter, on a CPU, wrong kernels included.

    python -m benchmarks verify_catalogue [--no-mutants] [--jobs N] [--user-written] [-o FILE] [CHAIN …]

One line a chain, as they end: kernels generated, trials, verdict, wrong kernels caught of those that could be,
processor seconds. Several processes (--jobs) share a chain's wrong kernels too, each beside the right one; the longest
come first. --user-written: in the catalogue's place the functions of tests/codegen/user_written.py, with gradients.
-o: each chain's verdict is added to FILE as it ends (a line of JSON), and chains that it has already are left out;
`python -m benchmarks mutants FILE` prints what they came to.
Exits with 1 if a chain did not pass.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from concurrent.futures import as_completed
from functools import partial
from itertools import chain as joined
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.proofs.mutants import kept
from tests.codegen.catalogue import CATALOGUE, LONGEST_ROW
from tests.codegen.user_written import USER_WRITTEN, recorded
from tracemine.codegen.graph import Graph, Unsupported
from tracemine.codegen.options import LONGEST_ROW as USUAL
from tracemine.errors import TracemineError
from tracemine.validate import Validation
from tracemine.validate.record import ValidationJob
from tracemine.validate.sandbox import make_job, refused
from tracemine.verify.workers.validators import Machines, Validators

LIMIT_S = 3600.0  # of a processor, for a chain with its wrong kernels
TOGETHER = 8  # wrong kernels that one process judges, beside the right one, where several share them


def verdict(validation: Validation) -> str:
    if validation.refused is not None:
        return f"refused: {validation.refused}"
    return "right" if not validation.faults else f"WRONG: {validation.faults[0].trial}: {validation.faults[0].says}"


def parts(job: ValidationJob, jobs: int) -> list[ValidationJob]:
    """The job, its wrong kernels dealt out where several processes share them."""
    number = 1 if jobs == 1 else max(1, len(job.mutants) // TOGETHER)
    return [msgspec.structs.replace(job, mutants=job.mutants[first::number]) for first in range(number)]


def judged(job: ValidationJob, machines: Machines) -> Validation:
    """The verdict on a part. Raises TracemineError where its process gives none."""
    found = machines.kernels.answer(msgspec.json.encode(job))
    if isinstance(found, str):
        raise TracemineError(f"{msgspec.msgpack.decode(job.chain, type=Graph).name}: {found}")
    return found


def whole(validations: list[Validation]) -> Validation:
    """One proof of those of its parts: the first's, with all wrong kernels, and any fault that one of them saw."""
    mutants = tuple(joined.from_iterable(p.mutants for p in validations))
    faults = next((p.faults for p in validations if p.faults), ())
    seconds = sum(p.seconds for p in validations)
    return msgspec.structs.replace(validations[0], mutants=mutants, faults=faults, seconds=seconds)


def show(validation: Validation) -> None:
    caught, able = validation.killed
    same = sum(m.equivalent is not None for m in validation.mutants)
    print(
        f"{validation.chain:28} {len(validation.kernels):7} {validation.trials:6} {caught:3}/{able:3} {same:5} "
        f"{validation.equal_share:6.1%} {validation.error:9.2e} {validation.eager_error:9.2e} "
        f"{validation.seconds:7.1f}  {verdict(validation)}",
        flush=True,
    )
    for m in validation.mutants:
        if m.killed_by is None and m.equivalent is None:
            print(f"    not caught: {m.name}: {m.line}", flush=True)


def keep(name: str, validation: Validation, path: Path | None) -> None:
    """Adds a verdict to a file."""
    if path is not None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode({**msgspec.to_builtins(validation), "chain": name}) + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chains", nargs="*", help="names of the catalogue (all of them)")
    parser.add_argument("--no-mutants", action="store_true", help="the right kernels alone")
    parser.add_argument("--jobs", type=int, default=1, help=f"processes ({os.cpu_count()} cores are here)")
    parser.add_argument("--user-written", action="store_true", help="functions as users write them")
    parser.add_argument("-o", "--output", type=Path, help="a file to which each chain's verdict is added")
    given = parser.parse_args()
    table = {name: partial(recorded, name, 5, 36) for name in USER_WRITTEN} if given.user_written else CATALOGUE
    validations: list[Validation] = []
    head = f"{'chain':28} {'kernels':>7} {'trials':>6} {'caught':>7} {'same':>5} {'bits':>6} {'error':>9} {'eager':>9}"
    print(f"{head} {'seconds':>7}  verdict")
    done = set() if given.output is None or not given.output.exists() else set(kept([given.output]))
    names = [name for name in given.chains or table if name not in done]
    if given.jobs > 1:
        names = sorted(names, key=lambda name: name not in LONGEST_ROW)
    with Validators(LIMIT_S, given.jobs) as provers:
        expected: dict[str, int] = {}
        asked = {}
        for name in names:
            made = table[name]()
            try:
                job = make_job(made, not given.no_mutants, LONGEST_ROW.get(name, USUAL))
            except Unsupported as refusal:
                validations.append(refused(made, refusal.message))
                show(validations[-1])
                keep(name, validations[-1], given.output)
                continue
            shared = parts(job, given.jobs)
            expected[name] = len(shared)
            asked |= {provers.start(partial(judged, part)): name for part in shared}
        ended: defaultdict[str, list[Validation]] = defaultdict(list)
        for answer in as_completed(asked):
            name = asked[answer]
            ended[name].append(answer.result())
            if len(ended[name]) == expected[name]:
                validations.append(whole(ended[name]))
                show(validations[-1])
                keep(name, validations[-1], given.output)
    if not validations:
        print("all of them are in the file already")
        return 0
    caught, able = (sum(column) for column in zip(*(p.killed for p in validations), strict=True))
    right = sum(p.refused is None and not p.faults for p in validations)
    seconds = statistics.median(p.seconds for p in validations)
    caught_of = f"{caught} of {able} wrong kernels caught"
    print(f"{right} of {len(validations)} chains right, {caught_of}, median {seconds:.1f} s a chain")
    return 0 if all(p.passed for p in validations) else 1


if __name__ == "__main__":
    sys.exit(main())
