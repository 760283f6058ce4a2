"""tracemine tickets, as it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from tests.report.scans import GAP, NORM
from tests.tickets.build import PART, comparison, scan_of
from tests.tickets.server import Refused, World, running
from tracemine.report import render
from tracemine.tickets import GitHub, Issue, TicketDraft

Run = Callable[..., tuple[int, str, str]]
TRACE = "fixtures/kineto/decoder_prefill.json.gz"


@pytest.fixture
def world() -> Iterator[World]:
    with running() as world:
        yield world
    assert not world.violations


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A findings file, and an environment with tokens and a place for locks of its own."""
    for name in ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_API_URL", "GITHUB_ENTERPRISE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", "t0ken-of-tests")
    monkeypatch.setenv("JIRA_EMAIL", "ann@you.example")
    monkeypatch.setenv("JIRA_API_TOKEN", "t0ken-of-tests")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, text = tmp_path / "findings.json", StringIO()
    render("json", scan_of(GAP, msgspec.structs.replace(NORM, variants=())), text)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_without_apply_it_says_what_it_would_do(run: Run, findings: Path, world: World) -> None:
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address)
    code, out, err = run("tickets", findings, *where)
    assert code == 0
    *text, first, second = out.splitlines()
    assert text[:3] == [
        *("The device waits for the host: −2.55 ms per step (51%)", ""),
        "The device waits for the host, once in 2 steps. The host is slower than the device.",
    ]
    assert "<!--" not in out
    assert first == "create  The device waits for the host: −2.55 ms per step (51%): it has no ticket"
    assert second.startswith("create  Fuse RMSNorm in input_layernorm: −19.0 µs per step (<1%)")
    assert err == "nothing was changed: --apply does it\n"
    assert not world.issues
    assert {method for method, _, _ in world.requests} == {"GET"}


def test_new_tickets_are_filed_as_asked_and_others_left_as_people_have_them(
    run: Run, findings: Path, world: World
) -> None:
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--milestone", "v2")
    asked = (
        *where,
        "--label",
        "perf",
        "--label",
        "gpu",
        "--assignee",
        "@ann",
        "--assignee",
        "carl",
        "--assignee",
        "a/b",
    )
    code, out, err = run("tickets", findings, *asked)
    assert (code, world.issues) == (0, [])
    assert out.splitlines()[-1].endswith("it has no ticket · label perf, label gpu, for ann, milestone 2")
    assert "carl is not assigned: 127.0.0.1" in err and "a/b is not assigned: issues are assigned to people" in err
    assert run("tickets", findings, *asked, "--max", 1, "--apply")[0] == 0
    (issue,) = world.issues
    assert (issue["labels"], issue["assignees"], issue["milestone"]) == (["tracemine", "perf", "gpu"], ["ann"], 2)
    issue |= {"labels": ["tracemine"], "assignees": []}
    assert run("tickets", findings, *asked, "--max", 1, "--apply")[0] == 0
    assert (issue["labels"], issue["assignees"]) == (["tracemine"], [])


def test_a_milestone_that_is_not_there_is_an_error_before_anything_is_created(
    run: Run, findings: Path, world: World
) -> None:
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--apply")
    code, out, err = run("tickets", findings, *where, "--milestone", "v3")
    assert (code, out, world.issues) == (2, "", [])
    assert err == "--milestone: there is no open one 'v3'\n  hint: there are: v1, v2\n"


@pytest.mark.parametrize("name", ["ann", "ann@you.example", "id-ann"])
def test_jira_assigns_one_who_is_named_by_one_name(run: Run, findings: Path, world: World, name: str) -> None:
    where = ("--project", "decoder", "--jira", world.address, "--jira-project", "PERF", "--apply", "--max", 1)
    code, _, err = run("tickets", findings, *where, "--label", "perf", *("--assignee", name, "--assignee", "bob"))
    assert (code, err) == (0, "bob is not assigned: an issue of Jira has one assignee\n")
    assert (world.issues[0]["labels"], world.issues[0]["assignees"]) == (["tracemine", "perf"], ["id-ann"])


