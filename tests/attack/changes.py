"""Random changes of what a program reads: bytes, JSON, tables, and of each kind of input with its own structure.

`KINDS` maps a kind to a function that puts a changed input into a folder and returns the command line to read it with.
The same random generator gives the same attack.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.attack.harness import FIXTURES, ROOT
from tests.forked import run_folder
from tests.formats.nsys.make import Export
from tracemine.cli import main
from tracemine.files import locked
from tracemine.fleet.run import tasks as fleet_tasks
from tracemine.fleet.task import SCANNED, scan_into
from tracemine.formats import open_trace
from tracemine.perfmodel.calibration import shipped_calibrations
from tracemine.scan_settings import ScanSettings

Kind = Callable[[Random, Path], list[str]]

HUGE: list[Any] = [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 1e308, -1e308, 1e-320, 1.5]
EVIL: list[Any] = [
    *("", "x", "-5", "1e5", "NaN", "L9", "9" * 400, "a" * 70_000, "a\nb", "a\0b", "\ud800", "[" * 3000, "[[1,2],[3]]"),
    *("\x1b[2J\x1b]0;x\x07", "\u202eabc\u2028x\u200b", "<img src=x onerror=alert(1)>", "|x|`y`|", "=cmd|' /C calc'!A1"),
    *('q"""+__import__("os").system("touch PWNED")+"""', "../../../home/rc", "/dev/zero", "'; drop table x; --"),
    *("%(prog)s %s {x} {0.__class__}", "aten::mul", "aten::", "::", "nn.Module: ../x_0", "[bold red]x[/]", "memcpy"),
    *("ProfilerStep#99999999999999999999", None, True, [], {}, [[]], ["x"], {"a": {"b": 1}}, [1] * 2000),
]
_TEXTS = [text for text in EVIL if isinstance(text, str)]
RAW = ("NaN", "-Infinity", "1e999", "0x10", "01", "+5", ".5", "nan", "'x'", "", '"\\ud800"', '"\\u0000"', '"\xff"',
       '{"a":1,"a":2}')  # fmt: skip
DEEP = "[" * 5000 + "]" * 5000


def any_of(r: Random, value: object = None) -> Any:
    """A value that is not expected; in place of a text or a number often another one, which gets further."""
    if isinstance(value, str) and r.random() < 0.7:
        return r.choice(_TEXTS)
    if isinstance(value, int | float) and r.random() < 0.7:
        return r.choice((0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), value * 1000, -value))
    return r.choice(HUGE) if r.random() < 0.5 else r.choice(EVIL)


def changed_bytes(content: bytes, r: Random) -> bytes:
    """Some bytes flipped, replaced, put in, repeated or gone."""
    data = bytearray(content)
    for _ in range(r.choice((1, 2, 5, 20, 200))):
        if not data:
            break
        at, what = r.randrange(len(data)), r.randrange(8)
        if what == 0:
            data[at] ^= 1 << r.randrange(8)
        elif what == 1:
            data[at : at + 8] = r.randbytes(8)
        elif what == 2:
            del data[at : at + r.choice((1, 5, 100, 3000))]
        elif what == 3:
            data[at:at] = r.choice(
                (b'"', b"{", b"}", b"[", b",", b"\\", b"\0", b"\xff", b"\n", b"\xe2\x80\xae", b"=cmd|x")
            )
        elif what == 4:
            data[at:at] = data[r.randrange(len(data)) :][: r.choice((3, 50, 2000))]
        elif what == 5 and r.random() < 0.2:
            del data[at:]
        else:
            data[at] = r.randrange(256)
    return bytes(data)


def changed_json(value: Any, r: Random, share: float) -> Any:
    """The value with some of what is in it replaced, left out or added."""
    if r.random() < share:
        return any_of(r, value)
    if isinstance(value, dict):
        found = {k: changed_json(v, r, share) for k, v in value.items() if r.random() > share / 4}
        return found | ({r.choice(("x", "", "schema_version", "fingerprint")): any_of(r)} if r.random() < share else {})
    if isinstance(value, list):
        return [changed_json(v, r, share) for v in value if r.random() > share / 4]
    return value


def json_bytes(value: Any, r: Random, share: float) -> bytes:
    """Changed JSON, now and then with what JSON does not have, or changed as bytes."""
    if r.random() < 0.3:
        return changed_bytes(json.dumps(value).encode(), r)
    text = json.dumps(changed_json(value, r, share))
    if r.random() < 0.3:
        text = re.sub(r"-?\b\d+\b", lambda found: r.choice((*RAW, DEEP)) if r.random() < 0.01 else found[0], text)
    return text.encode("utf-8", "surrogatepass").replace(b"\xc3\xbf", b"\xff")


def changed_table(path: Path, r: Random) -> None:
    """A Parquet file with values of a column replaced by others of its type, or by a column of another type."""
    table = pq.read_table(path)
    rows = table.num_rows
    if not table.num_columns:
        return
    at = r.randrange(table.num_columns)
    column = table.schema.field(at)
    if r.random() < 0.3:
        data = r.choice((["x"], [1.5], [[1]], [None], [b"\xff"], [True], [{"a": 1}])) * rows
        column, values = pa.field(column.name, pa.array(data).type), pa.array(data)
    else:
        share, pool = r.choice((0.02, 0.5, 1)), _values_of(column.type, rows, r)
        data = [r.choice(pool) if r.random() < share else v for v in table.column(at).to_pylist()]
        try:
            values = pa.array(data, column.type)
        except (pa.ArrowException, OverflowError, TypeError):
            return
        column = column if None not in data else column.with_nullable(True)
    pq.write_table(table.set_column(at, column, values), path)


def _values_of(kind: pa.DataType, rows: int, r: Random) -> list[Any]:
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - pa.types.is_signed_integer(kind)) - 1
        return [
            0,
            1,
            top,
            top // 2,
            r.randrange(rows + 1),
            None,
            *((-1, -top - 1) if pa.types.is_signed_integer(kind) else ()),
        ]
    if pa.types.is_floating(kind):
        return [float("nan"), 1e38, -1.0, 0.0, float("inf"), None]
    if pa.types.is_nested(kind):
        return [[-1, -1, -1], [2**31 - 1] * 3, [0, 0, 0], [], None]
    if pa.types.is_boolean(kind):
        return [True, False, None]
    return [*(v for v in _TEXTS if v != "\ud800"), "[[" * 3000, '["float"]', "[[-1, 5]]", "[1e999]", None]


# -- what is changed


@cache
def prepared() -> Path:
    """A folder with timelines and findings of some recordings, which all processes of a run share."""
    folder = run_folder() / "prepared"
    with locked(run_folder()):
        if not folder.is_dir():
            _prepare(part := run_folder() / "being prepared")
            part.rename(folder)
    return folder


def _prepare(folder: Path) -> None:
    folder.mkdir()
    for name in ("captures/chain", "kineto/decoder_decode_graph.json.gz", "nsys/block_train.sqlite"):
        open_trace(FIXTURES / name).write(folder / f"timeline_{Path(name).name}")
    report = str(FIXTURES / "ncu/chain/details.csv.gz")
    args = ["scan", str(FIXTURES / "ncu/chain/trace.json.gz"), "--ncu", report, "-q", "--parquet"]
    assert main([*args, str(folder / "timeline_counters")]) == 0
    for name in ("chain", "decoder_prefill"):
        target = folder / f"findings_{name}.json"
        assert main(["scan", str(FIXTURES / "captures" / name), "--format", "json", "-q", "-o", str(target)]) == 0
    shutil.copytree(ROOT / "rules/rmsnorm_unfused", folder / "rules/my_rule")
    export = Export()
    for at in range(6):
        export.op(at + 1, "aten::mul", at * 100, "[[4, 8], [4, 8]]", f"[({at}, 0)]")
    export.range("ProfilerStep#1", 0, 700)
    for form in ("parquetdir", "arrowdir"):
        export.folder(folder / form, form)
    traces = [str(FIXTURES / f"kineto/{name}.json.gz") for name in ("chain", "clean_gemms")]
    tasks, _, _ = fleet_tasks(traces, str(folder / "dataset"), ScanSettings())
    assert {scan_into(task).status for task in tasks} == {SCANNED}


@cache
def trace(name: str) -> dict[str, Any]:
    """A recording of the profiler."""
    found: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / "kineto" / f"{name}.json.gz").read_bytes()))
    return found


# The small ones more often: they take half the time.
_TRACES = (*("chain",) * 3, *("triton_kernel",) * 2, "decoder_decode_graph", "compiled_loop")
_LINKING = ("correlation", "External id", "device", "stream", "Ev Idx", "Python id", "Python parent id", "graph id",
            "graph node id", "grid", "block", "Fwd thread id", "bytes", "Sequence number")  # fmt: skip
_INPUTS: list[Any] = [[[2**62, 2**62, 4]], [[-5, 3]], [[0]], [[]], [[[1, 2], [3]]], "[[1]]", [[1] * 5000], [[1e308]],
                      ["'''"], ["int", 'x"y'], [["\n"]], [None]]  # fmt: skip


def _scan(name: str, r: Random) -> list[str]:
    args = [
        "scan",
        name,
        "-q",
        "--top",
        "0",
        "--format",
        r.choice(("json", "json", "json", "text", "markdown", "html")),
    ]
    return args + ["--why-not"] * (r.random() < 0.3) + ["--min-saving", "0ns"] * (r.random() < 0.5)


def kineto_events(r: Random, here: Path) -> list[str]:
    document = copy.deepcopy(trace(r.choice(_TRACES)))
    events = document["traceEvents"]
    raw: list[str] = []
    for _ in range(r.choice((1, 2, 3, 8, 40))):
        at, what = r.randrange(len(events)), r.randrange(12)
        event = events[at]
        args = event.setdefault("args", {})
        place = args if args and what % 2 else event
        if what == 0:
            del events[at]
        elif what == 1:
            events.insert(r.randrange(len(events)), copy.deepcopy(event))
        elif what == 2:
            events.insert(r.randrange(len(events)), events.pop(at))
        elif what in (3, 4) and place:
            place[r.choice(list(place))] = any_of(r)
        elif what in (5, 6) and place:
            raw.append(f"RAW{len(raw)}.")
            place[r.choice(list(place))] = raw[-1]
        elif what == 7:
            args[r.choice(_LINKING)] = r.choice((*HUGE, r.randrange(50)))
        elif what == 8:
            event[r.choice(("ts", "dur"))] = r.choice(
                (-1, 0, 1e18, -1e12, 9.2e15, "12", 0.001, 2**62, -9223372036854775)
            )
        elif what == 9:
            for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
                args |= {key: r.choice(_INPUTS)} if key in args and r.random() < 0.5 else {}
        elif what == 10:
            other = r.choice(events)
            event["args"], other["args"] = other.get("args", {}), args
        else:
            document[r.choice([k for k in document if k != "traceEvents"])] = r.choice(
                (any_of(r), [{"id": 0, "name": any_of(r), "numSms": any_of(r)}])
            )
    text = json.dumps(document)
    for mark in raw:
        text = text.replace(f'"{mark}"', r.choice((*RAW, DEEP[4900:5100])), 1)
    (here / "t.json").write_bytes(text.encode("utf-8", "surrogatepass").replace(b"\xc3\xbf", b"\xff"))
    return ["scan", "t.json", "--parquet", "out"] if r.random() < 0.1 else _scan("t.json", r)


def kineto_bytes(r: Random, here: Path) -> list[str]:
    content = changed_bytes(json.dumps(trace(r.choice(_TRACES))).encode(), r)
    if r.random() < 0.3:
        content = changed_bytes(gzip.compress(content, 1), r)
    (here / "t.json").write_bytes(content)
    return _scan("t.json", r)


_SQL = (
    'update "{t}" set "{c}" = ?', 'update "{t}" set "{c}" = ? where rowid % 7 = 0', 'update "{t}" set "{c}" = "{d}"',
    'update "{t}" set "{c}" = "{c}" * -1000', 'delete from "{t}" where rowid % 2 = 0', 'drop table "{t}"',
    'alter table "{t}" drop column "{c}"', 'alter table "{t}" rename to "other"',
    'insert into "{t}" select * from "{t}"', 'create trigger x after insert on "{t}" begin delete from "{t}"; end',
    'alter table "{t}" add column "x" generated always as (randomblob(1000000000)) virtual',
    'alter table "{t}" rename to "old"\n'
    'create view "{t}" as with recursive r(n) as (select 1 union all select n + 1 from r) select n as "{c}" from r',
)  # fmt: skip


def nsys_database(r: Random, here: Path) -> list[str]:
    path = here / "t.sqlite"
    shutil.copyfile(r.choice(sorted((FIXTURES / "nsys").glob("*.sqlite"))), path)
    if r.random() < 0.35:
        path.write_bytes(changed_bytes(path.read_bytes(), r))
        return _scan("t.sqlite", r)
    database = sqlite3.connect(path, isolation_level=None)
    tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
    for _ in range(r.choice((1, 2, 4))):
        name = r.choice(tables)
        columns = [row[1] for row in database.execute(f'pragma table_info("{name}")')] or ["x"]
        for text in r.choice(_SQL).splitlines():
            value = [v for v in (any_of(r), b"\xff") if not isinstance(v, list | dict | bool)]
            with_value = [r.choice(value) if "?" in text else None][: text.count("?")]
            try:
                database.execute(text.format(t=name, c=r.choice(columns), d=r.choice(columns)), with_value)
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                continue
    database.close()
    return _scan("t.sqlite", r)


def nsys_folder(r: Random, here: Path) -> list[str]:
    shutil.copytree(prepared() / r.choice(("parquetdir", "arrowdir")), here / "f")
    for _ in range(r.choice((1, 2))):
        path, what = r.choice(sorted((here / "f").iterdir())), r.random()
        if what < 0.5:
            path.write_bytes(changed_bytes(path.read_bytes(), r))
        elif what < 0.8 and path.suffix == ".parquet":
            with_readable_table(path, r)
        elif what < 0.9:
            path.unlink()
            break
        else:
            shutil.copyfile(r.choice(sorted((FIXTURES / "nsys").iterdir())), path)
    return _scan("f", r)


def with_readable_table(path: Path, r: Random) -> None:
    """`changed_table`, of a file that an earlier change may have made no table."""
    try:
        changed_table(path, r)
    except (pa.ArrowException, OSError, ValueError):
        path.write_bytes(b"")


def timeline(r: Random, here: Path) -> list[str]:
    shutil.copytree(r.choice(sorted(prepared().glob("timeline_*"))), here / "t")
    path = r.choice(sorted((here / "t").iterdir()))
    if path.suffix == ".json":
        path.write_bytes(json_bytes(json.loads(path.read_bytes()), r, 0.1))
    elif r.random() < 0.3:
        path.write_bytes(changed_bytes(path.read_bytes(), r))
    else:
        for _ in range(r.choice((1, 1, 2))):
            changed_table(path, r)
    return _scan("t", r)


_CELLS = ('"=cmd|\' /C calc\'!A1"', '"1e999"', '"nan"', '"-1"', '"\x1b[2J"', '""""', '"', '"1.000.000,5"', '"inf"',
          '"' + "9" * 5000 + '"')  # fmt: skip


