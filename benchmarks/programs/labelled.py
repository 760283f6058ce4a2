"""Hold findings against programs whose causes were labelled in their sources: `python benchmarks/programs/labelled.py`.

    labelled.py record OUT [NAME...] [--fixed]   record programs, and what is left of them once they are fixed
    labelled.py graphs OUT [NAME...]             try each as one CUDA graph and in three modes of torch.compile
    labelled.py serve OUT [NAME...]              time three models at batch 1 and 64: p50 and p99 of their steps
    labelled.py pairs OUT [NAME...]              time programs and their fixed forms in turns, in one process each
    labelled.py unseen OUT [--set NAME]          record, time and try the newest set, which no detector has looked at
    labelled.py keep OUT ARCHIVE                 write what `score` needs of OUT into one small .tar.xz
    labelled.py score [OUT] [NAME...]            count what was found, missed and invented; OUT: such an archive as well

All but the last two need torch, a GPU unless `--device cpu` tries the machinery, and may be stopped at any time: what
OUT has is not made again. `--within 480` begins nothing new after that many seconds.

A cause counts once a program: found where a finding of a rule that means its kind leads to its statement, as
`labels.py` says, or names no line of the program. Findings of a cause's kind that match no label of a program are
invented. `labelled.toml` has the rules of a kind. Ten programs are held out by a hash of their names; those of the
sets that came later (`LATER`) all are.
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import statistics
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from programs.kept import keep, opened
from programs.labels import Label, Labelled, held_out, labels_of, reached
from programs.run import SIDE_BY_SIDE, machine, recorded, settled
from programs.worth import graph_verdicts, pair_lines, recorded_pairs, served_lines, sums_of, timed_pairs

KEPT = Path(__file__).resolve().parent.parent / "results/h200/labelled.tar.xz"
KEPT_PAIRS, KEPT_GRAPHS = (KEPT.with_name(f"labelled_{what}.json") for what in ("pairs", "graphs"))
# Sets of programs. Those behind `served` were labelled before anything looked at them; the newest stands last.
SETS = {
    "thirty": ("loops.LOOPS", "waits.WAITING", "models.MODELS"),
    "near": ("near.NEAR",),
    "served": ("near.SERVED",),
    "carried": ("carried.CARRIED",),
    "fresh": ("fresh.FRESH",),
    "unseen": ("unseen.UNSEEN",),
    "third": ("third.THIRD",),
    "fourth": ("fourth.FOURTH",),
    "fifth": ("fifth.FIFTH",),
    "sixth": ("sixth.SIXTH",),
    "seventh": ("seventh.SEVENTH",),
    "eighth": ("eighth.EIGHTH",),
    "ninth": ("ninth.NINTH",),
}
LATER = tuple(SETS)[3:]
TABLE = Path(__file__).resolve().parent / "labelled.toml"
LIMIT_S = 240  # of one attempt: a loop of 250 rounds takes long to compile
MODES = {"compiled": None, "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}
TRIALS = ("capture", *MODES)
BY_STEP = "graphs_by_step"  # reduce-overhead, and a mark where each step begins: tried where `--trials` names it
STEPS, AHEAD = 2, 3
BLOCKS, BLOCK = SIZE = 20, 20
SHORT = 10, 8  # of pairs: blocks, and steps of each
FIRST = 3  # the main cause is to be among so many findings


def known() -> dict[str, Sequence[Labelled]]:
    """Return the programs of each set."""
    places = {title: [name.split(".") for name in names] for title, names in SETS.items()}
    return {
        title: [one for module, name in of for one in getattr(import_module(f"programs.labelled_{module}"), name)]
        for title, of in places.items()
    }


def by_name() -> dict[str, Labelled]:
    return {program.name: program for programs in known().values() for program in programs}


def made(name: str, device: str, wrap: Callable[..., Any] | None = None) -> Any:
    """Build `PROGRAM[.fixed][.BATCH]`; on a CPU a small one."""
    import torch

    program_name, *rest = name.split(".")
    program = by_name()[program_name]
    sizes = dict(program.small) if device == "cpu" else {}
    sizes |= {"batch": int(word) for word in rest if word.isdigit()}  # noqa: B035 - one at most
    torch.set_num_threads(2)
    torch.manual_seed(0)
    torch.set_grad_enabled(program.training)
    with torch.device(device):
        return program.make(**({"wrap": wrap} if wrap else {}), fixed="fixed" in rest, **sizes)


def prepared(name: str, variant: str, device: str) -> tuple[str, Callable[[], Any]]:
    """Build a program's step, as `run.record` asks for it."""
    return variant, made(name, device).step


