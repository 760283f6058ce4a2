"""Try variants of a step one by one, then what was right together; each in a process of its own."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from msgspec.structs import replace

from tracemine.apply.asked import Shares, Wanted, predicted
from tracemine.apply.edits import edited, mark_of
from tracemine.apply.questions import TrialJob
from tracemine.apply.record import Applied, Timed, Tried
from tracemine.apply.timing import compared
from tracemine.apply.trials import LIMIT_S, NO_TIME, TOO_LATE, Child, Names, Trials, Wrong, close_all
from tracemine.apply.variants import EDIT, MODES, VARIANTS, diffs_of, excluded

_ROUNDS = 3  # of leaving one out
_LONG_GAIN = 0.97  # next to what compiles sooner
_DEVICE_OFF = 0.03  # of what a step takes of the GPU: the fewest of a few rounds


class Trying:
    """Trials within a budget. Races are kept, the last one first: what ran in one can be held against each other."""

    def __init__(
        self,
        trials: Trials,
        wanted: Wanted,
        known: Mapping[Names, Tried],
        until: float,
        say: Callable[[str], None],
        tell: Callable[[Iterable[Tried]], None],
    ) -> None:
        self.trials, self.wanted, self.known, self.until, self.say, self.tell = trials, wanted, known, until, say, tell
        self.seen: dict[Names, Tried] = {}
        self.alive: dict[Names, Child] = {}
        self.races: list[Mapping[Names, list[int] | Wrong]] = []

    def several(self, sets: Iterable[Names], again: Sequence[Names] = (), anew: bool = False) -> dict[Names, Tried]:
        """Try sets of variants, as many at once as there is room for.

        again: what lives and is timed once more next to each of them. anew: known or not.
        """
        found, left = dict[Names, Tried](), [names for names in dict.fromkeys(sets) if names not in again]
        found |= {names: self.known[names] for names in left if names in self.known and not anew}
        left = [names for names in left if names not in found]
        while (left or again) and time.monotonic() <= self.until:
            chunk, left = left[: self.trials.at_once], left[self.trials.at_once :]
            self.say(", ".join(map(text_of, chunk)) or "the best once more")
            found |= self._raced(self.trials.built(chunk), again)
            again = again if left else ()
            self._tell(found)
        found |= not_tried(names for names in (*left, *again) if names not in found)
        return self._tell(found)

    def _tell(self, found: Mapping[Names, Tried]) -> dict[Names, Tried]:
        """Tell of all that was tried so far; return what was found just now, with what was predicted."""
        known = (*self.seen.values(), *found.values())
        said = {n: replace(t, **predicted(self.wanted, n, saved_alone(known, n))) for n, t in found.items()}
        self.seen |= {names: tried for names, tried in said.items() if names not in self.seen or tried.timed}
        self.tell(self.seen.values())
        return said

    def keep(self, sets: Iterable[Names]) -> None:
        """End all processes but these variants'."""
        kept = set(sets)
        close_all([self.alive.pop(names) for names in [*self.alive] if names not in kept])

    def beside(self, names: Names, other: Names) -> Timed:
        """Hold one against another, as they were in the last race that both ran in."""
        both = next(race for race in self.races if all(isinstance(race.get(n), list) for n in (names, other)))
        return compared(*(taken for taken in (both[other], both[names]) if isinstance(taken, list)))

    def _raced(self, built: Mapping[Names, Child | Wrong], again: Sequence[Names]) -> dict[Names, Tried]:
        self.alive |= {names: child for names, child in built.items() if isinstance(child, Child)}
        running = {names: self.alive[names] for names in (*built, *again) if names in self.alive}
        took: dict[Names, list[int] | Wrong] = self.trials.raced(running) if running else {}
        found = {}
        for names in (*built, *again):
            given = took.get(names, built.get(names))
            if isinstance(given, Wrong):
                found[names] = Tried(variants=names, said=given.said, why=given.why)
                self.keep(set(self.alive) - {names})
            elif isinstance(given, list):
                found[names] = self._measured(names, took)
        self.races.insert(0, took)
        return found

    def _measured(self, names: Names, took: Mapping[Names, list[int] | Wrong]) -> Tried:
        base, again, own = (took[name] for name in ((), ("",), names))
        if isinstance(base, Wrong) or isinstance(own, Wrong):
            return Tried(variants=names, said="failed", why=f"the unchanged step: {base}")
        on_device, said = self._on_device(names), self.alive[names].said
        timed = compared(base, own, again if isinstance(again, list) else (), on_device=on_device)
        return Tried(
            variants=names,
            said=timed.said,
            level="L7" if timed.said == "faster" else None,
            timed=timed,
            device_ratio=on_device,
            first_s=round(said.first_s, 1),
            peak_bytes=said.peak_bytes,
            errors=self.trials.errors(names, self.alive[names]),
        )

    def _on_device(self, names: Names) -> float | None:
        both = self.alive[names].device_ns, self.trials.base.device_ns
        return round(both[0] / both[1], 4) if both[0] and both[1] else None


