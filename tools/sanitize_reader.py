"""Read what is damaged by readers that were compiled with gcc's address and undefined-behaviour checks.

    python tools/sanitize_reader.py [--count N] [--seed N]

Needs gcc with its sanitizers. The first bad read, write or operation ends it with the line of the C source; so does a
block or file that the two readers of it read differently. They are those of tests/formats/mutated_blocks.py, and of
tests/formats/xla/mutated_lines.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
READERS = {
    "tests.formats.mutated_blocks": "tracemine/formats/kineto/_event_columns.c",
    "tests.formats.xla.mutated_lines": "tracemine/formats/xla/_event_cells.c",
}
FLAGS = ("-O1", "-g", "-std=c11", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def main() -> int:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("tracemine", "tests", "rules"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for source in READERS.values():
            built = (folder / source).with_suffix(".abi3.so")
            include = f"-I{sysconfig.get_path('include')}"
            subprocess.run(["gcc", *FLAGS, include, str(folder / source), "-o", str(built)], check=True)
        asked = ["gcc", "-print-file-name=libasan.so"]
        library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        # Memory straight from malloc, so that what lies behind a block is not another object of Python's.
        sanitized = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
        environment = {**os.environ, **sanitized, "PYTHONPATH": str(folder)}
        commands = ([sys.executable, "-m", name, *sys.argv[1:]] for name in READERS)
        return max(subprocess.run(each, cwd=folder, env=environment, check=False).returncode for each in commands)


if __name__ == "__main__":
    sys.exit(main())
