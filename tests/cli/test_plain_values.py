"""Plain values of a call: taken as Typer itself takes them."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import typer

from tests.cli.test_cli import CLEAN, ROOT, commands
from tracemine.cli import take_plainly, whole

TEXTS = {str: "a b", Path: "fixtures", int: 5, float: 2.5, bool: True}


def parameters(command: Any, context: Any = None) -> list[Any]:
    return list(command.get_params(typer.Context(command) if context is None else context))


def sample(annotation: Any) -> Any:
    if get_origin(annotation) is list:
        return [sample(get_args(annotation)[0])] * 2
    return next(iter(annotation)).value if issubclass(annotation, Enum) else TEXTS[annotation]


def taken(parameter: Any, command: Any, value: object) -> object:
    """What comes of a value, a list or a tuple alike: a command is given a list either way."""
    found = parameter.process_value(typer.Context(command), value)
    return list(found) if isinstance(found, tuple) else found


def test_each_parameter_of_each_command_takes_plain_values_as_typer_does() -> None:
    plain = typer.main.get_command(whole())
    take_plainly(plain)
    seen = set()
    for (name, stock), (_, ours) in zip(commands(), commands(plain), strict=True):
        for one, other in zip(parameters(stock), parameters(ours), strict=True):
            if one.is_eager or one.callback:
                continue
            annotation = one.type_descriptor.annotation
            for value in (None, sample(annotation)):
                if value is not None or not one.required:
                    expected, found = taken(one, stock, value), taken(other, ours, value)
                    assert (found, type(found)) == (expected, type(expected)), (name, one.name)
                    seen.add((str(annotation), value is None))
    assert len(seen) >= 8


@pytest.mark.parametrize(
    "arguments", [["scan"], ["scan", CLEAN, "--top", "x"], ["scan", CLEAN, "--top", "1.5"], ["capture", "--steps", "0"]]
)
def test_what_is_wrong_is_left_to_typer(run: Any, arguments: list[str]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "missing argument" in err or "invalid value for '--" in err


def test_a_path_that_cannot_be_read_is_left_to_typer(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path) and stock(path, mode))
    code, _, err = run("scan", CLEAN, "--rules", tmp_path)
    assert (code, "is not readable" in err) == (2, True)


def test_a_command_loads_no_pydantic() -> None:
    code = f"import sys; from tracemine.cli import main; main(['scan', {CLEAN!r}]); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True).returncode == 0
