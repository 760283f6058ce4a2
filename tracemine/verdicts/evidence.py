"""Verdicts of files and folders as evidence for a scan: which one counts for a finding, and what becomes of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tracemine.devices import Device, devices, find_device
from tracemine.errors import InputError, Location
from tracemine.files import read_file, read_head
from tracemine.findings.grouping import scan_of_variants
from tracemine.findings.record import CALL, GRAPH, IN_STEP, Finding, Scan, Share, Verified
from tracemine.findings.verdicts import account
from tracemine.units import count_text
from tracemine.verdicts.levels import CANNOT_TELL, LOSES, WRONG
from tracemine.verdicts.stored import (
    LARGEST_BYTES,
    Entry,
    StoredCall,
    StoredRun,
    StoredTimes,
    StoredVerdict,
    in_table,
    in_text,
    is_table,
    nothing_verified,
)

MOST_FILES = 10_000  # of one folder
_TABLE = ".parquet"
_SUFFIXES = (".json", ".jsonl", _TABLE)
_HEAD_BYTES = 1 << 16  # in which a file of verdicts says that it is one
_LONGEST, _MOST_TEXTS = 500, 50


@dataclass(frozen=True, slots=True)
class _Item:
    """A verdict, and which of several goes first: the newer file's, then the later one in it."""

    entry: Entry
    file: str
    rank: tuple[int, int]

    def is_for(self, gpu: str | None) -> bool:
        return self.entry.on_cpu or same_gpu(self.entry.gpu, gpu)

    def suits(self, finding: Finding) -> bool:
        """Return whether it is of what such a finding is about: a CUDA graph closes idle time, a step has all."""
        said = self.entry.said
        in_step = isinstance(said, StoredVerdict) and said.level == IN_STEP
        return in_step or finding.on_gpu != (said.by == GRAPH)


@dataclass(slots=True)
class Evidence:
    """Verdicts by the fingerprint of a variant; `notes`: what was left out of the files, and why, a line each."""

    items: dict[str, list[_Item]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)

    def on(self, finding: Finding, gpu: str | None) -> Verified | None:
        """Return the verdict that counts for a finding on this GPU; None where there is none.

        Of several one that settles the matter goes before one that does not, then one by its own name before one by an
        alias, then the newest file, then the last in it.
        """
        marks, items = _marks(finding), self._items(finding, gpu)
        found = [(item, _verified(item.entry.on(finding), finding, item.file)) for item in items]
        if not found:
            return None
        item, verified = max(
            found,
            key=lambda one: (one[1].basis != "predicted", -marks.index(one[0].entry.said.fingerprint), one[0].rank),
        )
        return _with_validation(verified, item, items)

    def codes(self, scan: Scan, gpu: str | None) -> dict[str, str]:
        """Return the newest code that came with verdicts on this GPU, of each variant of a scan that has a verdict."""
        found = {}
        for finding in scan_of_variants(scan).findings:
            items = self._items(finding, gpu) if finding.verdict is not None else ()
            coded = [(item.rank, item.entry.code) for item in items if item.entry.code is not None]
            if coded:
                found[finding.fingerprint] = max(coded)[1]
        return found

    def _items(self, finding: Finding, gpu: str | None) -> list[_Item]:
        """Return the verdicts that are on a finding and hold for a GPU."""
        named = [item for mark in _marks(finding) for item in self.items.get(mark, ())]
        return [item for item in named if item.is_for(gpu) and item.suits(finding)]

    def account(self, scan: Scan, gpu: str | None) -> dict[str, int]:
        """Return what became of the verdicts in a scan made with them: keys of ACCOUNTS, which add up to all."""
        counts = Counter[str]()
        left = dict(self.items)
        for finding in scan_of_variants(scan).findings:
            items = [item for mark in _marks(finding) for item in left.get(mark, ())]
            if not any(item.suits(finding) for item in items):
                continue
            for mark in _marks(finding):
                left.pop(mark, None)
            fitting = [item.file for item in items if item.is_for(gpu)]
            counts["other_gpu"] += len(items) - len(fitting)
            counts["repeated"] += len(fitting)
            if finding.verdict is not None and finding.verdict.file in fitting:
                counts[finding.verdict.basis] += 1
                counts["repeated"] -= 1
        counts["no_finding"] += sum(map(len, left.values()))
        return account(counts)


