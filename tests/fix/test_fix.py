"""The command: a module, a diff or lines, and `apply` takes the diff as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tracemine.__main__ import main
from tracemine.apply.asked import AskedShares
from tracemine.causes import load_rules
from tracemine.findings.record import Source
from tracemine.fix.ways import SAYS, WAYS
from tracemine.pipeline import analyse, mined

ROOT = Path(__file__).parents[2]
CHAIN = ROOT / "fixtures/captures/chain"
PROGRAM = """
from types import SimpleNamespace

import torch


def build():
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(20)))
    kept = [p.detach().clone() for p in model.parameters()]
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def run(batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(kept, parameters):
                old.mul_(0.9).add_(new, alpha=0.1)
        return loss.detach(), kept[0].clone()

    batches = [torch.randn(8, 16), torch.randn(4, 16)]
    return SimpleNamespace(run=run, batches=batches, parameters=model.named_parameters, modules=[model])
"""


def test_each_rule_has_a_way_and_no_other_has() -> None:
    assert set(WAYS) == {rule.id for rule in load_rules()}
    assert all(way.ways and set(way.ways) <= set(SAYS) for way in WAYS.values())
    assert all("diff" in way.ways for way in WAYS.values() if way.edits)
    assert {rule for rule, way in WAYS.items() if "advice" in way.ways} == {"graph_launch_gap"}


def findings(folder: Path, rule: str, source: Source | None) -> Path:
    """A file with one finding of a rule, at a line."""
    scan = mined(analyse(CHAIN / "trace.json.gz", execution_trace=CHAIN / "et.json.gz"))
    one = replace(scan.reported[0], rule=rule, title="A loop", source=() if source is None else (source,), kernels=())
    path = folder / "findings.json"
    path.write_bytes(msgspec.json.encode(replace(scan, findings=(one,))))
    return path


def test_a_kernels_module_is_written(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = tmp_path / "fused.py"
    assert main(["fix", "1", str(CHAIN), "-o", str(out)]) == 0
    text = out.read_text()
    assert "def memory_bound_chain_logrelubias(x, y, *, number=0, number_1):" in text  # of one no number was recorded
    assert "\nimport tracemine" not in text


def test_without_a_diff_the_lines_are_printed_with_the_reason(tmp_path: Path, capsys: Any) -> None:
    path = findings(tmp_path, "parameter_loop", None)
    assert main(["fix", "1", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("# a change of the source\n")
    assert "--source DIR" in said.err
    assert main(["fix", "1", str(path), "--source", str(tmp_path / "nowhere")]) == 2
    assert main(["fix", "1", str(findings(tmp_path, "graph_launch_gap", None)), "--source", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("# advice")


def test_apply_takes_the_diff(tmp_path: Path) -> None:
    pytest.importorskip("libcst", reason="LibCST is not installed: pip install libcst")
    pytest.importorskip("torch")
    from tracemine.apply.run import applied
    from tracemine.apply.variants import edit_name

    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    line = PROGRAM.splitlines().index("    def run(batch):") + 1
    source = Source(file="program.py", line=line, function="run", begins=True)
    path, diff = findings(tmp_path, "parameter_loop", source), tmp_path / "lists.diff"
    assert main(["fix", "1", str(path), "--source", str(folder), "-o", str(diff)]) == 0
    assert "+            torch._foreach_add_(list(kept), list(parameters), alpha=0.1)" in diff.read_text()
    assert (folder / "program.py").read_text() == PROGRAM
    run = applied("program:build", folder, {edit_name(diff): AskedShares({})})
    assert run.alone[0].said in ("faster", "slower", "no difference"), run.alone


def test_a_stranger_in_the_way_is_no_diff(tmp_path: Path) -> None:
    pytest.importorskip("libcst", reason="LibCST is not installed: pip install libcst")
    (tmp_path / "program.py").write_text("def run(batch):\n    return batch\n")
    path = findings(tmp_path, "parameter_loop", Source(file="program.py", line=1, function="run", begins=True))
    assert main(["fix", "1", str(path), "--source", str(tmp_path), "-o", str(tmp_path / "out.diff")]) == 1
    assert not (tmp_path / "out.diff").exists()


@pytest.mark.parametrize(
    ("rule", "page"), [("logits_written", "linear_losses"), ("vocabulary_maximum", "vocabulary_max")]
)
def test_a_page_is_written_where_the_advice_imports_from_it(rule: str, page: str, tmp_path: Path) -> None:
    (known,) = (each for each in load_rules() if each.id == rule)
    path, out = findings(tmp_path, rule, None), tmp_path / f"{page}.py"
    scan = msgspec.json.decode(path.read_bytes())
    scan["findings"][0]["fix"] = known.fix
    path.write_bytes(msgspec.json.encode(scan))
    assert main(["fix", "1", str(path), "-o", str(out), "--quiet"]) == 0
    assert "import tracemine" not in out.read_text() and "from tracemine" not in out.read_text()
    compile(out.read_text(), str(out), "exec")
    scan["findings"][0]["fix"] = "Give the head the positions whose logits are read."
    path.write_bytes(msgspec.json.encode(scan))
    assert main(["fix", "1", str(path), "--quiet"]) == 1
