"""Short reproductions with one harness: they hold what was verified, run without tracemine, and catch what is wrong."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import Graph, GraphBuilder
from tracemine.codegen.triton.source import generate
from tracemine.errors import UsageError
from tracemine.validate.downsize import smaller
from tracemine.verify.gpu.marks import INTERFACE
from tracemine.verify.repro.eager import eager_text
from tracemine.verify.repro.emitter import write_harness
from tracemine.verify.repro.harness import NAME, harness_text
from tracemine.verify.repro.text import repro

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tests.verify.repro.emitted import loaded, put, run  # noqa: E402

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"
MARK = "0123456789abcdef"


def text_of(name: str, **known: Any) -> str:
    chain = CATALOGUE[name](**known.pop("sizes", {}))
    return repro(
        chain, generate(chain), **{"fingerprint": MARK, "title": name, "ulp": 4.0, "small": smaller(chain), **known}
    )


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every finding of a fixture, as `--emit` writes it; nothing is proved."""
    from benchmarks.proofs.emit_lines import written

    folder = tmp_path_factory.mktemp("emitted")
    for name in ("chain", "convnet_train", "decoder_decode", "decoder_prefill"):
        written(CAPTURES / name, folder, {}, {})  # type: ignore[arg-type]  # a Counter, of which nothing is asked
    return sorted(path for path in folder.rglob("*.py") if path.name != NAME)


@pytest.mark.parametrize("name", ["add_rms_norm", "adamw_foreach", "token_quant", "bias_dropout_residual_norm", "rope"])
def test_the_kernel_in_a_file_is_the_source_that_was_generated_to_the_letter(name: str, tmp_path: Path) -> None:
    """`--source` puts back what files share; nothing else differs."""
    module = loaded(put(tmp_path, "file.py", text_of(name)))
    assert module.CHECK.source() == generate(CATALOGUE[name]()).text


def test_what_is_said_of_a_source_would_show_a_changed_line(tmp_path: Path) -> None:
    text = text_of("add_rms_norm")
    changed = text.replace("add_1 = x_1 + residual_1", "add_1 = x_1 - residual_1")
    assert changed != text
    assert loaded(put(tmp_path, "file.py", changed)).CHECK.source() != generate(CATALOGUE["add_rms_norm"]()).text