def ncu_table(r: Random, here: Path) -> list[str]:
    base = r.choice(sorted(FIXTURES.glob("ncu/*/*.csv.gz")))
    content = gzip.decompress(base.read_bytes())
    if r.random() < 0.4:
        content = changed_bytes(content, r)
    else:
        content = "\n".join(_changed_lines(content.decode().splitlines(), r, ",", _CELLS)).encode()
    (here / "r.csv").write_bytes(content)
    shutil.copyfile(base.parent / "trace.json.gz", here / "t.json.gz")
    report = ["top", "r.csv", "--format", r.choice(("text", "json", "markdown"))]
    return r.choice((report, [*report, "--trace", "t.json.gz"], ["scan", "t.json.gz", "-q", "--ncu", "r.csv"]))


def ncu_binary(r: Random, here: Path) -> list[str]:
    (here / "r.ncu-rep").write_bytes(changed_bytes((FIXTURES / "ncu/compiled/report.ncu-rep").read_bytes(), r))
    return ["top", "r.ncu-rep"]


def _changed_lines(lines: list[str], r: Random, between: str, cells: tuple[str, ...]) -> list[str]:
    for _ in range(r.choice((1, 1, 3))):
        at, what = r.randrange(len(lines)), r.randrange(8)
        parts = lines[at].split(between)
        if what == 0:
            lines[at] = between.join(parts[: r.randrange(len(parts))])
        elif what >= 4 and len(parts) > 1:
            parts[r.randrange(between == " = ", len(parts))] = r.choice(cells)
            lines[at] = between.join(parts)
        elif what == 1 and len(lines) > 1:
            del lines[at]
        elif what == 2:
            lines.insert(at, r.choice(lines))
        else:
            lines[at] = r.choice((lines[at] * 3, "==ERROR== \x1b[31m", "", "\0", '"' * 99, "[" * 100))
    return lines


