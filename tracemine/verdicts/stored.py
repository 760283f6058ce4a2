"""Verdicts as they stand in files: what `verify` wrote, JSON or Parquet, and what reproductions print with --json.

Such a file is something a stranger mails you: what is used of it is checked for its type and its range, and what
contradicts itself is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta, structs

from tracemine import files
from tracemine.errors import InputError, Location
from tracemine.findings.record import CALL, IN_STEP, KERNEL, Finding
from tracemine.units import count_text, percent_text
from tracemine.verdicts.candidate import KERNEL_VARIANT, LIBRARY, Candidate
from tracemine.verdicts.verdict import TABLE_MARK, VERDICTS_SCHEMA_VERSION, verdict

LARGEST_BYTES = 1 << 26  # of one file; a verdict with every sample and its source has some 100 kB
_TOLERANCE = 0.02  # by which a ratio and the medians that it is of may differ
_VALIDATION = "the results of a reproduction come without it"

Ns = Annotated[int, Meta(ge=0, le=1 << 53)]
Ratio = Annotated[float, Meta(gt=0, le=1e9)]
Level = Annotated[str, Meta(pattern="^L[0-7]$")]
Mark = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class StoredInterval(msgspec.Struct, frozen=True):
    """A ratio and its interval."""

    low: Ratio
    ratio: Ratio
    high: Ratio


class StoredTimes(msgspec.Struct, frozen=True):
    """Of `Measured` what a scan needs."""

    device: str
    state: str
    eager_ns: Ns
    fused_ns: Ns
    eager_to_fused: StoredInterval
    compiled_ns: Ns | None = None


class StoredCall(msgspec.Struct, frozen=True):
    """Of `CallVerdict` what a scan needs; `measured.fused_ns` is what the call takes."""

    text: str
    level: Level
    says: str
    measured: StoredTimes | None = None


class StoredVerdict(msgspec.Struct, frozen=True):
    """Of `Verdict` what a scan needs."""

    fingerprint: Mark
    level: Level
    says: str
    measured: StoredTimes | None = None
    library: StoredCall | None = None
    compiled: StoredCall | None = None
    by: str = KERNEL
    assumptions: list[str] = []
    not_tested: list[str] = []


class _Samples(msgspec.Struct, frozen=True):
    sum_ns: Annotated[list[Ns], Meta(min_length=1)]


class _StoredState(msgspec.Struct, frozen=True):
    eager: _Samples
    fused: _Samples
    copy: _Samples
    compiled: _Samples | None = None


class _Judged(msgspec.Struct, frozen=True):
    eager_against_itself: StoredInterval
    eager: StoredInterval
    faster_than_eager: bool
    slower_than_eager: bool
    compiled: StoredInterval | None = None
    not_slower_than_compile: bool | None = None


class _Times(msgspec.Struct, frozen=True):
    samples: Annotated[dict[str, _StoredState], Meta(min_length=1)]
    judged: dict[str, _Judged]
    device: str
    compile_failed: str | None = None


class _Replay(msgspec.Struct, frozen=True):
    same_names: bool
    same_grids: bool
    kernels: list[Any] = []  # that eager launched


class _Right(msgspec.Struct, frozen=True):
    faults: list[str]


class StoredRun(msgspec.Struct, frozen=True):
    """Of what a reproduction prints what a verdict needs."""

    fingerprint: Mark
    replay: _Replay
    right: _Right | None = None
    times: _Times | None = None
    device: str | None = None
    source_sha256: str | None = None  # of the reproduction
    kernel: bool = True  # false: a library's call stands in the kernel's place
    by: str = KERNEL


@dataclass(frozen=True, slots=True)
class Entry:
    """One verdict of a file, or what one reproduction printed there: what is needed of it, and all of it."""

    said: StoredVerdict | StoredRun
    gpu: str | None  # null: not named
    whole: dict[str, Any] | None = None  # of a reproduction
    source: str | None = None  # SHA-256 of the reproduction that was validated, or run
    code: str | None = None  # that reproduction, where the file has it

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU had a part in it: then it holds for any."""
        return self.gpu is None and isinstance(self.said, StoredVerdict)

    def on(self, finding: Finding) -> StoredVerdict:
        """Return the verdict on a finding; a reproduction's results are judged here, with the finding's times."""
        if isinstance(self.said, StoredVerdict):
            return self.said
        launched, there = len(self.said.replay.kernels), len(finding.activities[0]) if finding.activities else 0
        # Of a call a finding counts part of the kernels alone.
        if self.said.replay.same_names and launched not in (0, there) and self.said.by != CALL:
            return StoredVerdict(
                finding.fingerprint, "L0", f"of another chain: {launched} kernels where the finding has {there}"
            )
        try:
            return _judged(finding, self.said, self.whole or {})
        except _CANNOT_BE_JUDGED as error:  # what is not checked above is not as a reproduction prints it
            return StoredVerdict(finding.fingerprint, "L0", f"its results cannot be judged: {type(error).__name__}")


