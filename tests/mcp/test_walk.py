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
    """The answers of a session that reads: scan, findings, explain, why_not, emit, diff."""

    async def walked(session: Session) -> Walk:
        found: Walk = {"server": session.client.server_info, "tools": (await session.client.list_tools()).tools}
        found["scan"] = await session.answer("scan", path=CAPTURE)
        found["findings"] = await session.answer("findings", path=CAPTURE)
        first = found["findings"]["findings"][0]["fingerprint"]
        found["explain"] = await session.answer("explain", path=CAPTURE, fingerprint=first)
        found["why_not"] = await session.answer("why_not", path=CAPTURE, operator="aten::mm")
        found["emit"] = await session.answer("emit", path=CAPTURE, fingerprint=first, limit=400)
        found["diff"] = await session.answer("diff", before=BEFORE, after=AFTER, status="fixed")
        found["verify"] = await session.refusal("verify", path=CAPTURE, fingerprint=first)
        found["written"] = await session.refusal("emit", path=CAPTURE, fingerprint=first, output="out")
        return found

    return over_stdio(walked, [FIXTURES])


def test_the_server_says_what_it_is_and_every_tool_has_both_schemas(walk: Walk) -> None:
    assert (walk["server"].name, walk["server"].version) == ("tracemine", __version__)
    names = [tool.name for tool in walk["tools"]]
    assert names == ["scan", "top", "findings", "explain", "why_not", "diff", "emit", "verify"]
    for tool in walk["tools"]:
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
    assert len(json.dumps([tool.model_dump(mode="json") for tool in walk["tools"]])) < 32_000


def test_a_scan_says_in_short_what_findings_say_one_by_one(walk: Walk) -> None:
    scan, findings = walk["scan"], walk["findings"]
    assert scan["gpu"] == {"untrusted": "NVIDIA H200"}
    assert scan["steps"] == 2
    assert scan["findings"] == findings["total"] == len(findings["findings"]) == 4
    assert scan["best"] == findings["findings"][:3]
    assert scan["recorded"] == {"shapes": True, "stacks": True, "execution_trace": True, "cut_off": False}


def test_a_finding_is_explained_with_its_rule_its_fix_and_its_figures(walk: Walk) -> None:
    explained = walk["explain"]
    assert explained["finding"] == walk["findings"]["findings"][0]
    assert explained["rule"]["id"] == explained["finding"]["rule"] == "rmsnorm_unfused"
    assert "torch.nn.functional.rms_norm" in explained["fix"]["untrusted"]
    assert explained["evidence_says"] == "it follows from what the profiler recorded"
    assert explained["one_kernel"] is True
    assert explained["variants_in_all"] == len(explained["variants"]) == 2


def test_why_two_operators_are_not_one_kernel(walk: Walk) -> None:
    assert walk["why_not"]["total"] == len(walk["why_not"]["refused"]) > 0
    for pair in walk["why_not"]["refused"]:
        assert "aten::mm" in pair["first"]["untrusted"] + pair["second"]["untrusted"]
        assert pair["reason"] == {"untrusted": "a matrix product is a library's kernel"}
    at_its_rate = {"untrusted": "of a library, about as fast as the device reaches"}
    assert {"reason": "at_its_rate", "says": at_its_rate, "matches": 4} in walk["why_not"]["left_out"]


def test_a_reproduction_is_shown_whole_and_is_python(walk: Walk) -> None:
    emitted = walk["emit"]
    assert emitted["refused"] is None
    assert emitted["written"] == []
    assert emitted["next_cursor"] is None
    text = emitted["text"]["untrusted"]
    assert text.count("\n") == emitted["lines_in_all"]
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert {"eager", "fused"} <= names
    assert not any("validated" in each["untrusted"] for each in emitted["assumptions"])  # nothing was


def test_a_diff_says_what_is_fixed(walk: Walk) -> None:
    assert walk["diff"]["comparable"] is True
    assert walk["diff"]["counts"] == {"fixed": 3, "same": 1}
    rules = [change["rule"] for change in walk["diff"]["changes"]]
    assert rules == ["rmsnorm_unfused", "rotary_unfused", "memory_bound_chain"]
    assert {change["status"] for change in walk["diff"]["changes"]} == {"fixed"}


def test_a_server_that_was_started_plainly_neither_runs_nor_writes(walk: Walk) -> None:
    assert "`tracemine mcp --allow-run`" in walk["verify"]
    assert "`tracemine mcp --allow-write`" in walk["written"]
    assert not (FIXTURES / "out").exists()


def test_a_client_with_the_older_handshake_gets_the_same() -> None:
    async def asked(session: Session) -> tuple[str, dict[str, Any]]:
        return session.client.protocol_version, await session.answer("findings", path=CAPTURE)

    (version, old), (_, new) = (over_stdio(asked, [FIXTURES], mode=mode) for mode in ("legacy", "auto"))
    assert version < "2026"
    assert old == new


def test_a_client_of_no_sdk_speaks_lines_of_json() -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    said = [
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
    assert answers[3]["structuredContent"]["findings"] == 4


def test_help_loads_neither_the_sdk_nor_arrow() -> None:
    code = "import sys; from tracemine.cli import main; main(['mcp', '--help']); print(); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    loaded = {*said.splitlines()[-1].split()}
    assert "tracemine.cli.mcp" in loaded
    assert loaded.isdisjoint({"mcp", "mcp_types", "anyio", "msgspec", "numpy", "pyarrow", "tracemine.agents"})


def test_an_allowed_server_validates_and_writes_below_its_folders_alone(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")
    served = tmp_path / "served"
    shutil.copytree(FIXTURES / "captures" / "chain", served / "chain")

    async def walked(session: Session) -> Walk:
        found: Walk = {tool.name: tool.annotations for tool in (await session.client.list_tools()).tools}
        (finding,) = (await session.answer("findings", path="chain"))["findings"]
        found["asked"] = asked = {"path": "chain", "fingerprint": finding["fingerprint"]}
        found["emitted"] = await session.answer("emit", output="out", **asked)
        found["verified"] = await session.answer("verify", output="out", **asked)
        found["outside"] = await session.refusal("emit", output=str(tmp_path / "elsewhere"), **asked)
        return found

    found = over_stdio(walked, [served], "--allow-write", "--allow-run")
    assert {name for name in ("scan", "explain", "emit", "verify") if found[name].read_only_hint} == {"scan", "explain"}
    (verdict,) = found["verified"]["verdicts"]
    assert (verdict["level"], verdict["measured_ns"], verdict["bug"]) == ("L2", None, None)
    written = [each["untrusted"] for each in (*found["emitted"]["written"], *found["verified"]["written"])]
    reproduction = f"out/{verdict['fingerprint']}_memory_bound_chain_LogReluBias.py"
    assert {reproduction, "out/tracemine_repro.py", "out/verdicts.json", "out/verdicts.parquet"} == {*written}
    assert all((served / name).is_file() for name in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served"]
    assert "is not below a folder" in found["outside"]