def not_tried(sets: Iterable[Names]) -> dict[Names, Tried]:
    """Return results of what was never begun."""
    return {names: Tried(variants=names, said="not tried", why=NO_TIME) for names in sets}


def text_of(names: Names) -> str:
    """Return a set of variants as it is shown: of source diffs their file's name."""
    return " + ".join(name.rpartition("/")[2] for name in names)


def applied(
    entry: str,
    source: Path,
    wanted: Wanted,
    *,
    ranks: int = 1,
    budget_s: float = math.inf,
    limit_s: float = LIMIT_S,
    known: Mapping[Names, Tried] | None = None,
    say: Callable[[str], None] = lambda text: None,
    turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: Callable[[Applied], None] = lambda run: None,
) -> Applied:
    """Try each variant alone, the largest predicted saving first, then together what is right.

    ranks: processes that the step is made of. budget_s: then nothing begins, and what is being built is given up.
    limit_s: of building one. known: results of earlier runs, which are not made again. turn: entered while steps are
    timed. progress: given what is known so far. Raises UsageError where the unchanged step does not run.
    """
    until, mark = time.monotonic() + budget_s, mark_of(source)
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tracemine-apply-", ignore_cleanup_errors=True))
        )
        job = TrialJob(entry=entry, folder=str(source), start=str(scratch / "start.pt"), ranks=ranks)
        trials = Trials(job, scratch, limit_s, until, turn)
        trials.begin(stack)
        said = trials.base.said
        begun = Applied(
            entry=entry,
            ranks=ranks,
            source=mark,
            device=said.device,
            step_ns=said.step_ns,
            peak_bytes=said.peak_bytes,
            alone=(),
        )
        trying = Trying(trials, wanted, known or {}, until, say, lambda found: progress(_so_far(begun, found)))
        can = [name for name in wanted if said.device != "cpu" or name not in VARIANTS or not VARIANTS[name].gpu]
        ordered = sorted(can, key=lambda name: -(predicted(wanted, (name,)).get("predicted") or 0.0))
        late = [name for name in ordered if _is_late(name, ranks) and (name,) not in trying.known]
        for name in late if trials.at_once > 1 and ranks == 1 else ():  # a rank that rests lets others wait on the GPU
            trials.begun((name,))
        alone = trying.several([(name,) for name in ordered if name not in late])
        alone |= trying.several([(name,) for name in instead(alone.values())])
        run = together(trying, replace(begun, alone=tuple(alone.values())), late)
        trying.keep(())
        return run


def _is_late(name: str, ranks: int) -> bool:
    """Say whether a variant takes long to compile: each of ranks does so for each bucket of gradients."""
    return name in VARIANTS and (VARIANTS[name].long or (ranks > 1 and VARIANTS[name].group == "compile"))


def _so_far(run: Applied, tried: Iterable[Tried]) -> Applied:
    """Return a run with what was tried until now."""
    alone, both = ([one for one in tried if (len(one.variants) > 1) is several] for several in (False, True))
    best = fastest([*alone, *both])
    return replace(run, alone=tuple(alone), together=tuple(both), best=best.variants if best else ())


