"""The wheel and the sdist, built offline: nothing is missing that a command reads, and the version stands once."""

from __future__ import annotations

import email
import email.message
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dist import ROOT, build, built_once
from tracemine.extras import EXTRAS
from tracemine.version import __version__

pytest.importorskip("hatchling.build", reason="hatchling is not installed: pip install -e '.[dev]'")
pytest.importorskip("hatch_fancy_pypi_readme", reason="is not installed: pip install -e '.[dev]'")

MOVED = {"rules": "tracemine/_rules", "docs/schemas": "tracemine/_schemas"}  # from a checkout into the package
MOST_WHEEL_BYTES = 2_900_000  # with readers of eight formats
# Every file that a program opens or lists below the folder of tracemine, as an audit hook sees it, printed at the end.
OPENED = """
import contextlib, io, json, sys
from pathlib import Path
root, *commands = json.loads(sys.argv[1])
seen = set()
sys.addaudithook(lambda event, given: seen.add(str(given[0])) if event == "open" else None)
from tracemine.cli import main
codes = []
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        codes.append(main(command))
inside = {path[len(root) + 1 :] for path in map(str, map(Path, seen)) if path.startswith(root + "/")}
print(json.dumps([codes, sorted(path for path in inside if not path.endswith((".py", ".pyc")))]))
"""


@dataclass
class Wheel:
    files: dict[str, bytes]
    bytes: int

    @classmethod
    def of(cls, folder: Path) -> Wheel:
        (path,) = folder.glob("*.whl")
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        return cls(files, path.stat().st_size)

    @property
    def package(self) -> set[str]:
        return {name for name in self.files if name.startswith("tracemine/")}

    def about(self, name: str) -> str:
        return self.files[f"tracemine-{__version__}.dist-info/{name}"].decode()

    @property
    def metadata(self) -> email.message.Message:
        return email.message_from_string(self.about("METADATA"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    return built_once(tmp_path_factory)


@pytest.fixture(scope="module")
def wheel(built: Path) -> Wheel:
    return Wheel.of(built)


def kept(folder: Path) -> set[str]:
    """What lies in a folder of the checkout, less what Python writes there."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix not in (".pyc", ".pyo")}


def moved(place: str) -> str:
    """Where a file of the checkout lies in the wheel."""
    for begin, end in MOVED.items():
        if place.startswith(f"{begin}/"):
            return f"{end}{place.removeprefix(begin)}"
    return place


def test_the_wheel_has_the_package_the_rules_and_the_schemas_and_nothing_else(wheel: Wheel) -> None:
    expected = {moved(place) for folder in ("tracemine", *MOVED) for place in kept(ROOT / folder)}
    assert wheel.package == expected
    assert {name.split("/")[0] for name in wheel.files} == {"tracemine", f"tracemine-{__version__}.dist-info"}
    assert {"tracemine/devices.toml", "tracemine/py.typed", "tracemine/_rules/launch_gap/rule.toml"} <= wheel.package
    assert wheel.bytes < MOST_WHEEL_BYTES


def test_the_sdist_builds_the_same_wheel(built: Path, wheel: Wheel, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / f"tracemine-{__version__}", tmp_path / "dist", "-t", "wheel")
    assert Wheel.of(tmp_path / "dist").files == wheel.files


def test_what_commands_read_of_the_checkout_is_in_the_wheel(wheel: Wheel, tmp_path: Path) -> None:
    from tracemine.report import REPORTS

    trace, stored = str(ROOT / "fixtures/captures/chain"), str(tmp_path / "findings.json")
    forms = [["scan", trace, "--format", name, "-o", str(tmp_path / f"report.{name}"), "-q"] for name in REPORTS]
    commands = [
        *forms,
        ["scan", trace, "--format", "json", "-o", stored, "-q"],
        ["scan", str(ROOT / "fixtures/nsys/block_train.sqlite"), "-q"],
        ["scan", str(ROOT / "fixtures/ncu/chain/trace.json.gz"), "--ncu", str(ROOT / "fixtures/ncu/chain/raw.csv.gz")],
        ["explain", "1", stored],
        ["rules", "test", "launch_gap"],
        ["rules", "lint"],
        ["tickets", stored, "--project", "decoder", "--out", str(tmp_path / "tickets")],
        ["diff", trace, stored],
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", OPENED, json.dumps([str(ROOT), *commands])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    codes, opened = json.loads(told.stdout)
    assert codes == [0] * len(commands), told.stderr
    # An environment within the checkout is no part of it: which packages are installed is read there.
    own = [place for place in opened if not (ROOT / place).is_relative_to(sys.prefix)]
    # Whoever imports a module first writes what it compiled.
    read = {place for place in own if not place.startswith("fixtures/") and "__pycache__" not in place}
    assert {"rules/launch_gap/rule.toml", "rules/launch_gap/cases.md", "tracemine/devices.toml"} <= read
    assert {moved(place) for place in read} <= wheel.package


def test_the_version_stands_once(wheel: Wheel) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]
    assert wheel.metadata["Version"] == __version__
    changes = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    example = re.search(r"tracemine@v(\S+)", (ROOT / "docs/examples/workflow.yml").read_text("utf-8"))
    assert changes is not None
    assert example is not None
    assert changes[1] == example[1] == __version__


def test_the_metadata_is_what_an_index_takes(wheel: Wheel) -> None:
    classifiers = pytest.importorskip("trove_classifiers").classifiers  # hatchling brings it
    given = wheel.metadata.get_all("Classifier") or []
    assert given
    assert set(given) <= set(classifiers)
    assert wheel.metadata["License-Expression"] == "MIT"
    assert wheel.about("licenses/LICENSE") == (ROOT / "LICENSE").read_text("utf-8")
    assert wheel.metadata["Requires-Python"] == ">=3.11"
    assert "tracemine = tracemine.__main__:main" in wheel.about("entry_points.txt")


def test_the_description_leads_nowhere_that_an_index_has_not(wheel: Wheel) -> None:
    page = str(wheel.metadata.get_payload())
    assert wheel.metadata["Description-Content-Type"] == "text/markdown"
    assert page.startswith("# tracemine\n")
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", page)
    assert "docs/guide/scan.md" in (ROOT / "README.md").read_text("utf-8")  # of which there were some
    assert "scan" in page


def test_what_hints_say_to_install_is_what_the_extras_need() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {
        extra: [re.split(r"[<>=;]", each)[0] for each in needs] for extra, needs in asked.items() if extra != "dev"
    }
    assert {extra: [*packages] for extra, packages in EXTRAS.items()} == names


def test_no_hint_names_the_project_as_if_an_index_had_it() -> None:
    """A name that nobody has registered may be taken by anyone."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "tracemine").rglob("*.py")}
    texts |= {path: path.read_text("utf-8") for path in (ROOT / "docs" / "guide").glob("*.md")}
    named = re.compile(r"pip install [\"']?tracemine")
    assert [path.name for path, text in texts.items() if named.search(text)] == []
    assert named.search("pip install 'tracemine[fleet]'") and named.search("pip install tracemine")
