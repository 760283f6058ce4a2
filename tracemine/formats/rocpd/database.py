"""A database of rocprofv3 as the tables of an export of Nsight Systems."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from tracemine.columns import Array, sorted_unique
from tracemine.formats.arrow import MISSING
from tracemine.formats.nsys import schema as nsys
from tracemine.formats.nsys.tables import Numbers, nothing
from tracemine.formats.rocpd import schema
from tracemine.formats.sqlite import columns_in, tables_in

NO_NUMBER: Final = "value that is no integer, read as not recorded"
_PROCESS_SHIFT = 24
_THREAD = (1 << _PROCESS_SHIFT) - 1
_LONGEST = 1 << 16  # characters of a text
_GPU_FACTS: Final = {"smCount": "cu_count", "threadsPerWarp": "wave_front_size", "maxWarpsPerSm": "max_waves_per_cu"}


class Database:
    """`Tables` over a connection to a database of rocpd.

    Raises sqlite3.Error where it is damaged, UnicodeDecodeError where a text is none.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.path = path
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self._connection = connection
        plain = [name for name, own_rows in tables_in(connection).items() if own_rows and schema.part_of(name)]
        self._columns = {name: columns_in(connection, name) for name in plain}
        self.suffixes = sorted({part[1] for name in plain if (part := schema.part_of(name)) is not None})
        self._strings: dict[str, int] = {}
        self._rows: dict[str, list[Numbers]] = {}
        self._texts: list[str | None] = []
        self._gpus: dict[int, dict[str, Any]] = {}
        for suffix in self.suffixes:
            self._read(suffix)

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""
        return {*self._rows, nsys.STRINGS, nsys.GPU}

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""
        return {name for rows in self._rows.get(table, []) for name in rows}

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length."""
        wanted = nsys.NUMBERS[table]
        if table == nsys.STRINGS:
            return {"id": np.array(list(self._strings.values()), np.int64)}
        if table == nsys.GPU:
            rows = [{"id": at, "cuDevice": device, **facts} for at, (device, facts) in enumerate(self._gpus.items())]
            return {name: np.array([row.get(name, MISSING) for row in rows], np.int64) for name in wanted}
        parts = [nothing(wanted, len(rows["start"])) | rows for rows in self._rows.get(table, [])]
        return {name: np.concatenate([np.empty(0, np.int64), *(part[name] for part in parts)]) for name in wanted}

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""
        if table == nsys.STRINGS:
            return {"value": list(self._strings)}
        if table == nsys.GPU:
            return {"name": [facts["name"] for facts in self._gpus.values()]}
        if table == nsys.NVTX:
            return {"text": self._texts}
        return {name: [] for name in nsys.TEXTS.get(table, ())}

    def _read(self, suffix: str) -> None:
        """Read one set of tables."""
        self._gpus |= self._agents(suffix)
        strings = self._named(suffix, "rocpd_string", ("string",))
        for table, query, names in (
            (
                nsys.KERNEL,
                schema.KERNELS,
                self._named(suffix, "rocpd_info_kernel_symbol", ("display_name", "kernel_name")),
            ),
            (nsys.MEMCPY, schema.COPIES, strings),
        ):
            rows = self._numbers(query, suffix)
            rows["globalPid"] = _shifted(rows.pop("process"))
            queue, name = rows.pop("queueId"), rows.pop("name")
            if not (rows["streamId"] > 0).any():  # recorded without HIP's streams
                rows["streamId"] = queue
            if table == nsys.KERNEL:
                rows["demangledName"] = self._codes(name, names)
                rows["dynamicSharedMemory"] = np.where(rows["staticSharedMemory"] == MISSING, MISSING, 0)
            else:
                rows["copyKind"] = np.array([_copy_kind(names.get(number)) for number in name.tolist()], np.int64)
            self._add(table, rows)
        self._regions(suffix, strings)

    def _regions(self, suffix: str, strings: dict[int, str]) -> None:
        """Add ranges of roctx, and calls; of these what HSA does within a call of HIP counts as the driver's."""
        rows = self._numbers(schema.REGIONS, suffix)
        category = [strings.get(number, "") for number in rows.pop("category").tolist()]
        marked = np.array(["MARKER" in each for each in category], np.bool_)
        process, thread = _shifted(rows.pop("process")), rows.pop("thread")
        known = (process != MISSING) & (thread != MISSING)
        rows["globalTid"] = np.where(known, process | (thread & _THREAD), process)
        rows["nameId"] = self._codes(rows.pop("name"), strings)
        rows["eventClass"] = np.array([int(each.startswith("HSA")) for each in category], np.int64)
        self._add(nsys.RUNTIME, {name: column[~marked] for name, column in rows.items()})
        ranges = {name: rows[name][marked] for name in ("start", "end", "globalTid")}
        ranges["textId"] = rows["nameId"][marked]
        ranges["eventType"] = np.full(int(marked.sum()), nsys.PUSH_POP[0])
        messages = self._messages(suffix, np.flatnonzero(marked))
        self._texts += messages
        self._add(nsys.NVTX, ranges)

    def _messages(self, suffix: str, rows: Array) -> list[str | None]:
        """Return what ranges are called, by their places among the regions."""
        query = schema.Query("rocpd_region", {"said": "e.extdata"}, {"e": schema.REGIONS.joins["e"]})
        wanted = set(rows.tolist())
        if not wanted:
            return []
        cursor = self._connection.execute(query.text(suffix, self._columns))
        return [_message(said) for at, (said,) in enumerate(cursor) if at in wanted]

    def _add(self, table: str, rows: Numbers) -> None:
        if len(rows["start"]):
            self._rows.setdefault(table, []).append(rows)

    def _numbers(self, query: schema.Query, suffix: str) -> Numbers:
        """Return the columns of a query; what is no integer counts as not recorded."""
        names = list(query.columns)
        if query.table + suffix not in self._columns:
            return nothing(tuple(names))
        found = self._connection.execute(query.text(suffix, self._columns)).fetchall()
        try:
            flat = np.fromiter(
                (MISSING if each is None else each for each in chain.from_iterable(found)),
                np.int64,
                len(found) * len(names),
            )
        except (TypeError, ValueError, OverflowError):  # SQLite lets any column hold anything
            flat = np.array([self._whole(each) for each in chain.from_iterable(found)], np.int64)
        return dict(zip(names, np.ascontiguousarray(flat.reshape(len(found), len(names)).T), strict=True))

    def _whole(self, value: object) -> int:
        if value is None or isinstance(value, int):
            return MISSING if value is None else value
        self.repaired[NO_NUMBER] += 1
        return MISSING

    def _named(self, suffix: str, table: str, columns: Sequence[str]) -> dict[int, str]:
        """Return texts by their numbers, the first of the columns that holds one."""
        query = schema.Query(table, {"id": "r.id", **{name: f"r.{name}" for name in columns}}, {})
        if table + suffix not in self._columns:
            return {}
        found = {}
        for number, *given in self._connection.execute(query.text(suffix, self._columns)):
            text = next((each for each in given if isinstance(each, str) and each), None)
            if text is not None and isinstance(number, int):
                found[number] = text.removesuffix(".kd")[:_LONGEST]
        return found

    def _codes(self, numbers: Array, names: dict[int, str]) -> Array:
        """Return numbers of texts over all sets."""
        values = sorted_unique(numbers)
        codes = [
            self._strings.setdefault(names[value], len(self._strings)) if value in names else MISSING
            for value in values.tolist()
        ]
        return np.array([*codes, MISSING], np.int64)[np.searchsorted(values, numbers)] if len(numbers) else numbers

    def _agents(self, suffix: str) -> dict[int, dict[str, Any]]:
        """Return the GPUs, by their place among them."""
        columns = ("type", "type_index", "name", "product_name", "extdata")
        query = schema.Query("rocpd_info_agent", {name: f"r.{name}" for name in columns}, {})
        if "rocpd_info_agent" + suffix not in self._columns:
            return {}
        found: dict[int, dict[str, Any]] = {}
        for kind, index, name, product, extra in self._connection.execute(query.text(suffix, self._columns)):
            if kind == "GPU" and isinstance(index, int) and 0 <= index < 1 << 16:
                known = product if isinstance(product, str) and product else f"AMD {name}"
                found[index] = {"name": known, **_facts(name, extra)}
        return found


