"""Could each fusion group be one kernel? Held against the def-use closure that the execution trace proves.

    python -m benchmarks legality [FOLDER]... [--variants et,shapes] [--findings] [--lost] [--quiet] [--json FILE]

Without arguments: the recordings under fixtures/, and those of TRACEMINE_COMPAT_TRACES where it is set. A folder holds
recordings: folders with trace.json and et.json, each perhaps gzipped, or NAME.sqlite beside NAME.et.json.gz.

Each recording is mined as it is (`et`), without its execution trace (`shapes`), without strides too (`bare`), without
stacks (`stacks`), and as Nsight Systems would have recorded it with NVTX (`nvtx`, by `nvtx_twin.py`); or as an export
of Nsight Systems (`nsys`). `--lost` also forgets, for one kind of operator after another, who made what it gave: a
result that reaches its reader as an object of no operator. The groups are then judged by
`benchmarks/dataflow/def_use.py`, which reads the files by itself and imports nothing of tracemine. A group is illegal
where a way leads from a member through what is no member to a member (`path`; through the host or what nobody names:
`path (host)`, `path (unknown)`), a member overwrites what another reads elsewhere (`hazard`), its members reduce
differently (`reductions`), one of them takes nothing in (`library`), or two groups wait for each other (`circle`).

`--findings` judges what is reported as one kernel, too (fused chains, attention): only ways through what is no member.

A group that is called proven is one by a chain of what is recorded between all of its members: one writes what
another reads, or two read the same. The share of groups that are legal and proven is printed, and how many are called
that falsely.

The opposite bar is beside it: the GPU time that legal groups hold, as a share of what they hold with the execution
trace.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dataflow.dataflow import known_pairs, pairs_below, without_execution_trace
from benchmarks.dataflow.def_use import Fault, Launch, Recording, read_json, read_nodes
from benchmarks.reading.nvtx_twin import makers_of, write_twin
from tracemine.causes import load_rules
from tracemine.columns import numbers
from tracemine.devices import find_device
from tracemine.flow import flow
from tracemine.flow.record import Evidence, IntArray
from tracemine.formats import open_trace
from tracemine.fusion import Groups, groups
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures"
_ONE_KERNEL = frozenset({"fuse", "attention"})  # what a rule saves whose finding becomes one kernel
_GPU = "NVIDIA H200"  # for traces that name none, or one that is not known


@dataclass
class Verdict:
    """The groups of one recording, mined in one way."""

    groups: int = 0
    illegal: int = 0
    legal_ns: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[Fault, list[str]]] = field(default_factory=list)
    proven: int = 0  # of the groups: called proven, and legal
    false_proven: int = 0  # called that, and illegal, or not a chain of what is recorded

    def __iadd__(self, other: Verdict) -> Verdict:
        self.groups += other.groups
        self.illegal += other.illegal
        self.legal_ns += other.legal_ns
        self.kinds += other.kinds
        self.proven += other.proven
        self.false_proven += other.false_proven
        return self


def judged(recording: Recording, timeline: Timeline, found: Groups) -> Verdict:
    """Hold the groups of a timeline against what the recording proves."""
    bounds = zip(found.activity_begin[:-1].tolist(), found.activity_begin[1:].tolist(), strict=True)
    lists = [found.activity[begin:end].tolist() for begin, end in bounds]
    verdict = judged_lists(recording, timeline, lists)
    broken = {fault.group for fault, _ in verdict.faults}
    for number, units in enumerate(_units_of(recording, timeline, lists)):
        if found.evidence[number] == Evidence.PROVEN:
            true = number not in broken and recording.chained(units)
            verdict.proven += true
            verdict.false_proven += not true
    return verdict


def judged_findings(recording: Recording, timeline: Timeline) -> Verdict:
    """Hold each occurrence of what is reported as one kernel against what the recording proves."""
    saves = {rule.id: rule.saving for rule in load_rules()}
    scan = mined(analysed(timeline), ScanOptions(device=find_device(_GPU)))
    one_kernel = [finding for finding in scan.findings if saves.get(finding.rule) in _ONE_KERNEL]
    occurrences = [occurrence for finding in one_kernel for occurrence in finding.activities]
    lists = [part for occurrence in occurrences for part in _passes(timeline, occurrence)]
    return judged_lists(recording, timeline, lists, only_paths=True)


def _passes(timeline: Timeline, occurrence: Sequence[int]) -> list[list[int]]:
    """An occurrence's forward and its backward pass: a kernel each."""
    op = numbers(timeline.activities.column("op_row"), -1)
    parent = numbers(timeline.ops.column("parent_row"), -1)
    names = timeline.ops.column("name")
    parts: dict[bool, list[int]] = {False: [], True: []}
    for activity in occurrence:
        at, backward = int(op[activity]), False
        while at >= 0 and not backward:
            backward = str(names[at]).startswith("autograd::engine")
            at = int(parent[at])
        parts[backward].append(activity)
    return [part for part in parts.values() if part]


