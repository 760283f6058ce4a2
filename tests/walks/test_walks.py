"""What five users do on a fresh machine: in a terminal, a notebook, a browser, CI, and as a coding agent.

Each begins with the wheel, installed into an empty environment. The summary of a run lists commands and seconds.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.test_action import FAST, ROOT, SLOW, step
from tests.walks.machine import Machine

MOST_S = 300.0  # from the wheel to a ticket that is open
BEFORE, AFTER = "fixtures/captures/decoder_prefill", "fixtures/kineto/decoder_prefill_compiled.json.gz"
# Runs cells as a notebook does: one namespace, and what the last line of a cell gives is shown.
CELLS = """
import ast, json, sys
names = {}
for source in json.load(open(sys.argv[1])):
    cell = ast.parse(source)
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "cell", "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        print(shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
"""


def test_terminal(machine: Machine) -> None:
    """From the wheel to an open ticket in three commands; then one finding whole."""
    pytest.importorskip("httpx")
    from tests.tickets.server import running

    with running() as world:
        scanned = machine.run(f"tracemine scan {BEFORE} --all")
        where = f"--project decoder --github you/model --github-url {world.address}"
        filed = machine.run(f"tracemine tickets {BEFORE} {where} --apply", GH_ENTERPRISE_TOKEN="t0ken")
    assert len(machine.lines) <= 3
    assert machine.seconds < MOST_S
    assert filed.startswith("create #1  Fuse RMSNorm in ")
    assert [issue["state"] for issue in world.issues] == ["open"] * 4
    assert not world.violations
    mark = re.search(r"id +([0-9a-f]{16}) · rule rmsnorm_unfused", scanned)
    assert mark is not None
    explained = machine.run(f"tracemine explain {mark[1][:4]} {BEFORE}")
    assert "torch.nn.functional.rms_norm" in explained


def test_notebook(machine: Machine) -> None:
    """The notebook of the guide, in an interpreter that has nothing but the wheel; then the report as a page."""
    cells = json.loads((ROOT / "docs" / "guide" / "notebook.ipynb").read_text("utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    sources.append('report.to_html("report.html")\nopen("report.html").read(15)')
    (machine.folder / "cells.json").write_text(json.dumps(sources))
    (machine.folder / "cells.py").write_text(CELLS)
    shown = machine.run("python cells.py cells.json")
    assert '<div class="tracemine' in shown
    assert "per_step_saving_alone_ns" in shown
    assert shown.rstrip().lower().endswith("'<!doctype html>'")


def test_browser(machine: Machine, request: pytest.FixtureRequest) -> None:
    """A report as one file, opened in a browser: its findings are there, nothing is logged or asked of a network."""
    machine.run(f"tracemine scan {BEFORE} --format html -o report.html")
    show = request.getfixturevalue("show")  # which looks after the page at its end
    with machine.timed("the browser opens report.html"):
        opened = show(machine.folder / "report.html")
    assert "RMSNorm" in opened.page.inner_text("body")
    opened.check()


def test_ci(machine: Machine) -> None:
    """The steps of the GitHub Action, whose first one installed the wheel: red on a fault, green without."""
    runner = machine.folder / "runner"
    for name in ("workspace", "temporary"):
        (runner / name).mkdir(parents=True)
    (runner / "temporary" / "tracemine-environment").symlink_to(machine.environment)
    machine.run(f"tracemine scan {FAST} --save-baseline runner/workspace/baseline.json")
    gate = {"baseline": "baseline.json", "fail-on": "new,worse,2%"}
    for trace, code in ((FAST, 0), (SLOW, 1)):
        with machine.timed(f"the step Scan, {Path(trace).name}: {code}"):
            ran = step(runner, "Scan", {"traces": trace, **gate}, HOME=str(machine.folder))
        assert (ran.code, ran.outputs["exit-code"]) == (code, str(code))
        assert ran.kept("report.md").read_text() == ran.summary
        assert ran.kept("report.html").read_text().lower().startswith("<!doctype html>")
    assert "Unfused RMSNorm" in ran.summary


def test_agent(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session over standard input and output: scan, top, explain, why not, the kernel, what became of it."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    sessions = pytest.importorskip("tests.mcp.sessions")
    runs = machine.folder / "runs"
    shutil.copytree(ROOT / BEFORE, runs / "before")
    shutil.copy(ROOT / AFTER, runs / "after.json.gz")

    async def walked(session: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def ask(name: str, **arguments: object) -> None:
            with machine.timed(f"{name} {json.dumps(arguments)}"):
                found[name] = await session.answer(name, **arguments)

        await ask("scan", path="before")
        await ask("top", path="before", by="module")
        mark = found["scan"]["untrusted"]["findings"][0]["id"]
        await ask("explain", path="before", id=mark)
        await ask("why_not", path="before", operator="aten::mm")
        await ask("emit", path="before", id=mark)
        await ask("diff", before="before", after="after.json.gz", status="fixed")
        return found

    with machine.timed("the whole session, with its start"):
        found = sessions.over_stdio(walked, [runs], python=machine.python)
    assert found["scan"]["total"] == 4
    assert found["explain"]["rule"] == "rmsnorm_unfused"
    assert found["why_not"]["total"] > 0
    ast.parse(found["emit"]["untrusted"]["text"])
    assert found["diff"]["total"] == 3


def test_nothing_of_the_checkout_is_on_the_path_of_a_walk(machine: Machine) -> None:
    place = machine.run("python -c 'import tracemine; print(tracemine.__file__)'")
    assert Path(place.strip()).is_relative_to(machine.environment)
    assert not Path(place.strip()).is_relative_to(ROOT)
    assert "PYTHONPATH" not in machine.variables()
    assert [path.name for path in machine.folder.iterdir()] == ["fixtures"]