def _judged(finding: Finding, said: StoredRun, whole: dict[str, Any]) -> StoredVerdict:
    """Return what a reproduction printed as a verdict, on the kernel and on the library's call in its place."""

    def of(variant: str) -> StoredVerdict:
        tried = Candidate(by=said.by, variant=variant, validation=_VALIDATION, ran=whole)
        return msgspec.convert(verdict(finding, [tried]), StoredVerdict, from_attributes=True)

    kernel = of(KERNEL_VARIANT)
    if not said.kernel:
        return StoredVerdict(finding.fingerprint, "L0", "no kernel is generated", library=_beside(kernel))
    timed = said.times is not None and all(LIBRARY in samples for samples in whole["times"]["samples"].values())
    return structs.replace(kernel, library=_beside(of(LIBRARY))) if timed else kernel


def _beside(call: StoredVerdict) -> StoredCall:
    return StoredCall("a library's call", call.level, call.says, call.measured)


_CANNOT_BE_JUDGED = (msgspec.ValidationError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def in_text(content: bytes, path: Path) -> tuple[list[Entry], list[str]]:
    """Return what a JSON file holds, and why something in it is left out, a line each.

    It is one object, or one a line with others in between, as a program's output has them; or a list or an object that
    gathers such. Raises InputError for what is no JSON, and for verdicts of another version.
    """
    values, notes = _values(content, path)
    found, wrong = _entries(pair for value in values for pair in _within(value, path))
    notes += [f"{path}: left out, {count_text(count, 'verdict')}: {text}" for text, count in wrong.items()]
    return found, notes


def in_table(path: Path) -> tuple[list[Entry], list[str]]:
    """Return the rows of a table that `verify` wrote, as `in_text`. Raises InputError for any other file."""
    where = Location(str(path))
    if not is_table(path):
        raise InputError("is no table of verdicts, or one of another version", where=where)
    try:
        read = files.read_parquet(path)
        if sum(map(_text_bytes, read.columns)) + read.nbytes > LARGEST_BYTES:
            raise InputError("is too large for verdicts", where=where)
        rows = read.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"cannot be read: {str(error)[:100]}", where=where) from None
    found, wrong = _entries((_nested(row), row.get("gpu")) for row in rows)
    return found, [f"{path}: left out, {count_text(count, 'row')}: {text}" for text, count in wrong.items()]


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return how many bytes a column's texts come to, each counted as often as it stands there."""
    found = 0
    for chunk in column.chunks:
        flat = chunk.flatten() if pa.types.is_list(chunk.type) else chunk
        if pa.types.is_dictionary(flat.type):
            lengths = [len(text.as_buffer()) for text in flat.dictionary]
            found += sum(lengths[at] for at in flat.indices.to_pylist() if at is not None)
    return found