def _recording(here: Path, name: str) -> Path:
    folder = here / "c"
    shutil.copytree(FIXTURES / "captures" / name, folder)
    (folder / "capture.json").write_text('{"alone_step_ns": 100000, "recorded_step_ns": 130000}')
    return folder


def execution_trace(r: Random, here: Path) -> list[str]:
    folder = _recording(here, r.choice(("chain", "chain", "decoder_decode")))
    path = folder / "et.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    nodes = document["nodes"]
    for _ in range(r.choice((1, 3, 30))):
        node, what = r.choice(nodes), r.randrange(5)
        other = r.choice(nodes)["id"]
        if what == 0:
            node["ctrl_deps"] = r.choice((node["id"], other, -1, 2**63, "x", None))  # loops among them
        elif what == 1:
            node["id"] = r.choice((0, 1, 2**63, node["ctrl_deps"], "x")) if r.random() < 0.3 else node["id"]
        elif what == 2:
            nodes.insert(r.randrange(len(nodes)), dict(node))
        else:
            key = r.choice(list(node))
            node |= {key: changed_json(node[key], r, 0.3)} if key not in ("id", "ctrl_deps") else {}
    content = json.dumps(document).encode() if r.random() < 0.6 else changed_bytes(json.dumps(document).encode(), r)
    path.write_bytes(gzip.compress(content, 1))
    return ["scan", "c/trace.json.gz", "-q", "--format", "json", "--et", "c/et.json.gz"]


