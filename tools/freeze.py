"""Freeze what tracemine says and generates, so that a change of names or places can be shown to change nothing else.

    python tools/freeze.py write DIR [TRACES]     findings of all fixtures (and traces), kernels of the whole catalogue
    python tools/freeze.py compare DIR DIR        exit 1 and a line each where a file differs or lies in one alone

Written are, one file each: findings as JSON with reasons for what was refused, counters of Nsight Compute, and the
generated source of each catalogue graph at two sizes, rounded and with looped rows too, with its mutants by kind.
Paths stand in findings: call it from the same folder with the same TRACES both times.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SHORT_ROW = 64  # elements: rows of the small catalogue graphs that are longer are looped over


def scans(root: Path) -> Iterator[list[str]]:
    """Command lines, one for each trace and each report of counters below a folder."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    tables = {path.parent for path in files if path.suffix in (".parquet", ".arrow")}
    for path in files:
        plain = path.name.removesuffix(".gz")
        if (
            "verdicts" in path.parts
            or path.parent in tables
            or plain.startswith(("et.", "meta_", "recordings", "capture"))
        ):
            continue
        if plain.endswith(".ncu-rep") or ("ncu" in path.parts and plain.endswith(".csv")):
            yield ["top", str(path), "--format", "json"]
        elif plain.endswith((".sqlite", ".csv")) or (plain.endswith(".json") and "_et" not in plain):
            yield ["scan", str(path), "--format", "json", "--why-not"]
            for et in execution_traces(path):
                yield ["scan", str(path), "--format", "json", "--why-not", "--et", str(et)]
    for folder in sorted(tables):
        yield ["scan", str(folder), "--format", "json", "--why-not"]


def execution_traces(path: Path) -> Iterator[Path]:
    """The execution trace that lies beside a trace, by the names that recordings use."""
    stem = path.name.partition(".")[0]
    for name in ("et.json.gz", f"{stem}.et.json.gz", stem.replace("_rank", "_et_rank") + ".json.gz"):
        if (path.parent / name).is_file() and name != path.name:
            yield path.parent / name


def scanned(job: tuple[Path, list[str]]) -> str:
    """Runs one command line and keeps what it prints, or the error that it ends with."""
    import contextlib
    import io

    from tracemine.cli import main

    folder, arguments = job
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments, "--quiet"])
    name = "_".join(arguments).replace("/", "_").replace("--format_json", "").replace("..", "")
    text = out.getvalue() if code == 0 else f"exit {code}\n{err.getvalue()}"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return name


def other_sizes(make: Any, name: str) -> Iterator[Any]:
    """A catalogue graph at a second size: the benchmark's, or with sizes of free or pinned axes changed."""
    from benchmarks.proofs.verify_sizes import TABLE
    from tracemine.codegen.lowering.driver import lower
    from tracemine.validate.resize import at_sizes

    if name in TABLE:
        yield make(**TABLE[name].medium)
        return
    graph = make()
    lowered = lower(graph)
    for leaf in sorted({leaf for tensor in lowered.values for leaf in lowered.axes.flat(tensor.dims)}):
        for size in (2 * lowered.axes.size((leaf,)), lowered.axes.size((leaf,)) // 2):
            other = at_sizes(graph, {leaf: size}) if size > 1 else None
            if other is not None and other != graph:
                yield other
                return


def kernels(job: tuple[Path, str]) -> str:
    """Writes the sources of one catalogue graph, and how many mutants of each kind the first has."""
    from tests.codegen.catalogue import CATALOGUE
    from tracemine.codegen.options import CodegenOptions
    from tracemine.codegen.triton.source import generate
    from tracemine.validate.mutants import mutants_of

    folder, name = job
    make = CATALOGUE[name]
    small = make()
    graphs = [small, *other_sizes(make, name)]
    for number, graph in enumerate(graphs):
        for label, options in (("", {}), ("_rounded", {"rounds": True}), ("_looped", {"longest_row": SHORT_ROW})):
            try:
                text = generate(graph, CodegenOptions(**options)).text
            except Exception as error:
                text = f"{type(error).__name__}: {error}\n"
            (folder / f"{name}_{number}{label}.py").write_text(text, encoding="utf-8")
    text, rounded = generate(small).text, generate(small, CodegenOptions(rounds=True)).text
    kinds = Counter(mutant.name for mutant in mutants_of(small, text, rounded))
    (folder / f"{name}_mutants.json").write_text(json.dumps(kinds, indent=1, sort_keys=True), encoding="utf-8")
    return name


def write(out: Path, traces: Sequence[Path]) -> None:
    from tests.codegen.catalogue import CATALOGUE

    findings, sources = out / "findings", out / "kernels"
    findings.mkdir(parents=True)
    sources.mkdir()
    with ProcessPoolExecutor() as pool:
        told = list(pool.map(scanned, [(findings, one) for root in traces for one in scans(root)]))
        made = list(pool.map(kernels, [(sources, name) for name in CATALOGUE]))
    sizes, texts = len(list(sources.glob("*_1.py"))), len(list(sources.glob("*.py")))
    print(f"{len(told)} scans, {len(made)} graphs ({sizes} of them at two sizes), {texts} sources")


def compare(first: Path, second: Path) -> int:
    names = {path.relative_to(folder) for folder in (first, second) for path in folder.rglob("*") if path.is_file()}

    def content(folder: Path, name: Path) -> bytes | None:
        return (folder / name).read_bytes() if (folder / name).is_file() else None

    differing = sorted(name for name in names if content(first, name) != content(second, name))
    for name in differing:
        print(f"differs: {name}")
    print(f"{len(names) - len(differing)} of {len(names)} files are equal to the byte")
    return 1 if differing or not names else 0


def main() -> int:
    match sys.argv[1:]:
        case ["write", out, *traces]:
            write(Path(out), [Path("fixtures"), *map(Path, traces)])
            return 0
        case ["compare", first, second]:
            return compare(Path(first), Path(second))
        case _:
            print(__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main())
