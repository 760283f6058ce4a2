"""Reproductions as files, and what compiling them without a GPU tells of their kernels."""

from __future__ import annotations

from pathlib import Path

from tracemine.codegen.triton.resources import Compiler, fitting
from tracemine.files import make_folder, write_file, writing
from tracemine.processes import Closing


class Emitter(Closing):
    """Writes reproductions into a folder, or nowhere. Use it in a `with`."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._compiler = folder, Compiler()

    def close(self) -> None:
        """The compiler's process ends."""
        self._compiler.close()

    def fitted(self, text: str) -> str:
        """The reproduction without cuts that spill, where it is written: who reads it has no GPU to try them all."""
        return text if self._folder is None else fitting(text, self._compiler.resources(text))

    def write(self, name: str, text: str) -> None:
        """Raises UsageError where it cannot be written."""
        write(self._folder, name, text)


def write(folder: Path | None, name: str, text: str) -> None:
    """A file in a folder, which is made; of no folder nothing.

    Raises UsageError where it cannot be written, and where a link has its name.
    """
    if folder is None:
        return
    path = folder / name
    with writing(path):
        make_folder(folder)
    write_file(path, text, named=False)