def recording(r: Random, here: Path) -> list[str]:
    folder = _recording(here, "chain")
    path = r.choice((folder / "capture.json", *sorted(folder.iterdir())))
    if path.suffix == ".json":
        path.write_bytes(json_bytes(json.loads(path.read_bytes()), r, 0.5))
    elif r.random() < 0.8:
        path.write_bytes(changed_bytes(path.read_bytes(), r))
    else:
        path.unlink()
        path.symlink_to(r.choice(("/dev/zero", "../../home/rc", path.name, ".", "/proc/self/mem")))
    return _scan("c", r)


def findings(r: Random, here: Path) -> list[str]:
    document = json.loads(r.choice(sorted(prepared().glob("findings_*.json"))).read_bytes())
    (here / "f.json").write_bytes(json_bytes(document, r, r.choice((0.0002, 0.001, 0.01))))
    more = r.choice((*([], ["--format", "json"], ["--format", "markdown"], ["--format", "html"]), ["explain"]))
    if more == ["explain"]:
        return ["explain", document["findings"][0]["fingerprint"][:6], "f.json", "--format", "markdown", "-q"]
    return ["scan", "f.json", "--top", "0", "-q", *more]


def verdicts(r: Random, here: Path) -> list[str]:
    lines = (FIXTURES / "verdicts/captures_h200.jsonl").read_bytes().splitlines()
    (here / "v.json").write_bytes(b"\n".join(json_bytes(json.loads(x), r, r.choice((0, 0.002, 0.05))) for x in lines))
    shutil.copyfile(prepared() / "findings_decoder_prefill.json", here / "f.json")
    report = ["scan", "f.json", "-q", "--evidence", "v.json", "--format", r.choice(("text", "json", "html"))]
    return report if r.random() < 0.7 else [*_scan(str(FIXTURES / "captures/chain"), r), "--evidence", "v.json"]


