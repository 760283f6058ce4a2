"""Files made by hand to be slow, large, deep or looped: each is read, or refused, in a time that fits its size."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attack.changes import prepared
from tests.attack.harness import Attack, Ended
from tests.attack.test_changed import keeps_the_books

D: dict[str, Any] = {
    "Input Dims": [[8, 8], [8, 8]],
    "Input type": ["float", "float"],
    "Input Strides": [[8, 1], [8, 1]],
}
N = 2500  # of most, which in the long form is sixteen times as many


def event(kind: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def kernel(i: int, ts: float, dur: float = 1, name: str = "k", stream: int = 7, device: int = 0) -> dict[str, Any]:
    return event("kernel", name, ts, dur, correlation=i, stream=stream, device=device)


def launch(i: int, ts: float) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 1, correlation=i)


def op(ts: float, dur: float, name: str = "aten::mul", **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, **args)


def python(i: int, parent: int, ts: float, dur: float, name: str = "f.py(1): g") -> dict[str, Any]:
    return event("python_function", name, ts, dur, **{"Python id": i, "Python parent id": parent})


def document(events: list[dict[str, Any]], **head: Any) -> str:
    return json.dumps({"schemaVersion": 1, **head, "traceEvents": events})


def step(i: int, ts: float, dur: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{i}", ts, dur)


SMALL = [x for i in range(40) for x in (op(10 * i, 5), launch(i, 10 * i + 1), kernel(i, 10 * i + 100, 3))]
TEXT = document(SMALL)
Made = Callable[[int], str | bytes]

FILES: dict[str, Made] = {
    "brackets in arguments": lambda n: TEXT.replace('"args": {', '"args": {"x":' + "[" * n * 50 + "]" * n * 50 + ",", 1),
    "brackets in the header": lambda n: '{"schemaVersion":1,"x":' + "[" * n * 50 + "]" * n * 50 + ',"traceEvents":[]}',
    "brackets, never closed": lambda n: '{"schemaVersion":1,"x":' + "[" * n * 500,
    "shapes 400 deep": lambda n: document([op(0, 5, **{"Input Dims": json.loads("[" * 400 + "]" * 400)}), *SMALL]),
    "objects, never closed": lambda n: '{"schemaVersion":1,"traceEvents":[' + '{"a":' * n * 50,
    "a header of keys": lambda n: "{" + ",".join(f'"k{i}":{i}' for i in range(n * 10)) + ',"traceEvents":[]}',
    "one key again and again": lambda n: "{" + '"k":1,' * n * 10 + '"traceEvents":[]}',
    "quotes": lambda n: '{"traceEvents":[' + '"' * n * 200,
    "backslashes": lambda n: '{"traceEvents":[{"name":"' + "\\" * (n * 400 + 1) + '"}]}',
    "separators": lambda n: '{"traceEvents":[' + '},{"ph"' * n * 20,
    "lines with keys": lambda n: '{"schemaVersion":1,' + '\n"a":' * n * 20,
    "commas": lambda n: '{"traceEvents":[' + "," * n * 500 + "]}",
    "numbers": lambda n: '{"traceEvents":[' + "1," * n * 50 + "1]}",
    "empty events": lambda n: '{"traceEvents":[' + "{}," * n * 50 + "{}]}",
    "a time of many digits": lambda n: TEXT.replace('"ts": 0', '"ts": ' + "9" * n * 100, 1),
    "a fraction of many digits": lambda n: TEXT.replace('"ts": 0', '"ts": 0.' + "9" * n * 100, 1),
    "an id of many digits": lambda n: TEXT.replace('"correlation": 0', '"correlation": "' + "9" * n * 100 + '"', 1),
    "powers of ten": lambda n: TEXT.replace('"ts": 0', '"ts": 1e-99999999', 1).replace('"dur": 1,', '"dur": 1e999999999,', 1),
    "a base time that is a text": lambda n: document(SMALL, baseTimeNanoseconds="1e18"),
    "the last base time": lambda n: document([e | {"ts": e["ts"] + 4e15} for e in SMALL], baseTimeNanoseconds=2**63 - 1),
    "the first base time": lambda n: document(SMALL, baseTimeNanoseconds=-(2**63)),
    "kernels of a hundred years": lambda n: document([*SMALL, *(kernel(i, 50, 4.6e15) for i in range(95, 99))]),
    "a span of 300 years": lambda n: document([*SMALL, kernel(99, -4.6e15, 4.6e15), kernel(98, 4.6e15, 4.6e15)]),
    "a name of megabytes": lambda n: document([*SMALL, kernel(9, 9, 3, "n" * n * 1000)]),
    "kinds of event": lambda n: document([event(f"c{i}", "x", i, 1) for i in range(n)]),
    "names": lambda n: document([x for i in range(n) for x in (op(10 * i, 5, f"aten::o{i}"), launch(i, 10 * i + 1), kernel(i, 10 * i + 100, 3, f"k{i}"))]),
    "streams": lambda n: document([x for i in range(n) for x in (op(10 * i, 5), launch(i, 10 * i + 1), kernel(i, 10 * i, 300, stream=i))]),
    "devices": lambda n: document([x for i in range(n // 4) for x in (launch(i, 10 * i + 1), kernel(i, 10 * i, 300, device=i))]),
    "one launch of all": lambda n: document([*(op(i, 1) for i in range(n)), launch(5, 1), *(kernel(5, i) for i in range(n))]),
    "all launches of one": lambda n: document([*(launch(5, i) for i in range(n)), *(kernel(5, i) for i in range(n))]),
    "all at one time": lambda n: document([x for i in range(n) for x in (op(5, 5, **D), launch(i, 5), kernel(i, 5, 3))]),
    "operators in operators": lambda n: document([op(i, 100_000 - 2 * i) for i in range(n)] + [launch(1, 30_000), kernel(1, 50_000)]),
    "no duration": lambda n: document([x for i in range(n) for x in (op(i, 0), launch(i, i), kernel(i, i, 0))]),
    "a chain": lambda n: document([x for i in range(n) for x in (op(10 * i, 5, ("aten::mul", "aten::neg")[i % 2], **D), launch(i, 10 * i + 1), kernel(i, 10 * i, 9))]),
    "steps": lambda n: document([*SMALL, *(step(i, i, 1) for i in range(n * 4))]),
    "steps in steps": lambda n: document([*SMALL, *(step(i, 0, 100_000 - i) for i in range(n))]),
    "calls in a ring": lambda n: document([*SMALL, *(python(i, (i + 1) % n, i / 10, 400 - i / 20) for i in range(n))]),
    "a call of itself": lambda n: document([*SMALL, *(python(1, 1, i / 10, 400) for i in range(n))]),
    "calls in calls": lambda n: document([*SMALL, *(python(i, i - 1, i / 1000, 400 - i / 500) for i in range(n * 4))]),
    "modules in modules": lambda n: document([*SMALL, *(python(i, i - 1, 0, 400 - i / 100, f"nn.Module: M_{i}") for i in range(n))]),
    "arrows in a ring": lambda n: document([*SMALL, *({"ph": p, "cat": "ac2g", "id": 1, "name": "x", "pid": 1, "tid": 1, "ts": i} for i in range(n) for p in "sf")]),
    "surrogates": lambda n: TEXT.replace('"k"', '"\\ud800\\udfff\\ud800"'),
    "an array alone": lambda n: json.dumps(SMALL),
    "other marks of order": lambda n: b"\xef\xbb\xbf" + TEXT.encode(),
    "UTF-16": lambda n: TEXT.encode("utf-16"),
    "nothing": lambda n: b"",
    "blanks": lambda n: b" \n" * n * 100,
    "a mark of order alone": lambda n: b"\xef\xbb\xbf",
    "a long trailer": lambda n: TEXT[:-1] + ',"x":"' + "y" * n * 1000 + '"}',
    "gzip of zeros": lambda n: gzip.compress(b"\0" * n * 10_000, 9),
    "gzip of blanks": lambda n: gzip.compress(b" " * n * 25_000, 9),
    "gzip of one event": lambda n: gzip.compress((TEXT[:-2] + ("," + json.dumps(kernel(1, 1))) * n * 20 + "]}").encode(), 9),
    "gzip, a byte a member": lambda n: b"".join(gzip.compress(bytes([b])) for b in TEXT.encode()[: n * 4]),
    "gzip, empty members": lambda n: gzip.compress(b"") * n * 20 + gzip.compress(TEXT.encode()),
    "gzip in gzip": lambda n: gzip.compress(gzip.compress(TEXT.encode())),
    "gzip, a long name": lambda n: b"\x1f\x8b\x08\x08\0\0\0\0\0\3" + b"n" * n * 500 + b"\0" + gzip.compress(TEXT.encode())[10:],
    "gzip, wrong checksum": lambda n: gzip.compress(TEXT.encode())[:-8] + b"\0" * 8,
    "bzip2": lambda n: bz2.compress(TEXT.encode()),
    "xz": lambda n: lzma.compress(TEXT.encode()),
    "gzip of separators": lambda n: gzip.compress(('{"traceEvents":[' + '},{"ph"' * n * 100).encode(), 9),
    "gzip of brackets": lambda n: gzip.compress(('{"schemaVersion":1,"x":' + "[" * n * 1000).encode(), 9),
}  # fmt: skip
PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_a_file_made_by_hand_is_read_or_refused_in_time(attacks: Callable[..., Attack], long: bool, part: int) -> None:
    attack = attacks("kineto, made by hand")
    for name in list(FILES)[part::PARTS]:
        content = FILES[name](16 * N if long else N)
        attack.fresh()
        (attack.here / "t.json").write_bytes(
            content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        )

        def must(ended: Ended) -> None:
            if ended.code == 0:
                keeps_the_books(json.loads(ended.out))

        limit_s = 90.0 if long else 10.0
        attack("scan", "t.json", "--format", "json", "-q", label=name, must=must, limit_s=limit_s, memory=4 << 30)


ROWS = 3_000_000  # equal ones: some kilobytes of Parquet, and 500 MB as numbers


def swell(path: Path) -> None:
    """Replaces a Parquet table by one of the same columns with very many equal rows."""
    schema = pq.read_schema(path)
    arrays = [
        pa.repeat(pa.scalar(1, each.type), ROWS) if pa.types.is_integer(each.type) else pa.nulls(ROWS, each.type)
        for each in schema
    ]
    nullable = pa.schema([each.with_nullable(True) for each in schema], schema.metadata)
    pq.write_table(pa.Table.from_arrays(arrays, schema=nullable), path, compression="zstd", row_group_size=ROWS)


BOMBS = {
    "a folder of tables": ("parquetdir", "CUPTI_ACTIVITY_KIND_KERNEL.parquet", ["scan", "b", "-q"]),
    "a timeline": ("timeline_chain", "memory.parquet", ["scan", "b", "-q"]),
    "counters in a timeline": ("timeline_counters", "counters.parquet", ["scan", "b", "-q"]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_table_that_swells_is_refused_before_it_does(attacks: Callable[..., Attack], name: str) -> None:
    """The addresses hold what a command needs, and not what the table would."""
    attack = attacks("tables that swell")
    folder, table, args = BOMBS[name]
    shutil.copytree(prepared() / folder, attack.here / "b")
    swell(attack.here / "b" / table)

    def must(ended: Ended) -> None:
        assert not re.search("damaged|malloc|memory(?!.parquet)", ended.said), ended.said

    attack(*args, label=name, codes=(2,), must=must, limit_s=10.0, memory=4 << 30)
