"""How fast an `.xplane.pb` is read, and in how much memory: `python -m benchmarks xplane FILE [--megabytes 300]`.

The recording is repeated until the file is as large as that: each time later, with correlation ids of its own. A
second file has nothing but frames of Python repeated, which are stepped over. Prints of both megabytes a CPU-second,
peak memory over the file's size, and events; exits with 1 below 40 MB a second or above three times.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracemine.formats.xla.wire import INT, TEXT, fields, read, signed, table, varint  # noqa: E402

LEAST_MB_A_SECOND, MOST_TIMES = 40, 3
CHILD = """
import re, sys, time
from pathlib import Path
import numpy, pyarrow
from tracemine.formats import open_trace
import tracemine.formats.xla.assemble, tracemine.formats.xla.xplane
def peak():  # of this process alone: ru_maxrss begins with what its parent had
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before, begin = peak(), time.process_time()
timeline = open_trace(Path(sys.argv[1]))
print(time.process_time() - begin, peak() - before, timeline.activities.num_rows, timeline.api.num_rows)
"""
MAP = table(key=(1, INT), value=(2, table(name=(2, TEXT))))
SPACING_PS = 100_000_000_000
SHIFTED_IDS = 100_000


def number(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(of: int, body: bytes) -> bytes:
    return number(of << 3 | 2) + number(len(body)) + body


def repeated(data: memoryview, times: int, only_frames: bool) -> bytes:
    """Return a file whose lines have their events so many times; of host lines perhaps the frames alone again."""
    out = bytearray()
    for of, _, span, begin in fields(data, (0, len(data))):
        out += message(1, plane(data, span, times, only_frames)) if of == 1 else data[begin : span[1]]
    return bytes(out)


def plane(data: memoryview, span: tuple[int, int], times: int, only_frames: bool) -> bytes:
    names: dict[int, dict[int, str]] = {4: {}, 5: {}}
    for of, _, value, _ in fields(data, span):
        if of in names:
            key, (name,) = read(data, value, MAP)
            names[of][key] = name
    correlation = next((key for key, name in names[5].items() if name == "correlation_id"), -1)
    frames = {key for key, name in names[4].items() if name.startswith("$")}
    out = bytearray()
    for of, wire, value, begin in fields(data, span):
        if of == 3:
            out += message(3, line(data, value, times, correlation, frames if only_frames else None))
        else:
            end = value[1] if wire == 2 else varint(data, varint(data, begin, span[1])[1], span[1])[1]
            out += data[begin:end]
    return bytes(out)


def line(data: memoryview, span: tuple[int, int], times: int, correlation: int, only: set[int] | None) -> bytes:
    front, events = bytearray(), []
    for of, wire, value, begin in fields(data, span):
        if of == 4:
            events.append(value)
        else:
            end = value[1] if wire == 2 else varint(data, varint(data, begin, span[1])[1], span[1])[1]
            front += data[begin:end]
    parts = [event(data, each, correlation) for each in events]
    for time in range(times):
        for name, offset, front_part, ids, rest in parts:
            if time and only is not None and name not in only:
                continue
            body = front_part + b"\x10" + number(offset + time * SPACING_PS) + rest
            for stat in ids:
                body += message(
                    4, number(1 << 3) + number(correlation) + number(3 << 3) + number(stat + time * SHIFTED_IDS)
                )
            front += message(4, body)
    return bytes(front)


def event(data: memoryview, span: tuple[int, int], correlation: int) -> tuple[int, int, bytes, list[int], bytes]:
    """Return an event's name, its offset, its bytes in front of and behind that, and its correlation ids."""
    name, offset, front, rest, ids = 0, 0, bytearray(), bytearray(), []
    for of, wire, value, begin in fields(data, span):
        end = value[1] if wire == 2 else varint(data, varint(data, begin, span[1])[1], span[1])[1]
        if of == 2:
            offset = signed(value)
        elif of == 1:
            name = value
            front += data[begin:end]
        elif of == 4 and (stat := {key: found for key, _, found, _ in fields(data, value)}).get(1) == correlation:
            ids.append(stat.get(3, stat.get(4, 0)))
        else:
            rest += data[begin:end]
    return name, offset, bytes(front), ids, bytes(rest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--megabytes", type=int, default=300)
    chosen = parser.parse_args()
    raw = chosen.file.read_bytes()
    data = memoryview(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    wrong = False
    with TemporaryDirectory() as folder:
        for what, only_frames in (("all repeated", False), ("Python's frames repeated", True)):
            path = Path(folder) / "host.xplane.pb"
            path.write_bytes(data)
            grows = len(repeated(data, 3, only_frames)) - len(repeated(data, 2, only_frames))
            path.write_bytes(repeated(data, chosen.megabytes * 1_000_000 // max(grows, 1) + 1, only_frames))
            size = path.stat().st_size
            command = [sys.executable, "-c", CHILD, str(path)]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            seconds, peak, activities, calls = map(float, done.stdout.split())
            rate, times = size / 1e6 / seconds, peak / size
            wrong |= rate < LEAST_MB_A_SECOND or times > MOST_TIMES
            print(
                f"{what}: {size / 1e6:.0f} MB, {activities:,.0f} activities, {calls:,.0f} calls: {seconds:.1f} CPU s, "
                f"{rate:.0f} MB a CPU-second, peak {times:.1f} times the file"
            )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