_TOML = ('""', '"a{1000}{1000}"', '"' + "(" * 60 + '"', '"' + "a{0,999}" * 20 + '"', '"sum(*)"', '"../x"', '"{}"',
         '"\\u001b[2J"', "99999999999999999999", "-1", "1e999", "nan", "[1]", '{re = "(a|a)*b"}', '{re = "(a?){64}"}',
         "[" * 99)  # fmt: skip


def rule(r: Random, here: Path) -> list[str]:
    folder = here / "rules/my_rule"
    shutil.copytree(r.choice(sorted(p.parent for p in (ROOT / "rules").glob("*/rule.toml"))), folder)
    path = folder / r.choice(("rule.toml", "rule.toml", "rule.toml", "cases.md"))
    if r.random() < 0.2:
        path.write_bytes(changed_bytes(path.read_bytes(), r))
    else:
        between = " = " if path.suffix == ".toml" else "|"
        path.write_text("\n".join(_changed_lines(path.read_text().splitlines(), r, between, _TOML)))
    command = r.choice(("lint", "test", "show", "scan"))
    if command == "scan":
        return [*_scan(str(FIXTURES / "kineto/chain.json.gz"), r), "--rules", "rules"]
    return ["rules", command, "--rules", "rules", "my_rule"]


def dataset(r: Random, here: Path) -> list[str]:
    shutil.copytree(prepared() / "dataset", here / "set")
    path = r.choice((here / "set/dataset.json", *sorted((here / "set").glob("[rf]*/*/*.parquet"))))
    if path.suffix == ".json" and r.random() < 0.7:
        path.write_bytes(json_bytes(json.loads(path.read_bytes()), r, 0.2))
    elif path.suffix == ".json" or r.random() < 0.2:
        path.write_bytes(changed_bytes(path.read_bytes(), r))
    else:
        changed_table(path, r)
    if r.random() < 0.2:
        return ["fleet", "tickets", "set", "--project", "p", "--out", "out"]
    return ["fleet", "report", "set", "--by", r.choice(("job", "day")), "-f", r.choice(("text", "json", "html"))]


def calibration(r: Random, here: Path) -> list[str]:
    (here / "c.json").write_bytes(
        json_bytes(json.loads(shipped_calibrations()[0].to_json()), r, r.choice((0.0005, 0.01)))
    )
    return ["calibration", "c.json"]


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        *(kineto_events, kineto_bytes, nsys_database, nsys_folder, timeline, ncu_table, ncu_binary, execution_trace),
        *(recording, findings, verdicts, rule, dataset, calibration),
    )
}