def _with_modes(changes: Names, modes: Iterable[str]) -> list[Names]:
    return [(*changes, mode) for mode in modes] if changes else []


def together(trying: Trying, run: Applied, late: Sequence[str]) -> Applied:
    """Join what was right alone, with each of torch.compile's modes and without; leave out what adds nothing.

    late: what takes long to compile is tried alone only now.
    """
    changes = joined(run.alone, Path(trying.trials.job.folder))
    trying.keep(fastest_of(run.alone))
    at_once = [name for name in late if not VARIANTS[name].long]  # for ranks: beside the mode alone, built meanwhile
    sets = _with_modes(changes, (*modes_for(run.alone), *at_once))
    tried = trying.several([*([changes] * (len(changes) > 1)), *sets, *((name,) for name in late)])
    run = replace(run, alone=(*run.alone, *(tried.pop((name,)) for name in late)))
    trying.keep(fastest_of([*run.alone, *tried.values()]))
    slow = _with_modes(changes, [mode for mode in modes_for(run.alone) if mode in late])
    tried |= trying.several(names for names in slow if names not in tried)
    best, compiled = fastest([*run.alone, *tried.values()]), fastest(t for t in run.alone if t.variants[0] in MODES)
    run = replace(run, together=tuple(tried.values()), best=best.variants if best else ())
    if best:
        run = _elsewhere(trying, pared(trying, run, best.variants, compiled.variants if compiled else ()))
    return run


def _elsewhere(trying: Trying, run: Applied) -> Applied:
    """Train the best from another seed too: where it goes another way, nothing stays."""
    if not run.best or time.monotonic() > trying.until:
        return run
    try:
        wrong = "; ".join(trying.trials.course(run.best, seed=1))
    except Wrong as error:
        wrong = error.why
    rows = {t.variants: t for t in (*run.alone, *run.together)}
    rows[run.best] = replace(rows[run.best], said="wrong", why=wrong, level=None) if wrong else rows[run.best]
    alone, both = ([rows[tried.variants] for tried in part] for part in (run.alone, run.together))
    kept = {"best": (), "beside_compile": None} if wrong else {}
    return replace(run, alone=tuple(alone), together=tuple(both), **kept)


def instead(alone: Iterable[Tried]) -> list[str]:
    """Return variants to try where others did not do."""
    failed = {tried.variants[0] for tried in alone if tried.said in ("wrong", "failed")}
    return [name for name, variant in VARIANTS.items() if variant.instead in failed]


def modes_for(alone: Sequence[Tried]) -> list[str]:
    """Return torch.compile's modes to try with other changes, failed alone or not: but what takes long to compile only
    where that made the step faster by more than others did.
    """
    late = {tried.variants[0] for tried in alone if tried.said == "not tried" or tried.why.startswith(TOO_LATE)}
    tried = {t.variants[0]: t for t in alone if t.variants[0] in VARIANTS and t.variants[0] not in late}
    modes = [name for name in tried if VARIANTS[name].group == "compile"]
    best = min((ratio_of(tried[name]) for name in modes if not VARIANTS[name].long), default=math.inf)
    return [name for name in modes if not VARIANTS[name].long or ratio_of(tried[name]) < _LONG_GAIN * best]


def joined(alone: Sequence[Tried], source: Path) -> Names:
    """Return what may go together, of what was right alone and no slower, the fastest first; but no mode."""
    names: Names = ()
    for tried in sorted(alone, key=ratio_of):
        (name,) = tried.variants
        wanted = tried.said == "faster" or (tried.said == "no difference" and name.startswith(EDIT))
        mode = name in VARIANTS and VARIANTS[name].group == "compile"
        if wanted and not mode and not excluded(name, names):
            with edited(source, diffs_of((*names, name))) as (_, refused):
                names = names if refused else (*names, name)
    return names


def fastest_of(tried: Sequence[Tried]) -> list[Names]:
    """Return what is to be held: the fastest, and the fastest of torch.compile's modes."""
    modes = [trial for trial in tried if len(trial.variants) == 1 and trial.variants[0] in MODES]
    both = fastest(tried), fastest(modes)
    return [trial.variants for trial in both if trial]


