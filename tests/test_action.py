"""The GitHub Action and the example workflow, as far as a shell can run them: codes held, inputs never run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.forked import write_program
from tracemine.cli import main

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / ".github/actions/tracemine/action.yml").read_text("utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "docs/examples/workflow.yml").read_text("utf-8"))
SLOW = str(ROOT / "fixtures" / "kineto" / "decoder_prefill.json.gz")
FAST = str(ROOT / "fixtures" / "kineto" / "decoder_prefill_compiled.json.gz")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


@dataclass
class Ran:
    code: int
    said: str
    outputs: dict[str, str]
    summary: str

    def kept(self, name: str) -> Path:
        return Path(self.outputs["folder"]) / name


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's folders, with tracemine installed as this checkout."""
    environment = tmp_path / "temporary" / "tracemine-environment" / "bin"
    environment.mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    write_program(environment / "tracemine")
    return tmp_path


def step(runner: Path, name: str, inputs: dict[str, str], **more: str) -> Ran:
    """Runs a step's script as GitHub does: with its env, whose expressions are replaced, in the workspace."""
    given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
    environment = {name: EXPRESSION.sub(lambda m: given[m[1]], text) for name, text in STEPS[name]["env"].items()}
    places = {"GITHUB_OUTPUT": str(runner / "output"), "GITHUB_STEP_SUMMARY": str(runner / "summary.md")}
    places |= {"RUNNER_TEMP": str(runner / "temporary"), "GITHUB_ACTION_PATH": str(ROOT / ".github/actions/tracemine")}
    for place in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        Path(places[place]).write_text("")
    script = runner / "script.sh"
    script.write_text(STEPS[name]["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=runner / "workspace",
        env={"PATH": os.environ["PATH"], **environment, **places, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in Path(places["GITHUB_OUTPUT"]).read_text().splitlines())
    return Ran(done.returncode, done.stdout + done.stderr, outputs, Path(places["GITHUB_STEP_SUMMARY"]).read_text())


def test_no_input_is_a_part_of_a_script() -> None:
    assert EXPRESSION.findall(str(ACTION["runs"]["steps"]))
    for one in [*ACTION["runs"]["steps"], *(step for job in WORKFLOW["jobs"].values() for step in job["steps"])]:
        assert "${{" not in one.get("run", "")


def test_every_input_reaches_a_step() -> None:
    used = set(EXPRESSION.findall(str(ACTION["runs"]["steps"])))
    assert used == set(ACTION["inputs"])


def test_a_trace_passes_and_its_report_is_the_summary_and_is_kept(runner: Path) -> None:
    ran = step(runner, "Scan", {"traces": SLOW})
    assert (ran.code, ran.outputs["exit-code"]) == (0, "0")
    assert "Unfused RMSNorm" in ran.summary
    assert ran.kept("report.md").read_text() == ran.summary
    assert '"rmsnorm_unfused"' in ran.kept("findings.json").read_text()
    assert "Unfused RMSNorm" in ran.kept("report.html").read_text()


def test_each_line_of_traces_has_a_page_of_all_that_it_names(runner: Path) -> None:
    ran = step(runner, "Scan", {"traces": f"{SLOW}\n{FAST}\n{Path(SLOW).parent}/decoder_prefill*.json.gz"})
    assert ran.code == 0
    assert sorted(path.name for path in ran.kept("").glob("*.html")) == [
        "report-2.html",
        "report-3.html",
        "report.html",
    ]
    assert ran.kept("report-3.html").read_text().count('<details class="of"') > 1


def test_a_fault_against_the_baseline_fails_and_nothing_new_passes(runner: Path) -> None:
    baseline = runner / "workspace" / "baseline.json"
    assert main(["scan", FAST, "--save-baseline", str(baseline), "-q"]) == 0
    gate = {"baseline": "baseline.json", "fail-on": "new,worse,2%"}
    assert step(runner, "Scan", {"traces": FAST, **gate}).code == 0
    ran = step(runner, "Scan", {"traces": SLOW, **gate})
    assert (ran.code, ran.outputs["exit-code"]) == (1, "1")
    assert "failed, 3 new (baseline baseline.json); µs per step, recorded:" in ran.said
    head = ran.summary.partition("<details>")[0].splitlines()
    assert head[0] == "## tracemine: failed, 3 new (baseline baseline.json)"
    assert len(head) <= 25


@pytest.mark.parametrize(("gate", "code"), [("high", 1), ("99%", 0), ("severe", 2)])
def test_the_gate_of_a_scan_without_a_baseline_is_held(runner: Path, gate: str, code: int) -> None:
    ran = step(runner, "Scan", {"traces": SLOW, "fail-on": gate})
    assert (ran.code, ran.outputs["exit-code"]) == (code, str(code))


def test_a_trace_that_is_none_fails_with_2_and_says_so(runner: Path) -> None:
    ran = step(runner, "Scan", {"traces": f"{SLOW}\nnothing.json"})
    assert ran.code == 2
    assert "nothing.json: there is no such file" in ran.said
    assert "RMSNorm" in ran.summary  # of the other one
    ran = step(runner, "Scan", {"traces": "nothing.json"})
    assert ran.code == 2
    assert ran.summary.startswith("## tracemine: could not scan\n\n    ")
    assert ran.summary.splitlines()[2].strip() in ran.said


def test_another_form_is_kept_beside(runner: Path) -> None:
    ran = step(runner, "Scan", {"traces": SLOW, "format": "text"})
    assert ran.code == 0
    assert "Next: explain 1 FILE" in ran.kept("report.text").read_text()
    assert step(runner, "Scan", {"traces": SLOW, "format": "nonsense"}).code == 2


SCANNED = sorted(set(ACTION["inputs"]) - {"artifact", "comment", "package", "token"})  # inputs that reach the step Scan


@pytest.mark.parametrize("name", SCANNED)
@pytest.mark.parametrize("text", ["--output=pwned", "-opwned"])
def test_what_an_input_says_is_no_option(runner: Path, name: str, text: str) -> None:
    ran = step(runner, "Scan", {"traces": SLOW, name: text})
    assert ran.code == 2
    assert not list((runner / "workspace").iterdir())


@pytest.mark.parametrize("name", SCANNED)
def test_what_an_input_says_is_never_run_by_the_shell(runner: Path, name: str) -> None:
    """Tracemine itself is replaced by what notes its arguments and draws an empty report."""
    program = runner / "temporary" / "tracemine-environment" / "bin" / "tracemine"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{runner}/called"\n'
        'for one in "$@"; do case "$one" in --output=*.md) : > "${one#--output=}" ;; esac; done\n'
    )
    for text in ("$(touch pwned)", "`touch pwned`", '"; touch pwned; "', "* ? [a-z]"):
        (runner / "called").write_text("")
        ran = step(runner, "Scan", {"traces": SLOW, name: text})
        assert ran.code == 0
        given = (runner / "called").read_text().splitlines()
        assert [one for one in given if text in one] != []
        assert all(one == text or one.startswith("--") for one in given if text in one)
        assert not list((runner / "workspace").iterdir())


@pytest.mark.parametrize(
    ("given", "installed"),
    [("", f"{ROOT}/.github/actions/tracemine/../../.."), ("tracemine==0.1.0", "tracemine==0.1.0"), ("-r x", "-r x")],
)
def test_what_is_installed_is_the_actions_own_repository_or_what_is_named(
    runner: Path, given: str, installed: str
) -> None:
    (runner / "bin").mkdir()
    fake = runner / "bin" / "python3"
    fake.write_text("#!/bin/sh\nexit 0\n")
    called = runner / "temporary" / "tracemine-environment" / "bin" / "python"
    called.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{runner}/called"\n')
    for one in (fake, called):
        one.chmod(0o755)
    ran = step(
        runner, "Install tracemine", {"package": given}, PATH=f"{runner / 'bin'}{os.pathsep}{os.environ['PATH']}"
    )
    assert ran.code == 0
    assert (runner / "called").read_text().splitlines() == ["-m", "pip", "install", "--quiet", "--", installed]
    assert (ROOT / ".github/actions/tracemine/../../.." / "pyproject.toml").is_file()


def test_the_report_is_kept_whatever_the_scan_came_to() -> None:
    assert "always()" in STEPS["Keep the report"]["if"]
    assert list(STEPS) == ["Install tracemine", "Scan", "Comment", "Keep the report"]
    assert "always()" in STEPS["Comment"]["if"]


OWN, BOT, STRANGER = ({"id": 1, "type": "User"}, {"id": 2, "type": "Bot"}, {"id": 3, "type": "User"})
MARK = "<!-- tracemine-summary: tracemine -->"


@dataclass
class Service:
    """As much of GitHub as a comment needs."""

    address: str
    comments: list[dict[str, Any]]
    is_app: bool = True  # whose token may not ask who it is
    may_write: bool = True
    tokens: set[str] = field(default_factory=set)

    def answer(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        if path == "/user":
            return (403, {}) if self.is_app else (200, OWN)
        if method == "GET":
            page = int(parse_qs(urlsplit(path).query)["page"][0])
            return 200, self.comments[100 * (page - 1) : 100 * page]
        if not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "POST" and path == "/repos/you/model/issues/7/comments":
            self.comments.append({"id": 100 + len(self.comments), "user": BOT if self.is_app else OWN, **content})
            return 201, self.comments[-1]
        if method == "PATCH" and path.startswith("/repos/you/model/issues/comments/"):
            (found,) = (one for one in self.comments if one["id"] == int(path.rpartition("/")[2]))
            found |= content
            return 200, found
        return 404, {}


@pytest.fixture
def service() -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def serve(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.tokens.add(self.headers["Authorization"])
            status, said = made.answer(self.command, self.path, json.loads(text) if text else None)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_POST = do_PATCH = serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Service(f"http://127.0.0.1:{server.server_address[1]}", [])
    Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def commented(
    runner: Path, service: Service, report: str | None, event: str = '{"pull_request": {"number": 7}}'
) -> Ran:
    """Runs the step Comment behind a scan that wrote this report."""
    folder = runner / "report"
    folder.mkdir(exist_ok=True)
    (folder / "report.md").unlink(missing_ok=True)
    if report is not None:
        (folder / "report.md").write_text(report)
    (runner / "event.json").write_text(event)
    python = runner / "temporary" / "tracemine-environment" / "bin" / "python"
    python.unlink(missing_ok=True)
    python.symlink_to(sys.executable)
    about = {"GITHUB_API_URL": service.address, "GITHUB_REPOSITORY": "you/model", "FOLDER": str(folder)}
    about["GITHUB_EVENT_PATH"] = str(runner / "event.json")
    return step(runner, "Comment", {"comment": "true", "token": "t0ken"}, **about)


@pytest.mark.parametrize("is_app", [True, False])
def test_a_pull_request_has_one_comment_which_later_runs_update(runner: Path, service: Service, is_app: bool) -> None:
    service.is_app = is_app
    service.comments += [{"id": 1, "user": STRANGER, "body": f"{MARK}\nforged"}] + [
        {"id": 2 + number, "user": BOT if is_app else OWN, "body": "something else"} for number in range(100)
    ]
    for report, said in (("## failed", "made"), ("## passed", "updated"), (None, "updated")):
        ran = commented(runner, service, report)
        assert (ran.code, ran.said) == (0, f"tracemine: a comment is {said}\n")
    assert len(service.comments) == 102
    assert service.comments[0]["body"].endswith("forged")
    assert service.comments[-1]["body"] == f"{MARK}\ntracemine could not scan: the job's log says why.\n"
    assert service.tokens == {"Bearer t0ken"}


def test_without_the_right_to_comment_the_job_is_warned_and_does_not_fail(runner: Path, service: Service) -> None:
    service.may_write = False
    ran = commented(runner, service, "## failed")
    assert (ran.code, service.comments) == (0, [])
    assert ran.said.startswith("::warning title=tracemine::no comment: HTTP Error 403")
    assert "pull-requests: write" in ran.said and "t0ken" not in ran.said


def test_only_a_pull_request_is_commented_on_and_only_where_it_is_asked_for(runner: Path, service: Service) -> None:
    ran = commented(runner, service, "## failed", event='{"ref": "refs/heads/main"}')
    assert (ran.code, ran.said) == (0, "tracemine: this is no pull request: no comment\n")
    assert ACTION["inputs"]["comment"]["default"] == "false"
    assert step(runner, "Comment", {}).code == 0
    assert service.tokens == set()


def test_a_report_that_is_too_long_for_a_comment_is_its_summary(runner: Path, service: Service) -> None:
    folded = f"<details><summary>Full report</summary>\n<details>\n{'x' * 70_000}\n</details>\n</details>\n"
    assert commented(runner, service, f"## failed\n{folded}## passed\n{folded}").code == 0
    body = service.comments[0]["body"]
    assert body.startswith(f"{MARK}\n## failed\n## passed\n\nThe full report is too long")


def test_the_example_gives_the_action_inputs_that_it_has_and_runs_as_it_stands(runner: Path) -> None:
    workspace = runner / "workspace"
    steps = WORKFLOW["jobs"]["trace"]["steps"]
    assert main(["scan", FAST, "--save-baseline", str(workspace / "base.json"), "-q"]) == 0
    (workspace / ".tracemine").mkdir()
    (workspace / "base.json").rename(workspace / ".tracemine" / "decoder.json")
    (workspace / "run").mkdir()
    given = next(one["with"] for one in steps if "tracemine@" in one.get("uses", ""))
    assert set(given) <= set(ACTION["inputs"])
    for trace, code in ((FAST, 0), (SLOW, 1)):
        (workspace / "record.py").write_text(f"import shutil, sys\nshutil.copy({trace!r}, sys.argv[1])\n")
        for one in steps:
            if "run" in one:
                path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
                subprocess.run(["bash", "-ec", one["run"]], cwd=workspace, env={"PATH": path}, check=True)
        assert step(runner, "Scan", given).code == code


def test_the_example_does_not_run_in_this_repository_and_may_only_read() -> None:
    for path in (ROOT / ".github" / "workflows").iterdir():
        assert "tracemine@" not in path.read_text("utf-8"), "the action is for other repositories"
    assert WORKFLOW["permissions"] == {"contents": "read"}