def judged_lists(
    recording: Recording, timeline: Timeline, activities: Sequence[Sequence[int]], *, only_paths: bool = False
) -> Verdict:
    """Hold lists of activities, each one kernel, against what the recording proves."""
    dur = numbers(timeline.activities.column("dur_ns"), 0).tolist()
    members = _units_of(recording, timeline, activities)
    faults = [fault for fault in recording.faults(members) if not only_paths or fault.kind.startswith("path")]
    broken = {fault.group for fault in faults}
    verdict = Verdict(
        groups=len(members),
        illegal=len(broken),
        legal_ns=sum(dur[each] for at, group in enumerate(activities) if at not in broken for each in group),
        kinds=Counter(fault.kind for fault in faults),
    )
    verdict.faults = [(fault, [recording.units[unit].name for unit in members[fault.group]]) for fault in faults]
    return verdict


def _units_of(recording: Recording, timeline: Timeline, activities: Sequence[Sequence[int]]) -> list[list[int]]:
    """The units of lists of activities."""
    unit_of = [recording.of_launch.get(each, -1) for each in _correlations(timeline).tolist()]
    return [sorted({unit_of[each] for each in group if unit_of[each] >= 0}) for group in activities]


def _correlations(timeline: Timeline) -> IntArray:
    return numbers(timeline.activities.column("correlation"), -1)


def launches_of(timeline: Timeline) -> list[Launch]:
    """The launches of a timeline whose operators have record function ids, in order of time."""
    parent, function, start = (
        numbers(timeline.ops.column(name), -1).tolist() for name in ("parent_row", "record_function_id", "start_ns")
    )
    began = sorted((at, one) for at, one in zip(start, function, strict=True) if one > 0)
    called = numbers(timeline.api.column("start_ns"), 0).tolist()
    names, kinds = (timeline.activities.column(name).to_pylist() for name in ("name", "copy_kind"))
    op, launch = (numbers(timeline.activities.column(name), -1).tolist() for name in ("op_row", "launch_row"))
    found = []
    for row, correlation in enumerate(_correlations(timeline).tolist()):
        if launch[row] < 0:
            continue
        at, around, inside = called[launch[row]], op[row], list[int]()
        while around >= 0:
            inside.append(function[around])
            around = parent[around]
        last = bisect_right(began, (at, 1 << 62))
        before = tuple(one for _, one in began[max(last - 8, 0) : last][::-1])
        functions = tuple(one for one in inside if one > 0)
        found.append((at, Launch(correlation, functions, before, names[row], to_host=kinds[row] == "DtoH")))
    return [one for _, one in sorted(found, key=lambda one: one[0])]


def without_strides(timeline: Timeline) -> Timeline:
    """The timeline as profilers wrote it that did not record strides, and without an execution trace."""
    bare = without_execution_trace(timeline)
    place = bare.ops.schema.get_field_index("input_strides")
    field_ = bare.ops.schema.field(place)
    return replace(bare, ops=bare.ops.set_column(place, field_, pa.nulls(bare.ops.num_rows, field_.type)))


def without_stacks(timeline: Timeline) -> Timeline:
    """The timeline as it is read from a trace without stacks, and without an execution trace."""
    bare = without_execution_trace(timeline)
    ops = bare.ops
    for name in ("module", "stack_row"):
        place = ops.schema.get_field_index(name)
        ops = ops.set_column(place, ops.schema.field(place), pa.nulls(ops.num_rows, ops.schema.field(place).type))
    return replace(bare, ops=ops)


VARIANTS = {
    "et": lambda timeline: timeline,
    "shapes": without_execution_trace,
    "bare": without_strides,
    "stacks": without_stacks,
    "nvtx": None,  # an export of its own
}


class Mined:
    """One recording: what is proven of it, and its timelines with more and with less evidence."""

    def __init__(self, trace: Path, execution_trace: Path, folder: Path) -> None:
        """folder: for exports that are made of it."""
        self._paths, self._folder = (trace, execution_trace), folder
        self.whole = open_trace(trace, execution_trace=execution_trace)
        self.exported = trace.suffix == ".sqlite"
        if self.exported:
            self.recording = Recording(read_nodes(execution_trace), launches_of(self.whole))
        else:
            self.recording = Recording.of(trace, execution_trace)

    def timelines(self, variants: Sequence[str]) -> Iterator[tuple[str, Timeline]]:
        """Yield the timeline of each variant."""
        if self.exported:
            yield from (("et", self.whole), ("nsys", open_trace(self._paths[0])))
            return
        for name in variants:
            less = VARIANTS[name]
            yield name, self.twin() if less is None else less(self.whole)

    def twin(self, lost: str | None = None) -> Timeline:
        """The timeline of its NVTX twin. lost: operators of which nobody says that they made what they gave."""
        return open_trace(write_twin(*self._paths, self._folder / "twin.sqlite", lost=lost))

    def makers(self) -> list[str]:
        """Names of the operators that give tensors."""
        return makers_of(read_json(self._paths[1])["nodes"])


