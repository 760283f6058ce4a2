"""The one statement of a function that leads on: by source in a folder, which is read and never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tracemine.findings.record import Loop, Source
from tracemine.findings.statements import with_statements
from tracemine.pipeline import scan

SOURCE = """import os
os.abort()

def norm(x):
    y = x.float()
    return y * y.mean()

class Model:
    @staticmethod
    def forward(x):
        def inner(z):
            return z @ z
        x = norm(x)
        print("logged")
        return x + 1

def step(x):
    for _ in range(3):
        if len(x) > 2:
            x = forward(x)
    if (x > 1).all():
        return x.item()
    return forward(x)

class Trained:
    def modules(self, x):
        self.norm(x)
        return x * "\\d"

    def train(self, x, scaler):
        scaler.step(self.optimizer)
        return x.item()

    def heads(self, x):
        y = softmax(x)
        return y * 3

    def packed(self, x):
        y = x.reshape(4, 4)
        return y.contiguous()

def told(x, at):
    print("begun")
    print(f"{x}")
    return x

def told_too(x, at):
    print(x)
    return x.item()

def sets(x):
    return {norm(each) for each in x}

def lazily(x):
    return (norm(each) for each in x)

def both(x):
    for each in (norm(each) for each in x):
        print(each)
    return [norm(each) for each in x]
"""


def told(
    folder: Path, ops: tuple[str, ...], *frames: tuple[str, int], file: str = "app/model.py", loops: bool = False
) -> list[int | None]:
    """The statement of each of these frames, innermost first, of a finding of these operators, or of a loop."""
    found = scan("fixtures/captures/chain")
    source = tuple(Source(file=file, line=line, function=name, begins=True) for name, line in frames)
    loop = Loop(
        source=source[0], turns=3, launches=1, gpu_ns=1, host_ns=1, dependence="carried", differs=None,
        sizes_differ=False, waits=False,
    )  # fmt: skip
    one = replace(found.findings[0], ops=ops, source=source, loop=loop if loops else None)
    (finding,) = with_statements(replace(found, findings=(one,)), folder, ()).findings
    return [each.statement for each in finding.source]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "model.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_operators_and_calls_lead_to_one_statement(folder: Path) -> None:
    assert told(folder, ("aten::mul",), ("norm", 4), ("forward", 9)) == [6, 13]
    assert told(folder, ("aten::mean",), ("norm", 4)) == [6]
    assert told(folder, ("aten::add",), ("Model.forward", 10)) == [15]
    assert told(folder, ("aten::mul",), ("norm", 4), file="/home/somebody/app/model.py") == [6]


def test_a_text_made_of_a_tensor_fetches_it(folder: Path) -> None:
    fetched = ("aten::_local_scalar_dense",)
    assert [told(folder, fetched, frame) for frame in (("told", 42), ("told_too", 47))] == [[44], [None]]


@pytest.mark.parametrize(
    ("ops", "frame"),
    [
        (("aten::mm",), ("forward", 10)),  # a function within it has that
        (("aten::_local_scalar_dense",), ("step", 17)),  # `if` and `.item()` may
        (("aten::mul",), ("norm", 5)),  # begins elsewhere: another version of the file
        (("aten::mul",), ("other", 4)),
        (("aten::mul",), ("modules", 26)),  # a module of torch may: its lines are not recorded
        (("aten::_local_scalar_dense",), ("train", 30)),  # so may a scaler that asks whether all is finite
        (("aten::mul",), ("heads", 34)),  # softmax is made of several
        (("aten::copy_",), ("packed", 38)),
    ],
)
def test_what_several_may_lead_to_or_none_stays(folder: Path, ops: tuple[str, ...], frame: tuple[str, int]) -> None:
    assert told(folder, ops, frame) == [None]


def test_the_one_loop_is_named_unless_it_may_run_elsewhere(folder: Path) -> None:
    frames = (("step", 17), ("sets", 51), ("lazily", 54), ("both", 57))
    assert [told(folder, ("aten::mul",), frame, loops=True) for frame in frames] == [[18], [52], [None], [None]]


def test_two_calls_of_a_function_are_not_told_apart(folder: Path) -> None:
    assert told(folder, ("aten::mul",), ("forward", 9), ("step", 17)) == [None, None]


@pytest.mark.parametrize("text", ["def norm(:", "\0", "(" * 5000, "# " + "x" * (1 << 21)])
def test_what_is_no_source_of_ours_is_left_alone(folder: Path, text: str) -> None:
    (folder / "app" / "model.py").write_text(text, encoding="utf-8")
    assert told(folder, ("aten::mul",), ("norm", 4)) == [None]


def test_no_file_outside_of_the_folder_is_read(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "link.py").symlink_to(folder / "app" / "model.py")
    for file in ("../app/model.py", "link.py", str(folder / "app" / "model.py")):
        expected = [None]
        assert told(folder / "other", ("aten::mul",), ("norm", 4), file=file) == expected
