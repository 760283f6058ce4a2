"""Public traces of serving engines, what is said of them against raw events: `python -m benchmarks serving`.

    python -m benchmarks serving [FOLDER]...

serving.toml names the files, which are no part of this project: each is looked for by its name in the folders, by
default of the one that TRACEMINE_COMPAT_TRACES names. What is right is read off the file with json, by no reader of
tracemine's: unions of intervals, counts of calls, names of annotations. Ends with 1 where a line is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.answers import command
from benchmarks.answers.raw_files import opened
from tracemine.findings.record import Scan, Serving
from tracemine.formats import open_trace
from tracemine.pipeline import scan

TABLE = Path(__file__).with_suffix(".toml")
COLUMNS = "| trace | line | by raw events | told | verdict |\n|---|---|---|---|---|"
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_MARKS = re.compile(r"^execute_(context_)?\d|^step\[(DECODE|EXTEND)")
_ENGINES = {"vllm": "vllm/v1/", "sglang": "/sglang/srt/"}
_QUEUED = 200  # microseconds behind its launch: the stream was at work on what was launched before the recording
_NEAR = 0.01  # of a time, by which rounding and the ends of a window may differ


class Line(NamedTuple):
    """One line of an answer: what raw events say, what tracemine does, and whether that is right."""

    what: str
    raw: object
    told: object
    right: bool


class Events(NamedTuple):
    """What a file says, in milliseconds."""

    engine: str
    steps: int
    busy: float  # of what the iterations launched
    window: float  # from the first activity of the stream that does the work, or the host's begin, to the last
    idle: float  # share of the time from the first activity to the last, from where that stream is seen on
    replays: int
    captures: int


class Ran(NamedTuple):
    """What ran on a device, in microseconds."""

    begin: float
    end: float
    stream: int
    launched: float  # when its launch returned


def raw_events(path: Path) -> list[dict[str, Any]]:
    """Return a file's events that last."""
    with opened(path) as whole:
        if not isinstance(whole, dict):
            raise SystemExit(f"{path}: no events")
        return [event for event in whole["traceEvents"] if event.get("ph") == "X"]


def _is_call(event: dict[str, Any]) -> bool:
    return str(event.get("cat")).startswith(("cuda", "hip"))


def _ran(events: Sequence[dict[str, Any]]) -> list[Ran]:
    """Return what ran on a device, in order."""
    returned = {
        e["args"]["correlation"]: e["ts"] + e["dur"] for e in events if _is_call(e) and "correlation" in e["args"]
    }
    of = (e for e in events if e.get("cat") in _DEVICE)
    return sorted(
        Ran(e["ts"], e["ts"] + e["dur"], e["args"]["stream"], returned.get(e["args"].get("correlation"), e["ts"]))
        for e in of
    )


def events_of(path: Path) -> Events:
    """Read a file's events."""
    events = raw_events(path)
    calls = Counter(e["name"] for e in events if _is_call(e))
    frames = [e["name"] for e in events if e.get("cat") == "python_function"]
    ran = _ran(events)
    marks = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation" and _MARKS.search(e["name"])
    ]
    outer = [one for one in marks if not any(b <= one[0] and one[1] <= e and (b, e) != one for b, e in marks)]
    since = min((begin for begin, _ in outer), default=0.0)
    at_work = Counter[int]()
    for one in ran:
        at_work[one.stream] += round(one.end - one.begin)
    (main, _), *_ = at_work.most_common(1)
    first = next(one for one in ran if one.stream == main)
    queued = first.begin - first.launched > _QUEUED
    seen, last = first.begin if queued else ran[0].begin, max(one.end for one in ran)
    window = last - (first.begin if queued else since or ran[0].begin)
    work = union((max(one.begin, seen), one.end) for one in ran if one.end > seen)
    return Events(
        engine=next(name for name, place in _ENGINES.items() if any(place in frame for frame in frames)),
        steps=len(outer),
        busy=union((one.begin, one.end) for one in ran if one.launched >= since) / 1e3,
        window=window / 1e3,
        idle=1 - work / (last - seen),
        replays=sum(count for name, count in calls.items() if "GraphLaunch" in name),
        captures=sum(count for name, count in calls.items() if "EndCapture" in name),
    )


