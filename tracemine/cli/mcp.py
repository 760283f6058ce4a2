"""tracemine mcp: what coding agents call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tracemine.cli.described import argument, option
from tracemine.cli.options import RulesOption
from tracemine.errors import UsageError
from tracemine.extras import install


def mcp(
    folders: Annotated[list[Path], argument("mcp.folders")],
    allow_write: Annotated[bool, option("mcp.allow_write")] = False,
    allow_run: Annotated[bool, option("mcp.allow_run")] = False,
    rules: RulesOption = None,
) -> int:
    """Answer a coding agent over standard input and output, by the Model Context Protocol.

    Tools: traces, scan, doctor, top, explain, why_not, diff, emit, verify. An agent's configuration names this command.
    It reads, and neither writes nor runs anything, unless an option allows it.

    Needs `pip install mcp`. Exit code: 0 the agent is done, 2 the call is wrong.

    \b
    Examples:
      tracemine mcp runs/
      tracemine mcp runs/ baselines/ --allow-run --allow-write
    """
    try:
        from tracemine.agents.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        says = f"mcp needs the Python SDK of the Model Context Protocol, which this Python does not have: {error}"
        raise UsageError(says, hint=install("mcp")) from None
    serve(folders, rules or (), write=allow_write, run=allow_run)
    return 0
