"""The files that `verify` leaves: verdicts as JSON and as a table, side by side, joined with those of earlier runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from tracemine import files
from tracemine.errors import InputError, Location
from tracemine.files import check_plain, locked, read_file, write_file
from tracemine.verdicts.stored import is_table
from tracemine.verdicts.verdict import VERDICTS_SCHEMA_VERSION, Verdicts, merged, table

_ELSEWHERE = "move it away, or name a folder with --output"
_LARGEST_BYTES = 1 << 30  # of verdicts that lie there already


def verdicts_before(stem: Path, gpu: str | None) -> Verdicts | None:
    """Return the verdicts that lie there already, which those of now join; None where none do.

    stem: the path of both files without their endings. gpu: this machine's. Raises InputError and UsageError where
    something else lies there, or verdicts of another GPU.
    """
    path = stem.with_name(stem.name + ".json")
    check_plain(path)
    _check_table(stem.with_name(stem.name + ".parquet"))
    try:
        if not path.exists():
            return None
        found = msgspec.json.decode(read_file(path, _LARGEST_BYTES), type=Verdicts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        says = f"is not what verify wrote, and would be written over: {str(error)[:150]}"
        raise InputError(says, where=Location(str(path)), hint=_ELSEWHERE) from None
    if found.schema_version != VERDICTS_SCHEMA_VERSION:
        says = f"its verdicts are of version {found.schema_version}; this tracemine writes {VERDICTS_SCHEMA_VERSION}"
        raise InputError(says, where=Location(str(path)), hint=_ELSEWHERE)
    if None not in (gpu, found.gpu) and gpu != found.gpu:
        raise InputError(
            f"its verdicts are of another GPU, {str(found.gpu)[:100]}",
            where=Location(str(path)),
            hint="name another folder with --output: scan --evidence reads both",
        )
    return found


def write_verdicts(found: Verdicts, stem: Path, gpu: str | None) -> None:
    """Add verdicts to those that lie there by now: another run may have ended meanwhile. As in `verdicts_before`."""
    with locked(stem.parent):
        before = verdicts_before(stem, gpu)
        both = found if before is None else merged(before, found)
        write_file(stem.with_name(stem.name + ".json"), msgspec.json.encode(both) + b"\n", named=False)
        write_file(stem.with_name(stem.name + ".parquet"), files.parquet_bytes(table(both)), named=False)


def _check_table(path: Path) -> None:
    """Raise InputError, UsageError where verdicts are to be a table, and something else than such a table lies."""
    check_plain(path)
    if not path.exists():
        return
    with contextlib.suppress(InputError):  # no Parquet file at all
        if is_table(path):
            return
    says = "is no table of verdicts of this version, and would be written over"
    raise InputError(says, where=Location(str(path)), hint=_ELSEWHERE)
