"""Damage a recording and see what is said of it: `python tools/damage.py FILE ... [--cuts 20] [--changes 1000]`.

Each file is cut at as many places, and one of its bytes is made another as often, beside copies of what lies in its
folder. What is left is read, and every tenth reported too. A line a file: how many were read, how many refused in one
line, the slowest's CPU seconds; what ended otherwise is printed with its seed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tracemine.errors import TracemineError  # noqa: E402
from tracemine.formats import open_trace  # noqa: E402
from tracemine.pipeline import scan  # noqa: E402

SLOW_SECONDS, REPORTED = 5.0, 10
LARGE_BYTES = 64 << 20  # of a file beside it, which is not copied


def altered(data: bytes, cuts: int, changes: int) -> Iterator[tuple[str, bytes]]:
    for part in range(cuts):
        yield f"cut {part}", data[: len(data) * part // cuts]
    for seed in range(changes):
        chosen = random.Random(seed)  # noqa: S311 - no secret
        at = chosen.randrange(len(data))
        yield f"change {seed}", data[:at] + bytes([data[at] ^ chosen.randrange(1, 256)]) + data[at + 1 :]


def outcome(path: Path, whole: bool) -> str:
    """Return `read` or `refused`, or what went wrong."""
    try:
        scan(path) if whole else open_trace(path)
    except TracemineError as error:
        return "refused" if "\n" not in error.message else f"refused in lines: {error.message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def tried(file: Path, opened: str, cuts: int, changes: int) -> bool:
    """Damage one file, print what came of it, and return whether all was well. `opened` is what is read."""
    counts, slowest, wrong = Counter[str](), 0.0, []
    with TemporaryDirectory() as scratch:
        for beside in file.parent.iterdir():
            if beside.is_file() and beside.stat().st_size < LARGE_BYTES:
                shutil.copy(beside, scratch)
        damaged, path = Path(scratch, file.name), Path(scratch, opened)
        damaged.unlink()
        for at, (name, data) in enumerate(altered(file.read_bytes(), cuts, changes)):
            damaged.write_bytes(data)
            began = process_time()
            said = outcome(path, at % REPORTED == 0)
            took = process_time() - began
            slowest = max(slowest, took)
            counts[said if said in ("read", "refused") else "wrong"] += 1
            if said not in ("read", "refused") or took > SLOW_SECONDS:
                wrong.append(f"  {name}: {said[:300]}, {took:.1f} CPU s")
    print(
        f"{file}: {counts['read']} read, {counts['refused']} refused, {len(wrong)} wrong, slowest {slowest:.2f} CPU s"
    )
    print("".join(f"{line}\n" for line in wrong[:20]), end="", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--open", help="what is read: a file of the same folder, or . for all of it")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--changes", type=int, default=1000)
    asked = parser.parse_args()
    failed = [file for file in asked.files if not tried(file, asked.open or file.name, asked.cuts, asked.changes)]
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
