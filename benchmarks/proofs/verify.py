"""How well findings are verified: what one kernel in their place takes on a GPU, predicted beside measured.

    python -m benchmarks verify prepare FOLDER [TRACE…] [--each N] [--share S] [--catalogue] [--losing]
    python -m benchmarks verify write FOLDER        # again, after the generator changed
    python FOLDER/run.py FOLDER -o OUT              # on a machine with GPUs: needs torch and triton only
    python -m benchmarks verify prove FOLDER        # on a CPU, meanwhile
    python -m benchmarks verify report FOLDER OUT… [-o benchmarks/results/h200]
    python -m benchmarks verify kept benchmarks/results/h200    # the tables of what was kept, again

`prepare` scans traces, rebuilds and writes a reproduction of their largest findings that one kernel would mend, each
distinct chain once; of the catalogue's chains at three sizes and two dtypes; and of chains where little is to be had.
`prove` has the interpreter prove them, at sizes that it gets through. `report` joins it all and prints tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.proofs import verify_losing, verify_sizes
from benchmarks.proofs.verify_report import NOT_PREPARED, Claim, Item, kept, report
from tracemine.codegen import generate
from tracemine.codegen.graph import Graph, Unsupported
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.pipeline import analyse, mined
from tracemine.validate.downsize import tried
from tracemine.validate.record import Validation
from tracemine.verify.library import find
from tracemine.verify.pipeline import fusable
from tracemine.verify.prepare import graph_text, kernel_validation, with_products
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import kernels_of
from tracemine.verify.repro.harness import NAME as HARNESS
from tracemine.verify.repro.harness import harness_text
from tracemine.verify.repro.host_copy import copy_reproduction, host_copy
from tracemine.verify.workers.validators import Machines, Validators


def prepare(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    left_out: Counter[str] = Counter()
    claims: list[Claim] = []
    items = list(_found(arguments, left_out, claims))
    if arguments.losing:
        for name, losing in verify_losing.TABLE.items():
            items.append(Item(stem=f"losing_{name}", kind="losing", name=name, why=losing.why, chain=losing.make()))
    if arguments.catalogue:
        for name, size, dtype, chain in verify_sizes.sized():
            row, stem = verify_sizes.TABLE[name], f"catalogue_{name}_{size}_{dtype}"
            known = {"row": row.row, "why": row.pattern, "size": size, "dtype": dtype}
            items.append(Item(stem=stem, kind="catalogue", name=name, chain=chain, **known))
    (folder / "prepared.msgpack").write_bytes(msgspec.msgpack.encode(items))
    (folder / "claims.json").write_bytes(msgspec.json.encode(claims))
    for reason, count in left_out.most_common():
        print(f"  left out {count:4} {reason}")
    write(arguments)


def write(arguments: argparse.Namespace) -> None:
    """The files of what is prepared, by the generator as it is now."""
    folder: Path = arguments.folder
    items = msgspec.msgpack.decode((folder / "prepared.msgpack").read_bytes(), type=list[Item])
    written = []
    for item in items:
        try:
            text = _text(item)
        except Unsupported as reason:
            print(f"{item.stem}: {reason.message}")
            continue
        (folder / f"{item.stem}.py").write_text(text, "utf-8")
        written.append(item)
    (folder / "order.json").write_text(json.dumps([(i.stem, _tunes(i)) for i in _ordered(written)]), "utf-8")
    (folder / HARNESS).write_text(harness_text(), "utf-8")
    shutil.copy(Path(__file__).with_name("verify_run.py"), folder / "run.py")
    print(f"{len(written)} reproductions in {folder}: {dict(Counter(item.kind for item in written))}")


def _ordered(items: list[Item]) -> list[Item]:
    """What matters most first: if the time is up, what comes last is missing."""

    def place(item: Item) -> tuple[int, int]:
        if item.kind == "finding":
            return (0 if item.rank == 0 else 2 if item.rank == 1 else 5, item.rank)
        if item.kind in ("losing", "library"):
            return (3, 0)
        return (1 if item.size == "large" and item.dtype != "float32" else 4, 0)

    return sorted(items, key=place)


def _tunes(item: Item) -> bool:
    """Whether torch.compile's max-autotune is tried too: it takes seconds a chain."""
    if item.copy is not None:
        return False
    return (item.kind == "finding" and item.rank == 0) or (item.size == "large" and item.dtype != "float32")


def _found(arguments: argparse.Namespace, left_out: Counter[str], claims: list[Claim]) -> Iterator[Item]:
    """The largest findings of each trace, every chain once, until they carry the share that is asked for."""
    seen: dict[bytes, str] = {}
    for trace in arguments.traces:
        analysis = analyse(trace)
        flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
        rebuilder = Rebuilder(flow, groups)
        name = trace.parent.name if trace.name == "eager" else f"fixture_{trace.name}"
        findings = fusable(scan.findings)
        enough_ns = arguments.share * sum(f.gpu_saving_ns.mid for f in findings)
        rank, carried_ns = 0, 0
        for finding in findings:
            claim = Claim(name, finding.fingerprint, finding.gpu_saving_ns.mid)
            claims.append(claim)
            if rank == arguments.each or carried_ns >= enough_ns:
                claim.why = NOT_PREPARED
                continue
            try:
                item = _prepared(name, rank, finding, rebuilder, flow)
            except (NotRebuilt, Unsupported) as reason:
                claim.why = reason.message
                left_out[reason.message] += 1
                continue
            carried_ns += claim.saving_ns
            same = msgspec.json.encode(item.chain or item.copy)
            claim.stem = seen.setdefault(same, item.stem)
            if claim.stem != item.stem:
                left_out["the same chain as another's"] += 1
                continue
            yield item
            if (found := with_products(finding, rebuilder)) is not None:
                yield _item("library", name, rank, finding, found[0], flow)
            rank += 1
        print(f"{trace}: {rank}", file=sys.stderr, flush=True)


