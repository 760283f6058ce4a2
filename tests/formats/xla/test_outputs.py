"""Every command runs to its end on a recording of JAX, and no word of another framework is in what it says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.formats.xla.make import Event, small_planes, write_json, write_xplane
from tracemine.cli import main
from tracemine.top import BY

SHARED = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "")) / "jax"
JAX = ("train_spelled", "train_cudnn", "eager_chain", "sync_each", "scan_lstm", "data_parallel")
NAMES = ["own", "json", *(JAX if SHARED.is_dir() else ())]
# A key of the JSON that is stable, and what HTML pages have of it.
KEYS = re.compile(r'"torch": ?null,?|\|\^aten::')
# What a page's own texts explain of any recording.
PYTORCH = re.compile(r"torch|aten::|nn\.Module|ProfilerStep|DataLoader", re.IGNORECASE)


def foreign(text: str) -> list[str]:
    """Find words of PyTorch, each with what stands around it."""
    rest = KEYS.sub("", text)
    return [rest[max(found.start() - 60, 0) : found.end() + 60] for found in PYTORCH.finditer(rest)]


def pair(name: str, folder: Path) -> tuple[Path, Path]:
    """A recording, and another one of the same program."""
    if name in ("own", "json"):
        write, suffix = (write_xplane, ".xplane.pb") if name == "own" else (write_json, ".trace.json.gz")
        slower = small_planes(step_ns=2_400_000)
        slower[1].lines[0].events.append(Event("wrapped_add", 1_700_000, 9_000, {"correlation_id": 99}))
        return write(folder / f"a{suffix}", small_planes()), write(folder / f"b{suffix}", slower)
    other = "train_cudnn" if name == "train_spelled" else name
    return SHARED / name / "host.xplane.pb.gz", SHARED / other / "host.xplane.pb.gz"


@pytest.mark.usefixtures("analysed_once")
@pytest.mark.parametrize("name", NAMES)
def test_every_command_runs_to_its_end_without_a_word_of_pytorch(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, other = map(str, pair(name, tmp_path))
    pages = [tmp_path / "scan.html", tmp_path / "diff.html"]
    tickets = tmp_path / "tickets"
    calls = [
        ["scan", trace],
        ["scan", trace, "--all", "--min-saving", "0ns", "--why-not"],
        *(["scan", trace, "--format", form] for form in ("json", "markdown")),
        ["scan", trace, "--format", "html", "-o", str(pages[0])],
        *(["top", trace, "--by", by] for by in BY),
        ["top", trace, "--host"],
        ["doctor", trace],
        ["diff", trace, other],
        ["diff", trace, other, "--format", "html", "-o", str(pages[1])],
        ["tickets", trace, "--project", "p", "--out", str(tickets)],
    ]
    for call in calls:
        code = main([*call, "--quiet"] if call[0] in ("scan", "top", "diff") else call)
        out, err = capsys.readouterr()
        assert code == 0, (call, err)
        assert foreign(out + err) == [], call
    for path in (*pages, *tickets.rglob("*.md")):
        assert foreign(path.read_text()) == [], path


def test_what_an_agent_is_told(tmp_path: Path) -> None:
    """By one server of all recordings: to begin takes longer than what one asks."""
    pytest.importorskip("mcp", reason='the SDK is not installed: pip install ".[mcp]"')
    from tests.mcp.sessions import Session, over_stdio

    paths = [pair(name, tmp_path)[0] for name in NAMES]

    async def asked(session: Session) -> list[tuple[Path, str]]:
        answers = []
        for path in paths:
            answers += [(path, await session.answer(name, path=str(path))) for name in ("scan", "doctor")]
            answers.append((path, await session.answer("diff", before=str(path), after=str(path))))
        return [(path, str(answer)) for path, answer in answers]

    for path, answer in over_stdio(asked, [path.parent for path in paths]):
        assert foreign(re.sub(r"'torch': None,?", "", answer)) == [], path
