"""Make a large, realistic Kineto trace by repeating a real one.

    python -m benchmarks trace_maker BASE.json[.gz] OUT.json --megabytes 1000 [--no-stacks] [--layout old]

The events of BASE are written in Kineto's own text layout (old: libkineto until early 2026; new: one key a line) or
as Python's json writes them, and repeated with shifted times, correlations, External ids and other ids, so that every
repetition is a later "step" of one long trace.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_HOST_ONLY = {"python_function", "cpu_instant_event"}  # what profiling without stacks and memory leaves out
_SHIFTED = re.compile(
    r'("(?:ts|correlation|External id|Ev Idx|Sequence number|Python id|Python parent id|id|Python module id)": )(\d+)'
)
# Ids that name one thing must be shifted by one step.
_SAME_STEP = {'"id": ': '"correlation": ', '"Python parent id": ': '"Python id": '}


def _fields(event: Event, keys: str) -> list[str]:
    return [f"{json.dumps(key)}: {_value(event[key])}" for key in keys.split() if key in event]


def _value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _arguments(event: Event) -> str:
    return ", ".join(
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in event["args"].items()
    )


# Lines of an event by phase, and the keys of each: libkineto's order, which puts a flow's category near its end.
_OLD_LINES = {
    "X": ("ph cat name pid tid", "ts dur"),
    "s": ("ph id pid tid ts", "cat name"),
    "f": ("ph id pid tid ts", "cat name bp"),
    "M": ("name ph ts pid tid",),
    "i": ("ph cat s name", "pid tid", "ts"),
}


def _old(event: Event) -> str:
    lines = [", ".join(_fields(event, keys)) for keys in _OLD_LINES[event["ph"]]]
    if event.get("args"):
        lines.append(f'"args": {{\n      {_arguments(event)}\n    }}')
    return "\n  {\n    " + ",\n    ".join(lines) + "\n  },"


def _new(event: Event) -> str:
    fields = [field for keys in _OLD_LINES[event["ph"]] for field in _fields(event, keys)]
    arguments = f',\n    "args": {{\n      {_arguments(event)}\n    }}' if event.get("args") else ""
    return "\n  {\n    " + ",\n    ".join(fields) + f"\n    {arguments}\n  }},"


def _compact(event: Event) -> str:
    return " " + json.dumps(event, ensure_ascii=False) + ","


def _indent(event: Event) -> str:
    text = json.dumps(event, ensure_ascii=False, indent=4)
    return "\n" + "\n".join("        " + line for line in text.split("\n")) + ","


LAYOUTS: dict[str, Callable[[Event], str]] = {"old": _old, "new": _new, "compact": _compact, "indent": _indent}


def make_trace(
    base: Path | dict[str, Any],
    out: Path,
    *,
    megabytes: float,
    stacks: bool = True,
    layout: str = "old",
    period_us: int | None = None,
) -> int:
    """Write at least `megabytes` (10⁶ bytes) of trace to `out`; return how many events it has.

    period_us: from each repetition to the next, so that several files stay in step; by default as long as the base.
    """
    document = read_json(base) if isinstance(base, Path) else dict(base)
    events = document.pop("traceEvents")
    render = LAYOUTS[layout]
    left_out = set() if stacks else _HOST_ONLY
    repeated = [
        e for e in events if e["ph"] in "Xsfi" and e.get("cat") not in left_out and not isinstance(e["pid"], str)
    ]
    once = [e for e in events if e["ph"] == "M" or isinstance(e["pid"], str)]
    header = {key: value for key, value in document.items() if key not in ("metadata", "traceName")}
    repetitions = 0
    with out.open("wb") as file:
        opening = json.dumps(header, indent=None if layout == "compact" else 2)[:-1].rstrip()
        file.write(f'{opening},{" " if layout == "compact" else chr(10) + "  "}"traceEvents": ['.encode())
        for text in _repetitions("".join(map(render, repeated)), period_us):
            file.write(text.encode())
            repetitions += 1
            if file.tell() >= megabytes * 1e6:
                break
        file.write("".join(map(render, once)).rstrip(",").encode())
        file.write(b'\n  ],\n  "traceName": "synthetic.json"\n}\n')
    return repetitions * len(repeated) + len(once)


def _repetitions(text: str, period_us: int | None) -> Iterator[str]:
    """`text` again and again, its times and ids shifted further each time."""
    numbers = [(match[1], int(match[2])) for match in _SHIFTED.finditer(text)]
    between = _SHIFTED.split(text)[0::3]
    largest: dict[str, int] = {}
    for key, value in numbers:
        shared = _SAME_STEP.get(key, key)
        largest[shared] = max(largest.get(shared, 0), value)
    times = [value for key, value in numbers if key == '"ts": ']
    step = {key: value + 1 for key, value in largest.items()}
    step['"ts": '] = period_us or max(times) - min(times) + 1000
    step['"Python module id": '] = 0
    steps = [step[_SAME_STEP.get(key, key)] for key, _ in numbers]
    keys = [key for key, _ in numbers]
    values = [value for _, value in numbers]
    pieces = [""] * (3 * len(numbers) + 1)
    pieces[0::3] = between
    pieces[1::3] = keys
    repetition = 0
    while True:
        pieces[2::3] = [str(v + repetition * s) for v, s in zip(values, steps, strict=True)]
        yield "".join(pieces)
        repetition += 1


def read_json(path: Path) -> dict[str, Any]:
    """A whole trace as one object; for small ones."""
    data = path.read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--no-stacks", action="store_true")
    parser.add_argument("--layout", default="old", choices=LAYOUTS)
    arguments = parser.parse_args()
    count = make_trace(
        arguments.base,
        arguments.out,
        megabytes=arguments.megabytes,
        stacks=not arguments.no_stacks,
        layout=arguments.layout,
    )
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB, {count} events")


if __name__ == "__main__":
    main()