# -- graphs ------------------------------------------------------------------------------------------------------------


def told(built: Any, step: Callable[[], Any]) -> list[Any]:
    """Return what some steps give, and leave behind."""
    import torch

    outputs = [step().detach().clone() for _ in range(STEPS)]
    return [each.double().cpu() for each in (*outputs, *(torch.as_tensor(t).detach() for t in built.tensors))]


def attempt(pipe: Connection, name: str, trial: str, device: str) -> None:
    """Say whether a program runs as a graph, as `trial` makes one, and gives the same."""
    import torch
    from torch._dynamo.utils import counters

    from programs.host import graph_of

    try:
        mode = MODES["reduce_overhead"] if trial == BY_STEP else MODES.get(trial)
        original, options = made(name, device), {"mode": mode} if device != "cpu" else {"backend": "eager"}
        for _ in range(AHEAD):
            original.step()
        wanted = told(original, original.step)
        if trial == "capture":
            built = made(name, device)
            step = graph_of(built.step)  # which runs it as often as AHEAD says
            if device == "cpu":
                for _ in range(AHEAD):
                    step()
        else:
            built = made(name, device, lambda function: torch.compile(function, **options))
            step = marked(built.step) if trial == BY_STEP else built.step
            for _ in range(AHEAD):
                step()
        given = told(built, step)
        tolerance = by_name()[name].tolerance
        apart = max(
            float((a - b).abs().max() / a.abs().max().clamp(min=1e-6)) for a, b in zip(wanted, given, strict=True)
        )
        breaks, skipped = sum(counters["graph_break"].values()), counters["inductor"]["cudagraph_skips"]
        first_break = next(iter(counters["graph_break"]), "").partition("\n")[0]
        why = [
            f"gives something else, by {apart:.2g}" if not apart <= tolerance else "",
            f"{breaks} breaks: {first_break[:160]}" if breaks else "",
            f"{skipped} graphs not made" if skipped and trial != "compiled" else "",
        ]
        pipe.send({"works": not any(why), "why": "; ".join(filter(None, why)), "apart": apart})
    except Exception as error:  # an attempt that raises is a result
        first = (str(error).strip().splitlines() or [""])[0]
        pipe.send({"works": False, "why": f"{type(error).__name__}: {first[:200]}"})


