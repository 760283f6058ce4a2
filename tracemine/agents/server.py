"""The Model Context Protocol over standard input and output, by its official Python SDK: tools, and nothing else.

Its JSON Schemas of what tools take come from the functions themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tracemine.agents.folders import Allowed, Folders
from tracemine.agents.reading import Answer
from tracemine.agents.served import INSTRUCTIONS, TOOLS, Served
from tracemine.causes import load_rules
from tracemine.version import __version__

_DROPPED = ("title", "default")  # what the names say already, and what is left out anyway


def serve(folders: Sequence[Path], rules: Sequence[Path] = (), *, write: bool = False, run: bool = False) -> None:
    """Answer until standard input ends. What else would be printed goes to standard error.

    write, run: what is allowed besides reading. Raises TracemineError for folders and rules that cannot be used.
    """
    load_rules(*rules)
    anyio.run(_answer, Served(Folders.of(folders), tuple(rules), Allowed(write=write, run=run)))


async def _answer(served: Served) -> None:
    server = server_of(served)
    async with stdio_server() as (questions, answers):
        await server.run(questions, answers, server.create_initialization_options())


def server_of(served: Served) -> Server[Any]:
    """Return the server, connected to nothing yet."""
    one_at_a_time = anyio.CapacityLimiter(1)  # a trace may take gigabytes to read
    listed = types.ListToolsResult(tools=[_listed(name, served) for name in TOOLS])

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await anyio.to_thread.run_sync(served.call, params.name, params.arguments or {}, limiter=one_at_a_time)
        return result_of(answer)

    return Server(
        "tracemine", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def result_of(answer: Answer | str) -> types.CallToolResult:
    """Return an answer as data and as the same in JSON; an error as its line."""
    if isinstance(answer, str):
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer)], is_error=True)
    written = msgspec.json.encode(answer)
    text = types.TextContent(type="text", text=written.decode())
    return types.CallToolResult(content=[text], structured_content=msgspec.json.decode(written))


def _listed(name: str, served: Served) -> types.Tool:
    tool = TOOLS[name]
    reads_only = served.reads_only(name)
    hints = types.ToolAnnotations(
        read_only_hint=reads_only, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return types.Tool(
        name=name, title=tool.title, description=tool.says, input_schema=schema_of(tool.takes()), annotations=hints
    )


def schema_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of what a tool takes in as few words as say it: an agent reads all of them before it asks.

    >>> from tracemine.agents.served import TOOLS
    >>> schema_of(TOOLS["traces"].takes())["properties"]["limit"]
    {'description': 'Rows.', 'type': 'integer', 'minimum': 1, 'maximum': 25}
    """
    _, components = msgspec.json.schema_components([record])
    own: dict[str, Any] = components[record.__name__]
    properties = {name: _short(one) for name, one in own["properties"].items()}
    required = {"required": own["required"]} if own.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _short(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what one argument takes; that it may be null, which leaving it out says too, is left out."""
    kept = {name: one for name, one in schema.items() if name not in _DROPPED}
    either = [one for one in kept.pop("anyOf", ()) if one.get("type") != "null"]
    choice = {"enum": [one for one in kept.pop("enum") if one is not None]} if "enum" in kept else {}
    return kept | (_short(either[0]) if len(either) == 1 else {}) | choice
