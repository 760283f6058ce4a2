"""What it costs to import tracemine, to call it once, to scan from a shell, and to make a DataFrame of what was found.

    python -m benchmarks importing [--repeat 7]

Milliseconds of processor time of a fresh process, interpreter's own start taken off: the least of several. Exits with 1
where `import tracemine` takes 50 ms or more, or loads pandas or torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACE = "fixtures/captures/decoder_prefill"
STEPS = {
    "import tracemine": "import tracemine",
    "import tracemine.api": "import tracemine.api",
    "tracemine.scan": f"import tracemine; tracemine.scan({TRACE!r})",
    "… less numpy and pyarrow.parquet": "import numpy, pyarrow.parquet; begin = time.process_time()\n"
    f"import tracemine; tracemine.scan({TRACE!r})",
    "what `tracemine scan` imports, less these": "import numpy, pyarrow.parquet; begin = time.process_time()\n"
    "import tracemine.cli.scan, tracemine.scan_settings",
    "… to_pandas()": f"import tracemine; tracemine.scan({TRACE!r}).to_pandas()",
    "import pandas": "import pandas",
}
MEASURED = """
import sys, time
begin = time.process_time()
{code}
print(time.process_time() - begin, *(name for name in ("pandas", "torch") if name in sys.modules))
"""
MOST_MS = 50


def measured(code: str, repeat: int) -> tuple[float, list[str]]:
    """Milliseconds of processor time, and which of the two was loaded."""
    took, loaded = [], []
    for _ in range(repeat):
        command = [sys.executable, "-c", MEASURED.format(code=code)]
        seconds, *loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
        took.append(1000 * float(seconds))
    return min(took), loaded


def main() -> int:
    """Print a row for each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    failed = False
    print("| | ms | loads |\n|---|---:|---|")
    for name, code in STEPS.items():
        milliseconds, loaded = measured(code, repeat)
        print(f"| `{name}` | {milliseconds:.0f} | {', '.join(loaded) or 'neither'} |")
        failed |= name == "import tracemine" and (milliseconds >= MOST_MS or bool(loaded))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
