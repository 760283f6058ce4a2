"""Phases, modules and lines: where kernels come from, forward and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.top.raw import Recording
from tests.top.test_sums import tops
from tracemine.timeline import TABLES
from tracemine.top import Top
from tracemine.top.origin import line_paths

ENGINE = "autograd::engine::evaluate_function: "


def sums(top: Top) -> dict[str | None, int]:
    return {row.name: row.gpu_time_ns // 1000 for row in top.rows}


def training() -> Recording:
    """A step with forward, recomputation within the backward pass, gradient clipping and an update."""
    made = Recording()
    numbered: dict[str, Any] = {"Sequence number": 5, "Fwd thread id": 0}
    made.kernel("gemm", 100, 110, 10, op="aten::mm", **numbered)
    made.kernel("copy", 120, 130, 1, op="aten::copy_")
    for number, (begin, node) in enumerate(((200, "MmBackward0"), (240, "ReluBackward0"))):
        back: dict[str, Any] = {"Sequence number": 5 + number, "Fwd thread id": 1}
        made.around(ENGINE + node, begin, begin + 30, tid=2, **back)
        made.around(node, begin + 1, begin + 29, tid=2, **back)
    made.kernel("gemm_back", 210, 220, 20, op="aten::mm", tid=2)
    made.kernel("again", 250, 260, 4, op="aten::mm", tid=2, **{"Sequence number": 9, "Fwd thread id": 0})
    made.kernel("clip", 300, 310, 2, op="aten::mul_")
    made.around("Optimizer.step#SGD.step", 340, 380, cat="user_annotation")
    made.kernel("update", 350, 360, 3, op="aten::add_")
    return made


def test_phases_of_training(tmp_path: Path) -> None:
    found = sums(tops(training().written(tmp_path))["phase"])
    assert found == {
        "forward": 11,
        "backward": 20,
        "recomputed forward": 4,
        "between backward and optimizer": 2,
        "optimizer": 3,
    }


def test_where_nothing_is_updated_what_follows_is_forward(tmp_path: Path) -> None:
    made = training()
    made.events = [event for event in made.events if "Optimizer" not in event["name"]]
    found = sums(tops(made.written(tmp_path))["phase"])
    assert found == {"forward": 16, "backward": 20, "recomputed forward": 4}


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_1(888)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("step[MIXED bs=3]", "prefill and decode"),
        ("decode_step 4", "decode"),
        ("decoder layer", "forward"),
        ("prefillet", "forward"),
    ],
)
def test_phases_of_serving_are_those_of_annotations(tmp_path: Path, name: str, phase: str) -> None:
    made = Recording()
    made.around(name, 90, 190, cat="user_annotation")
    made.kernel("k", 100, 110, 10)
    assert sums(tops(made.written(tmp_path), whole=True)["phase"]) == {phase: 10}


def test_what_nothing_is_known_of_is_a_row_of_its_own(tmp_path: Path) -> None:
    made = Recording()
    made.kernel("k", 100, 110, 10, op=None)
    made.kernel("l", 130, 140, 30)
    found = tops(made.written(tmp_path))
    for by in ("module", "line"):
        assert sums(found[by]) == {None: 40}
        assert any("recorded" in note for note in found[by].notes)
    assert sums(found["operator"]) == {None: 10, "aten::add": 30}
    assert found["operator"].notes == ("not known: 25.0% was launched outside of every operator",)


def test_backward_passes_count_for_their_forward_module_and_line() -> None:
    found = tops(Path("fixtures/kineto/convnet_train.json.gz"))
    modules = {row.name: row for row in found["module"].rows}
    assert modules["BatchNorm2d"].instances == 3
    assert modules["BatchNorm2d"].calls > 6  # forward and backward, of two steps
    assert modules["Conv2d"].parent == [row.name for row in found["module"].rows].index("Sequential")
    phases, lines = sums(found["phase"]), sums(found["line"])
    assert lines["record.py:138 ConvNet.forward"] > phases["backward"]


def stacks(*frames: tuple[str | None, str | None, int | None]) -> pa.Table:
    """One call path, outermost first: file, function, line."""
    schema = TABLES["stacks"].schema
    rows = [
        {
            "parent_row": at - 1 if at else None,
            "frame": function or "",
            "file": file,
            "function": function,
            "line": line,
            "module": "Net_0.MLP_1" if at > 1 else None,
        }
        for at, (file, function, line) in enumerate(frames)
    ]
    plain = pa.schema(
        [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    )
    return pa.Table.from_pylist([{f.name: row.get(f.name) for f in schema} for row in rows], schema=plain).cast(schema)


MODULE = ("torch/nn/modules/module.py", "_call_impl", 1700)


@pytest.mark.parametrize(
    ("frames", "path"),
    [
        ([("train.py", "main", 5), MODULE, ("model.py", "forward", 9), MODULE], ("model.py:9 MLP.forward",)),
        ([("train.py", "main", 5), MODULE, ("model.py", "helper", 9)], ("model.py:9 helper",)),
        (
            [("train.py", "main", 5), MODULE, ("transformers/models/x.py", "forward", 7)],
            ("train.py:5 main", "transformers/models/x.py:7 MLP.forward"),
        ),
        (
            [("a.py", "f", 5), ("/usr/lib/python3.12/site-packages/lib/y.py", "g", 7)],
            ("a.py:5 f", "/usr/lib/python3.12/site-packages/lib/y.py:7 g"),
        ),
        ([("vllm/worker.py", "run", 3), ("torch/_ops.py", "call", 2)], ("vllm/worker.py:3 run",)),
        ([("threading.py", "run", 3), ("torch/_ops.py", "call", 2)], (None,)),
        ([(None, "<built-in>", None)], (None,)),
    ],
)
def test_a_line_is_the_users_own_and_a_librarys_within(
    frames: list[tuple[str | None, str | None, int | None]], path: tuple[str | None, ...]
) -> None:
    paths, codes = line_paths(stacks(*frames))
    assert paths[int(codes[-1])] == path
