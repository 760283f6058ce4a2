"""Runs reproductions one after another in a process that has loaded torch: a line with a file and a function a job.

    python worker.py      # reads [path, function, arguments by name], a line each, and answers with what it gives

A fault on the device ends the process: whoever asked starts another for the next file.
"""

from __future__ import annotations

import gc
import json
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from tracemine.processes import serve

_TIMES = "results"


def main() -> None:
    """Until there are no more lines."""
    peaks: list[float] = []

    def answer(line: bytes) -> bytes:
        path, function, options = json.loads(line)
        return json.dumps(_run(Path(path), function, options, peaks)).encode()

    serve(answer)


def _run(path: Path, function: str, options: dict[str, object], peaks: list[float]) -> object:
    import torch

    if not torch.cuda.is_available():
        return "this needs a GPU, and torch finds none"
    try:
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        SourceFileLoader(path.stem, str(path)).exec_module(module)
        if function == _TIMES:  # how fast memory is, is this GPU's and not the file's
            if not peaks:
                peaks.append(module.peak_bytes_per_second())
            vars(module)["peak_bytes_per_second"] = lambda: peaks[0]
        return getattr(module, function)(**options)
    except Exception as error:  # this file is done, the next may be well
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
    finally:
        torch._dynamo.reset()
        gc.collect()  # frames of an error hold tensors
        torch.cuda.synchronize()  # raises after a fault on the device: this process ends
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