def _facts(name: object, extra: object) -> dict[str, int]:
    """Return what an agent says of its size.

    >>> _facts("gfx942", '{"cu_count": 304, "wave_front_size": 64}')
    {'smCount': 304, 'threadsPerWarp': 64, 'computeMajor': 9, 'computeMinor': 4}
    """
    said = _object(extra)
    found = {key: said[name] for key, name in _GPU_FACTS.items() if isinstance(said.get(name), int)}
    digits = str(name).removeprefix("gfx")[:-1]
    if str(name).startswith("gfx") and digits.isdecimal() and 2 <= len(digits) <= 3:
        found |= {"computeMajor": int(digits[:-1]), "computeMinor": int(digits[-1])}
    return {key: value for key, value in found.items() if 0 <= value < 1 << 31}


def _object(text: object) -> dict[str, Any]:
    """Return a JSON object; empty where a text is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _message(said: object) -> str | None:
    found = _object(said).get("message")
    return found[:_LONGEST] if isinstance(found, str) else None


def _copy_kind(name: str | None) -> int:
    """Return a copy's direction.

    >>> _copy_kind("MEMORY_COPY_HOST_TO_DEVICE"), _copy_kind(None)
    (1, -9223372036854775808)
    """
    return schema.COPY_KINDS.get((name or "").removeprefix("MEMORY_COPY_"), MISSING)


def _shifted(process: Array) -> Array:
    return np.where((process >= 0) & (process < 1 << 38), process << _PROCESS_SHIFT, MISSING)