@pytest.mark.parametrize(
    ("option", "says"),
    [(("--label", "two words"), "--label: 'two words' has a space"), (("--milestone", "v1"), "Jira has none")],
)
def test_what_jira_cannot_take_is_said_before_anything_is_created(
    run: Run, findings: Path, world: World, option: tuple[str, str], says: str
) -> None:
    where = ("--project", "decoder", "--jira", world.address, "--jira-project", "PERF", "--apply")
    code, _, err = run("tickets", findings, *where, *option)
    assert code == 2 and says in err and not world.issues
    _, _, err = run("tickets", findings, *where, "--assignee", "you")  # both have it in their addresses
    assert "you is not assigned: it names no one there, or several" in err


def test_who_owns_the_line_is_assigned_and_else_who_was_named(
    run: Run, findings: Path, world: World, tmp_path: Path
) -> None:
    (tmp_path / "repo" / ".github").mkdir(parents=True)
    (tmp_path / "repo" / "train.py").touch()
    (tmp_path / "repo" / ".github" / "CODEOWNERS").write_text("* @ann\n/train.py @bob # the loop\n")
    norm = msgspec.structs.replace(NORM, variants=(), source=(NORM.source[1],))
    text = StringIO()
    render("json", scan_of(GAP, norm), text)
    findings.write_text(text.getvalue(), encoding="utf-8")
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--apply")
    assert run("tickets", findings, *where, "--codeowners", tmp_path / "repo", "--assignee", "ann")[0] == 0
    assert [one["assignees"] for one in world.issues] == [["ann"], ["bob"]]


def test_applied_twice_it_creates_once(run: Run, findings: Path, world: World) -> None:
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--apply")
    code, out, err = run("tickets", findings, *where)
    assert (code, err) == (0, "")
    assert [line.split("  ")[0] for line in out.splitlines()] == ["create #1", "create #2"]
    code, out, _ = run("tickets", findings, *where)
    assert [line.split("  ")[0] for line in out.splitlines()] == ["leave #1", "leave #2"]
    assert len(world.issues) == 2


def test_what_a_comparison_calls_fixed_is_closed(run: Run, findings: Path, world: World, tmp_path: Path) -> None:
    where = ("--project", "decoder", "--jira", world.address, "--jira-project", "PERF", "--apply")
    assert run("tickets", findings, *where)[0] == 0
    diff, after = tmp_path / "diff.json", tmp_path / "after.json"
    diff.write_bytes(msgspec.json.encode(comparison({"status": "fixed", "before": [PART], "after": []})))
    code, out, err = run("tickets", findings, *where, "--after", diff)
    assert (code, out) == (2, "")
    assert f"{diff} says fixed of {GAP.fingerprint}, and the findings given still have it" in err.splitlines()[0]
    text = StringIO()
    render("json", scan_of(msgspec.structs.replace(NORM, variants=())), text)
    after.write_text(text.getvalue(), encoding="utf-8")
    code, out, _ = run("tickets", after, *where, "--after", diff)
    assert code == 0
    assert out.splitlines()[-1].startswith("close PERF-1  ")
    assert [one["state"] for one in world.issues] == ["closed", "open"]


