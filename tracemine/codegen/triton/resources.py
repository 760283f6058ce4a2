"""What each tile config of a kernel takes of a multiprocessor, without a GPU: registers and spills, by ptxas.

The compiler runs in a process of its own (`resources_worker.py`): triton's driver is replaced there.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path

import msgspec

from tracemine.codegen.tiles import table_text
from tracemine.processes import Ended, Process, TooLate, worker

_REGISTERS, _THREADS, _SHARED_BYTES = 65_536, 2_048, 233_472  # of a multiprocessor of sm_90
Taken = tuple[str, tuple[int, ...]]  # a kernel in a tile config
_TABLE = re.compile(r"^BLOCKS = (\{\n.*?^\}|\{[^\n]*\})", re.MULTILINE | re.DOTALL)


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel takes, in one tile config. stack_bytes: of a thread, in memory: where spilled registers lie."""

    kernel: str
    tile_config: tuple[int, ...]
    warps: int
    registers: int
    stack_bytes: int
    shared_bytes: int = 0  # of a program

    @property
    def resident(self) -> int:
        """Return how many programs a multiprocessor of sm_90 has at once, by registers, threads and shared memory."""
        threads = 32 * self.warps
        registers = -(-self.registers // 8) * 8 * threads
        return min(_REGISTERS // max(registers, 1), _THREADS // threads, _SHARED_BYTES // (self.shared_bytes + 1024))


class Compiler:
    """Tells what kernels take, one reproduction after another, in a process that begins when it is first asked.

    Close it at the end. beside: files that reproductions import, by name.
    """

    def __init__(self, beside: Mapping[str, str], time_limit_s: float = 120.0) -> None:
        self._time_limit_s = time_limit_s
        compiles = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        self._process = Process(worker("tracemine.codegen.triton.resources_worker"), compiles)
        self._folder = tempfile.TemporaryDirectory()
        self._beside = dict(beside)
        self._count = count()

    def close(self) -> None:
        """End the process."""
        self._process.close()
        self._folder.cleanup()

    def resources(self, text: str) -> list[Resources]:
        """Return the resources of each kernel of a reproduction in each of its tile configs, for sm_90.

        Empty where nothing is compiled in time.
        """
        path = Path(self._folder.name) / f"source_{next(self._count)}.py"  # Python keeps what it has read of a file
        try:
            while self._beside:
                name, content = self._beside.popitem()
                path.with_name(name).write_text(content, "utf-8")
            path.write_text(text, "utf-8")
            answer = self._process.ask(msgspec.json.encode(str(path)), self._time_limit_s)
            return msgspec.json.decode(answer, type=list[Resources])
        except (TooLate, Ended, OSError, msgspec.DecodeError):
            return []


def fitting(text: str, found: Iterable[Resources], foretold: Mapping[Taken, tuple[int, int]] = {}) -> str:
    """Return a reproduction without the tile configs that spill, unless all do, with what the others take beside them.

    foretold: of a kernel in a tile config the registers and the bytes of shared memory.

    >>> text = 'BLOCKS = {"k": [(1024, 32), (1024, 8)]}\\n'
    >>> short = Resources(kernel="k", tile_config=(1024, 8), warps=4, registers=40, stack_bytes=0)
    >>> wide = Resources(kernel="k", tile_config=(1024, 32), warps=1, registers=255, stack_bytes=96)
    >>> print(fitting(text, [short, wide]), end="")
    BLOCKS = {"k": [(1024, 8)]}  # registers on sm_90, bytes shared, programs a multiprocessor: 40, 0, 12
    """
    table = _TABLE.search(text)
    known = {(r.kernel, r.tile_config): r for r in found}
    if table is None or not known:
        return text
    rows = []
    for kernel, tile_configs in ast.literal_eval(table[1]).items():
        told = [known[kernel, tile_config] for tile_config in tile_configs if (kernel, tile_config) in known]
        least = min((r.stack_bytes for r in told), default=0)
        kept = [r for r in told if r.stack_bytes == least]
        listed = tuple(r.tile_config for r in kept) if told else tile_configs
        takes = "; ".join(_says(r, foretold.get((r.kernel, r.tile_config))) for r in kept)
        says = f"  # registers on sm_90, bytes shared, programs a multiprocessor: {takes}" if told else ""
        rows.append((kernel, listed, says))
    return text[: table.start(1)] + table_text(rows) + text[table.end(1) :]


def _says(found: Resources, foretold: tuple[int, int] | None = None) -> str:
    """Return what a tile config takes of a multiprocessor, and what was foretold of it.

    >>> _says(Resources(kernel="k", tile_config=(128, 256, 64, 8, 4, 1, 1), warps=8, registers=160, stack_bytes=0,
    ...                 shared_bytes=197_152), (168, 196_608))
    '160 (foretold 168), 197,152 (foretold 196,608), 1'
    """
    taken = zip((found.registers, found.shared_bytes), foretold or (None, None), strict=True)
    texts = [f"{own:,}" + (f" (foretold {told:,})" if told is not None else "") for own, told in taken]
    return ", ".join([*texts, str(found.resident)])
