"""What reproductions printed, joined with what was predicted: rows that are kept, tables that are printed."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.proofs.read_again import read_again
from tracemine.codegen.graph import Graph, Unsupported
from tracemine.findings.record import KERNEL, PINNED, Finding
from tracemine.perfmodel import NOTHING, Range
from tracemine.pipeline import analyse, mined
from tracemine.validate.record import Validation
from tracemine.verdicts.candidate import Candidate
from tracemine.verdicts.levels import measured as measured_of
from tracemine.verdicts.levels import reached
from tracemine.verdicts.verdict import Verdict, verdict
from tracemine.verify.pipeline import fusable
from tracemine.verify.repro.host_copy import NOT_VALIDATED, Copy

LARGE_BYTES = 64e6
GOOD_SHARE = 0.85
_CACHE_BYTES = 60 << 20  # of an H200, as its driver reports
KINDS = {
    "finding": "verify.json",
    "library": "verify_library.json",
    "catalogue": "verify_catalogue.json",
    "losing": "verify_losing.json",
}
SAME = "verify_same.json"


class Item(msgspec.Struct, kw_only=True):
    """One chain, ready to be timed. kind: of KINDS; `library` is a finding with the products around it."""

    stem: str
    kind: str
    name: str  # of the trace, or of the chain
    chain: Graph | None = None
    copy: Copy | None = None  # between host and device
    rank: int = 0
    row: int = 0
    why: str = ""
    size: str = ""
    dtype: str = ""
    finding: Finding | None = None
    evidence: str | None = None
    assumptions: tuple[str, ...] = ()
    recorded: Sequence[tuple[str, Sequence[int] | None]] = ()
    unread: tuple[int, ...] = ()


NOT_PREPARED = "not prepared: beyond the share or the count that was asked for"


class Claim(msgspec.Struct):
    """What a scan predicts of a finding over its trace, and which reproduction is of its chain."""

    trace: str
    fingerprint: str
    saving_ns: int
    stem: str | None = None
    why: str = ""  # there is none


class Row(msgspec.Struct, kw_only=True):
    """One chain, predicted beside measured; nanoseconds of one call."""

    stem: str
    kind: str
    name: str
    what: str  # the rule that found it, or what it is
    size: str = ""
    dtype: str = ""
    calls: int
    evidence: str | None = None
    level: str
    says: str = ""
    predicted_ns: Range | None = None  # None: a scan claims nothing, and stands for a saving of 0
    state: str | None = None
    eager_ns: int | None = None
    fused_ns: int | None = None
    compiled_ns: int | None = None
    tuned_ns: int | None = None
    library_ns: int | None = None
    copy_ns: int | None = None
    bytes: int = 0
    again_bytes: int = 0  # of a tensor that has to be read twice, beyond what the cache holds
    kernels: Mapping[str, int] = {}
    quartiles_ns: Mapping[str, Mapping[str, tuple[int, ...]]] = {}
    ratios: Mapping[str, Mapping[str, Any]] = {}
    other_clock_ns: Mapping[str, Any] = {}
    graph_ns: Mapping[str, int] = {}
    wall_ns: Mapping[str, int] = {}
    blocks: int = 0
    blocks_dropped: int = 0
    unstable: Sequence[str] = ()
    too_fast: Sequence[str] = ()
    left_out: Mapping[str, str] = {}
    faults: Mapping[str, Sequence[str]] = {}  # of each variant that is not right by the rule
    judged_right: Sequence[str] = ()  # variants that the rule was asked about
    error: float | None = None
    eager_error: float | None = None
    validation: str | None = None
    validation_s: float | None = None

    @property
    def saving_ns(self) -> int:
        """Measured."""
        return (self.eager_ns or 0) - (self.fused_ns or 0)

    def share(self, passes: bool = False, of: str = "fused") -> float | None:
        """Of a copy's bandwidth, where it moves much. passes: what has to be read twice is counted twice."""
        taken_ns = getattr(self, f"{of}_ns")
        if not self.copy_ns or not taken_ns or self.bytes < LARGE_BYTES:
            return None
        return self.copy_ns / taken_ns * (1 + passes * self.again_bytes / self.bytes)

    @property
    def claim_ns(self) -> int:
        """Predicted."""
        return 0 if self.predicted_ns is None else self.predicted_ns.mid