def verdicts(trace: Path, execution_trace: Path, variants: Sequence[str] = tuple(VARIANTS)) -> dict[str, Verdict]:
    """Each variant's verdict."""
    with tempfile.TemporaryDirectory() as folder:
        one = Mined(trace, execution_trace, Path(folder))
        return {name: judged(one.recording, each, groups(flow(each))) for name, each in one.timelines(variants)}


def verdicts_of_findings(
    trace: Path, execution_trace: Path, variants: Sequence[str] = tuple(VARIANTS)
) -> dict[str, Verdict]:
    """Each variant's verdict of what is reported as one kernel."""
    with tempfile.TemporaryDirectory() as folder:
        one = Mined(trace, execution_trace, Path(folder))
        return {name: judged_findings(one.recording, each) for name, each in one.timelines(variants)}


def verdicts_of_lost(trace: Path, execution_trace: Path) -> dict[str, Verdict]:
    """The verdict of the NVTX twin where the makers of one kind of operator's results are lost, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        one = Mined(trace, execution_trace, Path(folder))
        names = [] if one.exported else one.makers()
        twins = ((name, one.twin(lost=name)) for name in names)
        return {name: judged(one.recording, each, groups(flow(each))) for name, each in twins}


def named(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Every recording below a folder, by the last parts of its path."""
    for _, trace, execution_trace in pairs_below(folder):
        yield "/".join(trace.parent.parts[-2:]), trace, execution_trace
    for trace in sorted(folder.rglob("*.sqlite")):
        execution_trace = trace.with_suffix(".et.json.gz")
        if execution_trace.is_file():
            yield trace.name, trace, execution_trace


def default_pairs() -> Iterator[tuple[str, Path, Path]]:
    yield from known_pairs()
    for name in ("memory", "nsys"):
        yield from named(FIXTURES / name)


def main() -> int:
    """Print a row for each recording and variant, each illegal group, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders that hold recordings")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which of " + ", ".join(VARIANTS))
    parser.add_argument("--findings", action="store_true", help="also judge what is reported as one kernel")
    parser.add_argument("--lost", action="store_true", help="also lose the makers of each kind of operator")
    parser.add_argument("--quiet", action="store_true", help="leave out the paths")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    pairs = [pair for folder in options.folders for pair in named(folder)] or list(default_pairs())
    names = options.variants.split(",")
    sums: defaultdict[str, Verdict] = defaultdict(Verdict)
    rows: list[dict[str, Any]] = []
    counted = f"{'groups':>7}{'illegal':>8}{'legal µs':>10}{'of et':>8}{'proven':>9}{'falsely':>8}"
    print(f"{'recording':<34} {'variant':<16}{counted}")
    for title, trace, execution_trace in pairs:
        found = verdicts(trace, execution_trace, names)
        if options.findings:
            reported = verdicts_of_findings(trace, execution_trace, names)
            found |= {f"{name}, findings": verdict for name, verdict in reported.items()}
        for name, verdict in found.items():
            sums[name] += verdict
            whole = found.get("et, findings" if name.endswith("findings") else "et")
            _print(title, name, verdict, whole, quiet=options.quiet)
            row = {"recording": title, "variant": name, "groups": verdict.groups, "illegal": verdict.illegal}
            row |= {"proven": verdict.proven, "false_proven": verdict.false_proven}
            rows.append(row | {"legal_ns": verdict.legal_ns, "kinds": dict(verdict.kinds)})
        for name, verdict in verdicts_of_lost(trace, execution_trace).items() if options.lost else ():
            sums["lost"] += verdict
            sums["lost, et"] += found["et"]
            if verdict.illegal:
                _print(title, name.partition("::")[2] or name, verdict, found["et"], quiet=options.quiet)
    for name, total in sums.items():
        if name == "lost, et":
            continue  # what the share of the row before is of
        of = {"lost": "lost, et"}.get(name, "et, findings" if name.endswith("findings") else "et")
        _print(f"all {len(pairs)}", name, total, sums.get(of), quiet=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if any(total.illegal or total.false_proven for total in sums.values()) else 0


def _print(title: str, name: str, verdict: Verdict, whole: Verdict | None, *, quiet: bool) -> None:
    share = f"{100 * verdict.legal_ns / whole.legal_ns:.1f} %" if whole and whole.legal_ns else "–"
    kinds = ", ".join(f"{kind} {count}" for kind, count in verdict.kinds.most_common())
    counts = f"{verdict.groups:>7}{verdict.illegal:>8}{verdict.legal_ns / 1e3:>10.1f}{share:>8}"
    counts += f"{verdict.proven / max(verdict.groups, 1):>9.1%}{verdict.false_proven:>8}"
    print(f"{title[-34:]:<34} {name[:15]:<16}{counts}  {kinds}", flush=True)
    if quiet:
        return
    for fault, members in verdict.faults:
        print(f"    group {fault.group} [{', '.join(members)}]\n        {fault.kind}: {fault.says}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
