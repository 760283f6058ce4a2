"""Mistakes that were made and mended, a row each: how it is set up, what is run, and what must hold."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attack.changes import prepared
from tests.attack.harness import FIXTURES, Attack, Ended
from tests.attack.test_by_hand import SMALL, TEXT, kernel, launch, op

TRACE = FIXTURES / "kineto/chain.json.gz"
PRECIOUS = Path("../home/rc")


@dataclass(frozen=True)
class Row:
    """A mistake. must: what holds beside that nothing is written but `may_write` and the exit code is one of `codes`."""

    setup: Callable[[Path], object]
    args: Sequence[object]
    codes: Sequence[int] = (2,)
    must: Callable[[Ended, Path], object] = lambda ended, here: True
    may_write: Sequence[str] = ("out",)
    how: dict[str, Any] = field(default_factory=dict)


def findings(here: Path) -> dict[str, Any]:
    """Findings, and the trace that they are of."""
    shutil.copyfile(FIXTURES / "captures/chain/trace.json.gz", here / "chain.json.gz")
    whole: dict[str, Any] = json.loads((prepared() / "findings_chain.json").read_bytes())
    whole["trace"] |= {"path": "chain.json.gz", "execution_trace": None}
    (here / "f.json").write_text(json.dumps(whole))
    return whole


def link(name: str) -> Callable[[Path], None]:
    """Findings, and beside them a link of this name to a file of the user's."""

    def setup(here: Path) -> None:
        findings(here)
        (here / name).symlink_to(PRECIOUS)

    return setup


def emitted_link(here: Path) -> None:
    whole = findings(here)
    (here / "em").mkdir()
    for variant in (variant for finding in whole["findings"] for variant in finding["variants"]):
        name = f"{variant['identity']['finding']}_{finding_file(whole)}.py"
        (here / "em" / name).symlink_to(".." / PRECIOUS)


def finding_file(whole: dict[str, Any]) -> str:
    """What the name of a reproduction says beside the fingerprint."""
    finding = whole["findings"][0]
    return re.sub(r"\W+", "_", f"{finding['rule']}_{finding['module'].rpartition('.')[2]}").strip("_").removesuffix("_")


def harness_link(here: Path) -> None:
    findings(here)
    (here / "em").mkdir()
    (here / "em/tracemine_repro.py").symlink_to(".." / PRECIOUS)


def with_rule(here: Path, **lines: str) -> Path:
    """The folder `rules` with a rule of these values; the rule's file."""
    told = {"title": '"t"', "status": '"stable"', "what": '"w"', "why": '"y"', "fix": '"f"', "saving": '"fuse"'}
    told |= {"pattern": '"a{2,}"', "define.a": '{ op_class = "elementwise" }', **lines}
    (here / "rules/r1").mkdir(parents=True)
    path = here / "rules/r1/rule.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in told.items()))
    return path


def table(name: str, column: str, value: object, source: str = "timeline_chain") -> Callable[[Path], None]:
    """A timeline with one value in a column of a table replaced everywhere."""

    def setup(here: Path) -> None:
        shutil.copytree(prepared() / source, here / "tl")
        path = here / f"tl/{name}.parquet"
        data = pq.read_table(path)
        at = data.schema.get_field_index(column)
        values = pa.array([value] * data.num_rows, data.schema.field(at).type)
        pq.write_table(data.set_column(at, data.schema.field(at), values), path)

    return setup


def fifo(at: str) -> Callable[[Path], None]:
    """A timeline and a rule, and a FIFO in place of one of their files."""

    def setup(here: Path) -> None:
        shutil.copytree(prepared() / "timeline_chain", here / "tl")
        with_rule(here)
        (here / at).unlink()
        os.mkfifo(here / at)

    return setup


def put(**files: str | bytes) -> Callable[[Path], None]:
    """Files of this content; "__" stands for the dot of a name."""

    def setup(here: Path) -> None:
        for name, content in files.items():
            data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
            (here / name.replace("__", ".")).write_bytes(data)

    return setup


