"""Files that stand alone, of a finding or of a step: what they hold of this package, and one run in its own process."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tracemine.findings.record import Finding
from tracemine.processes import Tail, does_not_start, error_text, how_ended, limit_memory
from tracemine.programs import python, start
from tracemine.units import MINUS, time_text
from tracemine.version import __version__

_WIDTH = 118
_NOT_IMPORTED = ("ImportError: ", "ModuleNotFoundError: ")  # a file imports what has to be installed, first of all


def file_text(
    says: str,
    parts: Sequence[str],
    main: str,
    *,
    embeds: Mapping[str, Sequence[str]],
    imports: Sequence[str],
    tools: Sequence[str] = ("import torch",),
) -> str:
    """Return the text of a file: what it says of itself, its imports, its own parts, modules of this package, `main`.

    embeds: modules by what they are about. imports: what parts and `main` need of Python's own library; tools: of what
    has to be installed.
    """
    bodies = {title: [module_text(name) for name in names] for title, names in embeds.items()}
    lines = {*imports, *(line for several in bodies.values() for _, needed in several for line in needed)}
    texts = [
        f'"""{comment(says)}\n\nWritten by tracemine {__version__}.\n"""',
        "\n".join([*_merged(sorted(lines - {*tools})), "", *tools]),
        *parts,
        *(text for title, several in bodies.items() for text in (banner(title), *(text for text, _ in several))),
        main.strip("\n"),
    ]
    text = "\n\n\n".join(texts) + "\n"
    ast.parse(text)
    return text


def banner(text: str) -> str:
    """Return the line above a part of a file.

    >>> banner("The graph")[:16]
    '# The graph ----'
    """
    return f"# {text} ".ljust(_WIDTH, "-")


def comment(text: str) -> str:
    r"""Return a text that cannot end a docstring or begin anything else.

    >>> comment('a " b \\ c')
    "a ' b / c"
    """
    plain = "".join(c if c == "\n" or c.isprintable() else "?" for c in text)
    return plain.replace("\\", "/").replace('"', "'")


def module_text(name: str, *, own: bool = False) -> tuple[str, list[str]]:
    """Return a module of this package without its docstring and imports, and what it imports.

    own: with what it imports of this package.
    """
    text = resources.files("tracemine").joinpath(name).read_text("utf-8")
    imports: list[str] = []
    last = 0
    for node in ast.parse(text).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (is_docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        last = node.end_lineno or last
        if not is_docstring:
            imports.append(ast.unparse(node))
    kept = [i for i in imports if "__future__" not in i and (own or "tracemine" not in i)]
    return "\n".join(text.splitlines()[last:]).strip("\n"), kept


def _merged(imports: Sequence[str]) -> list[str]:
    """Return import statements, one a module.

    >>> _merged(["import json", "from math import prod", "from math import pi"])
    ['import json', 'from math import pi, prod']
    """
    names: dict[str, set[str]] = {}
    for line in imports:
        head, _, rest = line.partition(" import ") if line.startswith("from ") else (line, "", "")
        names.setdefault(head, set()).update(n.strip() for n in rest.split(",") if n.strip())
    ordered = sorted(names, key=lambda head: (bool(names[head]), head))
    return [f"{head} import {', '.join(sorted(names[head]))}" if names[head] else head for head in ordered]


def run(
    text: str, options: Sequence[str], limit_s: float, *, what: str, most_bytes: int | None = None
) -> Mapping[str, Any] | str:
    """Return what a file prints, in a process of its own; or why it prints nothing. The rest as in `answered`.

    most_bytes: of addresses that it may have; None: no limit, for a GPU's driver takes terabytes.
    Raises UsageError where what it imports is not there.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "standalone.py"
        path.write_text(text, "utf-8")
        command = python(str(path), *options)
        try:
            environment = {**os.environ, "TMPDIR": folder}  # what is killed leaves its files there
            child = start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder)
        except OSError as error:
            return f"{what} could not be started: {error.strerror}"
        with child:
            if most_bytes is not None:  # before anything else: the child runs already
                limit_memory(child.pid, most_bytes)
            errors = Tail(child)
            try:
                out, _ = child.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return f"{what} took longer than {limit_s:g} s"
            finally:
                child.kill()  # what has ended it does not touch
    said = errors.lines()
    if child.returncode == 1 and error_text(said).startswith(_NOT_IMPORTED):
        raise does_not_start(what, said)
    return answered(child.returncode, out.decode("utf-8", "replace"), said, what=what)


def answered(code: int, out: str, said: Sequence[str], *, what: str) -> Mapping[str, Any] | str:
    """Return what a file printed; a text that says how it ended where it printed nothing of use.

    said: the last lines of its errors; what: the file, in such texts.

    >>> answered(1, "", ["Traceback …", "RuntimeError: no GPU"], what="the step")
    'the step ended with 1: RuntimeError: no GPU'
    >>> answered(-9, "", [], what="the step")
    'the step was ended by SIGKILL'
    """
    lines = out.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines and code == 0 else None
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return f"{what} {how_ended(code, said)}"


_LONGEST = 60  # characters of a name next to the fingerprint
_LINES = 2  # of source


def facts(finding: Finding, fingerprint: str) -> list[str]:
    """Return lines of the head: a word, and from the eleventh character on what it is."""
    lines = [f"Finding   {fingerprint}, rule {finding.rule}, {finding.severity}"]
    where = [f"module {finding.module}"] if finding.module else []
    where += [
        f"{s.file.replace(chr(92), '/').rpartition('/')[2]}:{s.line} ({s.function})" for s in finding.source[:_LINES]
    ]
    lines.append(f"Where     {', '.join(where) or 'not recorded: neither modules nor stacks'}")
    if finding.shapes:
        lines.append(f"Shapes    {finding.shapes}{f', {finding.dtype}' if finding.dtype else ''}")
    times = f"{finding.occurrences} {'time' if finding.occurrences == 1 else 'times'} in the trace"
    took = f"{_us(finding.measured_ns)} of GPU time measured"
    saving = finding.gpu_saving_ns
    saves = f"{_us(saving.mid)} predicted to be saved ({_us(saving.low)} to {_us(saving.high)})"
    return [*lines, f"Time      {times}: {took}, {saves}"]


def _us(ns: float) -> str:
    return time_text(ns).replace("\N{MICRO SIGN}", "u").replace(MINUS, "-")


def file_name(finding: Finding, fingerprint: str, *, suffix: str = "") -> str:
    """Return a reproduction's file name: of a trace's texts letters, digits and underscores alone."""
    module = (finding.module or "").rpartition(".")[2]
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{finding.rule}_{module}", flags=re.ASCII).strip("_")[:_LONGEST].strip("_")
    return "_".join(filter(None, (fingerprint, words, suffix))) + ".py"
