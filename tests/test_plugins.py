"""Formats and reports of other packages: found by name, loaded only where nothing built in fits, never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tracemine import pipeline
from tracemine.errors import InputError, TracemineError, UsageError
from tracemine.formats import open_trace
from tracemine.plugins import FORMATS, REPORTS, plugins
from tracemine.report import REPORTS as BUILT_IN
from tracemine.report import renderer

ROOT = Path(__file__).parents[1]
CHAIN = ROOT / "fixtures" / "kineto" / "chain.json.gz"
Run = Callable[..., tuple[int, str, str]]
Install = Callable[..., None]

FORMAT = """
import pyarrow as pa
from tracemine.formats.format import Format
from tracemine.timeline import TABLES, Meta, Timeline

def read(source, progress):
    rows = []
    for line in source.head.decode().splitlines()[1:]:
        start, dur, name = line.split(None, 2)
        row = dict(kind="kernel", name=name, start_ns=int(start), dur_ns=int(dur))
        rows.append(row | dict(unowned_reason="no_host_events"))
    table = pa.Table.from_pylist(rows, schema=TABLES["activities"].schema)
    return Timeline(meta=Meta(tracemine_version="0", source="k.txt", format="lines"), activities=table)

FORMAT = Format("lines", lambda head: head.startswith(b"%kernels"), read)
"""
REPORT = """
def render(scan, out, options):
    out.write(f"found {len(scan.findings)}, top {options.top}\\n")
"""
KERNELS = "%kernels\n100 5000 relu\n6000 7000 add\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution into a folder on sys.path, as pip does."""
    site = tmp_path / "site"
    site.mkdir()

    def put(name: str, entry_points: str, **modules: str) -> None:
        about = site / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(entry_points)
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text)

    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    return put


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.txt"
    path.write_text(KERNELS)
    return path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tracemine", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)


# --- formats ----------------------------------------------------------------------------------------------------------


def test_a_file_that_nothing_built_in_reads_is_read_by_another_packages_format(install: Install, kernels: Path) -> None:
    install("line-traces", "[tracemine.formats]\nlines = lines_plugin:FORMAT\n", lines_plugin=FORMAT)
    timeline = open_trace(kernels)
    assert timeline.meta.format == "lines"
    assert timeline.activities["name"].to_pylist() == ["relu", "add"]
    done = command("scan", kernels, "--all", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "lines · GPU not named · 0 steps · 2 activities" in done.stdout


def test_without_the_package_the_file_is_refused(kernels: Path) -> None:
    with pytest.raises(InputError, match="is not JSON"):
        open_trace(kernels)


@pytest.mark.parametrize(
    ("entry", "module", "says"),
    [
        ("broken:FORMAT", "import no_such_module_anywhere", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("broken:FORMAT", "raise SystemExit('two\\nlines')", "cannot be loaded: SystemExit: two lines"),
        ("broken:MISSING", "", "cannot be loaded: AttributeError"),
        ("broken", "", "is no tracemine.formats.format.Format"),
        ("not a name", "", "cannot be loaded"),
        (
            "broken:FORMAT",
            FORMAT.replace("head.startswith(b", "head.begins(b"),
            "cannot tell what it recognises: AttributeError",
        ),
    ],
)
def test_a_broken_format_is_named_in_one_line_with_its_distribution(
    install: Install, kernels: Path, entry: str, module: str, says: str
) -> None:
    install("odd-traces", f"[tracemine.formats]\nodd = {entry}\n", broken=module)
    sys.modules.pop("broken", None)
    with pytest.raises(InputError) as caught:
        open_trace(kernels)
    assert f"is not JSON, so it is not a trace; the format 'odd' of odd-traces 1.5 {says}" in caught.value.message
    assert "\n" not in caught.value.message
    done = command("scan", kernels)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2  # and the hint
    assert "odd-traces 1.5" in done.stderr


def test_a_broken_format_is_in_nobodys_way(install: Install, kernels: Path) -> None:
    install("a-broken-one", "[tracemine.formats]\na = nowhere:FORMAT\n")
    install("line-traces", "[tracemine.formats]\nlines = lines_plugin:FORMAT\n", lines_plugin=FORMAT)
    timeline = open_trace(kernels)
    assert timeline.meta.format == "lines"
    (warning,) = timeline.meta.ingest.warnings
    assert "the format 'a' of a-broken-one 1.5 cannot be loaded" in warning
    assert pipeline.scan(CHAIN).trace.activities == 8


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("int(start)", "int('soon')", "failed: ValueError: invalid literal"),
        ("return Timeline(", "return dict(", "made no timeline but dict"),
        ("start_ns=int(start)", "start_ns=-int(start)", "cannot be a timeline: in its activities"),
    ],
)
def test_a_format_that_fails_is_named_with_the_file(
    install: Install, kernels: Path, old: str, new: str, says: str
) -> None:
    assert old in FORMAT
    install("odd-traces", "[tracemine.formats]\nodd = odd_reader:FORMAT\n", odd_reader=FORMAT.replace(old, new))
    sys.modules.pop("odd_reader", None)
    with pytest.raises(InputError) as caught:
        open_trace(kernels)
    assert str(caught.value).startswith(f"{kernels}: ")
    assert says in caught.value.message


