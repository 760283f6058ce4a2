"""Sessions of a real client over standard input and output, and what every answer is held to."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import anyio
import jsonschema
import pytest

from tests import forked

pytest.importorskip("mcp.server.lowlevel", reason='the SDK is not installed: pip install ".[mcp]"')

from mcp import Client, StdioServerParameters, stdio_client

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
LONGEST_ANSWER = 30_000  # characters
ANSWERS = json.loads((ROOT / "tests" / "mcp" / "answers.json").read_text("utf-8"))  # the schema of what a tool answers
_T = TypeVar("_T")


class Session:
    """One client's session: each answer is held to its schema, and to the same in its text."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def answer(self, name: str, **arguments: object) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments)  # the SDK validates it as well
        assert not result.is_error, result.content[0].text
        (text,) = result.content
        assert json.loads(text.text) == result.structured_content
        assert wrong(name, result.structured_content) == []
        assert len(text.text) <= LONGEST_ANSWER
        return dict(result.structured_content)

    async def refusal(self, name: str, **arguments: object) -> str:
        result = await self.client.call_tool(name, arguments)
        assert result.is_error
        assert result.structured_content is None
        (text,) = result.content
        assert "\n" not in text.text
        assert text.text.isprintable()
        return str(text.text)


def over_stdio(
    run: Callable[[Session], Awaitable[_T]],
    folders: Sequence[Path],
    *options: str,
    python: Path | None = None,
    mode: str = "auto",
) -> _T:
    """Start `tracemine mcp`, and run a session with it.

    python: of an environment where tracemine is installed; None: this checkout's, in a process that begins loaded.
    mode: "legacy" for the handshake of older clients.
    """
    own = {name: os.environ[name] for name in ("PYTHONPATH", "XDG_DATA_HOME", "TRITON_INTERPRET") if name in os.environ}
    command = [str(python), "-P", "-m", "tracemine"]
    if python is None:
        own["PYTHONPATH"] = str(ROOT)
        command = [str(forked.program())]
    command += ["mcp", *map(str, folders), *options]
    server = StdioServerParameters(command=command[0], args=command[1:], env=own)

    async def session() -> _T:
        async with Client(stdio_client(server), mode=mode) as client:
            return await run(Session(client))

    with ThreadPoolExecutor(1) as thread:  # of its own: in this one the loop of a test's browser may be running
        answer: _T = thread.submit(anyio.run, session).result()
        return answer


def wrong(name: str, answer: Mapping[str, Any]) -> list[str]:
    """What the promised schema of a tool says against an answer, which may have no key that it does not name."""
    validator = jsonschema.Draft202012Validator(ANSWERS[name])
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(answer)]


def texts(answer: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text of an answer with the keys that lead to it, `findings.title.untrusted`."""
    if isinstance(answer, dict):
        for name, inner in answer.items():
            yield from texts(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(answer, list | tuple):
        for inner in answer:
            yield from texts(inner, place)
    elif isinstance(answer, str):
        yield place, answer
