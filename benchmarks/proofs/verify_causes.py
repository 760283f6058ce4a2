"""Verify the findings of programs whose causes are known on this machine's GPU, predicted beside measured.

    python -m benchmarks verify_causes RECORDINGS -o FILE [--part build|held] [--names NAME…] [--seconds S]
    python -m benchmarks verify_causes --show FILE [--predict RECORDINGS]

RECORDINGS is what record_causes.py wrote. Of each program's `before/` the findings are taken that tell of a cause of
its label, and each variant's reproduction runs: rebuilt eager, fixed eager, torch.compile. All are compiled side by
side first; then one process times one after another. What crashes or takes longer than --limit costs its own finding.
A line a finding is added to FILE as it ends; what FILE has already is left out, so that a run that was cut off goes on.
--dry: no GPU; what has a fixed form, and what has none and why. --predict: what is predicted is told anew from the
recordings, beside what was measured then. The table has the error of the predicted saving as a share of the unfixed
time, and at its end the mean, how often the sign is right, how often the interval holds the measured saving, and what
was refused.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.score_causes import BACKWARD, FOUND_AS
from benchmarks.causes.program import PARTS, Label, labels
from tracemine.errors import TracemineError
from tracemine.findings.grouping import variants_of
from tracemine.findings.record import Finding
from tracemine.pipeline import analyse, mined
from tracemine.pool import Pool
from tracemine.verdicts.levels import Measured
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.pipeline import gpu_name, judged
from tracemine.verify.prepare import Ready, prepared, refused
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.workers.quick import Runner, at_once

MOST_VARIANTS = 2  # of a finding: the same in other shapes
NOT_VALIDATED = "not asked for"
HEADS = (
    "program", "cause", "rule", "way", "level", "unfixed", "eager", "fixed", "compile", "predicted", "measured",
    "as traced", "error",
)  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: of a reproduction at most, after which no block of samples is begun, of torch.compile."""

    whole_s: float
    samples_s: float
    compile_s: float


def causes_of(finding: Finding) -> set[str]:
    """The label's causes that a finding tells of."""
    found = FOUND_AS.get(finding.cause, FOUND_AS.get(finding.rule))
    return set() if found is None else {found, BACKWARD.get(found, found)}


def made_ready(path: Path, label: Label, done: set[str]) -> Iterator[tuple[Row, Ready | None]]:
    """A row for each variant of the findings that tell of the label's causes, and what is run of it."""
    analysis = analyse(path / label.name / "before")
    rebuilder, bugs, emitter = Rebuilder(analysis.dataflow, analysis.groups), Bugs(), Emitter(None)
    told = set[str]()
    for finding in mined(analysis).findings:
        causes = causes_of(finding) & set(label.causes)
        told |= causes
        for number, variant in enumerate(variants_of(finding)[:MOST_VARIANTS] if causes else ()):
            key = f"{label.name} {finding.rule} {number}"
            if key in done:
                continue
            ready = bugs.tried(partial(prepared, variant, rebuilder, emitter, None, bugs, analysis.causes))
            ready = refused(variant, ready) if isinstance(ready, str) else ready
            own = list(variant.activities[0])
            first_ns = sum(analysis.timeline.activities.column("dur_ns").take(own).to_pylist())
            about = {"key": key, "program": label.name, "cause": min(causes)}
            yield about | predicted(variant, first_ns, ready), ready
    for cause in sorted(set(label.causes) - told):
        if f"{label.name} {cause}" not in done:
            missing = {"rule": None, "level": None, "says": "no finding tells of it"}
            yield {"key": f"{label.name} {cause}", "program": label.name, "cause": cause, **missing}, None


class Compilers(Pool[Runner]):
    """Processes that compile reproductions side by side, so that timing finds it done."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__([Runner(folder / str(k), environment) for k in range(at_once())])
        self._begun: list[Future[Any]] = []

    def compile(self, ready: Ready, limits: Limits) -> None:
        """Begin with all of a finding's reproductions."""
        for text in ready.texts:
            options = {"compiles": ["compiled"], "compile_s": limits.compile_s, "within": limits.whole_s}
            work = partial(_compiled, text=text, limit_s=limits.whole_s, options=options)
            self._begun.append(self.start(work))

    def wait(self) -> None:
        """Until all are compiled, or given up."""
        for each in self._begun:
            each.result()


def _compiled(runner: Runner, text: str, limit_s: float, options: Mapping[str, Any]) -> None:
    runner.run(text, "compile_only", limit_s, **options)