def _marks(finding: Finding) -> tuple[str, ...]:
    """Return what verdicts on a variant may name: its identity, and those of earlier versions."""
    return (finding.fingerprint, *finding.identity.aliases)


def same_gpu(name: str | None, other: str | None) -> bool:
    """Return whether two names are of one model.

    >>> same_gpu("NVIDIA H200", "nvidia h200"), same_gpu("NVIDIA H200", "NVIDIA H200 NVL"), same_gpu(None, None)
    (True, False, False)
    """
    if not name or not other:
        return False
    device = _device(name)
    return _plain(name) == _plain(other) or (device is not None and device is _device(other))


def _device(name: str) -> Device | None:
    return find_device(name) or next((each for each in devices() if _plain(each.title) == _plain(name)), None)


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def read_evidence(paths: Sequence[Path]) -> Evidence:
    """Return the verdicts in files and folders, folders below them too.

    Raises InputError for a path that is not there, and for a file that is named and holds no verdicts that can be read.
    In a folder such a file is left out with a note.
    """
    evidence = Evidence()
    for path in paths:
        (_read_folder if path.is_dir() else _read_file)(path, evidence)
    return evidence


def _read_folder(folder: Path, evidence: Evidence) -> None:
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and not path.is_dir())
    if len(files) > MOST_FILES:
        raise InputError(f"holds {len(files):,} files, and {MOST_FILES:,} are read", where=Location(str(folder)))
    others = 0
    for path in files:
        if path.suffix == _TABLE and path.with_suffix(".json").is_file():
            continue  # what `verify` wrote twice; the JSON says more
        try:
            if _may_hold_verdicts(path):
                _read_file(path, evidence)
            else:
                others += 1
        except InputError as error:
            evidence.notes.append(f"{error.where}: left out, it {error.message}")
    if others:
        evidence.notes.append(f"{folder}: left out, no verdicts: {count_text(others, 'file')}")
    if not evidence.items:
        evidence.notes.append(f"{folder}: no verdict lies in this folder or below it")


def _may_hold_verdicts(path: Path) -> bool:
    """Return whether a file of a folder is worth reading. Findings and traces in it can be large."""
    if path.suffix == _TABLE:
        return is_table(path)
    head, *_ = read_head(path, _HEAD_BYTES).partition(b'"findings"')  # a step's verdict names them too, behind others
    return b'"fingerprint"' in head or b'"verdicts"' in head


def _read_file(path: Path, evidence: Evidence) -> None:
    where = Location(str(path))
    content = b""
    if path.suffix == _TABLE:
        found, notes = in_table(path)
    else:
        content = read_file(path, LARGEST_BYTES)
        found, notes = in_text(content, path)
    if not found and (nothing_verified(content) if path.suffix != _TABLE else not notes):
        notes = [f"{path}: no verdict lies in it, for there was nothing to verify"]
    elif not found:
        if b'"findings"' in content[:_HEAD_BYTES]:
            raise InputError(
                "holds findings, not verdicts", where=where, hint="tracemine verify makes verdicts of them"
            )
        why = notes[0].partition("left out, ")[2] if notes else "verify writes them; a reproduction does with --json"
        raise InputError("holds no verdicts that can be used", where=where, hint=why)
    evidence.notes += notes
    written_ns = path.stat().st_mtime_ns
    for number, entry in enumerate(found):
        evidence.items[entry.said.fingerprint].append(_Item(entry, _text(str(path)), (written_ns, number)))