def timeline_with_notes(here: Path) -> None:
    shutil.copytree(prepared() / "timeline_chain", here / "out")
    (here / "out/notes.txt").write_text("mine")


def old_names(here: Path) -> None:
    """Links under the names that staging files had: the target's, and the number of the next processes."""
    last = int(Path("/proc/loadavg").read_text().split()[-1])
    for number in range(last, last + 500):
        (here / f".out.{number}.tmp").symlink_to(PRECIOUS)


def escapes(here: Path) -> None:
    shutil.copyfile(TRACE, here / "ok.json.gz")
    (here / "x\x1b]0;P\x07\x1b[2J.json").write_text('{"a": 1}')


def cut_report(here: Path) -> None:
    content = gzip.decompress((FIXTURES / "ncu/chain/raw.csv.gz").read_bytes())
    (here / "r\x1b[31mX.csv").write_bytes(content + b'"x\n')


def no_argument(here: Path) -> None:
    """A chain whose softmax was recorded without the axis that it needs."""
    names = ("aten::_softmax", "aten::mul")
    facts: dict[str, list[Any]] = {
        "Input Dims": [[7, 1024]] * 2,
        "Input type": ["float"] * 2,
        "Input Strides": [[1024, 1]] * 2,
    }
    facts["Concrete Inputs"] = ["", ""]
    one = {key: value[:1] for key, value in facts.items()}
    events = [
        x
        for i in range(12)
        for x in (
            op(9 * i, 8, names[i % 2], **(facts if i % 2 else one)),
            launch(i, 9 * i + 2),
            kernel(i, 50 + 12 * i, 10),
        )
    ]
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150 << 30, "computeMajor": 9, "numSms": 132}
    head = {"schemaVersion": 1, "record_shapes": 1, "deviceProperties": [device]}
    (here / "t.json").write_text(json.dumps({**head, "traceEvents": events}))


def viewed(here: Path) -> None:
    shutil.copyfile(FIXTURES / "nsys/block_train.sqlite", here / "t.sqlite")
    with sqlite3.connect(here / "t.sqlite") as database:
        name = "CUPTI_ACTIVITY_KIND_KERNEL"
        database.execute(f"alter table {name} rename to other")
        database.execute(f"create view {name} as select * from other")  # noqa: S608
    database.close()


def fingerprint(mark: str) -> Callable[[Path], None]:
    """Findings that all have this fingerprint, and so have their variants: those name files."""

    def setup(here: Path) -> None:
        whole = findings(here)
        for finding in whole["findings"]:
            finding["fingerprint"] = mark
            for one in (finding, *finding["variants"]):
                one["identity"] = {"finding": mark, "aliases": [mark]}
        (here / "f.json").write_text(json.dumps(whole))

    return setup


def says(text: str) -> Callable[[Ended, Path], None]:
    """Asserts that a pattern is in what is printed."""

    def must(ended: Ended, here: Path) -> None:
        both = (ended.out + ended.err).decode("utf-8", "replace")
        assert re.search(text, both, re.IGNORECASE), both[-600:]

    return must


def holds(condition: Callable[[Path], object]) -> Callable[[Ended, Path], None]:
    """Asserts a condition of the folder."""

    def must(ended: Ended, here: Path) -> None:
        assert condition(here), sorted(str(p.relative_to(here)) for p in here.rglob("*"))

    return must


AFTER = "after|behind|second|further|document"  # what is said of what stands behind a trace's end
INGEST = ("scan", "t.json", "--all", "--parquet", "out")
NO_UTF8 = '{"schema_version":1,"trace":{"path":"\udcff"}}'
DEEP = '{"schema_version":1,"trace":"t","zz":' + "[" * 5000 + "]" * 5000 + ',"verdicts":[]}'
FEW: dict[str, Any] = {"may_write": ("em", "f.verdicts.json", "f.verdicts.parquet")}

