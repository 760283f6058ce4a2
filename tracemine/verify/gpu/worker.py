"""Run reproductions one after another in a process that has loaded torch: a line with a file and a method a job.

    python worker.py      # reads [path, method of its CHECK, arguments by name], a line each, and answers

A fault on the device ends the process: whoever asked starts another for the next file.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from tracemine.processes import serve


def main() -> None:
    """Answer until there are no more lines."""

    def answer(line: bytes) -> bytes:
        path, function, options = json.loads(line)
        return json.dumps(_run(Path(path), function, options)).encode()

    serve(answer)


def _run(path: Path, function: str, options: dict[str, object]) -> object:
    import torch

    if not torch.cuda.is_available():
        return "this needs a GPU, and torch finds none"
    try:
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))  # the harness lies next to it
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        SourceFileLoader(path.stem, str(path)).exec_module(module)
        return getattr(module.CHECK, function)(**options)
    except Exception as error:  # this file is done, the next may be well
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
    finally:
        torch._dynamo.reset()
        gc.collect()  # frames of an error hold tensors
        torch.cuda.synchronize()  # raises after a fault on the device: this process ends
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