def _entries(pairs: Iterable[tuple[Any, Any]]) -> tuple[list[Entry], Counter[str]]:
    """Return the values that are verdicts, each with the GPU named with it, and why the others are none."""
    found, wrong = [], Counter[str]()
    for value, gpu in pairs:
        try:
            found.append(_entry(value, gpu if isinstance(gpu, str) else None))
        except msgspec.ValidationError as error:
            wrong[str(error)[:200]] += 1
        except UnicodeEncodeError:  # JSON can write half a character, which Python's reader takes
            wrong["a key in it is no text"] += 1
    return found, wrong


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table as the JSON has it."""

    def ratio(name: str) -> dict[str, Any]:
        return {end: row.get(name + suffix) for end, suffix in (("low", "_low"), ("ratio", ""), ("high", "_high"))}

    found = {**row, "library": None, "compiled": None}
    if row.get("device") is not None:
        found["measured"] = {**row, "eager_to_fused": ratio("eager_to_fused")}
    for name in ("library", "compiled"):
        if row.get(f"{name}_level") is None:
            continue
        text = row.get("library") if name == "library" else "torch.compile"
        found[name] = {"text": text, "level": row[f"{name}_level"], "says": row.get(f"{name}_says")}
        if row.get("device") is not None and row.get(f"{name}_ns") is not None:
            took = {"fused_ns": row[f"{name}_ns"], "eager_to_fused": ratio(f"eager_to_{name}")}
            found[name]["measured"] = {**row, **took}
    return found


def is_table(path: Path) -> bool:
    """Return whether a file is a table of verdicts of this version. Raises InputError for what is no Parquet file."""
    try:
        metadata = files.parquet_marks(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"is no Parquet file: {str(error)[:100]}", where=Location(str(path))) from None
    return bool(metadata.get(TABLE_MARK) == str(VERDICTS_SCHEMA_VERSION).encode())


def nothing_verified(content: bytes) -> bool:
    """Return whether a JSON file is what `verify` writes where there was nothing to verify."""
    try:
        value = _json(content)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("verdicts") == [] and "trace" in value


def _values(content: bytes, path: Path) -> tuple[list[Any], list[str]]:
    try:
        return [_json(content)], []
    except ValueError as error:
        whole = str(error)
    values, cut = [], 0
    for line in content.splitlines():
        if line.lstrip()[:1] in (b"{", b"["):
            try:
                values.append(_json(line))
            except ValueError:
                cut += 1
    if not values:
        raise InputError(
            f"is cut off, or no JSON: {whole[:100]}",
            where=Location(str(path)),
            hint="name what tracemine verify wrote, or a reproduction printed",
        )
    return values, [f"{path}: left out, {count_text(cut, 'line')}: cut off, or no JSON"] if cut else []


def _json(content: bytes) -> Any:
    """Read JSON as Python writes it: NaN, which an error can be, is not known. Raises ValueError."""
    try:
        return json.loads(content, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _within(value: Any, path: Path, depth: int = 2) -> Iterator[tuple[Any, Any]]:
    """Yield what may be verdicts, also as entries of lists and objects that gather them, and the GPU named there."""
    said = _gathered(value, path) if isinstance(value, dict) else None
    if said is not None:
        yield from said
    elif depth and isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each, path, depth - 1)


def _gathered(value: dict[str, Any], path: Path) -> Iterable[tuple[Any, Any]] | None:
    """Return the verdicts of an object that gathers them, is one, or is a run of `apply`; None where it is none."""
    if isinstance(value.get("verdicts"), list):
        if (version := value.get("schema_version")) != VERDICTS_SCHEMA_VERSION:
            says = f"its verdicts are of version {version!r:.20}; this tracemine reads {VERDICTS_SCHEMA_VERSION}"
            raise InputError(says, where=Location(str(path)))
        return [(one, value.get("gpu")) for one in value["verdicts"]]
    if "fingerprint" in value:
        return [(value, None)]
    if "entry" in value and isinstance(value.get("alone"), list):
        return [(one, value.get("device")) for tried in value["alone"] for one in _in_step(tried)]
    return None


def _in_step(tried: Any) -> Iterator[dict[str, Any]]:
    """Yield what `apply` measured of one variant, as a verdict on each finding that asks for it."""
    timed = tried.get("timed") if isinstance(tried, dict) and tried.get("level") == IN_STEP else None
    given: list[Any] = [timed.get(name) for name in ("ratio", "high", "low")] if isinstance(timed, dict) else []
    if len(ratios := [ratio for ratio in given if isinstance(ratio, float)]) == 3:
        names = " + ".join(str(name).rpartition("/")[2] for name in tried.get("variants", ()))
        saved, low, high = (percent_text(1 - ratio, 1) for ratio in ratios)
        for mark in tried.get("findings", ()):
            yield {
                "fingerprint": mark,
                "level": IN_STEP,
                "says": f"in your step {names} saved {saved} ({low} to {high})",
            }


def _times_of(said: StoredVerdict) -> list[StoredTimes]:
    """Return all times of a verdict. Raise ValidationError where they contradict themselves or each other."""
    besides = [times.measured for times in (said.library, said.compiled) if times is not None]
    taken = [times for times in (said.measured, *besides) if times is not None]
    for times in taken:
        ratio, of_medians = times.eager_to_fused, times.eager_ns / max(times.fused_ns, 1)
        if not ratio.low <= ratio.ratio <= ratio.high or abs(of_medians / ratio.ratio - 1) > _TOLERANCE:
            raise msgspec.ValidationError("its times and their ratio contradict each other")
    if len({times.device for times in taken}) > 1:
        raise msgspec.ValidationError("its times are of several GPUs")
    return taken


def _entry(value: Any, gpu: str | None) -> Entry:
    """Raise ValidationError for what is no verdict, or contradicts itself."""
    if isinstance(value, dict) and "level" not in value:
        ran = msgspec.convert(value, StoredRun)
        if ran.times is None:
            return Entry(ran, ran.device, value, ran.source_sha256)
        _check(ran.times)
        return Entry(ran, ran.times.device, value, ran.source_sha256)
    said = msgspec.convert(value, StoredVerdict)
    taken = _times_of(said)
    source = value.get("source") if isinstance(value, dict) else None
    mark = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest() if isinstance(source, str) else None
    return Entry(said, taken[0].device if taken else gpu, source=mark, code=source if mark is not None else None)


def _check(times: _Times) -> None:
    """Raise ValidationError where samples and what was made of them are not of the same states and variants."""
    judged = {state: each.compiled is not None for state, each in times.judged.items()}
    known = {state: each.not_slower_than_compile is not None for state, each in times.judged.items()}
    sampled = {state: each.compiled is not None for state, each in times.samples.items()}
    if not judged == known == sampled:
        raise msgspec.ValidationError("its samples and what was made of them are not of the same")