KNOWN: dict[str, Row] = {
    # what is written, and where
    "a link where verdicts go as a table": Row(link("f.verdicts.parquet"), ("verify", "f.json", "-q", "--top", "1"), may_write=()),
    "a link where verdicts go": Row(link("f.verdicts.json"), ("verify", "f.json", "-q", "--top", "1"), may_write=()),
    "another file where verdicts go as a table": Row(
        lambda here: (findings(here), (here / "f.verdicts.parquet").write_text("mine")), ("verify", "f.json", "-q", "--top", "1"), may_write=()),
    "a link where the harness of reproductions goes": Row(harness_link, ("verify", "f.json", "-q", "--top", "1", "--emit", "em"),
        **FEW),
    "a link where a reproduction goes": Row(emitted_link, ("verify", "f.json", "-q", "--top", "1", "--emit", "em"),
        **FEW),
    "a file beside the tables of a timeline": Row(timeline_with_notes, ("scan", TRACE, "-q", "--parquet", "out"), (0, 2), holds(lambda here: (here / "out/notes.txt").exists())),
    "links under guessed names": Row(old_names, ("scan", TRACE, "-q", "-o", "out"), (0,), holds(lambda here: not (here / "out").is_symlink())),
    "a full disk, told with its place": Row(put(), ("scan", TRACE, "-q", "--parquet", "out"), must=says(r"^out\b"), how={"file_size": 2000}),
    "a rule with a number of thousands of digits": Row(lambda here: with_rule(here, size="9" * 5000), ("rules", "list", "--rules", "rules"), must=says("is not TOML")),
    "settings with a number of thousands of digits": Row(put(pyproject__toml=f"[tool.x]\nbig = {'9' * 5000}\n"), ("scan", TRACE), must=says("is not TOML")),
    # what is printed
    "escape sequences in names of a folder": Row(escapes, ("scan", "."), (0,), says("left out")),
    "escape sequences in a report's name": Row(cut_report, ("top", "r\x1b[31mX.csv"), (0, 2)),
    "escape sequences in a rule": Row(lambda here: with_rule(here, title='"a\\u001b[2J"', why='"y \\u202e <img src=x>"'), ("rules", "show", "r1", "--rules", "rules"), (0, 2)),
    # what is read
    "findings that are no UTF-8": Row(put(f__json=NO_UTF8), ("scan", "f.json")),
    "findings that are no UTF-8, verified": Row(put(f__json=NO_UTF8), ("verify", "f.json")),
    "verdicts that are no UTF-8": Row(lambda here: (findings(here), put(f__verdicts__json='{"trace":"\udcff"}')(here)), ("verify", "f.json", "-q")),
    "verdicts that are deep": Row(lambda here: (findings(here), put(f__verdicts__json=DEEP)(here)), ("verify", "f.json", "-q")),
    "a timeline's position before the first": Row(table("tensors", "position", -(2**31)), ("scan", "tl", "-q")),
    "a timeline's sizes past the last": Row(table("tensors", "numel", 2**63 - 1), ("scan", "tl", "-q"), (0, 2)),
    "a timeline's shapes, deep": Row(table("ops", "input_shapes", "[" * 3000), ("scan", "tl", "-q"), (0, 2)),
    "counters whose activity is beyond the last": Row(table("counters", "activity_rows", [2**62], "timeline_counters"), ("scan", "tl", "-q")),
    "counters with a name that acts on a terminal": Row(table("counters", "name", "k\x1b[2J\u202e", "timeline_counters"), ("top", "tl", "--ncu", "tl"), (0,)),
    "counters with more bytes than can be": Row(table("counters", "dram_bytes", 2**63 - 1, "timeline_counters"), ("scan", "tl", "-q")),
    "a FIFO among a timeline's tables": Row(fifo("tl/ops.parquet"), ("scan", "tl", "-q"), how={"limit_s": 10.0}),
    "a FIFO that is a rule": Row(fifo("rules/r1/rule.toml"), ("rules", "list", "--rules", "rules"), how={"limit_s": 10.0}),
    "two traces in a file": Row(put(t__json=TEXT + TEXT), INGEST, (0, 2), says(AFTER)),
    "two lists in a file": Row(put(t__json=json.dumps(SMALL) * 2), INGEST, (0, 2), says(AFTER)),
    "two members of gzip, each a trace": Row(put(t__json=gzip.compress(TEXT.encode()) * 2), INGEST, (0, 2), says(AFTER)),
    "two lists of events": Row(put(t__json=TEXT[:-1] + f',"traceEvents":{json.dumps(SMALL)}}}'), INGEST, (0, 2), says("second|further|twice|more than one|again|left out")),
    "text after the end": Row(put(t__json=TEXT + "x" * 1000), INGEST, (0, 2), says(AFTER)),
    "bytes after the end of gzip": Row(put(t__json=gzip.compress(TEXT.encode()) + b"junk" * 1000), INGEST, (0, 2), says(AFTER)),
    "blanks and zeros after the end": Row(put(t__json=gzip.compress(TEXT.encode() + b" \n") + b"\0" * 512), INGEST, (0,), lambda ended, here: _quiet(ended)),
    "events that are an object": Row(put(t__json='{"schemaVersion":1,"traceEvents":{"a":1}}'), ("scan", "t.json", "-q")),
    "events that are a text": Row(put(t__json='{"schemaVersion":1,"traceEvents":"x"}'), ("scan", "t.json", "-q")),
    "a wrong checksum": Row(put(t__json=gzip.compress(TEXT.encode())[:-8] + b"\0" * 8), ("scan", "t.json", "--parquet", "out"), (0,), says(r"rows of 40 activities")),
    "a table of kernels that is a view": Row(viewed, ("scan", "t.sqlite", "--parquet", "out"), (0, 2), says("view|left out|rows of [1-9]")),
    # what is claimed
    "an argument that was not recorded": Row(no_argument, ("verify", "t.json", "-q", "--top", "1", "--emit", "em"), (0,),
        holds(lambda here: not list((here / "em").glob("*.py"))), ("em",)),
    "a fingerprint that is a path": Row(fingerprint("/../" + str(PRECIOUS)), ("verify", "f.json", "-q", "--top", "1", "--emit", "em"), may_write=("em",)),
    "a fingerprint of another finding": Row(fingerprint("0123456789abcdef"), ("verify", "f.json", "-q", "--top", "1"), (0, 2),
        lambda ended, here: _unproved(ended), **FEW),
    "a fingerprint of other letters": Row(fingerprint("\x1b[2J0123456789ab"), ("scan", "f.json"), (0, 2)),
    "a gain of three hundred years": Row(
        lambda here: put(f__json=json.dumps(_huge(findings(here))))(here), ("scan", "f.json"), (0, 2), lambda ended, here: _no_centuries(ended)),
    # what takes time
    "a rule with a search in a name of megabytes": Row(
        lambda here: (with_rule(here, **{"define.a": '{ name.re = "k.*b" }'}),
                      put(t__json=gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": [*SMALL, kernel(99, 900, 3, "k" * 10**6)]}).encode()))(here)),
        ("scan", "t.json", "-q", "--rules", "rules"), (0, 2), how={"limit_s": 20.0}),
}  # fmt: skip


def _unproved(ended: Ended) -> None:
    assert b"right in the interpreter" not in ended.out, ended.out


def _quiet(ended: Ended) -> None:
    assert not re.search(AFTER, ended.out.decode(), re.IGNORECASE), ended.out


def _huge(whole: dict[str, Any]) -> dict[str, Any]:
    for finding in whole["findings"]:
        finding["gpu_saving_ns"]["high"] = 2**63 - 1
    return whole


def _no_centuries(ended: Ended) -> None:
    assert ended.code == 2 or not re.search(rb"\d{7,} s", ended.out), ended.out[:600]


def once(attack: Attack, name: str, **how: Any) -> None:
    """Tries one of them."""
    row = KNOWN[name]
    attack.fresh()
    row.setup(attack.here)
    attack(
        *row.args,
        label=name,
        codes=row.codes,
        may_write=row.may_write,
        must=lambda ended: row.must(ended, attack.here),
        **row.how,
        **how,
    )


@pytest.mark.parametrize("name", KNOWN)
def test_a_mistake_that_was_mended_stays_so(attacks: Callable[..., Attack], name: str) -> None:
    once(attacks("mistakes that were mended"), name)
