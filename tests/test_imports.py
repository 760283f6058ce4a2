"""Imports within functions: only where what they load must not be loaded yet, and never more than now; no circles."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp

PACKAGE = Path(__file__).parents[1] / "tracemine"

# Where there are some, and how many. pyproject.toml lets ruff pass the same files (PLC0415) and says why there.
COUNTS = {
    "__main__.py": 1,
    "cli": 136,
    "files/writing.py": 1,
    "fleet/report.py": 1,
    "fleet/places.py": 1,
    "formats/nsys/database.py": 2,
    "formats/proton/__init__.py": 2,
    "formats/xla/read.py": 3,
    "frames.py": 1,
    "plugins.py": 1,
    "processes.py": 1,
    "ray_cluster.py": 1,
    "recording/__init__.py": 1,
    "recording/installed.py": 2,
    "testing/plugin.py": 5,
    "validate/sandbox.py": 1,
    "verify/gpu/clocks.py": 1,
    "verify/gpu/reproduction.py": 1,
    "verify/gpu/worker.py": 1,
}


# A word that may be an import, not at the beginning of a line.
ELSEWHERE = re.compile(r"^(?!from |import ).*\bimport\b", re.MULTILINE)


def imports_within(text: str) -> int:
    """How many import statements stand in functions."""
    if not ELSEWHERE.search(text):
        return 0  # and nothing to parse
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return len({node for each in functions for node in ast.walk(each) if isinstance(node, ast.Import | ast.ImportFrom)})


def counted() -> Iterator[tuple[str, int]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        yield "cli" if place.parts[0] == "cli" else place.as_posix(), imports_within(path.read_text(encoding="utf-8"))


def test_imports_within_functions_are_counted_once_each_and_those_outside_are_not() -> None:
    outside = "import a\nif a:\n    import b\nclass C:\n    import c\n"
    assert imports_within(outside) == 0
    assert imports_within(outside + "def f():\n    import d\n    def g():\n        from e import f\n") == 2


def test_imports_stand_at_the_top_of_a_module() -> None:
    found: Counter[str] = Counter()
    for place, count in counted():
        found[place] += count
    more = {place: count for place, count in found.items() if count > COUNTS.get(place, 0)}
    fewer = {place: found[place] for place, count in COUNTS.items() if found[place] < count}
    assert not more, (
        f"imports within functions: {more}. Put them at the top; where that loads what must not be loaded yet, raise "
        "the number in COUNTS in tests/test_imports.py, and for a new file add it with the reason to pyproject.toml"
    )
    assert not fewer, f"there are fewer: lower COUNTS in tests/test_imports.py to {fewer}"


def test_ruff_passes_over_the_same_files() -> None:
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    ignored = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    passed = {name for name, rules in ignored.items() if "PLC0415" in rules and name.startswith("tracemine/")}
    assert passed == {f"tracemine/{place}" if place.endswith(".py") else f"tracemine/{place}/**" for place in COUNTS}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Types that are imported for checkers alone count too, except where a package names its own parts."""
    graph = grimp.build_graph("tracemine", cache_dir=None)
    packages = {name for name in graph.modules if graph.find_children(name)}
    circles = [
        (one, other)
        for one in sorted(graph.modules - packages)
        for other in sorted(graph.find_modules_directly_imported_by(one) - packages)
        if graph.chain_exists(importer=other, imported=one)
    ]
    assert not circles
