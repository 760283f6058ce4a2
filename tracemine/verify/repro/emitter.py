"""Write reproductions as files, without tile configs that compiling shows to spill."""

from __future__ import annotations

from pathlib import Path

from tracemine.codegen.triton.resources import Compiler, fitting
from tracemine.errors import Location, UsageError
from tracemine.files import check_plain, make_folder, write_file, writing
from tracemine.processes import Closing
from tracemine.verify.repro.harness import MARK, NAME, harness_text


class Emitter(Closing):
    """Write reproductions into a folder, or nowhere. Use it in a `with`."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._compiler = folder, Compiler({NAME: harness_text()})
        self._harness = False  # whether it was written

    def close(self) -> None:
        """End the compiler's process."""
        self._compiler.close()

    def fitted(self, text: str) -> str:
        """Return the reproduction without tile configs that spill, where it is written: its reader may have no GPU."""
        return text if self._folder is None else fitting(text, self._compiler.resources(text))

    def write(self, name: str, text: str) -> None:
        """Write a reproduction, and before the first the harness that they share.

        Raises UsageError where it cannot be written, or where another file has the harness's name.
        """
        if self._folder is not None and not self._harness:
            write_harness(self._folder)
            self._harness = True
        write(self._folder, name, text)


def write_harness(folder: Path) -> None:
    """Write the harness, in place of another version's: of what is no harness nothing is replaced.

    Raises UsageError where it cannot be written, and where a link or another file has its name.
    """
    path = folder / NAME
    check_plain(path)
    if path.is_file():
        with writing(path), path.open("rb") as file:
            begin = file.read(len(MARK))
        if begin != MARK.encode():
            raise UsageError(
                "is no harness of tracemine's reproductions, and is not replaced",
                where=Location(str(path)),
                hint="move it away, or name another folder with --emit",
            )
    write(folder, NAME, harness_text())


def write(folder: Path | None, name: str, text: str) -> None:
    """Write a file into a folder, which is made; of no folder nothing.

    Raises UsageError where it cannot be written, and where a link has its name.
    """
    if folder is None:
        return
    path = folder / name
    with writing(path):
        make_folder(folder)
    write_file(path, text, named=False)