def row(ready: Ready, runner: Runner | None, limits: Limits) -> Row:
    """What verifying one variant came to: of all that can be timed in its place, what takes the least time."""
    began = time.monotonic()
    ran: dict[str, Mapping[str, Any] | str] = {}
    for text in ready.texts:
        options = {"seconds": limits.samples_s, "compiles": ["compiled"], "compile_s": limits.compile_s}
        if runner is not None:
            ran[text] = runner.run(text, "results", limits.whole_s, **options, within=0.75 * limits.whole_s)
    found = judged(ready, [NOT_VALIDATED] * len(ready.candidates), ran)
    ways = {found.by: (found.level, found.says, found.measured)}
    ways |= {
        name: (call.level, call.says, call.measured)
        for name, call in (("library", found.library), ("with products", found.with_products))
        if call is not None
    }
    timed = {name: each for name, each in ways.items() if each[2] is not None and each[0] in ("L3", "L4", "L5")}
    name = min(timed, key=lambda n: timed[n][2].fused_ns) if timed else found.by  # type: ignore[union-attr]
    level, says, measured = ways[name]
    fix = ready.candidates[0]
    said = ran.get(fix.source or "")
    return {
        "level": level,
        "says": says,
        "refused": fix.refused if not ready.texts else None,
        "way": said.get("way", name) if isinstance(said, Mapping) and name == found.by else name,
        "ways": said.get("ways") if isinstance(said, Mapping) else None,
        "replay": {k: v for k, v in found.replay.items() if k != "kernels"} if found.replay else None,
        **times(measured),
        "seconds": round(time.monotonic() - began, 1),
    }


def predicted(finding: Finding, first_ns: int, ready: Ready) -> Row:
    """What is said of the occurrence that is run again, which took so long: its share of what all of them save."""
    saving = finding.gpu_saving_ns
    shares = [each * first_ns // max(finding.measured_ns, 1) for each in (saving.low, saving.mid, saving.high)]
    return {
        "rule": finding.rule,
        "occurrences": finding.occurrences,
        "unfixed_ns": first_ns,
        "traced_ns": ready.candidates[0].traced_ns or first_ns,
        "predicted_ns": shares,
        "advises_compile": "torch.compile" in finding.fix,
    }


def times(measured: Measured | None) -> Row:
    """What was timed, nanoseconds."""
    if measured is None:
        return {"eager_ns": None, "fixed_ns": None, "compiled_ns": None, "device": None, "noise": None}
    return {
        "eager_ns": measured.eager_ns,
        "fixed_ns": measured.fused_ns,
        "compiled_ns": measured.compiled_ns,
        "device": measured.device,
        "noise": measured.noise,
    }


def measured_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows in which a right fixed form was timed."""
    return [r for r in rows if r.get("fixed_ns") is not None and r["level"] in ("L3", "L4", "L5")]


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The lines at the end of the table."""
    timed = measured_rows(rows)
    yield f"{len(rows)} findings of {len({r['program'] for r in rows})} programs; {len(timed)} right and timed"
    if timed:
        errors = [abs(error_of(r)) for r in timed]
        signs = [(saved_of(r) > 0) == (r["predicted_ns"][1] > 0) for r in timed]
        widths = [100 * (r["predicted_ns"][2] - r["predicted_ns"][0]) / max(r["unfixed_ns"], 1) for r in timed]
        yield (
            f"mean error {100 * sum(errors) / len(errors):.1f} % of the unfixed time; sign right in {sum(signs)} of "
            f"{len(signs)}; intervals are {statistics.median(widths):.0f} % of it wide in the median"
        )
        yield f"the interval holds what was measured in {held(timed, saved_of)}"
        yield f"and told in the trace's time, which calls that are run again do not keep, in {held(timed, as_traced)}"
        capped = sum(r["predicted_ns"][2] == r["unfixed_ns"] and as_traced(r) > r["unfixed_ns"] + 50 for r in timed)
        if capped:
            yield f"in {capped} of the others the fix saved more than the finding counts: intervals end there"
    others = Counter(f"{r['cause']}: {r.get('refused') or r['says']}" for r in rows if r not in timed)
    yield from (f"{count} not timed, {why}" for why, count in others.most_common())


def saved_of(row: Row) -> int:
    """The measured saving of an occurrence."""
    return int(row["eager_ns"] - fixed_of(row))


def fixed_of(row: Row) -> int:
    """What the fix took: torch.compile, where that is what is advised and takes less than the fixed form."""
    compiled_ns = row["compiled_ns"] if row.get("advises_compile") else None
    return int(row["fixed_ns"] if compiled_ns is None else min(row["fixed_ns"], compiled_ns))


def way_of(row: Row) -> str:
    """The way that took so long."""
    return str(row["way"]) if fixed_of(row) == row["fixed_ns"] else "torch.compile"


def as_traced(row: Row) -> float:
    """The measured saving where the same calls, run again, take as long as in the trace: clocks and caches differ."""
    traced_ns = row.get("traced_ns") or row["unfixed_ns"]
    return float(saved_of(row) * traced_ns / max(row["eager_ns"], 1))


def held(rows: Sequence[Row], saved: Callable[[Row], float]) -> str:
    """In how many rows the interval holds a saving, to the tenth of a microsecond that is printed."""
    inside = [r["predicted_ns"][0] - 50 <= saved(r) <= r["predicted_ns"][2] + 50 for r in rows]
    return f"{sum(inside)} of {len(inside)} ({100 * sum(inside) / len(inside):.0f} %)"


def error_of(row: Row) -> float:
    """Predicted less measured saving, as a share of the unfixed time."""
    return float((row["predicted_ns"][1] - saved_of(row)) / max(row["unfixed_ns"], 1))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A row a finding, predicted beside measured, microseconds of an occurrence; then the summary."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---" * len(HEADS) + "|"
    for r in rows:
        if r not in measured_rows(rows):
            continue
        low, mid, high = (ns / 1000 for ns in r["predicted_ns"])
        us = [r["unfixed_ns"], r["eager_ns"], fixed_of(r)]
        compiled = "-" if r["compiled_ns"] is None else f"{r['compiled_ns'] / 1000:.1f}"
        yield (
            f"| {r['program']} | {r['cause']} | {r['rule']} | {way_of(r)} | {r['level']} | "
            f"{' | '.join(f'{ns / 1000:.1f}' for ns in us)} | {compiled} | {mid:.1f} ({low:.1f} to {high:.1f}) | "
            f"{saved_of(r) / 1000:.1f} | {as_traced(r) / 1000:.1f} | {100 * error_of(r):+.1f} % |"
        )
    yield ""
    yield from summary(rows)


def kept(path: Path) -> list[Row]:
    """The rows of a file, a line of JSON each; a line that was cut off is left out."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def main() -> None:
    """Verify, or show what was verified."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--part", choices=PARTS, default="build")
    parser.add_argument("--names", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1.0, help="after which no block of samples is begun")
    parser.add_argument("--compile-seconds", type=float, default=20.0, help="of torch.compile, a finding")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds that one finding may take")
    parser.add_argument("--total", type=float, default=540.0, help="seconds after which no finding is begun")
    parser.add_argument("--dry", action="store_true", help="without a GPU: what has a fixed form, and what has none")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--predict", type=Path, help="with --show: recordings, of which predictions are told anew")
    options = parser.parse_args()
    if options.show is not None:
        rows = kept(options.show)
        if options.predict is not None:
            told = {each["key"]: each for _, each in told_anew(options.predict, options.part)}
            rows = [row | told.get(row["key"], {}) for row in rows]
            options.show.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        print("\n".join(table(rows)))
        return
    if options.recordings is None or not (options.dry or options.output):
        parser.error("RECORDINGS and -o FILE, or --show FILE")
    if not options.dry and gpu_name() is None:
        parser.error("this machine has no GPU: --dry")
    run(options)


