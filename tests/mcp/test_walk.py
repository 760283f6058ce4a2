"""An agent's way through a session: from a trace to a finding, its kernel, and what became of it."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.sessions import FIXTURES, ROOT, Session, over_stdio
from tracemine.agents.served import TOOLS
from tracemine.version import __version__

CAPTURE, BEFORE, AFTER = (
    "captures/decoder_prefill",
    "kineto/decoder_prefill.json.gz",
    "kineto/decoder_prefill_compiled.json.gz",
)
Walk = dict[str, Any]


@pytest.fixture(scope="module")
def walk() -> Walk:
    """The answers of a session that reads: scan, explain, why_not, emit, diff."""

    async def walked(session: Session) -> Walk:
        found: Walk = {"server": session.client.server_info, "tools": (await session.client.list_tools()).tools}
        found["scan"] = await session.answer("scan", path=CAPTURE)
        found["all"] = await session.answer("scan", path=CAPTURE, limit=25)
        found["doctor"] = await session.answer("doctor", path=BEFORE)
        first = found["all"]["untrusted"]["findings"][0]["id"]
        found["explain"] = await session.answer("explain", path=CAPTURE, id=first)
        found["why_not"] = await session.answer("why_not", path=CAPTURE, operator="aten::mm", limit=25)
        found["emit"] = await session.answer("emit", path=CAPTURE, id=first, limit=400)
        found["diff"] = await session.answer("diff", before=BEFORE, after=AFTER, status="fixed")
        found["verify"] = await session.refusal("verify", path=CAPTURE, id=first)
        found["written"] = await session.refusal("emit", path=CAPTURE, id=first, output="out")
        return found

    return over_stdio(walked, [FIXTURES])


def test_the_server_says_what_it_is_and_its_tools_in_few_words(walk: Walk) -> None:
    assert (walk["server"].name, walk["server"].version) == ("tracemine", __version__)
    names = [tool.name for tool in walk["tools"]]
    assert names == ["traces", "scan", "doctor", "top", "explain", "why_not", "diff", "emit", "verify"]
    for tool in walk["tools"]:
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in walk["tools"]]
    assert len(json.dumps(listed)) < 4 * 2500  # tokens of an agent's budget, before its first question


def test_a_scan_says_in_short_what_makes_the_step_slow(walk: Walk) -> None:
    scan, whole = walk["scan"], walk["all"]
    assert scan["untrusted"]["gpu"] == "NVIDIA H200"
    assert (scan["per"], scan["steps"], scan["missing"]) == ("step", 2, [])
    assert scan["total"] == whole["total"] == len(whole["untrusted"]["findings"]) == 4
    assert scan["untrusted"]["findings"] == whole["untrusted"]["findings"][:3]
    assert scan["next"] == f"explain {scan['untrusted']['findings'][0]['id']}"


def test_a_recording_is_checked_and_how_to_record_it_right_is_code(walk: Walk) -> None:
    doctor = walk["doctor"]
    assert (doctor["verdict"], doctor["next"]) == ("limited", "scan it")
    assert {"shapes", "stacks"} <= {*doctor["recorded"]}
    assert any("execution trace" in one for one in doctor["untrusted"]["missing"])
    assert "record_shapes=True" in doctor["untrusted"]["record"]


def test_a_finding_is_explained_with_its_fix_its_figures_and_when_its_rule_is_wrong(walk: Walk) -> None:
    explained, row = walk["explain"], walk["all"]["untrusted"]["findings"][0]
    assert (explained["id"], explained["rule"], explained["saves"]) == (row["id"], "rmsnorm_unfused", row["saves"])
    assert "torch.nn.functional.rms_norm" in explained["untrusted"]["fix"]
    assert explained["evidence"] == "it follows from what the profiler recorded"
    assert explained["emit"] is True
    assert explained["limits"] and explained["false_positives"]


def test_why_two_operators_are_not_one_kernel(walk: Walk) -> None:
    refused = walk["why_not"]["untrusted"]["refused"]
    assert walk["why_not"]["total"] == len(refused) > 0
    for pair in refused:
        assert "aten::mm" in pair["first"] + pair["second"]
        assert pair["reason"] == "a matrix product is a library's kernel"
    at_its_rate = "of library kernels near roofline"
    assert {"reason": at_its_rate, "matches": 4} in walk["why_not"]["untrusted"]["left_out"]


def test_a_reproduction_is_shown_whole_and_is_python(walk: Walk) -> None:
    emitted = walk["emit"]
    assert emitted["untrusted"]["refused"] is None
    assert emitted["untrusted"]["written"] == []
    assert emitted["next_cursor"] is None
    text = emitted["untrusted"]["text"]
    assert text.count("\n") == emitted["lines_in_all"]
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert {"eager", "fused"} <= names
    assert not any("validated" in each for each in emitted["untrusted"]["assumptions"])  # nothing was


def test_a_diff_says_what_is_fixed(walk: Walk) -> None:
    assert walk["diff"]["comparable"] is True
    assert walk["diff"]["counts"] == {"fixed": 3, "same": 1}
    changes = walk["diff"]["untrusted"]["changes"]
    assert [change["rule"] for change in changes] == ["rmsnorm_unfused", "rotary_unfused", "memory_bound_chain"]
    assert {change["status"] for change in changes} == {"fixed"}


def test_a_server_that_was_started_plainly_neither_runs_nor_writes(walk: Walk) -> None:
    assert "`tracemine mcp --allow-run`" in walk["verify"]
    assert "`tracemine mcp --allow-write`" in walk["written"]
    assert not (FIXTURES / "out").exists()


def test_a_client_with_the_older_handshake_gets_the_same() -> None:
    async def asked(session: Session) -> tuple[str, dict[str, Any]]:
        return session.client.protocol_version, await session.answer("scan", path=CAPTURE)

    (version, old), (_, new) = (over_stdio(asked, [FIXTURES], mode=mode) for mode in ("legacy", "auto"))
    assert version < "2026"
    assert old == new


def test_a_client_of_no_sdk_speaks_lines_of_json() -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "scan", "arguments": {"path": CAPTURE}}},
    ]
    command = [sys.executable, "-m", "tracemine", "mcp", str(FIXTURES)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(json.dumps({"jsonrpc": "2.0"} | line) + "\n" for line in said))
        server.stdin.flush()
        answers = {line["id"]: line["result"] for line in (json.loads(server.stdout.readline()) for _ in range(3))}
        rest, errors = server.communicate()
    assert (server.returncode, rest, errors) == (0, "", "")
    assert answers[1]["serverInfo"]["name"] == "tracemine"
    assert '"untrusted"' in answers[1]["instructions"]
    assert len(answers[2]["tools"]) == len(TOOLS)
    assert answers[3]["structuredContent"]["total"] == 4


def test_help_loads_neither_the_sdk_nor_arrow() -> None:
    code = "import sys; from tracemine.cli import main; main(['mcp', '--help']); print(); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    loaded = {*said.splitlines()[-1].split()}
    assert "tracemine.cli.mcp" in loaded
    assert loaded.isdisjoint({"mcp", "mcp_types", "anyio", "msgspec", "numpy", "pyarrow", "tracemine.agents"})


def test_an_allowed_server_validates_and_writes_below_its_folders_alone(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    served = tmp_path / "served"
    shutil.copytree(FIXTURES / "captures" / "chain", served / "chain")

    async def walked(session: Session) -> Walk:
        found: Walk = {tool.name: tool.annotations for tool in (await session.client.list_tools()).tools}
        (finding,) = (await session.answer("scan", path="chain"))["untrusted"]["findings"]
        found["asked"] = asked = {"path": "chain", "id": finding["id"]}
        found["emitted"] = await session.answer("emit", output="out", **asked)
        found["verified"] = await session.answer("verify", output="out", **asked)
        found["outside"] = await session.refusal("emit", output=str(tmp_path / "elsewhere"), **asked)
        return found

    found = over_stdio(walked, [served], "--allow-write", "--allow-run")
    assert {name for name in ("scan", "explain", "emit", "verify") if found[name].read_only_hint} == {"scan", "explain"}
    (verdict,) = found["verified"]["untrusted"]["verdicts"]
    assert (verdict["level"], verdict["measured_ns"], verdict["bug"]) == ("L2", None, None)
    written = [each for name in ("emitted", "verified") for each in found[name]["untrusted"]["written"]]
    reproduction = f"out/{verdict['shows']}_memory_bound_chain_LogReluBias.py"
    assert {reproduction, "out/tracemine_repro.py", "out/verdicts.json", "out/verdicts.parquet"} == {*written}
    assert all((served / name).is_file() for name in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served"]
    assert "is not below a folder" in found["outside"]
