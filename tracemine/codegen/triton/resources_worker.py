# mypy: ignore-errors
"""Compiles the kernels of a reproduction for a GPU that is not there, one tile config after another: nothing is
launched.

Run as `python -m tracemine.codegen.triton.resources_worker`; to each line, a file's name in JSON, it answers with a
list of what each kernel and tile config takes. Triton asks a driver which GPU to compile for; this one answers, and
gives no more. It patches triton's internals, as validate/interpreter.py does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import tempfile
import warnings
from pathlib import Path

import msgspec
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tracemine import programs
from tracemine.codegen.triton.resources import Resources
from tracemine.processes import serve

_TOOL_S = 60


class _NoGpu:
    """As triton's driver."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compiled(path):
    """Yield the resources of each kernel and tile config of a file; skip tile configs that cannot be compiled."""
    for name, tile_config, kernel, (registers, stack) in compiling(path):
        warps = kernel.metadata.num_warps
        yield Resources(
            kernel=name,
            tile_config=tile_config,
            warps=warps,
            registers=registers,
            stack_bytes=stack,
            shared_bytes=kernel.metadata.shared,
        )


def compiling(path, most=None):
    """Yield name, tile config, compiled kernel, registers and stack, for `most` tile configs of each kernel."""
    kernels = []
    run, empty = JITFunction.run, torch.empty

    def compile_only(self, *given, grid, warmup, **named):
        kernels.append((self.__name__, run(self, *given, grid=grid, warmup=True, **named)))
        return kernels[-1][1]

    driver.set_active(_NoGpu())
    JITFunction.run = compile_only
    torch.empty = lambda *given, **named: empty(*given, **{**named, "device": "meta"})  # whose device launchers ask for
    try:
        yield from _compiling(path, most, kernels)
    finally:
        JITFunction.run, torch.empty = run, empty


def _compiling(path, most, kernels):
    spec = importlib.util.spec_from_file_location("source", path)
    module = importlib.util.module_from_spec(spec)
    if str(Path(path).parent) not in sys.path:
        sys.path.insert(0, str(Path(path).parent))  # what lies next to it
    spec.loader.exec_module(module)
    tensors = [torch.empty_strided(shape, strides, dtype=t, device="meta") for _, shape, t, strides, _ in module.INPUTS]
    table = {name: list(tile_configs) for name, tile_configs in module.BLOCKS.items()}
    for place in range(min(most or 99, max(map(len, table.values()), default=0))):
        for name, tile_configs in table.items():
            module.BLOCKS[name][:] = [tile_configs[min(place, len(tile_configs) - 1)]]
        kernels.clear()
        with contextlib.suppress(Exception):  # more registers or memory than there are: this one is no tile config
            module.fused(*tensors)
        for name, kernel in kernels:
            if place < len(table[name]):
                yield name, table[name][place], kernel, used(kernel.asm["cubin"])


def used(cubin):
    """Return registers of a thread and bytes of its stack, as cuobjdump reads them, which comes with triton."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = programs.run([str(tool), "-res-usage", file.name], _TOOL_S).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return int(found[1]), int(found[2])


def main():
    """Answer for files named on standard input until there are no more."""
    warnings.simplefilter("ignore")

    def answer(line):
        found = []
        with contextlib.suppress(Exception):  # of this file is known what was compiled until then
            found.extend(compiled(msgspec.json.decode(line)))
        return msgspec.json.encode(found)

    serve(answer)


if __name__ == "__main__":
    main()
