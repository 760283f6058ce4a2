"""What the pages for Python programs show runs as it stands there, and their three libraries give one answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tracemine
from tracemine.cli import main
from tracemine.pipeline import analyse

ROOT = Path(__file__).parents[1]
RECIPES = (ROOT / "docs" / "guide" / "tables.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.+?)```", re.S)
SECTIONS = {section.partition("\n")[0]: BLOCK.findall(section) for section in RECIPES.split("\n## ")[1:]}
LIBRARIES = ("pandas", "DuckDB", "Polars")
QUESTIONS = {
    "GPU time by kernel": "by_kernel",
    "Idle gaps by the operator that ended them": "by_operator",
    "Savings by module, with the GPU time behind them": "by_module",
}
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's command was run."""
    path = tmp_path_factory.mktemp("recipes")
    (path / "fixtures").symlink_to(ROOT / "fixtures")
    command = re.search(r"<!-- run -->\n```bash\ntracemine (.+?)\n```", RECIPES)
    assert command is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert main([*command[1].split(), "--quiet", "--output", "report.txt"]) == 0
    return path


def ran(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/guide/tables.md", "exec"), names)  # noqa: S102 - of our own page
    return names


def rows_of(found: Any) -> Rows:
    """An answer of any library as rows, texts and whole numbers, in one order."""
    kind = type(found).__module__.partition(".")[0]
    if kind == "pandas":
        rows = [*found.reset_index().itertuples(index=False, name=None)]
    else:
        rows = found.rows() if kind == "polars" else found.fetchall()
    plain = [(None if row[0] is None or row[0] != row[0] else str(row[0]), *map(int, row[1:])) for row in rows]
    return sorted(plain, key=lambda row: (-row[1], str(row[0])))


def test_each_question_has_an_answer_of_each_library_and_no_more() -> None:
    assert {name: len(SECTIONS[name]) for name in QUESTIONS} == dict.fromkeys(QUESTIONS, 3)
    for name in QUESTIONS:
        for library, code in zip(LIBRARIES, SECTIONS[name], strict=True):
            assert f"import {library.lower()}" in code


def expected(name: str) -> Rows:
    """The same, computed from what tracemine has in memory."""
    trace = ROOT / "fixtures" / "captures" / "decoder_prefill"
    timeline, report = analyse(trace).timeline, tracemine.scan(trace)
    activities = timeline.table("activities").to_pylist()
    answer: dict[str | None, list[int]] = {}

    def add(key: str | None, *numbers: int) -> None:
        kept = answer.setdefault(key, [0] * len(numbers))
        kept[:] = [a + b for a, b in zip(kept, numbers, strict=True)]

    if name == "GPU time by kernel":
        for row in activities:
            add(row["short_name"], 1, row["dur_ns"])
    elif name.startswith("Idle"):
        ops, until = timeline.ops["name"].to_pylist(), activities[0]["start_ns"]
        for row in activities:
            if row["start_ns"] - until > 20_000:
                add(None if row["op_row"] is None else ops[row["op_row"]], 1, row["start_ns"] - until)
            until = max(until, row["start_ns"] + row["dur_ns"])
    else:
        for finding in report:
            rows = [row for occurrence in finding.activities for row in occurrence] if finding.on_gpu else []
            assert finding.per_step is not None
            saved = finding.per_step.step_saving_ns.mid
            add(finding.module, saved, len(rows), sum(activities[row]["dur_ns"] for row in rows))
    found = [(key, *numbers) for key, numbers in answer.items()]
    return sorted(found, key=lambda row: (-row[1], str(row[0])))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_three_libraries_give_the_answer_that_the_trace_has(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = expected(name)
    assert len(right) > 1
    for library, code in zip(LIBRARIES, SECTIONS[name], strict=True):
        assert rows_of(ran(code, folder, monkeypatch)[QUESTIONS[name]]) == right, library
        assert capsys.readouterr().out


def test_no_module_has_more_gpu_time_than_there_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tracemine.scan(ROOT / "fixtures" / "captures" / "decoder_prefill").scan.summary.gpu_time_ns
    for code in SECTIONS["Savings by module, with the GPU time behind them"]:
        rows = rows_of(ran(code, folder, monkeypatch)["by_module"])
        assert sum(row[3] for row in rows) <= whole


def test_another_gap_is_another_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Idle gaps by the operator that ended them"
    for code in SECTIONS[name]:
        changed = re.sub(r"20_?000", "60000", code)
        assert changed != code
        assert rows_of(ran(changed, folder, monkeypatch)[QUESTIONS[name]]) != expected(name)


def test_the_other_examples_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = SECTIONS["Without files"]
    ran(code, folder, monkeypatch)
    assert "rmsnorm_unfused" in capsys.readouterr().out


def example(page: str) -> str:
    """The first example of a page that scans."""
    blocks: list[str] = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return next(block for block in blocks if "tracemine.scan(" in block)


def test_the_example_of_the_page_of_the_api_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ran(example("docs/reference/api.md"), folder, monkeypatch)
    assert names["report"] == tracemine.load(folder / "findings.json")
    assert capsys.readouterr().out.startswith("high Unfused RMSNorm")


def test_the_example_of_the_readme_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ran(example("README.md"), folder, monkeypatch)["report"]) > 1


@pytest.mark.parametrize(
    "page",
    ["docs/reference/api.md", "docs/guide/tables.md", "docs/reference/findings.md", "docs/reference/timeline.md"],
)
def test_what_a_page_links_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links
    for link in links:
        assert (ROOT / page).parent.joinpath(link).exists(), link
