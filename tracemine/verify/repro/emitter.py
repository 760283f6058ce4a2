"""Write reproductions as files, without tile configs that compiling shows to spill."""

from __future__ import annotations

from pathlib import Path

from tracemine.codegen.graph import Graph
from tracemine.codegen.partition import plan
from tracemine.codegen.products import predicted
from tracemine.codegen.triton.resources import Compiler, Taken, fitting
from tracemine.codegen.triton.source import launched
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

    def fitted(self, text: str, graph: Graph) -> str:
        """Return the reproduction without tile configs that spill, where it is written: its reader may have no GPU."""
        return text if self._folder is None else fitting(text, self._compiler.resources(text), foretold(graph))

    def write(self, name: str, text: str) -> None:
        """Write a reproduction, and before the first the harness that they share.

        Raises UsageError where it cannot be written, or where another file has the harness's name.
        """
        if self._folder is not None and not self._harness:
            write_harness(self._folder)
            self._harness = True
        write(self._folder, name, text)


def foretold(graph: Graph) -> dict[Taken, tuple[int, int]]:
    """Return of a graph's kernels around products, in each tile config, registers and bytes of shared memory."""
    program = plan(graph)
    of_products = [each for each in launched(program) if each.parts[0].kernel.contracted]
    tiles = [(each.name, each.parts[0].kernel, tile) for each in of_products for tile in each.tile_configs]
    return {(name, tile): predicted(program.buffers, kernel, tile) for name, kernel, tile in tiles}


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