def union(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of these lasts.

    >>> union([(0, 2), (1, 3), (5, 6)])
    4
    """
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


def lines_of(row: dict[str, Any], path: Path, capture: Path | None) -> list[Line]:
    """Return the lines of one trace's answer."""
    raw, found = events_of(path), scan(path, graph_capture=capture)
    fixes = " ".join(finding.fix for finding in found.findings)
    said = re.sub(r"\s+", " ", f"{command('scan', path).stdout} {fixes}")
    serving = found.summary.serving
    if serving is None:
        return [equal("engine", raw.engine, None, row["engine"])]
    lines = [
        equal("engine", raw.engine, serving.engine, row["engine"]),
        equal("iterations", raw.steps, sum(kind.count for kind in serving.kinds), row["steps"]),
        equal("graphs captured", raw.captures, serving.captures, row.get("captures", 0)),
        *(of_batch(row, raw, found) if serving.kinds else ()),
        *(() if capture is None else of_capture(row, serving, path, capture)),
        equal("findings", row.get("rules", []), [finding.rule for finding in found.reported]),
    ]
    lines += [Line("says", words, words if words in said else "–", words in said) for words in row["says"]]
    lines += [Line("never says", words, words if words in said else "–", words not in said) for words in row["never"]]
    return lines


def of_batch(row: dict[str, Any], raw: Events, found: Scan) -> Iterator[Line]:
    """Yield the lines on an iteration's batch and times."""
    serving, step, bound = found.summary.serving, found.summary.per_step, found.summary.bound
    if serving is None or step is None or bound is None:
        yield Line("iteration", "one", "none", right=False)
        return
    kind, replayed = serving.kinds[0], serving.replayed
    yield equal("phase", row["phase"], kind.phase)
    yield equal("sequences", row["sequences"], kind.sequences)
    yield equal("tokens", row["tokens"], kind.tokens)
    yield near("GPU work of an iteration, ms", raw.busy, kind.gpu_busy_ns / 1e6)
    yield near("the iteration as seen, ms", raw.window, step.span_ns / 1e6)
    yield equal("time to the next iteration", None, kind.step_ns)
    yield near("idle from first to last activity, %", 100 * raw.idle, 100 * bound.idle_share, 1.0)
    yield equal("graphs replayed", raw.replays, replayed[0].graphs if replayed else 0)


def of_capture(row: dict[str, Any], serving: Serving, path: Path, capture: Path) -> Iterator[Line]:
    """Yield the lines on what the graphs were captured for, and their operators."""
    yield equal("captured for, tokens", row["rows"], serving.replayed[0].rows if serving.replayed else None)
    yield equal("replayed kernels without an operator", 0, unowned(path, capture))


def unowned(path: Path, capture: Path) -> int:
    """Return how many replayed kernels have no operator once the capture is given."""
    return open_trace(path, graph_capture=capture).meta.ingest.unowned.get("graph_replay", 0)


def equal(what: str, raw: object, told: object, expected: object = None) -> Line:
    """Return a line that is right where both agree, and with what was read by eye where that is given."""
    return Line(what, raw, told, raw == told and expected in (None, raw))


def near(what: str, raw: float, told: float, least: float = 0.0) -> Line:
    """Return a line that is right where both agree but for rounding."""
    return Line(what, round(raw, 2), round(told, 2), abs(raw - told) <= max(_NEAR * abs(raw), least))


def found_in(folders: Sequence[Path], names: Iterable[str]) -> Path | None:
    """Return the first file of these names; None where no folder has one."""
    places = (one for name in names for folder in folders for one in sorted(folder.rglob(Path(name).name)))
    return next((one for one in places if any(str(one).endswith(name) for name in names)), None)


def traces() -> list[dict[str, Any]]:
    """Return the rows of serving.toml."""
    found: list[dict[str, Any]] = tomllib.loads(TABLE.read_text("utf-8"))["trace"]
    return found


def checked(folders: Sequence[Path]) -> Iterator[tuple[str, list[Line] | None]]:
    """Yield each trace's name and its lines; None where no folder holds it."""
    for row in traces():
        path = found_in(folders, row["names"])
        capture = found_in(folders, row.get("capture", []))
        yield row["names"][0], None if path is None else lines_of(row, path, capture)


def main() -> int:
    """Print a row a line, and how many are right; return 1 where one is wrong, or none is at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    known = os.environ.get("TRACEMINE_COMPAT_TRACES")
    folders = parser.parse_args().folders or ([Path(known)] if known else [])
    verdicts = Counter[str]()
    print(COLUMNS)
    for name, lines in checked(folders):
        if lines is None:
            print(f"| {name} | – | – | – | not at hand |")
        for line in lines or ():
            verdicts["right" if line.right else "wrong"] += 1
            verdict = "right" if line.right else "**wrong**"
            print(f"| {name} | {line.what} | {line.raw} | {line.told} | {verdict} |")
    print(f"\n{verdicts['right']} of {verdicts.total()} lines right")
    return int(bool(verdicts["wrong"]) or not verdicts)


if __name__ == "__main__":
    sys.exit(main())
