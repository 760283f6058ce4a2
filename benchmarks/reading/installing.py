"""Build the wheel and the sdist, install each into empty environments, and run it there.

    python -m benchmarks installing [--tools]

A row for each supported Python and each file: how long the installation takes, how large the environment gets, how long
`import tracemine` and `tracemine --help` take (processor time, the least of five), and whether a scan finds what this
checkout finds. A Python that is not at hand gets a row that says so. `--tools` also runs the wheel with uvx and pipx,
and has twine check both files. Exits with 1 where something failed. It fetches packages from an index.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "fixtures" / "kineto" / "decoder_prefill.json.gz"
VERSIONS = ("3.11", "3.12", "3.13")
HEADER = "| Python | file | install | environment | import | --help | scan |\n|---|---|--:|--:|--:|--:|---|"
IMPORT = "import time; t = time.process_time(); import tracemine; print(1000 * (time.process_time() - t))"
OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # of the environment that this runs in
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in OWN}
Outcome = tuple[str, bool]  # a line, and whether all was well


def ran(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder; return what it prints. Raises RuntimeError with what it said where it fails."""
    done = subprocess.run([*map(str, command)], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def interpreter(version: str) -> str | None:
    """Return a Python of this version: of pyenv, else on PATH."""
    own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(own[-1]) if own else shutil.which(f"python{version}")


def environment(python: str, place: Path, *packages: str) -> Path:
    """Make an environment with these packages alone. Return its folder of programs."""
    ran(python, "-m", "venv", place, folder=place.parent)
    if packages:
        ran(place / "bin" / "python", "-m", "pip", "install", "--quiet", *packages, folder=place.parent)
    return place / "bin"


def findings(folder: Path, *command: str | Path) -> list[str]:
    """Return the fingerprints that a scan prints."""
    scan = json.loads(ran(*command, "scan", TRACE, "--format", "json", folder=folder))
    return [finding["fingerprint"] for finding in scan["findings"]]


def megabytes(place: Path) -> float:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def help_ms(program: Path, folder: Path) -> float:
    """Return the processor time of `tracemine --help`, with the interpreter's start."""
    before = os.times()
    ran(program, "--help", folder=folder)
    after = os.times()
    return 1000 * (after.children_user + after.children_system - before.children_user - before.children_system)


def installed(version: str, file: Path, folder: Path, expected: Sequence[str]) -> Outcome:
    """Install a file for a version of Python and run it. Return a row of the table."""
    python = interpreter(version)
    if python is None:
        return f"| {version} | {file.name} | not tried: no such Python at hand | | | | |", True
    programs = environment(python, folder / f"{version}{file.suffix}")
    empty = megabytes(programs.parent)
    begin = time.monotonic()
    ran(programs / "python", "-m", "pip", "install", "--quiet", file, folder=folder)
    seconds = time.monotonic() - begin
    right = findings(folder, programs / "tracemine") == expected
    cells = (
        version,
        file.name,
        f"{seconds:.0f} s",
        f"{megabytes(programs.parent) - empty:.0f} MB",
        f"{min(float(ran(programs / 'python', '-c', IMPORT, folder=folder)) for _ in range(5)):.0f} ms",
        f"{min(help_ms(programs / 'tracemine', folder) for _ in range(5)):.0f} ms",
        "the same findings" if right else "OTHER FINDINGS",
    )
    return f"| {' | '.join(cells)} |", right


def by_tools(files: Sequence[Path], folder: Path, expected: Sequence[str]) -> Iterator[Outcome]:
    """Run the wheel by uvx and by pipx, and check what an index checks of both files."""
    programs = environment(sys.executable, folder / "tools", "uv", "pipx", "twine")
    wheel = next(file for file in files if file.suffix == ".whl")
    commands = {
        "uvx --from": [programs / "uvx", "--quiet", "--from", wheel, "tracemine"],
        "pipx run --spec": [programs / "pipx", "run", "--quiet", "--spec", wheel, "tracemine"],
    }
    for name, command in commands.items():
        right = findings(folder, *command) == expected
        yield f"{name} {wheel.name} tracemine scan: {'the same findings' if right else 'OTHER FINDINGS'}", right
    ran(programs / "twine", "check", "--strict", *files, folder=folder)
    yield "twine check --strict: passed", True


def outcomes(folder: Path, *, tools: bool) -> Iterator[Outcome]:
    """Yield a line for all that is tried, one after the other."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tracemine.cli import main; sys.exit(main())"
    expected = findings(folder, sys.executable, "-c", code)
    backend = environment(sys.executable, folder / "build", "hatchling", "hatch-fancy-pypi-readme")
    ran(backend / "python", "-m", "hatchling", "build", "-d", folder / "dist", folder=ROOT)
    files = sorted((folder / "dist").iterdir())
    for file in files:
        yield f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", True
    yield f"a scan of {TRACE.name} in this checkout: {len(expected)} findings\n\n{HEADER}", bool(expected)
    for version in VERSIONS:
        for file in files:
            yield installed(version, file, folder, expected)
    if tools:
        yield from by_tools(files, folder, expected)


def main() -> int:
    """Print what each trial came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", action="store_true", help="uvx, pipx and twine too")
    tools = parser.parse_args().tools
    all_well = True
    with TemporaryDirectory(prefix="tracemine-packaging-") as temporary:
        try:
            for line, well in outcomes(Path(temporary), tools=tools):
                print(line, flush=True)
                all_well &= well
        except RuntimeError as error:
            print(error)
            all_well = False
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
