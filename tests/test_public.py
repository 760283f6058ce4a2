"""What `import tracemine` gives: few names, each loaded when it is used, and a package that can be called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracemine
from tracemine import errors

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


def test_every_public_name_lies_where_the_table_says_and_is_written_down_once() -> None:
    assert sorted(tracemine._PUBLIC) == sorted({*tracemine.__all__} - {"__version__"})
    assert len(set(tracemine.__all__)) == len(tracemine.__all__)


def test_every_error_is_public_and_one_of_ours() -> None:
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, Exception):
            assert getattr(tracemine, name) is error
            assert issubclass(error, tracemine.TracemineError)


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "tracemine" / "py.typed").is_file()


def test_importing_it_loads_nothing_that_takes_long() -> None:
    heavy = ("numpy", "pandas", "pyarrow", "torch", "triton", "typer", "msgspec", "tracemine.api", "tracemine.codegen")
    assert printed(f"import sys, tracemine; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


def test_importing_it_takes_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import time; t = time.process_time(); import tracemine; print(time.process_time() - t)"
    taken = min(float(printed(code)) for _ in range(5))
    with capsys.disabled():
        print(f" import tracemine: {1000 * taken:.1f} ms of processor time", end="")
    assert taken < 0.05  # a busy machine counts another program's time to none of ours


def test_a_scan_loads_neither_pandas_nor_torch_and_to_pandas_loads_pandas() -> None:
    code = """
import sys, tracemine
report = tracemine.scan("fixtures/captures/chain")
report.to_arrow(), report.occurrences(), report.to_json(), report.to_markdown(), report._repr_html_()
print(*(name in sys.modules for name in ("pandas", "torch")))
report.to_pandas()
print(*(name in sys.modules for name in ("pandas", "torch")))
"""
    assert printed(code) == "False False\nTrue False\n"


def test_a_scan_does_without_what_numpy_imports_late() -> None:
    code = """
import sys, tracemine
for trace in ("captures/convnet_train", "captures/decoder_prefill", "light/mixed_precision"):
    tracemine.scan(f"fixtures/{trace}")
print("numpy.ma" in sys.modules)
"""
    assert printed(code) == "False\n"  # a fiftieth of a second: np.unique of one axis, and of several, asks for it


def test_kernels_are_generated_without_torch() -> None:
    code = SMALL + "print('def fused(' in tracemine.generate(graph).text, 'torch' in sys.modules)"
    assert printed(code) == "True False\n"


def test_a_kernel_is_validated_in_another_process_than_the_one_that_asks() -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    code = SMALL + "print(tracemine.validate(graph, mutants=False).passed, 'torch' in sys.modules)"
    assert printed(code) == "True False\n"


@pytest.mark.parametrize("first", ["", "import tracemine.validate\n", "from tracemine import validate\n"])
def test_validate_can_be_called_however_it_was_imported(first: str) -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    code = f"""{first}
import tracemine
b = tracemine.GraphBuilder("sorted")
try:
    tracemine.validate(b.done(*b.call("aten::sort", b.input("x", (4, 8), "float32"))))
except tracemine.codegen.Unsupported as error:
    print("sorting" in str(error))
"""
    assert printed(code) == "True\n"


def test_a_graph_that_is_too_large_to_interpret_is_validated_smaller_and_that_is_said() -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    b = tracemine.GraphBuilder("large")
    graph = b.done(b.call("aten::silu", b.input("x", (8192, 4096), "bfloat16")))
    report = tracemine.validate(graph, mutants=False)
    assert report.passed
    assert report.differs == ("the CPU validated the same source at smaller sizes",)
    assert report.source == tracemine.generate(graph)


def test_a_graph_without_a_kernel_is_refused_with_the_reason() -> None:
    b = tracemine.GraphBuilder("sorted")
    graph = b.done(*b.call("aten::sort", b.input("x", (4, 8), "float32")))
    for function in (tracemine.generate, tracemine.validate):
        with pytest.raises(tracemine.codegen.Unsupported, match="sorting"):
            function(graph)


def test_a_program_that_uses_it_is_checked_for_its_types(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import tracemine\n"
        'report = tracemine.scan("trace.json.gz", gpu="h100")\n'
        "reveal_type(report)\n"
        "reveal_type([finding.per_step for finding in report])\n"
        'reveal_type(tracemine.open("t").table)\n'
        "tracemine.scan(5)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), "program.py"]
    if (ROOT / ".mypy_cache").is_dir():  # what ./check keeps of the package, of which there is most
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / "cache")
    environment = {**os.environ, "MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(tmp_path / "cache")}
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment).stdout
    assert 'Revealed type is "tracemine.api.report.Report"' in told
    assert 'Revealed type is "list[tracemine.findings.record.PerStep | None]"' in told
    assert "def (name: str) -> " in told
    assert 'program.py:6: error: Argument 1 to "scan" has incompatible type "int"' in told