def _verified(said: StoredVerdict, finding: Finding, file: str) -> Verified:
    """Return a verdict as a finding shows it. Texts keep within bounds: they come from a file."""
    of = _quickest(said)
    beside, alike = said.library, finding.alike
    timed = said.measured or of.measured
    return Verified(
        basis="predicted" if alike is None else _basis(of),
        level=of.level,
        says=_text(of.says),
        **_times_of(of.measured),
        fused_ns=None if said.measured is None else said.measured.fused_ns,
        compiled_ns=None if timed is None else timed.compiled_ns,
        saved_share=None if of.measured is None else _saved_share(said.by, of.measured, finding),
        predicted_ns=finding.gpu_saving_ns,
        occurrences=0 if alike is None else alike.occurrences,
        assumptions=tuple(map(_text, said.assumptions[:_MOST_TEXTS])),
        not_tested=tuple(map(_text, said.not_tested[:_MOST_TEXTS])),
        file=file,
        library=None if beside is None else _text(beside.text),
        library_ns=None if beside is None or beside.measured is None else beside.measured.fused_ns,
        by=_text(of.text if isinstance(of, StoredCall) else of.by) or "a call",
    )


def _quickest(said: StoredVerdict) -> StoredVerdict | StoredCall:
    """Return what is faster than eager and takes the least time: the kernel, or a call in its place."""
    of: StoredVerdict | StoredCall = said
    for each in (said.library, said.compiled):
        if each is not None and _basis(each) == "measured" and each.says != CANNOT_TELL and _faster(each, of):
            of = each
    return of


def _times_of(measured: StoredTimes | None) -> dict[str, Any]:
    if measured is None:
        return {"device": None, "state": None, "eager_ns": None}
    return {"device": _text(measured.device), "state": _text(measured.state), "eager_ns": measured.eager_ns}


def _saved_share(by: str, measured: StoredTimes, finding: Finding) -> Share:
    """Return what is taken off of the time that the finding counts. by: what the verdict is of."""
    ratio = measured.eager_to_fused
    part = _part_of_call(finding, measured.eager_ns) if by == CALL else 1.0
    return Share(*(min(round((1 - 1 / each) * part, 6), 1.0) for each in (ratio.low, ratio.ratio, ratio.high)))


def _part_of_call(finding: Finding, eager_ns: int) -> float:
    """Return how many times as long a whole call takes as what the finding counts of it, and can claim."""
    alike = finding.alike
    return 1.0 if alike is None else eager_ns * alike.occurrences / max(alike.measured_ns, 1)


def _faster(beside: StoredCall, said: StoredVerdict | StoredCall) -> bool:
    """Return whether a call that is faster than eager is what to use: `said` is not, or takes longer."""
    if _basis(said) != "measured" or said.says == CANNOT_TELL or said.measured is None or beside.measured is None:
        return True
    return beside.measured.fused_ns < said.measured.fused_ns


def _with_validation(verified: Verified, item: _Item, items: Sequence[_Item]) -> Verified:
    """Join what a reproduction gave on a GPU with the validation of that same file on a CPU, where there is one."""
    if not isinstance(item.entry.said, StoredRun) or verified.by != "kernel":
        return verified
    validations = [each for each in items if each.entry.on_cpu and each.entry.source == item.entry.source is not None]
    if not validations:
        return verified
    validation = max(validations, key=lambda each: each.rank).entry.said
    if not isinstance(validation, StoredVerdict):
        return verified
    if validation.says.startswith(WRONG):
        return replace(verified, basis="refuted", level=validation.level, says=_text(validation.says))
    if validation.level < "L2":
        return verified
    return replace(verified, not_tested=tuple(text for text in verified.not_tested if not text.startswith("L2")))


def _text(text: str) -> str:
    """Return a text that can be written anywhere: of bounded length, without halves of characters."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _basis(said: StoredVerdict | StoredCall) -> str:
    """Return what a verdict does to a claim.

    >>> _basis(StoredVerdict("0" * 16, "L3", LOSES)), _basis(StoredVerdict("0" * 16, "L2", "right on a CPU"))
    ('refuted', 'predicted')
    """
    if said.says == LOSES or said.says.startswith(WRONG):
        return "refuted"
    timed = said.measured is not None and (said.level >= "L4" or said.says == CANNOT_TELL)
    return "measured" if timed else "predicted"