def report(arguments: argparse.Namespace) -> None:
    items = msgspec.msgpack.decode((arguments.folder / "prepared.msgpack").read_bytes(), type=list[Item])
    ran, same, machines = _ran(arguments.ran)
    validations = _validations(arguments.folder / "proofs.jsonl")
    traces = {p.name: p for folder in arguments.ran for p in (folder / "traces").glob("*") if p.is_dir()}
    rows = [
        _row(item, ran.get(item.stem, "not run"), validations.get(item.stem), traces.get(item.stem)) for item in items
    ]
    _print(rows, machines, same)
    _claimed(arguments.folder / "claims.json", [row for row in rows if row.kind == "finding"])
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        for kind, name in KINDS.items():
            if own := [row for row in rows if row.kind == kind]:
                _keep(arguments.output / name, {"machines": machines, "rows": own})
        if same:
            _keep(arguments.output / SAME, {"machines": machines, "same": same})


def kept(arguments: argparse.Namespace) -> None:
    """The tables of what `report` kept, printed again; what a scan claims in all is not kept."""
    found = [json.loads(path.read_bytes()) for name in KINDS.values() if (path := arguments.folder / name).exists()]
    rows = [msgspec.convert(row, Row) for each in found for row in each["rows"]]
    same = json.loads(path.read_bytes())["same"] if (path := arguments.folder / SAME).exists() else []
    _print(rows, _once([machine for each in found for machine in each["machines"]]), same)


def _print(rows: Sequence[Row], machines: Sequence[Any], same: Sequence[Mapping[str, Any]]) -> None:
    for machine in machines:
        print("machine:", machine)
    for kind in KINDS:
        if own := [row for row in rows if row.kind == kind]:
            print(f"\n{kind}")
            _table(own)
            _summary(own)
    print("\nall")
    _errors([row for row in rows if row.eager_ns is not None])
    _losing(rows)
    _false_rejects(rows)
    _same(same)
    _proved(rows)