def _prepared(name: str, rank: int, finding: Finding, rebuilder: Rebuilder, flow: Flow) -> Item:
    """Raises NotRebuilt, or Unsupported where no kernel is generated."""
    copy = host_copy(finding, flow)
    if copy is not None:
        return Item(stem=f"finding_{name}_{rank}", kind="finding", name=name, rank=rank, finding=finding, copy=copy)
    rebuilt = rebuilder.rebuild(finding.activities[0], finding.rule)
    generate(rebuilt.graph)
    return _item("finding", name, rank, finding, rebuilt, flow)


def _item(kind: str, name: str, rank: int, finding: Finding, rebuilt: Rebuilt, flow: Flow) -> Item:
    return Item(
        stem=f"{kind}_{name}_{rank}",
        kind=kind,
        name=name,
        rank=rank,
        chain=rebuilt.graph,
        finding=finding,
        evidence=rebuilt.evidence,
        assumptions=rebuilt.assumptions,
        recorded=kernels_of(flow.timeline, rebuilt.activities),
        unread=rebuilt.unread,
    )


def _text(item: Item) -> str:
    if item.finding is not None and item.copy is not None:
        return copy_reproduction(item.finding, item.copy, item.finding.fingerprint)
    assert item.chain is not None
    return graph_text(
        item.chain,
        fingerprint="0" * 16 if item.finding is None else item.finding.fingerprint,
        title=f"{item.name}: {item.why}" if item.finding is None else item.finding.title,
        recorded=item.recorded,
        assumptions=item.assumptions,
        unread=item.unread,
        replacement=find(item.chain, item.unread).replacement,
        kernel=item.kind != "library",
    )


def prove(arguments: argparse.Namespace) -> None:
    """Proofs of all chains that are prepared, beside them; what was proved before is not proved again."""
    items = msgspec.msgpack.decode((arguments.folder / "prepared.msgpack").read_bytes(), type=list[Item])
    path: Path = arguments.folder / "proofs.jsonl"
    done = {json.loads(line)[0] for line in path.read_text("utf-8").splitlines()} if path.exists() else set()
    asked = []
    for item in items:
        beyond = item.kind == "library" or (item.kind == "catalogue" and item.size != "small")
        if item.chain is not None and item.stem not in done and not beyond:
            asked.append((item.stem, item.chain))
    seconds = []
    with Validators(arguments.time_limit, arguments.jobs) as provers, path.open("ab") as file:
        answers = {provers.start(partial(_proved, chain)): stem for stem, chain in asked}
        for answer in as_completed(answers):
            stem, validation = answers[answer], answer.result()
            file.write(msgspec.json.encode((stem, validation)) + b"\n")
            file.flush()
            seconds += [validation.seconds] if isinstance(validation, Validation) else []
            says = (
                validation
                if isinstance(validation, str)
                else validation.faults[0].says
                if validation.faults
                else "right"
            )
            print(
                f"{stem:60} {validation.seconds if isinstance(validation, Validation) else 0:6.1f} s  {says}",
                flush=True,
            )
    if seconds:
        print(f"{len(seconds)} proved, in the median {statistics.median(seconds):.1f} s of processor time")


def _proved(chain: Graph, machines: Machines) -> Validation | str:
    try:
        return kernel_validation(tried(chain), machines, mutants=False)
    except Unsupported as reason:
        return f"no kernel is generated: {reason.message}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("traces", type=Path, nargs="*")
    first.add_argument("--each", type=int, default=3, help="most findings of one trace")
    first.add_argument("--share", type=float, default=1.0, help="of a trace's predicted saving that is enough")
    first.add_argument("--catalogue", action="store_true", help="the catalogue's chains too")
    first.add_argument("--losing", action="store_true", help="chains where little is to be had too")
    first.set_defaults(run=prepare)
    again = commands.add_parser("write")
    again.add_argument("folder", type=Path)
    again.set_defaults(run=write)
    second = commands.add_parser("prove")
    second.add_argument("folder", type=Path)
    second.add_argument("--time-limit", type=float, default=60.0, help="seconds of processor time a proof")
    second.add_argument("--jobs", type=int, default=1, help="processes that prove side by side")
    second.set_defaults(run=prove)
    third = commands.add_parser("report")
    third.add_argument("folder", type=Path)
    third.add_argument("ran", type=Path, nargs="+", help="folders that run.py wrote")
    third.add_argument("-o", "--output", type=Path, help="a folder for what is kept")
    third.set_defaults(run=report)
    fourth = commands.add_parser("kept")
    fourth.add_argument("folder", type=Path, help="that `report -o` wrote")
    fourth.set_defaults(run=kept)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
