"""Places beyond 2³¹ elements are addressed in 64 bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tracemine.codegen import GraphBuilder, generate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # numpy's, from inside the interpreter


def test_rows_that_lie_gigabytes_apart(tmp_path: Path) -> None:
    """Memory that nothing touches is not there: only the pages of two short rows are."""
    b = GraphBuilder("wide")
    source = generate(b.done(b.call("aten::neg", b.input("x", (2, 64), "int8"))))
    path = tmp_path / "wide.py"
    path.write_text(source.text, "utf-8")
    spec = importlib.util.spec_from_file_location("wide", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    step = 2**31 + 64
    x = torch.empty(step + 64, dtype=torch.int8).as_strided((2, 64), (step, 1))
    x.copy_(torch.arange(128).view(2, 64) - 64)
    (out,) = module.fused(x)
    assert torch.equal(out, -x)