def test_a_file_of_a_finding_runs_on_a_cpu_where_tracemine_cannot_be_imported(emitted: list[Path]) -> None:
    (path,) = [path for path in emitted if "LogReluBias" in path.name]
    ended = run(path, forked=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert "No GPU here: numerics alone, on the CPU, in Triton's interpreter. Nothing is timed." in lines
    assert re.search(r"^eager +\d\.\d\de[-+]\d\d\nfused +\d\.\d\de[-+]\d\d$", ended.stdout, re.MULTILINE)
    assert lines[-1] == "fused: right"
    assert max(map(len, lines)) < 120
    found = json.loads(run(path, "--json").stdout)
    assert (found["on_cpu"], found["right"]["faults"], found["fingerprint"]) == (True, [], path.name[:16])
    assert "replay" not in found  # which a verdict of a GPU has: nobody takes this for one


def test_without_tracemine_is_without_tracemine(tmp_path: Path) -> None:
    ended = run(put(tmp_path, "file.py", "import tracemine\n"))
    assert "tracemine is not here" in ended.stderr


WRONG = {
    "another operation": ("add_1 = x_1 + residual_1", "add_1 = x_1 - residual_1"),
    "an element too few": ("column_mask = column < columns", "column_mask = column < columns - 1"),
    "beyond the end": ("column_mask = column < columns", "column_mask = column < columns + 1"),
    "a result in 8 bits": ("mul_2.to(tl.bfloat16)", "mul_2.to(tl.float8e5).to(tl.bfloat16)"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_ends_with_1_and_says_what_is_wrong(wrong: str, tmp_path: Path) -> None:
    text, (before, after) = text_of("add_rms_norm"), WRONG[wrong]
    assert before in text
    ended = run(put(tmp_path, "file.py", text.replace(before, after)))
    assert ended.returncode == 1
    assert "fused: WRONG" in ended.stdout
    if wrong == "beyond the end":
        assert "out of bounds" in ended.stdout


def test_the_kernel_that_the_wrong_ones_are_made_of_is_right(tmp_path: Path) -> None:
    ended = run(put(tmp_path, "file.py", text_of("add_rms_norm")))
    assert (ended.returncode, "fused: right" in ended.stdout) == (0, True)


def test_sizes_that_calls_name_are_smaller_on_a_cpu_too(tmp_path: Path) -> None:
    text = text_of("rope", sizes={}) if "SIZES_ON_CPU" in text_of("rope") else text_of("embedding_scale_norm")
    assert run(put(tmp_path, "file.py", text)).returncode == 0


def test_what_a_cpu_cannot_try_is_no_pass(tmp_path: Path) -> None:
    ended = run(put(tmp_path, "file.py", text_of("add_rms_norm", small="9,999,999 elements")))
    assert ended.returncode == 1
    assert ended.stderr.strip() == "this needs a GPU, and torch finds none: 9,999,999 elements"


def test_a_harness_of_another_interface_is_told(tmp_path: Path) -> None:
    text = text_of("add_rms_norm").replace(f"interface={INTERFACE},", f"interface={INTERFACE + 1},")
    ended = run(put(tmp_path, "file.py", text))
    assert ended.returncode == 1
    assert "they come from different versions of tracemine" in ended.stderr


def test_what_files_ask_of_the_harness_is_what_its_interface_has(tmp_path: Path) -> None:
    """Who changes this raises INTERFACE: files of before lie beside a harness of now."""
    module = loaded(put(tmp_path, "file.py", text_of("add_rms_norm")))
    harness = sys.modules["tracemine_repro"]
    assert INTERFACE == 5
    assert [*inspect.signature(type(module.CHECK)).parameters] == [
        *("file", "interface", "fingerprint", "title", "trace", "eager", "fused", "library", "blocks", "inputs"),
        *("on_cpu", "sizes_on_cpu", "ulp", "nbytes", "read_bytes", "draws"),
    ]
    assert [*inspect.signature(harness.CopyCheck).parameters] == [
        *("file", "interface", "fingerprint", "title", "trace", "nbytes", "to_device")
    ]
    assert [*harness.LAUNCHING] == [
        *(
            "_expect",
            "_index_type",
            "_num_splits",
            "_warps",
            "_tiles",
            "_tiles_outer",
            "_persistent_tiles",
            "_looped_tiles",
        ),
        *("_product_parts", "_multiprocessors", "_turns", "_product_tiles", "_describable"),
        *("_members", "_strides", "_kind", "_Launch", "_Described", "_cached_plan", "_allocate"),
    ]


def test_a_harness_of_before_is_replaced_and_a_file_of_that_name_that_is_none_is_not(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text(harness_text().replace("INTERFACE = 3", "INTERFACE = 0"))
    write_harness(tmp_path)
    assert path.read_text("utf-8") == harness_text()
    path.write_text("mine = 1\n")
    with pytest.raises(UsageError, match="is no harness of tracemine's reproductions, and is not replaced"):
        write_harness(tmp_path)
    assert path.read_text() == "mine = 1\n"
    path.rename(tmp_path / "precious")
    path.symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="is a link, and is not written through"):
        write_harness(tmp_path)
    assert (tmp_path / "precious").read_text() == "mine = 1\n"


def scan(steps: int, odd: int | None = None) -> Graph:
    """A recurrence, step by step: each state is stored. odd: a step that takes its own from the state."""
    b = GraphBuilder("scan")
    inputs = [b.input(f"{name}_{k}", (4, 8), "float32") for k in range(steps) for name in "xy"]
    state: Any = b.call("aten::full", [4, 8], 0.0, dtype="float32")
    states = []
    for k in range(steps):
        state = b.call("aten::mul.Tensor", inputs[2 * k], state)
        state = b.call("aten::sub.Tensor" if k == odd else "aten::add.Tensor", state, inputs[2 * k + 1])
        states.append(state)
    return b.done(*states)


@pytest.mark.parametrize("odd", [None, 0, 7, 19])
def test_calls_that_repeat_are_a_loop_which_gives_what_the_calls_give(odd: int | None) -> None:
    text = eager_text(scan(20, odd)).replace('"cuda"', '"cpu"')
    assert "for k in range(" in text
    assert len(text.splitlines()) < 20  # of 41 calls
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)  # noqa: S102 - our own text
    given = [torch.randn(4, 8) for _ in range(40)]
    state, states = torch.zeros(4, 8), []
    for k in range(20):
        state = given[2 * k] * state
        state = state - given[2 * k + 1] if k == odd else state + given[2 * k + 1]
        states.append(state)
    assert all(torch.equal(one, other) for one, other in zip(space["eager"](*given), states, strict=True))


def test_calls_that_do_not_repeat_are_written_one_by_one_by_name() -> None:
    text = eager_text(scan(2))
    assert "for k in" not in text
    assert text.startswith("def eager(x_0, y_0, x_1, y_1, *, ")


@pytest.mark.parametrize("heads", [2, 6, 9, 14, 40, 130])
def test_calls_of_many_arguments_and_results_are_broken_into_lines_that_give_the_same(heads: int) -> None:
    b = GraphBuilder("lists")
    given = [b.input(f"a_long_name_of_a_tensor_{k}", (2, 3), "float32") for k in range(heads)]
    added = b.call("aten::_foreach_add.Scalar", given, 1.0)
    chain = b.done(*b.call("aten::_foreach_mul.List", added, given))
    text = eager_text(chain)
    assert max(map(len, text.splitlines())) <= 120
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)  # noqa: S102 - our own text
    tensors = [torch.randn(2, 3) for _ in given]
    found = space["eager"](*tensors)
    assert len(found) == heads
    assert all(torch.equal(one, (x + 1.0) * x) for one, x in zip(found, tensors, strict=True))


def test_a_file_of_calls_that_repeat_passes_and_a_row_stands_for_inputs_that_are_alike(tmp_path: Path) -> None:
    chain = scan(12)
    text = repro(chain, generate(chain), fingerprint=MARK, title="scan", ulp=4.0, small=smaller(chain))
    path = put(tmp_path, "file.py", text)
    assert [row[0] for row in loaded(path).INPUTS] == [i.name for i in chain.inputs]
    assert text.count("torch.float32, (8, 1), None") == 1
    ended = run(path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "fused: right" in ended.stdout
    wrong = text.replace("v.append(aten.add.Tensor", "v.append(aten.sub.Tensor")
    assert wrong != text
    assert run(put(tmp_path, "wrong.py", wrong)).returncode == 1


def test_inputs_that_are_alike_keep_the_order_in_which_eager_takes_them(tmp_path: Path) -> None:
    chain = CATALOGUE["add_rms_norm"]()
    module = loaded(put(tmp_path, "file.py", text_of("add_rms_norm")))
    found = [(name, shape, str(dtype), strides) for name, shape, dtype, strides, _ in module.INPUTS]
    specs = [(i.name, i.spec.shape, f"torch.{i.spec.dtype}", i.spec.strides) for i in chain.inputs]
    assert found == specs
    rows = [("b a", 1), ("c", 2)]
    harness = sys.modules["tracemine_repro"]
    assert harness.inputs_of(lambda a, c, b: None, rows) == [("a", 1), ("c", 2), ("b", 1)]
    assert harness.inputs_of(lambda *given: None, rows) == [("b", 1), ("a", 1), ("c", 2)]
    with pytest.raises(KeyError):  # an input that no row is of is no input left out
        harness.inputs_of(lambda a, d: None, rows)


HOSTILE = 'a"""\nimport os\n\'\\N{BULLET}\u202e\x1b[31m{x}\r\u2028# --- Run '


def test_no_text_of_a_trace_begins_a_line_or_becomes_code() -> None:
    plain = text_of("add_rms_norm", title="t", says=["Where     m"], recorded=[("k", [1])], assumptions=["a"])
    given = {"title": HOSTILE, "says": [f"Where     {HOSTILE}"], "assumptions": [HOSTILE]}
    text = text_of("add_rms_norm", **given, recorded=[(HOSTILE, [1])])
    assert not re.search(r"[^\n\x20-\x7e\u2022]", text)
    (shape, other) = ([type(node) for node in ast.walk(ast.parse(each))] for each in (plain, text))
    assert shape == other
    assert len(text.splitlines()) == len(plain.splitlines())


def test_files_of_one_kernel_function_have_150_lines_at_most(emitted: list[Path]) -> None:
    one = {
        path.name: len(text.splitlines()) for path in emitted if (text := path.read_text()).count("@triton.jit") == 1
    }
    assert len(one) >= 12
    assert {name: count for name, count in one.items() if count > 150} == {}
    assert {len(list(path.parent.glob(NAME))) for path in emitted} == {1}


def test_files_and_harness_have_nothing_that_ruff_finds(emitted: list[Path]) -> None:
    ruff = pytest.importorskip("ruff")
    command = [sys.executable, "-m", ruff.__name__, "check", "--isolated", "--no-cache", "--select", "E,F"]
    folders = {path.parent for path in emitted}
    ended = subprocess.run([*command, "--line-length", "120", *folders], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "All checks passed!")


def on_gpu() -> dict[str, Any]:
    """What `examined` gives, in short."""
    samples = {"eager": 4000, "fused": 1000, "compiled": 2000, "copy": 500}
    state = {name: {"sum_ns": [ns] * 4} for name, ns in samples.items()}
    ratio = {"ratio": 4.0, "low": 3.9, "high": 4.1}
    judged = {"eager": ratio, "faster_than_eager": True, "slower_than_eager": False}
    return {
        "device": "NVIDIA H200", "right": {"faults": [], "error": 1e-3, "eager_error": 2e-3}, "right_others": {},
        "replay": {"same_names": True, "kernels": [["void k<int>(int)", [7, 1, 1]]]},
        "times": {"samples": {"cold": state, "warm": state}, "judged": {"cold": judged}, "left_out": {"tuned": "late"}},
    }  # fmt: skip


def test_with_a_gpu_the_output_is_a_small_table_with_short_kernel_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of("add_rms_norm", recorded=[("void k<int>(int)", [7, 1, 1])])
    check = loaded(put(tmp_path, "file.py", text)).CHECK
    harness = sys.modules["tracemine_repro"]
    asked: dict[str, Any] = {}

    def examined(*given: Any, **named: Any) -> dict[str, Any]:
        asked.update(inspect.signature(harness_examined).bind(*given, **named).arguments)
        return on_gpu()

    harness_examined = harness.examined
    monkeypatch.setattr(harness, "examined", examined)
    monkeypatch.setattr(harness, "tuned", lambda fused, blocks, inputs, within: {"k": []})
    found = check.results((), 1.0, 2.0)
    assert (asked["nbytes"], asked["seconds"], [*asked["others"]]) == (check.nbytes, 2.0, ["fused"])
    assert (found["fingerprint"], found["kernel"], found["tile_configs"]) == (MARK, True, {"k": []})
    lines = list(check.table(found))
    assert lines[3:7] == [
        "               error (float64)  cold us  warm us  eager / it",
        "eager                 2.00e-03     4.00     4.00       1.00x",
        "fused                 1.00e-03     1.00     1.00       4.00x",
        "torch.compile                -     2.00     2.00       2.00x",
    ]
    assert "fused: right" in lines
    assert "left out: torch.compile max-autotune: late" in lines
    assert lines[-1].split() == ["k", "[7,", "1,", "1]"]
    assert not check.wrong(found)
    assert check.wrong({**found, "right": {"faults": ["row 3"]}})
