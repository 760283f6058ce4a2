"""Hostile texts in every place of a trace: what is printed and written holds them harmless, and none becomes code."""

from __future__ import annotations

import ast
import copy
import csv
import gzip
import io
import json
import re
import shutil
import sqlite3
import tokenize
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tracemine
from tests.attack.changes import trace
from tests.attack.harness import FIXTURES, UNSEEN, Attack, Ended
from tests.attack.test_known import with_rule

MARK = "PWNED"
ONCE: dict[str, Any] = {"program": "tests.attack.ways:analysed_once"}  # one trace, drawn in many forms
TEXTS = (
    f'"""\n\'\'\'\nimport os; os.system("touch {MARK}")\n#', f"a\n{MARK} = 1\n", f"a\r{MARK}=1\r",
    f"a\u2028{MARK}=1\u2029b\x85c\x0cd", f"{MARK}\\", f"{MARK}\0", f"\x1b[2J\x1b]0;{MARK}\x07\x9b31m", f"\u202e{MARK}\u2066",
    f"<img src=x onerror={MARK}>&lt;<script>", f"](http://{MARK}) ![x](http://{MARK}) @{MARK} #1 `{MARK}`", f"|{MARK}|\n|---|",
    f"{{{MARK}!r}}{{0.__class__}}%({MARK})s%s", f"../../../../{MARK}", f"{MARK}\u00a0\u200b\ufeff", f"{MARK}\ud800",
    f"[bold red]{MARK}[/] :smile:", f"$(touch {MARK}) `touch {MARK}`;", f'=cmd|" /C {MARK}"!A1',
)  # fmt: skip
# Live in Markdown, outside code: markup, a link, a mention, a line that a text begins by itself.
LIVE = re.compile(rb"(?<!\\)<(img|script)|(?<!\\)\]\(http|(?<![\w\\])@PWNED|(?m:^PWNED)|(?m:^\|PWNED)")
CODE = re.compile(rb"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def _append(event: dict[str, Any], text: str) -> None:
    event["name"] += text


def _lists(key: str) -> Callable[[dict[str, Any], str], None]:
    def change(event: dict[str, Any], text: str) -> None:
        event["args"][key] = [each + text if each else each for each in event["args"].get(key, ())]

    return change


# Where a text is put: which events, and how.
PLACES: dict[str, tuple[Callable[[dict[str, Any]], object], Callable[[dict[str, Any], str], None]]] = {
    "kernel": (lambda e: e.get("cat") == "kernel", _append),
    "operator": (lambda e: e.get("name") == "aten::relu", _append),
    "function": (lambda e: ".py(" in e.get("name", ""), lambda e, text: e.update(name=text + e["name"] + text)),
    "module": (lambda e: e.get("name", "").startswith("nn.Module"), _append),
    "annotation": (lambda e: e.get("cat") == "user_annotation", _append),
    "dtype": (lambda e: e.get("cat") == "cpu_op", _lists("Input type")),
    "argument": (lambda e: e.get("cat") == "cpu_op", _lists("Concrete Inputs")),
    "counter": (lambda e: e.get("cat") == "kernel", lambda e, text: e["args"].update({"Collective name": text, "queued": text})),
    "category": (lambda e: e.get("cat") == "ac2g", lambda e, text: e.update(cat=text)),
}  # fmt: skip


# With another text in one of these a trace has no findings: they come beside the others, in a trace of their own.
DECISIVE = ("operator", "dtype")


def hostile(texts: dict[str, str], device: str = "") -> dict[str, Any]:
    """A recording with a text in each place, and another one in its header."""
    document = copy.deepcopy(trace("chain"))
    for event in document["traceEvents"]:
        for place, text in texts.items():
            fits, change = PLACES[place]
            if fits(event) and event.get("ph") != "M":
                change(event, text)
    document["deviceProperties"][0]["name"] += device
    return document | {"distributedInfo": {"rank": 0, "backend": device}, "trace_id": device}


class Parsed(HTMLParser):
    """Elements of a page, each with the names of its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: set[tuple[str, str]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {(tag, ""), *((tag, name) for name, _ in attrs)}


def _ours() -> set[tuple[str, str]]:
    """Return the same of our templates, and where names may break: no text of a trace adds to it."""
    templates = (Path(tracemine.__file__).parent / "report/html/templates").glob("*.html")
    return {("wbr", "")}.union(
        *(Parsed(re.sub(r"{[%{#].*?[%}#]}", "", path.read_text("utf-8"))).attributes for path in templates)
    )


OUR_ATTRIBUTES = _ours()


def harmless(args: list[str]) -> Callable[[Ended], None]:
    """Asserts of Markdown that nothing in it is live."""

    def check(ended: Ended) -> None:
        if "markdown" in args or "--finding" in args:
            found = LIVE.search(CODE.sub(b"", ended.out))
            assert not found, f"live in Markdown: {ended.out[max(found.start() - 40, 0) : found.end() + 40]!r}"
        if "html" in args:
            assert Parsed(ended.out.decode()).attributes <= OUR_ATTRIBUTES

    return check


def only_told(path: Path) -> None:
    """Asserts of a Python file that it is one, and has texts of the trace in strings and comments alone."""
    source = path.read_text("utf-8")
    ast.parse(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        assert MARK not in token.string or token.type in (tokenize.STRING, tokenize.COMMENT), token.line
    assert not UNSEEN.search(source.encode()), "control bytes in a file"


@pytest.mark.parametrize("turn", range(len(TEXTS)))
def test_every_text_in_every_place_comes_out_harmless(attacks: Callable[..., Attack], turn: int) -> None:
    """Over all turns each place has had each text."""
    attack = attacks("hostile texts")
    texts = {place: TEXTS[(turn + k) % len(TEXTS)] for k, place in enumerate(PLACES)}
    name = re.sub(r"[/\x00\ud800]", "_", f"t{TEXTS[turn]}.json")
    attack.fresh()
    (attack.here / "all.json").write_text(json.dumps(hostile(texts, TEXTS[turn - 1])))
    (attack.here / name).write_text(json.dumps(hostile({p: t for p, t in texts.items() if p not in DECISIVE})))
    for args in (
        ["scan", name, "--format", "json", "-q", "-o", "f.json"],
        ["scan", name, "--top", "0", "--why-not", "--min-saving", "0ns"],
        ["scan", name, "--top", "0", "--format", "markdown"],
        ["scan", "all.json", "--top", "0", "--why-not", "--min-saving", "0ns"],
        ["scan", "all.json", "--top", "0", "--format", "markdown"],
        ["scan", "all.json", "--format", "json"],
        ["scan", name, "--format", "html"],
        ["scan", "all.json", "--format", "html"],
        ["scan", "f.json", "--format", "html"],
        ["scan", "all.json", "-q", "-f", "perfetto", "-o", "over.json"],
        ["scan", "f.json", "--format", "markdown"],
        ["explain", "FIRST", "f.json", "--format", "markdown"],
        ["scan", name, "--parquet", "tl"],
    ):
        if "FIRST" in args:
            args[1] = json.loads((attack.here / "f.json").read_bytes())["findings"][0]["fingerprint"]
        may_write = ["f.json", "tl", "over.json"]
        attack(*args, label=f"{turn} {args[:1]}", codes=(0,), may_write=may_write, must=harmless(args), **ONCE)


def test_texts_of_findings_come_out_harmless(attacks: Callable[..., Attack], long: bool) -> None:
    """Findings that were not written by a scan: every text in them is another."""
    attack = attacks("hostile texts")
    for turn, text in enumerate(TEXTS[:: 1 if long else 2]):
        attack.fresh()
        (attack.here / "t.json").write_text(json.dumps(trace("chain")))
        attack.run("scan", "t.json", "-q", "--format", "json", "-o", "f.json", **ONCE)
        whole = json.loads((attack.here / "f.json").read_bytes())
        (attack.here / "f.json").write_text(json.dumps(_with_texts(whole, text)))
        for more in ([], ["--format", "markdown"], ["--format", "json"], ["--format", "html"], ["c"]):
            args = ["explain", "c", "f.json", "-q"] if more == ["c"] else ["scan", "f.json", "-q", *more]
            attack(*args, label=f"findings {turn} {more}", must=harmless(args) if more != ["c"] else None)


def _with_texts(value: Any, text: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _with_texts(v, text, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_texts(v, text) for v in value]
    return (
        value + text
        if isinstance(value, str) and key not in ("fingerprint", "finding", "confidence", "severity", "kind")
        else value
    )


def counted(here: Path, text: str) -> None:
    """A table of Nsight Compute whose kernels have this text in their names."""
    rows = list(csv.reader(io.StringIO(gzip.decompress((FIXTURES / "ncu/chain/raw.csv.gz").read_bytes()).decode())))
    at = rows[0].index("Kernel Name")
    with (here / "r.csv").open("w", encoding="utf-8", errors="replace", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [[*row[:at], "k" + text, *row[at + 1 :]] if n > 1 else row for n, row in enumerate(rows)]
        )


def exported(here: Path, text: str) -> None:
    """A database of Nsight Systems with this text at the end of every other one."""
    shutil.copyfile(FIXTURES / "nsys/block_train.sqlite", here / "t.sqlite")
    with sqlite3.connect(here / "t.sqlite") as database:
        database.execute("update StringIds set value = value || ?", (text.encode("utf-8", "replace").decode(),))
        database.execute("update NVTX_EVENTS set text = text || ?", (text.encode("utf-8", "replace").decode(),))
    database.close()


def ruled(here: Path, text: str) -> None:
    """A rule of which every sentence ends with this text."""
    told = json.dumps("a" + text.replace("\ud800", ""), ensure_ascii=False)
    told = re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", told)
    with_rule(here, title=told, what=told, why=told, fix=told, limits=f"[{told}]", references=f"[{told}]")


OTHERS: dict[str, tuple[Callable[[Path, str], None], list[list[str]]]] = {
    "counters": (counted, [["top", "r.csv"], ["top", "r.csv", "--format", "markdown"], ["top", "r.csv", "--format", "json"]]),
    "databases": (exported, [["scan", "t.sqlite", "--top", "0"], ["scan", "t.sqlite", "--format", "markdown"], ["scan", "t.sqlite", "--format", "json"]]),
    "rules": (ruled, [["rules", "list", "--rules", "rules"], ["rules", "show", "r1", "--rules", "rules"]]),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_texts_of_other_inputs_come_out_harmless(attacks: Callable[..., Attack], long: bool, kind: str) -> None:
    attack = attacks("hostile texts")
    put, commands = OTHERS[kind]
    for turn, text in enumerate(TEXTS[:: 1 if long else 2]):
        put(attack.fresh(), text)
        for args in commands:
            attack(*args, label=f"{kind} {turn} {args}", codes=(0, 2), must=harmless(args), **ONCE)


def test_no_text_becomes_code_of_a_reproduction(attacks: Callable[..., Attack], long: bool) -> None:
    attack = attacks("hostile texts, emitted")
    for turn, text in enumerate(TEXTS if long else TEXTS[:1]):
        attack.fresh()
        places = ("kernel", "module", "function", "annotation")  # with other operators or types there is no kernel
        (attack.here / "t.json").write_text(json.dumps(hostile(dict.fromkeys(places, text))))

        def must(ended: Ended) -> None:
            files = list((attack.here / "em").iterdir())
            assert files, "nothing was emitted"
            for file in files:
                only_told(file)

        args = ["verify", "t.json", "-q", "--top", "1", "--emit", "em"]
        attack(*args, label=str(turn), codes=(0,), may_write=["em"], must=must)
