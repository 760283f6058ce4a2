"""An agent's walk in an empty environment: from the wheel to a ticket in three commands.

It fetches what the wheel needs, so it runs with --long alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.sessions import FIXTURES, ROOT, Session, over_stdio

MOST_S = 300.0


def ran(*command: object, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_from_a_wheel_to_a_ticket_in_three_commands(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not request.config.getoption("--long"):
        pytest.skip("fetches packages: pytest --long")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ran(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    shutil.copytree(FIXTURES / "captures" / "decoder_prefill", tmp_path / "runs" / "before")
    shutil.copy(FIXTURES / "kineto" / "decoder_prefill_compiled.json.gz", tmp_path / "runs" / "after.json.gz")

    async def walked(session: Session) -> dict[str, Any]:
        scan = await session.answer("scan", path="before")
        mark = scan["best"][0]["fingerprint"]
        emitted = await session.answer("emit", path="before", fingerprint=mark)
        diff = await session.answer("diff", before="before", after="after.json.gz", status="fixed")
        return {"mark": mark, "emitted": emitted, "diff": diff}

    begun = time.monotonic()
    ran(python, "-m", "pip", "install", "-q", f"{wheel}[mcp]", cwd=tmp_path)
    installed = time.monotonic()
    found = over_stdio(walked, [tmp_path / "runs"], python=python)
    walk_ended = time.monotonic()
    ran(python, "-m", "tracemine", "tickets", "runs/before", "--project", "decoder", "--out", "tickets", cwd=tmp_path)
    ended = time.monotonic()
    assert "def fused(" in found["emitted"]["text"]["untrusted"]
    assert found["diff"]["total"] == 3
    assert found["mark"] in {path.stem for path in (tmp_path / "tickets").iterdir()}
    assert ended - begun < MOST_S
    install_s, session_s, tickets_s = installed - begun, walk_ended - installed, ended - walk_ended
    with capsys.disabled():
        print(f" install {install_s:.1f} s, session {session_s:.1f} s, tickets {tickets_s:.1f} s", end="")