def test_a_service_that_refuses_is_an_error_after_what_was_done(
    run: Run, findings: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = world.answer

    def answer(method: str, url: str, content: object) -> tuple[int, object, dict[str, str]]:
        if world.issues and method == "POST":
            raise Refused(410, "Issues are disabled for this repo")
        return answers(method, url, content)

    monkeypatch.setattr(world, "answer", answer)
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--apply")
    code, out, err = run("tickets", findings, *where)
    assert code == 2
    assert out.splitlines()[0].startswith("create #1  The device waits")
    assert out.splitlines()[1].endswith(", not done")
    assert err == (
        "127.0.0.1: POST /repos/you/model/issues: answered 410 (Issues are disabled for this repo); "
        "1 of 2 tickets are done\n"
    )


def test_what_is_fixed_is_a_file_too_and_a_wrong_comparison_writes_none(run: Run, tmp_path: Path) -> None:
    after, diff, out = "fixtures/kineto/decoder_prefill_compiled.json.gz", tmp_path / "diff.json", tmp_path / "out"
    assert run("diff", TRACE, after, "--format", "json", "-o", diff)[0] == 0
    code, _, err = run("tickets", TRACE, "--project", "decoder", "--out", out, "--after", diff)
    assert (code, out.exists()) == (2, False)
    assert "does not end at the findings given" in err
    hostile = diff.read_text().replace("1fb1923ef514b93d", "../pwned\\u0000")
    (tmp_path / "hostile.json").write_text(hostile)
    code, _, err = run("tickets", after, "--project", "decoder", "--out", out, "--after", tmp_path / "hostile.json")
    assert (code, out.exists()) == (2, False)
    assert "16 hex digits" in err
    code, said, _ = run("tickets", after, "--project", "decoder", "--out", out, "--after", diff)
    assert code == 0
    closed = sorted(out.glob("*.fixed.md"))
    assert len(closed) == 3
    assert closed[-1].name == "1fb1923ef514b93d.fixed.md"
    assert closed[-1].read_text().startswith("Fixed, as `tracemine diff` says. It cost 260 µs a step and is gone;")
    assert sorted(said.split()) == sorted(str(path) for path in out.iterdir())


def test_files_need_no_service(run: Run, findings: Path, tmp_path: Path) -> None:
    code, out, _ = run("tickets", TRACE, "--project", "decoder", "--out", tmp_path / "out")
    assert code == 0
    files = sorted((tmp_path / "out").iterdir())
    assert sorted(out.splitlines()) == [str(path) for path in files]
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert len(texts) == 4
    assert any("`record.py:45 forward`, called from `record.py:98 forward`" in text for text in texts)
    assert all("<!-- tracemine: decoder/" in text for text in texts)
    assert not any(str(Path.cwd()) in text for text in texts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--apply",), "where to?"),
        (("--github", "a/b", "--jira", "https://x", "--jira-project", "X"), "name one of them"),
        (("--jira", "https://x"), "--jira and --jira-project: name both"),
        (("--out", "x", "--jira-project", "X"), "--jira and --jira-project: name both"),
        (("--out", "x", "--github-url", "https://x"), "name the repository there"),
        (("--github", "nothing"), "is no repository"),
        (("--github", "a/b", "--github-url", "http://example.org"), "only https is spoken"),
        (("--out", "x", "--max", "-1"), "--max: -1 is negative"),
        (("--github", "a/b", "--apply"), "there is no token for api.github.com"),
        (("--out", "x", "--label", "perf"), "--codeowners: are of a service"),
        (("--out", "x", "--codeowners", "."), "--codeowners: are of a service"),
        (("--github", "a/b", "--label", " "), "--label: ' ' is empty, too long"),
        (("--github", "a/b", "--assignee", "a\nb"), "--assignee: 'a\\nb' is empty"),
        (("--github", "a/b", "--milestone", "x" * 300), "--milestone: 'xxx"),
        (("--github", "a/b", "--codeowners", "tests"), "tests has none of .github/CODEOWNERS, CODEOWNERS, docs"),
    ],
)
def test_a_wrong_call_is_one_line(run: Run, findings: Path, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run("tickets", findings, "--project", "decoder", *arguments)
    assert (code, out) == (2, "")
    assert says in err.splitlines()[0]
    assert "t0ken" not in err


@pytest.mark.parametrize("content", ["[]", "{}", '{"changes": 3}', '{"changes": [3]}', '{"changes": [{}]}', "nonsense"])
def test_what_is_no_comparison_is_an_error_before_anything_is_done(
    run: Run, findings: Path, world: World, tmp_path: Path, content: str
) -> None:
    diff = tmp_path / "diff.json"
    diff.write_text(content, encoding="utf-8")
    where = ("--github", "you/model", "--github-url", world.address, "--apply", "--after", diff)
    code, _, err = run("tickets", findings, "--project", "decoder", *where)
    assert code == 2
    assert err.startswith(f"{diff}: is no comparison")
    assert not world.requests


def test_a_dry_run_needs_no_token_and_says_what_was_not_looked_at(run: Run, findings: Path) -> None:
    code, out, err = run("tickets", findings, "--project", "decoder", "--github", "you/model")
    assert code == 0
    assert out.startswith("The device waits for the host: −2.55 ms per step (51%)\n\n")
    assert [line.split("  ")[0] for line in out.splitlines()[-2:]] == ["create", "create"]
    assert "it has no ticket" not in out
    assert err.startswith("tickets that are there were not looked up: there is no token for api.github.com")
    assert run("tickets", findings, "--project", "decoder", "--github", "you/model", "--apply")[0] == 2


def test_that_nothing_asks_for_a_ticket_is_said(run: Run, findings: Path, world: World, tmp_path: Path) -> None:
    clean, text = tmp_path / "clean.json", StringIO()
    render("json", scan_of(), text)
    clean.write_text(text.getvalue(), encoding="utf-8")
    code, _, err = run("tickets", clean, "--project", "decoder", "--out", tmp_path / "out")
    assert (code, err) == (0, "no finding asks for a ticket: no file was written\n")
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address)
    code, _, err = run("tickets", clean, *where)
    assert (code, err.splitlines()[0]) == (0, "no finding asks for a ticket, and there is none to change")


