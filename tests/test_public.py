"""What `import tracemine` gives: few names, each loaded when it is used, and a package that can be called."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracemine

ROOT = Path(__file__).parents[1]
SMALL = """
import sys, tracemine
b = tracemine.GraphBuilder("scaled")
graph = b.done(b.call("aten::mul.Tensor", b.input("x", (4, 8), "bfloat16"), 2.0))
"""


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def test_the_public_names_are_those_that_are_listed() -> None:
    assert dir(tracemine) == sorted(tracemine.__all__)
    for name in tracemine.__all__:
        assert getattr(tracemine, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'prove'"):
        _ = tracemine.prove


def test_importing_it_loads_nothing_that_takes_long() -> None:
    heavy = ("numpy", "pyarrow", "torch", "triton", "typer", "msgspec", "tracemine.codegen")
    assert printed(f"import sys, tracemine; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


def test_kernels_are_generated_without_torch() -> None:
    code = SMALL + "print('def fused(' in tracemine.generate(graph).text, 'torch' in sys.modules)"
    assert printed(code) == "True False\n"


@pytest.mark.parametrize("first", ["", "import tracemine.validate\n", "from tracemine import validate\n"])
def test_validate_can_be_called_however_it_was_imported(first: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    code = first + SMALL + "print(tracemine.validate(graph, mutants=False).passed, 'torch' in sys.modules)"
    assert printed(code) == "True False\n"


def test_a_graph_that_is_too_large_to_interpret_is_validated_smaller_and_that_is_said() -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    b = tracemine.GraphBuilder("large")
    graph = b.done(b.call("aten::silu", b.input("x", (8192, 4096), "bfloat16")))
    report = tracemine.validate(graph, mutants=False)
    assert report.passed
    assert report.differs == ("the proof on the CPU is of the same source at smaller sizes",)
    assert report.source == tracemine.generate(graph)


def test_a_graph_without_a_kernel_is_refused_with_the_reason() -> None:
    b = tracemine.GraphBuilder("sorted")
    graph = b.done(*b.call("aten::sort", b.input("x", (4, 8), "float32")))
    for function in (tracemine.generate, tracemine.validate):
        with pytest.raises(tracemine.codegen.Unsupported, match="sorting"):
            function(graph)


def test_the_example_of_the_page_runs() -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.+?)```", page, re.S)
    assert example is not None
    assert re.search(r"^True \((\d+), \1\) ", printed(example[1]), re.M)
