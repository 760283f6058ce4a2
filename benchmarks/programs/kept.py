"""Keep recordings small: one archive of what findings depend on.

Left out: flow arrows (calls and kernels have a correlation), names of processes and threads, occupancy and other
columns that no finding reads. Times stay as they are. Events lie column by column, which takes half of the room.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

_TRACES = ("trace.json", "light.json", "et.json")  # as a recorder writes them: compressed one by one
_CATEGORIES = frozenset({"ac2g", None, "Trace"})
_ARGUMENTS = frozenset(
    {
        *("queued", "context", "blocks per SM", "warps per SM", "est. achieved occupancy %", "registers per thread"),
        *("shared memory", "Ev Idx", "Record function id", "cbid"),
    }
)
_MOST_BACK, _LEAST_BACK = 192 << 20, 1 << 16  # bytes back in which equal ones are looked for: 8 MiB make a tenth more
_COLUMNS = "eventColumns"  # in place of traceEvents, and first in its file
_ATTRIBUTES = frozenset({"kernel_backend", "kernel_file", "tensor_range", "scope", "fw_parent", "fw_tid"})


def event(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a trace without what no finding reads."""
    kept = dict(found)
    if "args" in kept:
        kept["args"] = {name: value for name, value in kept["args"].items() if name not in _ARGUMENTS}
    return kept


def slim(content: bytes) -> bytes:
    """Return a trace or an execution trace without what no finding reads."""
    whole = json.loads(content)
    if "traceEvents" in whole:
        whole["traceEvents"] = [event(each) for each in whole["traceEvents"] if each.get("cat") not in _CATEGORIES]
    for node in whole.get("nodes", ()):
        node["attrs"] = [each for each in node["attrs"] if each["name"] not in _ATTRIBUTES]
    found = in_columns(whole) if "traceEvents" in whole else whole
    return json.dumps(found if whole == _in_rows(found) else whole, separators=(",", ":")).encode()


def in_columns(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace with a table for events of the same keys; times are whole nanoseconds, each since the one before.

    >>> trace = {"traceEvents": [{"ts": 3.125, "args": {"id": 7}}, {"ts": 4.5, "dur": 0.25}], "with_stack": 1}
    >>> in_columns(trace)["eventColumns"]["order"], _in_rows(in_columns(trace)) == trace
    ([0, 1], True)
    """
    tables: dict[tuple[tuple[str, ...], tuple[str, ...] | None], tuple[int, list[list[Any]]]] = {}
    order, before_ns = list[int](), 0
    for each in whole["traceEvents"]:
        own, args = {key: value for key, value in each.items() if key != "args"}, each.get("args")
        for key in {"ts", "dur"} & own.keys():
            own[key] = round(own[key] * 1000)
        if "ts" in own:
            before_ns, own["ts"] = own["ts"], own["ts"] - before_ns
        place, rows = tables.setdefault((tuple(own), None if args is None else tuple(args)), (len(tables), []))
        order.append(place)
        rows.append([*own.values(), *(args or {}).values()])
    kept = [
        {"keys": keys, "args": args, "columns": list(zip(*rows, strict=True))}
        for (keys, args), (_, rows) in tables.items()
    ]
    return {_COLUMNS: {"order": order, "tables": kept}, **{key: whole[key] for key in whole if key != "traceEvents"}}


def _in_rows(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace as it was before `in_columns`."""
    rest = {key: value for key, value in found.items() if key != _COLUMNS}
    if _COLUMNS not in found:
        return rest
    tables, events, now_ns = found[_COLUMNS]["tables"], [], 0
    rows = [zip(*table["columns"], strict=True) for table in tables]
    for place in found[_COLUMNS]["order"]:
        keys, args, values = tables[place]["keys"], tables[place]["args"], next(rows[place])
        each = dict(zip(keys, values, strict=False))
        if "ts" in each:
            now_ns += each["ts"]
            each["ts"] = now_ns / 1000
        if "dur" in each:
            each["dur"] /= 1000
        events.append(each if args is None else {**each, "args": dict(zip(args, values[len(keys) :], strict=True))})
    return {"traceEvents": events, **rest}


def keep(out: Path, archive: Path) -> None:
    """Write a folder's recordings and results into one archive: like next to like, traces first."""
    files = [path for path in out.rglob("*") if path.name.endswith((".json", ".json.gz"))]
    back = min(max(sum(path.stat().st_size for path in files) * 16, _LEAST_BACK), _MOST_BACK)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": back}]
    with lzma.open(archive, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for path in sorted(files, key=lambda path: (path.name < "trace", path.name, path.parent.name)):
            gz = path.suffix == ".gz"
            content = slim(gzip.decompress(path.read_bytes())) if gz else path.read_bytes()
            info = tarfile.TarInfo(str(path.relative_to(out)).removesuffix(".gz"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@contextmanager
def opened(out: Path, names: Sequence[str] = ()) -> Iterator[Path]:
    """Give a folder of recordings: the one that is named, or what an archive holds for as long as it is asked for.

    names: of the programs that are asked for; none: all.
    """
    if out.is_dir():
        yield out
        return
    with tempfile.TemporaryDirectory() as folder, tarfile.open(out) as tar:
        for member in tar:
            content = tar.extractfile(member)
            own = not names or Path(member.name).parent.name in {*names, ""}
            if content is not None and member.isfile() and own:
                path = Path(folder, *Path(member.name).parts[-2:])
                path.parent.mkdir(exist_ok=True)
                if path.name in _TRACES:
                    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(_restored(content.read()), 1))
                else:
                    path.write_bytes(content.read())
        yield Path(folder)


def _restored(content: bytes) -> bytes:
    """Return a trace with its events row by row."""
    if not content.startswith(f'{{"{_COLUMNS}"'.encode()):
        return content
    return msgspec.json.encode(_in_rows(json.loads(content)))