def run(options: argparse.Namespace) -> None:
    """All programs of the part that were recorded, a line each finding as it ends."""
    limits = Limits(options.limit, options.seconds, options.compile_seconds)
    rows = kept(options.output) if options.output else []
    until = time.monotonic() + options.total
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
        environment = {**os.environ, **caches, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        with nullcontext() if options.dry else Compilers(folder, environment) as compilers:
            waiting = []
            for each, ready in begun(options, {r["key"] for r in rows}):
                waiting.append((each, ready))
                if compilers is not None and ready is not None:
                    compilers.compile(ready, limits)
            if compilers is not None:
                compilers.wait()
                print(f"{len(waiting)} findings are ready and compiled", flush=True)
        runner = None if options.dry else Runner(folder / "timed", environment)
        try:
            for each, ready in waiting:
                if time.monotonic() > until:
                    print("the time is up: run it again, and it goes on", flush=True)
                    break
                rows.append(each if ready is None else each | row(ready, runner, limits))
                said(rows[-1], options.output)
        finally:
            if runner is not None:
                runner.kill()
    print("\n".join(table(rows)))


def told_anew(recordings: Path, part: str) -> Iterator[tuple[str, Row]]:
    """What is predicted of each finding of the programs that were recorded, by their names."""
    for name, label in labels([part]).items():
        if label.causes and (recordings / name / "before").is_dir():
            yield from ((name, each) for each, _ in made_ready(recordings, label, set()))


def begun(options: argparse.Namespace, done: set[str]) -> Iterator[tuple[Row, Ready | None]]:
    """What is made ready, program by program."""
    for name, label in labels([options.part]).items():
        wanted = label.causes and (not options.names or name in options.names)
        if wanted and (options.recordings / name / "before").is_dir():
            try:
                yield from made_ready(options.recordings, label, done)
            except TracemineError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)


def said(row: Row, output: Path | None) -> None:
    """A row, printed in short and added to the file."""
    print(f"{row['key']}: {row['level']} {row.get('way')}: {row.get('refused') or row['says']}", flush=True)
    if output is not None:
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