def _keep(path: Path, found: Any) -> None:
    """A line a row, without what is empty."""
    plain = msgspec.to_builtins(found)
    parts = []
    for name, value in plain.items():
        lines = [json.dumps({k: v for k, v in each.items() if v not in ({}, [], None, "")}) for each in value]
        parts.append(f'"{name}": [\n' + ",\n".join(lines) + "\n]")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _ran(folders: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    """Results by stem, comparisons of the same with the same, machines."""
    found: dict[str, Any] = {}
    same = []
    for folder in folders:
        for path in sorted(folder.glob("times.*.jsonl")):
            for line in path.read_text("utf-8").splitlines():
                stem, result = json.loads(line)
                if isinstance(result, dict) or not isinstance(found.get(stem), dict):
                    found[stem] = result
        for path in sorted(folder.glob("same.*.jsonl")):
            for line in path.read_text("utf-8").splitlines():
                name, result = json.loads(line)
                ratios = sorted(result.pop("ratios"))
                widths = sorted(result.pop("half_widths"))
                ends = {"least_ratio": ratios[0], "largest_ratio": ratios[-1], "half_width": widths[len(widths) // 2]}
                same.append({"name": name, **result, **ends})
    machines = [json.loads((f / "machine.json").read_text("utf-8")) for f in folders if (f / "machine.json").exists()]
    return found, same, _once(machines)


def _once(machines: Sequence[Any]) -> list[Any]:
    """Each of them once."""
    return [m for k, m in enumerate(machines) if m not in machines[:k]]


def _validations(path: Path) -> dict[str, Validation | str]:
    if not path.exists():
        return {}
    lines = path.read_bytes().splitlines()
    return dict(msgspec.json.decode(line, type=tuple[str, Validation | str]) for line in lines)


def _row(item: Item, ran: Any, validation: Validation | str | None, trace: Path | None) -> Row:
    times = ran.get("times") if isinstance(ran, Mapping) else None
    if item.finding is not None and item.kind == "finding":
        by = KERNEL if item.copy is None else PINNED
        validation = validation if item.copy is None else NOT_VALIDATED
        calls = 1 if item.chain is None else len(item.chain.calls)
        tried = Candidate(by=by, calls=calls, evidence=item.evidence, validation=validation, ran=ran)
        v: Verdict = verdict(item.finding, [tried])
        level, says, predicted, measured = v.level, v.says, v.predicted_ns, v.measured
    else:
        predicted, traced_ns = _scanned(trace) if trace is not None else (None, 0.0)
        measured = measured_of(times, traced_ns) if times else None
        if isinstance(ran, Mapping):  # of no trace: there is none whose kernels it could have
            ran = {**ran, "replay": {"same_names": True, "same_grids": True}}
        verified = reached(None, validation, ran, measured)
        level, says = verified.level, verified.says
    row = Row(
        stem=item.stem,
        kind=item.kind,
        name=item.name,
        what=item.why if item.finding is None else item.finding.rule,
        size=item.size,
        dtype=item.dtype,
        calls=1 if item.chain is None else len(item.chain.calls),
        evidence=item.evidence,
        level=level,
        says=says,
        predicted_ns=predicted,
    )
    if isinstance(validation, Validation):
        row.validation = (
            "refused" if validation.refused else validation.faults[0].says if validation.faults else "right"
        )
        row.validation_s = round(validation.seconds, 2)
    elif validation is not None:
        row.validation = validation
    if item.chain is not None:
        with contextlib.suppress(Unsupported):
            row.again_bytes = read_again(item.chain, _CACHE_BYTES)
    _judged_right(row, ran)
    if times and measured is not None:
        _timed(row, times, measured.state)
    return row


def _judged_right(row: Row, ran: Any) -> None:
    if not isinstance(ran, Mapping) or ran.get("right") is None:
        return
    judged = {"fused": ran["right"], **ran.get("right_others", {})}
    row.judged_right = tuple(judged)
    row.faults = {name: found["faults"][:3] for name, found in judged.items() if found["faults"]}
    row.error, row.eager_error = ran["right"].get("error"), ran["right"].get("eager_error")


def _timed(row: Row, times: Mapping[str, Any], state: str) -> None:
    row.state = state
    medians = {name: round(statistics.median(s["sum_ns"])) for name, s in times["samples"][state].items()}
    for name in ("eager", "fused", "compiled", "tuned", "library", "copy"):
        setattr(row, f"{name}_ns", medians.get(name))
    row.bytes, row.kernels = times["bytes"], times["kernels"]
    row.quartiles_ns = {
        each: {name: tuple(map(round, statistics.quantiles(s["sum_ns"], n=4))) for name, s in found.items()}
        for each, found in times["samples"].items()
    }
    row.ratios = {name: value for name, value in times["judged"][state].items() if isinstance(value, Mapping)}
    row.other_clock_ns, row.unstable, row.too_fast = times["other_clock_ns"], times["unstable"], times["too_fast"]
    row.blocks, row.blocks_dropped, row.left_out = times["blocks"], times["blocks_dropped"], times["left_out"]
    row.graph_ns = {name: round(statistics.median(s)) for name, s in times["graph_ns"].items() if s}
    row.wall_ns = {name: round(statistics.median(s)) for name, s in times["wall_ns"].items() if s}


def _scanned(folder: Path) -> tuple[Range | None, float]:
    """What a scan of a chain's own trace claims (None: nothing), and what its kernels took there.

    The trace holds the chain several times; only the last is looked at, or what they read in common would be claimed.
    """
    with gzip.open(folder / "trace.json.gz") as file:
        trace = json.load(file)
    timed = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    last = max((e["ts"] for e in timed if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), default=0)
    waited = [e["ts"] + e["dur"] for e in timed if e["name"] == "cudaDeviceSynchronize"]
    begin = max((end for end in waited if end < last), default=0)  # of the call before
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("ph") == "M" or e.get("ts", 0) > begin]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "trace.json"
        path.write_text(json.dumps(trace), "utf-8")
        analysis = analyse(path, execution_trace=folder / "et.json.gz")
        flow, scan = analysis.dataflow, mined(analysis)
    found = fusable(scan.findings)
    traced = float(flow.timeline.activities.column("dur_ns").to_numpy().sum())
    if not found:
        return None, traced
    return sum((f.gpu_saving_ns for f in found), NOTHING), traced


_PROVEN_FASTER = ("L4", "L5", "L6")
_GOOD_CLAIMS = 0.9


def _claimed(path: Path, rows: Sequence[Row]) -> None:
    """The share of what a scan predicts, trace by trace, that findings carry which were measured to be faster."""
    if not path.exists():
        return
    claims = msgspec.json.decode(path.read_bytes(), type=list[Claim])
    faster = {row.stem for row in rows if row.level in _PROVEN_FASTER}
    timed = {row.stem: row for row in rows if row.eager_ns is not None}
    by_trace: dict[str, list[Claim]] = {}
    for claim in claims:
        by_trace.setdefault(claim.trace, []).append(claim)
    shares, of_timed = {}, {}
    for name, own in by_trace.items():
        whole, prepared = sum(c.saving_ns for c in own), sum(c.saving_ns for c in own if c.why != NOT_PREPARED)
        reached = sum(c.saving_ns for c in own if c.stem in faster)
        shares[name], of_timed[name] = reached / max(whole, 1), reached / max(prepared, 1)
    good = sum(s >= _GOOD_CLAIMS for s in shares.values())
    print(
        f"\nof the predicted GPU saving, findings at L4 and above carry {statistics.mean(shares.values()):.1%} ", end=""
    )
    print(f"(mean of {len(shares)} traces, least {min(shares.values()):.1%}); {_GOOD_CLAIMS:.0%} in {good} of them")
    good, mean = sum(s >= _GOOD_CLAIMS for s in of_timed.values()), statistics.mean(of_timed.values())
    print(f"    of what was tried {mean:.1%}; {_GOOD_CLAIMS:.0%} in {good} of them")
    whole = sum(c.saving_ns for c in claims)
    why = Counter[str]()
    for c in claims:
        if c.stem is None:
            why[c.why] += c.saving_ns
        elif c.stem not in faster:
            why["not run" if c.stem not in timed else f"below L4: {c.stem}"] += c.saving_ns
    for text, ns in why.most_common(12):
        print(f"    without, {ns / max(whole, 1):6.1%} of all: {text[:120]}")
    for name, share in sorted(of_timed.items(), key=lambda each: each[1]):
        if share < _GOOD_CLAIMS:
            print(f"    {name}: {share:.1%} of what was tried")


def _micro(value: int | None) -> str:
    return "" if value is None else f"{value / 1e3:.1f}"


def _table(rows: Sequence[Row]) -> None:
    print(
        f"{'chain':52} calls level {'claimed':>8} {'measured':>8} {'eager':>8} {'ours':>8} {'compile':>8} {'tuned':>8} "
        f"{'library':>8} {'copy':>8} share twice state"
    )
    for row in rows:
        name = row.stem.partition("_")[2]
        share = "" if row.share() is None else f"{row.share():.0%}"
        twice = f"{row.share(passes=True):.0%}" if share and row.again_bytes else ""
        claim = "-" if row.predicted_ns is None else _micro(row.claim_ns)
        saving = "" if row.eager_ns is None else _micro(row.saving_ns)
        names = ("eager_ns", "fused_ns", "compiled_ns", "tuned_ns", "library_ns", "copy_ns")
        times = " ".join(f"{_micro(getattr(row, n)):>8}" for n in names)
        says = "" if row.level in ("L4", "L5") and not row.unstable else f"{row.says[:60]} {' '.join(row.unstable)}"
        head = f"{name:52} {row.calls:5} {row.level:5} {claim:>8} {saving:>8}"
        print(f"{head} {times} {share:>5} {twice:>5} {row.state or '':5} {says}")


def _summary(rows: Sequence[Row]) -> None:
    print("levels:", ", ".join(f"{name} {count}" for name, count in sorted(Counter(r.level for r in rows).items())))
    timed = [row for row in rows if row.eager_ns is not None]
    if not timed:
        return
    print(f"{len(timed)} of {len(rows)} timed; faster than eager in {sum(r.saving_ns > 0 for r in timed)}")
    for name in ("compiled", "tuned", "library"):
        pairs = [(getattr(r, f"{name}_ns"), r.fused_ns) for r in timed if getattr(r, f"{name}_ns") and r.fused_ns]
        if pairs:
            mean = statistics.geometric_mean(a / b for a, b in pairs)
            wins = sum(a >= b * 0.99 for a, b in pairs)
            print(f"{name} / ours, geometric mean of {len(pairs)}: {mean:.3f}; not slower (1 %) in {wins}")
    skipped = Counter(f"{name}: {why.split(':')[1].strip()}" for r in timed for name, why in r.left_out.items())
    for why, count in skipped.items():
        print(f"    left out {count:4} {why}")
    once, twice = ([s for r in timed if (s := r.share(passes)) is not None] for passes in (False, True))
    if once:
        good, better = (sum(s >= GOOD_SHARE for s in shares) for shares in (once, twice))
        print(
            f"at least {GOOD_SHARE:.0%} of a copy's bandwidth, of those that move 64 MB or more: {good} of {len(once)}"
            f"; where what has to be read twice counts twice: {better}"
        )
        theirs = [s for r in timed if (s := r.share(of="compiled")) is not None]
        print(f"    torch.compile's kernels of the same: {sum(s >= GOOD_SHARE for s in theirs)} of {len(theirs)}")
    dropped, blocks = sum(r.blocks_dropped for r in timed), sum(r.blocks for r in timed)
    print(f"blocks at other clocks, dropped: {dropped} of {blocks}; two clocks differ: ", end="")
    print(f"{sum('fused' in r.unstable or 'eager' in r.unstable for r in timed)}; too fast: ", end="")
    print(sum("fused" in r.too_fast for r in timed))
    _errors(timed)


def _errors(rows: Sequence[Row]) -> None:
    """Of the claimed saving, as a share of what eager takes."""
    claimed = [r for r in rows if r.predicted_ns is not None and r.eager_ns]
    if not claimed:
        return
    errors = sorted(abs(r.claim_ns - r.saving_ns) / (r.eager_ns or 1) for r in claimed)
    near = [r for r in claimed if r.fused_ns and r.eager_ns and r.eager_ns < 2 * r.fused_ns and r.saving_ns > 0]
    print(
        f"claimed {len(claimed)}: error of the saving as a share of eager: mean {statistics.mean(errors):.1%}, ", end=""
    )
    print(f"median {statistics.median(errors):.1%}, p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}")
    if near:
        shares = [abs(r.claim_ns - r.saving_ns) / r.saving_ns for r in near]
        print(f"    ratio below 2: {len(near)}, median error of the saving {statistics.median(shares):.0%} of it")
    signs = sum((r.claim_ns > 0) == (r.saving_ns > 0) for r in claimed)
    inside = sum(r.predicted_ns.low <= r.saving_ns <= r.predicted_ns.high for r in claimed if r.predicted_ns)
    print(f"    sign right {signs} of {len(claimed)}; inside the interval {inside} of {len(claimed)}")


def _losing(rows: Iterable[Row]) -> None:
    """Chains that one kernel does not make faster, and what a scan says of them."""
    print("\nnot faster than eager, and the set where little is to be had (Markdown)\n")
    print("| chain | why | claimed, µs | measured, µs | eager | ours | torch.compile | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        if r.eager_ns is None or (r.kind != "losing" and r.level not in ("L3",)):
            continue
        claim = "nothing" if r.predicted_ns is None else _micro(r.claim_ns)
        times = " | ".join(_micro(t) for t in (r.eager_ns, r.fused_ns, r.compiled_ns))
        says = "faster" if r.level in ("L4", "L5") else r.says
        print(f"| {r.stem.partition('_')[2]} | {r.what} | {claim} | {_micro(r.saving_ns)} | {times} | {says} |")


def _false_rejects(rows: Sequence[Row]) -> None:
    print("\njudged by the rule of ours, over all chains and three seeds")
    for name in ("fused", "compiled", "tuned", "library"):
        judged = [r for r in rows if name in r.judged_right]
        wrong = [r for r in judged if name in r.faults]
        if judged:
            print(f"{name:9} rejected {len(wrong)} of {len(judged)} chains ({len(wrong) / len(judged):.1%})")
        for r in wrong:
            print(f"    {r.stem}: {r.faults[name][0]}")


def _same(same: Sequence[Mapping[str, Any]]) -> None:
    trials = sum(s["trials"] for s in same)
    if trials:
        faster, slower = sum(s["faster"] for s in same), sum(s["slower"] for s in same)
        seconds = sum(s["seconds"] for s in same)
        print(f"\nthe same against the same: {faster} of {trials} called faster, {slower} slower, in {seconds:.0f} s")


def _proved(rows: Sequence[Row]) -> None:
    seconds = [r.validation_s for r in rows if r.validation_s is not None]
    if seconds:
        says: Callable[[Row], str] = lambda r: "right" if r.validation == "right" else "not right or not proved"  # noqa: E731
        print(f"\nproved on a CPU: {dict(Counter(says(r) for r in rows if r.validation))}, ", end="")
        print(f"in the median {statistics.median(seconds):.1f} s a chain")
        for r in rows:
            if r.validation not in (None, "right"):
                print(f"    {r.stem}: {r.validation}", file=sys.stderr)