def fastest(tried: Iterable[Tried]) -> Tried | None:
    """Return what is faster than the unchanged step by most."""
    faster = [(trial.timed.ratio, trial) for trial in tried if trial.said == "faster" and trial.timed]
    return min(faster, key=lambda pair: pair[0])[1] if faster else None


def pared(trying: Trying, run: Applied, best: Names, compiled: Names) -> Applied:
    """Leave one out of the best, and time it again: what is as fast without it stays without it.

    What turns out to be no faster than the unchanged step gives way to the next; and to torch.compile alone, where that
    is faster.
    """
    for _ in range(_ROUNDS):
        fewer = _without_one(best)
        timed = _once_more(trying, (best, compiled), fewer)
        run = _noted(run, timed)
        if timed[best].said == "not tried":  # no time is left: as it was measured before
            break
        if timed[best].said != "faster":
            other = fastest([*run.alone, *run.together])
            best = other.variants if other else ()
            run = replace(run, best=best, beside_compile=None)
            if best:
                continue
            break
        same = [names for names in fewer if timed[names].timed and trying.beside(best, names).said != "faster"]
        best = min(same, key=lambda names: ratio_of(timed[names])) if same else best
        run = _next_to_compile(trying, replace(run, best=best), compiled, timed)
        if not same or run.best != best:
            break
    return run


def _without_one(names: Names) -> list[Names]:
    """Return the sets that one is left out of, where something stays."""
    return [tuple(name for name in names if name != left) for left in names] if len(names) > 1 else []


def _next_to_compile(trying: Trying, run: Applied, compiled: Names, timed: Mapping[Names, Tried]) -> Applied:
    """Return a run with its best held against torch.compile alone, in whose favour it goes where that is faster."""
    if not compiled or not timed[compiled].timed:
        return run
    beside = trying.beside(run.best, compiled)
    if beside.ratio > 1 and timed[compiled].said == "faster":
        run, beside = replace(run, best=compiled), trying.beside(compiled, compiled)
    return replace(run, beside_compile=beside, compiled=compiled[0])


def _noted(run: Applied, timed: Mapping[Names, Tried]) -> Applied:
    """Return a run with what was timed anew; what no time was left for stays as it was."""
    before = {tried.variants: tried for tried in (*run.alone, *run.together)}
    rows = before | {n: t for n, t in timed.items() if n not in before or t.said != "not tried"}
    alone = [tried.variants for tried in run.alone]
    together = [tried for names, tried in rows.items() if names not in alone and len(names) > 1]
    return replace(run, alone=tuple(rows[names] for names in alone), together=tuple(together))


def _once_more(trying: Trying, again: Sequence[Names], fewer: Sequence[Names]) -> dict[Names, Tried]:
    """Time what was best, and what is left of it without one, in one race."""
    racing = [names for names in dict.fromkeys([*again, *fewer]) if names]
    trying.keep(racing)
    timed = trying.several([names for names in again if names not in trying.alive and names], anew=True)
    return timed | trying.several(racing, [names for names in racing if names in trying.alive], anew=True)


def saved_alone(tried: Iterable[Tried], beside: Names = ()) -> dict[str, Shares]:
    """Return what single variants were measured to save of the step.

    beside: with what. In a CUDA graph launches do not wait for the host, so there it is what they save of the device.
    """
    graph = any(name in VARIANTS and VARIANTS[name].way not in ("", "default") for name in beside)
    saved = dict[str, Shares]()
    for row in tried:
        if row.timed is None or len(row.variants) > 1:
            continue
        ratios = row.timed.high, row.timed.ratio, row.timed.low
        if graph and row.device_ratio:
            ratios = row.device_ratio * (1 + _DEVICE_OFF), row.device_ratio, row.device_ratio * (1 - _DEVICE_OFF)
        saved[row.variants[0]] = 1 - ratios[0], 1 - ratios[1], 1 - ratios[2]
    return saved


def ratio_of(tried: Tried) -> float:
    """Return the ratio that was measured."""
    return tried.timed.ratio if tried.timed else math.inf
