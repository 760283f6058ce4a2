"""List the benchmarks, or run one: `python -m benchmarks [NAME ...]`. What follows NAME are its own arguments."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUBJECTS = ("reading", "dataflow", "answers", "predictions", "recordings", "proofs", "fleets")
# Beside those that lie in a folder of their subject by their own name.
OTHERS = {
    "causes": "causes/check.py",
    "drop_ins": "fixes/drop_ins.py",
    "products": "fixes/products.py",
    "public_rows": "fixes/public_rows.py",
    "product_kernels": "fixes/product_kernels.py",
    "programs": "programs/run.py",
    "programs_applied": "programs/applied.py",
    "programs_applied_ranks": "programs/applied_ranks.py",
    "programs_score": "programs/score.py",
    "programs_reading": "programs/reading.py",
}
GPU = frozenset(
    (
        *(
            "agent_verify",
            "judge",
            "products",
            "product_kernels",
            "programs",
            "programs_applied",
            "programs_applied_ranks",
            "record_causes",
            "record_compiled",
            "record_dataflow",
            "record_deep",
        ),
        *("record_fixes", "record_library", "record_loading", "record_models", "record_nsys_models", "record_points"),
        "record_producers",
        "record_proton",
        *(
            "record_steps",
            "record_waits",
            "recording",
            "verify_causes",
            "verify_gpu",
            "verify_launchers_run",
            "verify_run",
        ),
        "verify_steps_run",
    )
)  # what records or times on one


def commands() -> dict[str, Path]:
    """Each benchmark's file by its name, subject by subject; files that others import alone are none."""
    found = {path.stem: path for subject in SUBJECTS for path in sorted((HERE / subject).glob("*.py"))}
    found |= {name: HERE / path for name, path in OTHERS.items()}
    return {name: path for name, path in found.items() if '__name__ == "__main__"' in path.read_text("utf-8")}


def line(path: Path) -> str:
    """What a benchmark answers: the first line of its docstring, without the command."""
    whole = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return whole.split("\n")[0].partition(": `python ")[0]


def listed() -> str:
    """The list that is printed."""
    found = commands()
    width = max(map(len, found))
    texts: list[str] = []
    folder = ""
    for name, path in found.items():
        if path.parent.name != folder:
            folder = path.parent.name
            texts.append(f"\n{folder}/")
        texts.append(f"  {name:<{width}}  {'GPU' if name in GPU else '   '}  {line(path)}")
    return "\n".join(["python -m benchmarks NAME ...; GPU: it needs one", *texts])


def main(arguments: list[str]) -> int:
    """Print the list, or run a benchmark as its file is run; 2 where there is none of the name."""
    if not arguments:
        print(listed())
        return 0
    path = commands().get(arguments[0])
    if path is None:
        print(f"{arguments[0]}: no such benchmark; `python -m benchmarks` prints the list", file=sys.stderr)
        return 2
    sys.argv = [str(path), *arguments[1:]]
    sys.path[:0] = [str(path.parent), str(HERE.parent)]
    runpy.run_path(str(path), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
