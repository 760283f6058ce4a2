"""The skill: what it tells an agent to call can be called, in its order, and names nothing that is not there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
import typer

from tests.mcp.sessions import ANSWERS, FIXTURES, ROOT, wrong
from tracemine.agents.folders import Folders
from tracemine.agents.served import TOOLS, Served
from tracemine.cli import whole

TEXT = (ROOT / "docs" / "skill" / "SKILL.md").read_text("utf-8")
CALLS = [json.loads(block) for block in re.findall(r"```json\n(.+?)\n```", TEXT, re.S)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The folder of the skill: a capture before, a trace after."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(FIXTURES / "captures" / "decoder_prefill", folder / "before")
    (folder / "after").mkdir()
    shutil.copy(FIXTURES / "kineto" / "decoder_prefill_compiled.json.gz", folder / "after" / "trace.json.gz")
    return Served(Folders.of([folder]))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call["tool"])
def test_every_call_of_the_skill_is_answered(runs: Served, call: dict[str, object]) -> None:
    answer = runs.call(str(call["tool"]), dict(call["arguments"]))  # type: ignore[call-overload]
    assert not isinstance(answer, str), answer
    assert wrong(str(call["tool"]), json.loads(msgspec.json.encode(answer))) == []


def test_the_skill_walks_from_a_scan_to_a_diff_and_names_every_tool() -> None:
    assert [call["tool"] for call in CALLS] == ["scan", "explain", "why_not", "emit", "diff"]
    assert all(f"`{name}`" in TEXT for name in TOOLS)


def test_the_skill_names_keys_that_answers_have() -> None:
    keys = {name for one in ANSWERS.values() for part in (one, *one["$defs"].values()) for name in part["properties"]}
    for name in (
        "bound_by",
        "missing",
        "warnings",
        "limits",
        "false_positives",
        "differs",
        "comparable",
        "next",
        "per",
    ):
        assert name in keys
        assert re.search(rf"`{name}\b", TEXT)


def test_the_skill_names_commands_and_options_that_there_are() -> None:
    commands = getattr(typer.main.get_command(whole()), "commands")  # noqa: B009 - typer types it as a command
    for line in re.findall(r"`tracemine ([^`]+)`", TEXT):
        name, *arguments = line.split()
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {one for one in arguments if one.startswith("--")} <= options, line


def test_the_skill_is_short_and_says_when_it_is_for() -> None:
    assert len(TEXT.split()) <= 600
    head = re.match(r"---\nname: tracemine\ndescription: (.+)\n---\n", TEXT)
    assert head is not None
    assert len(head[1]) <= 1024
    assert ": " not in head[1]  # it is YAML


def test_the_skill_lies_where_the_guide_says() -> None:
    assert "../skill/SKILL.md" in (Path(ROOT) / "docs" / "guide" / "agents.md").read_text("utf-8")
