"""The notebook of docs/ runs from its first cell to its last, in a kernel of its own, and is kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "guide" / "notebook.ipynb"
# In a process of its own: what Jupyter's packages warn of is nobody's here.
RUN = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
place = {"metadata": {"path": sys.argv[2]}}
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
nbformat.write(notebook, sys.argv[3])
"""


def executed(notebook: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """Runs a notebook in its own folder, as an editor does."""
    command = [sys.executable, "-c", RUN, str(notebook), str(NOTEBOOK.parent), str(to)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(to.parent / "ipython")}
    environment |= {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter", "JUPYTER_DATA_DIR": str(to.parent / "jupyter")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def outputs(cell: dict[str, Any]) -> dict[str, str]:
    """What a cell printed and showed, by kind."""
    found: dict[str, str] = {}
    for output in cell["outputs"]:
        shown = output["data"] if "data" in output else {"text/plain": output.get("text", "")}
        found |= {kind: "".join(text) for kind, text in shown.items()}
    return found


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    for cell in code:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert any("tracemine.scan(TRACE).to_pandas()" in "".join(c["source"]) for c in code)


def test_every_cell_runs_and_shows_what_its_words_say(tmp_path: Path) -> None:
    done = executed(NOTEBOOK, tmp_path / "done.ipynb")
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((tmp_path / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [outputs(cell) for cell in cells if cell["cell_type"] == "code"]
    assert '<div class="tracemine' in shown[0]["text/html"]
    assert "RMSNorm" in shown[0]["text/html"]
    assert shown[0]["text/plain"].startswith("Report(decoder_prefill: 4 findings")
    assert "10bb rmsnorm_unfused" in shown[1]["text/plain"]
    assert "per_step_saving_alone_ns" in shown[3]["text/html"]
    assert "vectorized_elementwise_kernel (rsqrt)" in shown[5]["text/html"]
    assert shown[7]["text/plain"].strip()


def test_a_cell_that_fails_is_seen(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    source = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"]
    source[:] = [line.replace("decoder_prefill", "no_such_capture") for line in source]
    (tmp_path / "wrong.ipynb").write_text(json.dumps(notebook))
    done = executed(tmp_path / "wrong.ipynb", tmp_path / "done.ipynb")
    assert done.returncode != 0
    assert "InputError" in done.stderr