def test_one_finding_is_asked_for_by_its_number_or_its_name(run: Run, findings: Path, tmp_path: Path) -> None:
    every = run("tickets", findings, "--project", "decoder", "--out", tmp_path / "all")[1].split()
    _, second, *_ = (Path(path).stem for path in every)
    for name, mark in enumerate(("2", second[:6])):
        code, out, _ = run(
            "tickets", findings, "--project", "decoder", "--finding", mark, "--out", tmp_path / str(name)
        )
        assert (code, [Path(path).stem for path in out.split()]) == (0, [second])


def test_max_of_0_is_all_as_everywhere(run: Run, findings: Path, world: World) -> None:
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address)
    creates = {n: run("tickets", findings, *where, "--max", n)[1].count("create  ") for n in (0, 1, 2)}
    assert creates == {0: 2, 1: 1, 2: 2}


def test_a_run_that_is_interrupted_lists_what_was_done_and_what_was_not(
    run: Run, findings: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    creating = GitHub.create

    def create(self: GitHub, draft: TicketDraft) -> Issue:
        if world.issues:
            raise KeyboardInterrupt
        return creating(self, draft)

    monkeypatch.setattr(GitHub, "create", create)
    where = ("--project", "decoder", "--github", "you/model", "--github-url", world.address, "--apply")
    code, out, err = run("tickets", findings, *where)
    assert code == 130
    assert out.splitlines()[0].startswith("create #1  The device waits")
    assert out.splitlines()[1].endswith(", not done")
    assert "run it again" in err


def test_a_file_of_several_scans_is_refused(run: Run, findings: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.jsonl"
    both.write_text((json.dumps(json.loads(findings.read_text(encoding="utf-8"))) + "\n") * 2, encoding="utf-8")
    code, _, err = run("tickets", both, "--project", "decoder", "--out", tmp_path / "out")
    assert code == 2
    assert "holds 2 scans, and tickets are of one" in err


def test_nothing_but_a_service_loads_what_speaks_http(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "import tracemine, tracemine.tickets\n"
        "from tracemine.cli import main\n"
        f"main(['tickets', {TRACE!r}, '--project', 'x', '--out', {str(tmp_path)!r}])\n"
        "assert not {'httpx', 'keyring'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=os.environ)


def test_without_httpx_a_dry_run_says_what_was_not_looked_at_and_apply_names_the_extra(
    run: Run, findings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", "t0ken-of-tests")
    monkeypatch.delitem(sys.modules, "tracemine.tickets.http", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    where = ("tickets", findings, "--project", "decoder", "--github", "a/b")
    code, out, err = run(*where)
    assert code == 0
    assert [line.split("  ")[0] for line in out.splitlines()[-2:]] == ["create", "create"]
    assert err == ("tickets that are there were not looked up: httpx is not installed: pip install httpx keyring\n")
    assert run(*where, "--apply") == (2, "", "httpx is not installed\n  hint: pip install httpx keyring\n")
    assert run(*where[:-1], "no repository")[2].startswith("--github: 'no repository' is no repository")


def test_without_a_place_the_first_ticket_is_printed(run: Run, findings: Path) -> None:
    code, out, err = run("tickets", findings, "--finding", "1")
    title, _, body = out.partition("\n\n")
    assert (code, "## " in title) == (0, False)
    assert "tracemine diff before.json.gz after.json.gz" in body
    assert "nothing was sent; a place for it: --project LABEL" in err
    assert run("tickets", findings, "--out", "x")[2].startswith("missing option '--project'")
