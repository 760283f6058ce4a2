"""Code that a rule's texts print, run: what is printed to be pasted has to compute what it replaces."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import torch

_BLOCK = re.compile(r"(?:^(?: {4}.*)?\n)+", re.M)
# What is printed to be pasted elsewhere than into Python: a shell, C++.
_OTHER = re.compile(
    r"(?:[A-Z0-9_]+=\S+ +|\w+ +[\w|-]+ +)*(?:env|python|vllm|tracemine|grep|trtexec)\b"
    r"|[A-Z0-9_]+=\S+|cuda\w+\(|//|g\+\+"
)


class _Uncompiled:
    """torch, whose `compile` gives back what it is given."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def compile(one: Any, **_: Any) -> Any:
        return one


def blocks_of(text: str) -> list[str]:
    """The blocks of Python that a text prints."""
    lines = (one.splitlines() for one in _BLOCK.findall(text + "\n"))
    kept = ("\n".join(line for line in block if not _OTHER.match(line.strip())) for block in lines)
    return [textwrap.dedent(block).strip("\n") + "\n" for block in kept if block.strip()]


def code_of(text: str) -> str:
    """All Python that a text prints; what it returns as the result of a function `pasted`."""
    code = "\n".join(blocks_of(text))
    if re.search(r"^return ", code, re.M):
        return "def pasted():\n" + textwrap.indent(code, "    ") + "\nout = pasted()\n"
    return code


def run(text: str, **names: Any) -> dict[str, Any]:
    """Run the code of a text with these names bound; return all names then."""
    bound = {"torch": _Uncompiled(), "F": torch.nn.functional, "nn": torch.nn, **names}
    exec(compile(code_of(text), "<advice>", "exec"), bound)  # noqa: S102 - our own rules' text
    return bound