def test_a_scan_of_what_is_known_loads_no_plug_in_and_lists_no_package(install: Install) -> None:
    install(
        "eager",
        "[tracemine.formats]\ne = eager_plugin:F\n[tracemine.reports]\nr = eager_plugin:F\n",
        eager_plugin="print('loaded')",
    )
    code = (
        "import sys, importlib.metadata as m; m.entry_points = lambda **_: 1 / 0; from tracemine.cli import main; "
        f"sys.exit(main(['scan', {str(CHAIN)!r}, '--format', 'json', '-q']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "loaded" not in done.stdout


def test_packages_that_cannot_be_listed_are_an_error_where_plug_ins_are_wanted(
    install: Install, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("both", "[tracemine.formats]\nf = a:F\n[tracemine.reports]\nr = a:R\n")

    def fails(**_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    monkeypatch.setattr("importlib.metadata.entry_points", fails)
    monkeypatch.syspath_prepend("nowhere")  # what was listed before is of another path
    with pytest.raises(InputError, match="the packages installed here cannot be listed: UnicodeDecodeError"):
        open_trace(kernels)
    with pytest.raises(TracemineError, match="cannot be listed"):
        renderer("table")


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_of_another_package_is_asked_for_by_its_name(install: Install, run: Run) -> None:
    install("count-report", "[tracemine.reports]\ncount = count_plugin:render\n", count_plugin=REPORT)
    assert run("scan", CHAIN, "--format", "count", "--top", "3", "--quiet") == (0, "found 1, top 3\n", "")
    done = command("scan", CHAIN, "--format", "count", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "found 1, top 10\n", "")


def test_an_unknown_report_is_refused_with_all_that_there_are(install: Install, run: Run) -> None:
    install("count-report", "[tracemine.reports]\ncount = count_plugin:render\n", count_plugin=REPORT)
    code, out, err = run("scan", CHAIN, "--format", "pie")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "--format: there is no report 'pie'",
        f"  hint: there are: {', '.join(BUILT_IN)}, count",
    ]


@pytest.mark.parametrize("built_in", ["json", "text"])
def test_a_report_of_ours_is_never_another_packages(install: Install, run: Run, built_in: str) -> None:
    install("greedy", f"[tracemine.reports]\n{built_in} = count_plugin:render\n", count_plugin=REPORT)
    code, out, _ = run("scan", CHAIN, "--format", built_in, "--quiet")
    assert code == 0
    assert "top 10" not in out


def test_two_reports_of_one_name_are_refused_and_both_named(install: Install) -> None:
    for name in ("one", "two"):
        install(name, "[tracemine.reports]\ncount = count_plugin:render\n", count_plugin=REPORT)
    with pytest.raises(UsageError, match=r"there are several reports 'count': of one 1\.5 and two 1\.5"):
        renderer("count")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError"),
        ("render = 7", "is no function render(scan, out, options)"),
        ("def render(scan, out, options): return 1 / 0", "failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_report_is_one_line_that_names_its_distribution(
    install: Install, run: Run, module: str, says: str
) -> None:
    install("odd-report", "[tracemine.reports]\nodd = odd_report:render\n", odd_report=module)
    sys.modules.pop("odd_report", None)
    code, out, err = run("scan", CHAIN, "--format", "odd", "--quiet")
    assert (code, out) == (2, "")
    assert f"the report 'odd' of odd-report 1.5 {says}" in err.splitlines()[0]
    assert len(err.splitlines()) == 2


def test_plug_ins_are_told_with_their_distributions(install: Install) -> None:
    install("both", "[tracemine.formats]\nf = a:F\n[tracemine.reports]\nr = a:R\n")
    assert [(one.name, one.distribution) for one in plugins(FORMATS)] == [("f", "both 1.5")]
    assert [(one.name, one.distribution) for one in plugins(REPORTS)] == [("r", "both 1.5")]
