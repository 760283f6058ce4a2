"""The harness: one file next to the reproductions of a folder, with all that they share. It needs torch and triton.

Modules of this package stand in it as they are, without what they import of each other. Those that only a CPU needs
are functions there, which give their names when they are first called: nothing of Triton's interpreter is touched where
there is a GPU.
"""

from __future__ import annotations

import re
from functools import cache
from textwrap import indent

from tracemine.codegen.triton.source import shared
from tracemine.verify.repro.standalone import banner, file_text, module_text

NAME = "tracemine_repro.py"
MARK = '"""The harness of tracemine\'s reproductions'  # what the file begins with
EMBEDDED = {
    "Whether it is right": (
        "validate/numerics.py",
        "validate/roundings.py",
        "validate/rounding_noise.py",
        "validate/undefined_casts.py",
        "verify/gpu/correctness.py",
    ),
    "What it takes": (
        "verify/gpu/marks.py",
        "verify/gpu/profiling.py",
        "verify/gpu/tuning.py",
        "verify/gpu/clocks.py",
        "verify/gpu/compiling.py",
        "verify/gpu/graphs.py",
        "verify/gpu/timing.py",
        "verify/gpu/fixed_forms.py",
        "verify/gpu/strips.py",
        "verify/gpu/linear_losses.py",
        "verify/gpu/vocabulary_max.py",
        "verify/gpu/library_call.py",
    ),
    "A reproduction": ("verify/gpu/check.py", "verify/gpu/reproduction.py", "verify/gpu/call_checks.py"),
}
# Modules that are functions of their own.
_ON_CPU = (
    "validate/gpu_semantics.py",
    "validate/interpreter_cache.py",
    "validate/interpreter.py",
    "verify/gpu/on_cpu.py",
)
_OWN_IMPORT = re.compile(r"^( *)from tracemine[\w.]* import ([\w, ]+?)(?: +#.*)?$", re.MULTILINE)
_SAYS = """The harness of tracemine's reproductions: inputs, the comparison with float64, timing, the table.

Reproductions of findings, which `tracemine verify --emit` writes next to it, import it. It needs torch and triton."""
_TOOLS = (
    "# ruff: noqa: E402, E501",
    "import torch",
    "",
    "# Without a GPU a reproduction that is run as a program has its kernel interpreted: triton must know that first.",
    '_program = getattr(sys.modules["__main__"], "__file__", None)',
    "_reproduces = _program is not None and Path(_program).resolve().parent == Path(__file__).resolve().parent",
    'if _reproduces and "TRITON_INTERPRET" not in os.environ and not torch.cuda.is_available():',
    '    os.environ["TRITON_INTERPRET"] = "1"',
    "",
    "import triton",
    "import triton.language as tl",
    "from triton.language.extra import libdevice",
    "from triton.tools.tensor_descriptor import TensorDescriptor",
)


@cache
def harness_text() -> str:
    """Return the text of the harness."""
    wrapped = [_as_function(name) for name in _ON_CPU]
    kernels, launching = shared()
    names = "\n".join(f"{name} = {tuple(of)!r}" for name, of in (("DEVICE", kernels), ("LAUNCHING", launching)))
    parts = [banner("What kernels and launchers have in common"), names, *kernels.values(), *launching.values()]
    text = file_text(
        _SAYS,
        parts,
        "\n\n\n".join([banner("Without a GPU"), *wrapped]),
        embeds=EMBEDDED,
        imports=("import os", "import sys", "from functools import cache", "from pathlib import Path"),
        tools=_TOOLS,
    )
    return _OWN_IMPORT.sub(_called, text)


def _as_function(name: str) -> str:
    """Return a module as a function that gives its names."""
    body, imports = module_text(name)
    own = [_called(found) for found in _OWN_IMPORT.finditer("\n".join(_own_imports(name)))]
    stem = name.rpartition("/")[2].removesuffix(".py")
    lines = "\n".join(
        [*imports, *(line for line in own if line != "pass"), "", body, "", "return types.SimpleNamespace(**locals())"]
    )
    return f"@cache\ndef _{stem}():\n{indent(lines, '    ')}"


def _own_imports(name: str) -> list[str]:
    """Return what a module imports of this package, a line each."""
    _, every = module_text(name, own=True)
    return [line for line in every if "tracemine" in line]


def _called(found: re.Match[str]) -> str:
    """Replace an import of modules that are functions here by calls of them; names of others are there already."""
    functions = {name.rpartition("/")[2].removesuffix(".py") for name in _ON_CPU}
    names = [name.strip() for name in found[2].split(",")]
    calls = [f"{found[1]}{name} = _{name}()" for name in names if name in functions]
    return "\n".join(calls) or f"{found[1]}pass"