def marked(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step that says where it begins."""
    import torch

    def begun() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return step()

    return begun


def asked(left: Callable[[], float], target: Callable[..., None], *arguments: Any) -> Any:
    """Return what a function says in a process of its own; None where it has not said it when no time is left."""
    process, pipe = started(target, *arguments)
    try:
        return heard(pipe, left)
    finally:
        process.kill()


def graphs(
    names: Sequence[str], device: str, file: Path, left: Callable[[], float], jobs: int, trials: Sequence[str] = TRIALS
) -> None:
    """Try what is not in the file yet, some at once, trial by trial."""
    from concurrent.futures import ThreadPoolExecutor

    found = kept(file)
    todo = [(name, trial) for trial in trials for name in names if trial not in found.get(name, {})]

    def one(each: tuple[str, str]) -> None:
        said = asked(left, attempt, *each, device) if left() > 0 else None
        if said is not None:
            found.setdefault(each[0], {})[each[1]] = said
            file.write_text(json.dumps({**found, "machine": machine(device)}, indent=1))
            print(*each, "works" if said["works"] else said["why"], flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, todo))


def kept(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text()) if file.exists() else {}
    found.pop("machine", None)
    return found


def expected(program: Labelled, trial: str) -> str:
    """Return why a trial should fail, "" where it should not."""
    said = program.expected
    return said.capture if trial == "capture" else said.compiled or ("" if trial == "compiled" else said.graphs)


def graph_lines(tried: Mapping[str, Any], programs: Sequence[Labelled]) -> Iterable[str]:
    """Compare what was expected of graphs with what trying gave."""
    for trial in TRIALS:
        pairs = [(p, expected(p, trial), tried[p.name][trial]) for p in programs if trial in tried.get(p.name, {})]
        agreed = sum(bool(why) != said["works"] for _, why, said in pairs)
        working = sum(said["works"] for *_, said in pairs)
        yield f"- {trial}: {len(pairs)} tried, {working} work, {len(pairs) - working} do not; as expected {agreed}"
        for program, why, said in pairs:
            if bool(why) == said["works"]:
                yield f"    - {program.name}: expected {why or 'to work'}; {said['why'] or 'works'}"


# -- late or many ------------------------------------------------------------------------------------------------------


def served(pipe: Connection, name: str, device: str, blocks: int = BLOCKS, block: int = BLOCK) -> None:
    """Time each step of a program and of its fixed form, in blocks that take turns, once it is asked to."""
    try:
        suffixes = {"as_is": "", "fixed": ".fixed"}
        steps = {variant: made(f"{name}{suffix}", device).step for variant, suffix in suffixes.items()}
        for step in steps.values():
            for _ in range(AHEAD):
                step()
        settled()
        pipe.send("ready")
        pipe.recv()
        took: dict[str, list[int]] = {variant: [] for variant in steps}
        for step in steps.values():
            for _ in range(block):
                step()
        for at in range(blocks):
            for variant in steps if at % 2 else reversed(steps):
                for _ in range(block):
                    settled()
                    begin = time.perf_counter_ns()
                    steps[variant]()
                    settled()
                    took[variant].append(time.perf_counter_ns() - begin)
        pipe.send({variant: quantiles(each) for variant, each in took.items()})
    except Exception as error:  # a program that raises is a result
        pipe.send({"error": f"{type(error).__name__}: {error}"[:200]})


def quantiles(values: Sequence[int]) -> dict[str, int]:
    hundredths = statistics.quantiles(values, n=100)
    return {"p50_ns": round(hundredths[49]), "p99_ns": round(hundredths[98]), "steps": len(values)}


def serve(
    names: Sequence[str],
    device: str,
    file: Path,
    left: Callable[[], float],
    jobs: int = 1,
    size: tuple[int, int] = SIZE,
) -> None:
    """Time what is not in the file yet: some are made ready at once, then one after another is timed."""
    found = kept(file)
    todo = [name for name in names if name not in found]
    for at in range(0, len(todo), jobs):
        workers = {name: started(served, name, device, *size) for name in todo[at : at + jobs] if left() > 0}
        ready = {name: heard(pipe, left) for name, (_, pipe) in workers.items()}
        for name, (process, pipe) in workers.items():
            if ready[name] == "ready":
                pipe.send("go")
                ready[name] = heard(pipe, left)
            process.kill()
            if ready[name] is not None:
                found[name] = ready[name]
                print(name, found[name], flush=True)
                file.write_text(json.dumps({**found, "machine": machine(device)}, indent=1))


def started(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Start a function in a process of its own; return that, and the pipe to it."""
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def heard(pipe: Connection, left: Callable[[], float]) -> Any:
    """Return what a process says next; None where no time is left before it does."""
    wait_s = min(LIMIT_S, max(left(), 0))
    try:
        if pipe.poll(wait_s):
            return pipe.recv()
    except EOFError:
        return {"works": False, "why": "the process ended"}
    return {"works": False, "why": f"not done after {LIMIT_S} s"} if wait_s == LIMIT_S else None


# -- score -------------------------------------------------------------------------------------------------------------


def matches(finding: Any, label: Label, program: Labelled, kinds: Mapping[str, Sequence[str]]) -> bool:
    """Say whether a finding means a label: the kind, and the place if the finding names lines of the program."""
    means = [each.partition(": ") for each in kinds[label.kind]]
    if not any(rule == finding.rule and words in getattr(finding, "fix", "") for rule, _, words in means):
        return False
    own = frames_of(finding, program)
    return not own or reached(label, own)


def frames_of(finding: Any, program: Labelled) -> list[Any]:
    """Return a finding's frames in the program's source, innermost first."""
    lines, first = inspect.getsourcelines(program.make)
    file = Path(inspect.getsourcefile(program.make) or "").name
    whole = range(first, first + len(lines))
    return [frame for frame in finding.source if Path(frame.file).name == file and frame.line in whole]


def lines_of(finding: Any, program: Labelled) -> list[int]:
    return sorted({frame.line for frame in frames_of(finding, program)})


def judged(
    findings: Sequence[Any], program: Labelled, fixed: bool, kinds: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Hold a report's findings against a program's labels."""
    labels = labels_of(program)
    causes = [label for label in labels if label.sort == "cause" and (label.stays or not fixed)]
    alike = [label for label in labels if label.sort == "same" and label.kind in {cause.kind for cause in causes}]
    either = [*causes, *alike]
    excused = [label for label in labels if label.sort == "may"]
    meant = {rule.partition(":")[0] for rules in kinds.values() for rule in rules} - consequences()
    near = [label for label in labels if label.sort == "near"]
    found, invented, mistaken, rank = set[str](), [], list[Label](), None
    for place, finding in enumerate(findings, 1):
        mine = [label for label in either if matches(finding, label, program, kinds)]
        found |= {label.kind for label in mine}
        if rank is None and any(label.kind == main.kind for label in mine for main in causes if main.main):
            rank = place
        allowed = mine or any(matches(finding, label, program, kinds) for label in excused)
        if finding.rule in meant and not allowed:
            invented.append((finding.rule, lines_of(finding, program)))
            mistaken += [
                label for label in near if lines_of(finding, program) and matches(finding, label, program, kinds)
            ]
    wanted = {label.kind for label in causes}
    return {
        "wanted": wanted,
        "found": wanted & found,
        "invented": invented,
        "near": len(near),
        "mistaken": len(set(mistaken)),
        "rank": rank,
        "has_main": any(label.main for label in causes),
        "rules": [finding.rule for finding in findings],
    }


def consequences() -> frozenset[str]:
    """Return the rules whose findings are not invented where no label says so."""
    return frozenset(tomllib.loads(TABLE.read_text("utf-8"))["consequences"]["rules"])


def meant(finding: Any, program: Labelled, kinds: Mapping[str, Sequence[str]], *, every: bool) -> bool:
    """Say whether a finding means a program's main cause; every: or another cause that its fix mends."""
    labels = labels_of(program)
    causes = [label for label in labels if label.main or (every and label.sort == "cause" and not label.stays)]
    alike = {label.kind for label in causes}
    mine = [*causes, *(label for label in labels if label.sort == "same" and label.kind in alike)]
    return any(matches(finding, label, program, kinds) for label in mine)


def score(out: Path, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Print what was found, missed and invented: over all, of those held out, and by cause; return it by recording."""
    import tracemine

    sets, kinds = known(), tomllib.loads(TABLE.read_text("utf-8"))["kinds"]
    thirty, later = sets["thirty"], [program for title in LATER for program in sets[title]]
    apart, results, reports = held_out(thirty) | {program.name for program in later}, {}, {}
    for folder in sorted(path for path in out.iterdir() if (path / "capture.json").exists()):
        name, *rest = folder.name.split(".")
        if not names or name in names:
            reports[folder.name] = tracemine.scan(folder)
            reported = [finding for finding in reports[folder.name] if finding.reported]
            results[folder.name] = judged(reported, by_name()[name], "fixed" in rest, kinds)
    print("| recording (held out: *) | missed | invented, with its lines | main cause's place |\n|---|---|---|--:|")
    for name, said in results.items():
        missed = ", ".join(sorted(said["wanted"] - said["found"])) or "-"
        made_up = ", ".join(f"{rule} {lines}" for rule, lines in said["invented"]) or "-"
        print(f"| {name}{' *' if name in apart else ''} | {missed} | {made_up} | {said['rank'] or '-'} |")
    groups = {
        "all": list(results),
        "held out": [p.name for p in thirty if p.name in results and p.name in apart],
        **{title: [p.name for p in sets[title] if p.name in results] for title in LATER},
        "others of the thirty": [p.name for p in thirty if p.name in results and p.name not in apart],
        "once fixed": [name for name in results if ".fixed" in name],
        "nothing to be found": [p.name for p in sets["near"] if p.name in results],
    }
    print()
    for title, names in groups.items():
        if names:
            print(f"- {title} ({len(names)}): {counted([results[name] for name in names])}")
    ranked = [results[p.name] for p in (*thirty, *later) if p.name in results and results[p.name]["has_main"]]
    first = sum(said["rank"] is not None and said["rank"] <= FIRST for said in ranked)
    print(f"- main cause among the first {FIRST}: {first} of {len(ranked)}\n")
    for line in by_cause(list(results.values()), kinds):
        print(line)

    means, mended = (partial(meant, kinds=kinds, every=every) for every in (False, True))
    chosen = [program for name, program in by_name().items() if any(each.split(".")[0] == name for each in results)]
    print()
    if pairs := recorded_pairs(out, reports, chosen, means, mended):
        print("Timed while they were recorded:\n\n" + "\n".join(pair_lines(pairs)))
    more, tried = kept(KEPT_GRAPHS), kept(out / "graphs.json")
    if tried := {p.name: more.get(p.name, {}) | tried.get(p.name, {}) for p in chosen if p.name in {*more, *tried}}:
        print("\n".join((*graph_lines(tried, chosen), *graph_verdicts(out, tried, chosen))))
    times = kept(KEPT_PAIRS) | kept(out / "pairs.json")
    if pairs := timed_pairs(times, reports, by_name(), means, mended):
        print("Timed in turns:\n\n" + "\n".join(pair_lines(pairs)))
        for name, pair in pairs.items():
            results[name]["pair"] = pair
    if (out / "served.json").exists():
        print(f"{json.loads((out / 'served.json').read_text())['machine']}\n")
        print("\n".join(served_lines(out, kept(out / "served.json"), reports, by_name(), means)))
    return list(results.values())


def counted(said: Sequence[Mapping[str, Any]]) -> str:
    """Return precision and recall, with what they were counted from."""
    wanted, found = sum(len(each["wanted"]) for each in said), sum(len(each["found"]) for each in said)
    invented = sum(len(each["invented"]) for each in said)
    precision, recall = share(found, found + invented), share(found, wanted)
    near, mistaken = sum(each["near"] for each in said), sum(each["mistaken"] for each in said)
    counts = f"found {found} of {wanted}, invented {invented}, near misses taken for causes {mistaken} of {near}"
    return f"{counts}; precision {precision}, recall {recall}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def by_cause(said: Sequence[Mapping[str, Any]], kinds: Mapping[str, Sequence[str]]) -> Iterable[str]:
    yield "| cause | labelled | found | invented, by rule |\n|---|--:|--:|--:|"
    wanted, found = (Counter(kind for each in said for kind in each[key]) for key in ("wanted", "found"))
    invented = Counter(rule for each in said for rule, _ in each["invented"])
    for kind in sorted({*kinds, *invented}):
        if wanted[kind] or invented[kind]:
            yield f"| {kind} | {wanted[kind]} | {found[kind]} | {invented[kind]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "graphs", "serve", "pairs", "unseen", "keep", "score"))
    parser.add_argument("out", type=Path, nargs="?", default=KEPT)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--trials", default=",".join(TRIALS), help="of `graphs`")
    parser.add_argument("--jobs", type=int, default=SIDE_BY_SIDE)
    parser.add_argument("--within", type=float, default=float("inf"))
    options = parser.parse_intermixed_args()
    sets, began = known(), time.monotonic()
    newest = LATER[-1] if options.what == "unseen" else "thirty"
    names = options.programs or [program.name for program in sets[options.set or newest]]
    of_pairs = [f"{program.name}.{batch}" for program in sets["served"] for batch in (1, 64)]

    def left() -> float:
        return float(options.within - (time.monotonic() - began))

    if options.what == "score":
        said = list[Mapping[str, Any]]()
        kept_ones = [KEPT, *(KEPT.with_name(f"labelled_{title}.tar.xz") for title in LATER)]
        for place in filter(Path.exists, kept_ones if options.out == KEPT else (options.out,)):
            with opened(place) as out:
                said += score(out, options.programs)
        print(f"\n- over all ({len(said)}): {counted(said)}")
        print("\n".join(sums_of(each["pair"] for each in said if "pair" in each)))
        return
    if options.what == "keep":
        keep(options.out, Path(options.programs[0]))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    file, trials = options.out / "graphs.json", options.trials.split(",")
    if options.what == "graphs":
        graphs(names, options.device, file, left, options.jobs, trials)
    elif options.what == "serve":
        serve(options.programs or of_pairs, options.device, options.out / "served.json", left)
    elif options.what == "pairs":
        serve(fixable(names), options.device, options.out / "pairs.json", left, options.jobs, SHORT)
    elif options.what == "record":
        if not options.programs and not options.set:
            names = [*names, *(program.name for program in sets["near"]), *of_pairs]
        record([f"{name}.fixed" if options.fixed else name for name in names], options, left)
    else:
        record(names, options, left)
        serve(fixable(names), options.device, options.out / "pairs.json", left, options.jobs, SHORT)
        graphs(names, options.device, file, left, options.jobs, ["capture"])


def fixable(names: Sequence[str]) -> list[str]:
    """Return those that have a main cause, so that a fix takes something away."""
    return [name for name in names if any(label.main for label in labels_of(by_name()[name.partition(".")[0]]))]


def record(names: Sequence[str], options: Any, left: Callable[[], float]) -> None:
    """Record programs, some side by side: what is recorded already is not again."""
    todo = [name for name in names if not (options.out / name / "capture.json").exists()]
    for at in range(0, len(todo), options.jobs):
        if left() > 0:
            recorded(todo[at : at + options.jobs], options.device, options.out, options.steps, prepared, left())
            print(f"{min(at + options.jobs, len(todo))} of {len(todo)}", flush=True)


if __name__ == "__main__":
    main()
