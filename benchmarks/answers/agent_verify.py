"""Have a coding agent's tools verify findings on this machine's GPU: `python -m benchmarks agent_verify [CAPTURE]`.

Starts `tracemine mcp FOLDER --allow-run` over standard input and output, as an agent does, and asks with the official
SDK for a scan, for the finding that saves most, and for its verification. Printed: what each tool answered, in short,
and how long it took. Exits with 1 where the fix is not timed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "fixtures" / "captures" / "decoder_prefill"


async def asked(client: Any, name: str, **arguments: object) -> dict[str, Any]:
    """Return what a tool answers, and print how long that took."""
    begin = time.perf_counter()
    result = await client.call_tool(name, arguments)
    print(f"{name} {arguments}: {time.perf_counter() - begin:.1f} s", flush=True)
    if result.is_error:
        sys.exit(f"{name}: {result.content[0].text}")
    return dict(result.structured_content)


async def session(capture: Path) -> int:
    """Run one session; its exit code."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tracemine", "mcp", str(capture.parent), "--allow-run"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    async with Client(stdio_client(server)) as client:
        scan = await asked(client, "scan", path=capture.name)
        best = scan["untrusted"]["findings"][0]
        print(f"  {best['cause']}: {best['saves']}")
        said = (await asked(client, "verify", path=capture.name, id=best["id"]))["untrusted"]
        for verdict in said["verdicts"]:
            print(f"  {said['gpu']}: {verdict['rule']} {verdict['level']}: {verdict['says']}")
            print(
                f"    predicted {verdict['predicted']}, measured {verdict['measured_ns']} ns, best: {verdict['best']}"
            )
        return 0 if said["verdicts"] and all(one["measured_ns"] for one in said["verdicts"]) else 1


if __name__ == "__main__":
    sys.exit(anyio.run(session, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else CAPTURE))
