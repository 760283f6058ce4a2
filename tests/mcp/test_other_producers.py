"""What an agent is told of recordings that no profiler of PyTorch made."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from tests.formats.onnxruntime_files import chain, profiled
from tests.formats.rocpd.make import two_steps
from tests.formats.tensorrt_files import exported, gap_engine
from tests.formats.xla import make
from tests.mcp.sessions import FIXTURES
from tests.mcp.test_served import MOST_TOKENS, answer, served, tokens
from tracemine.agents.served import Served
from tracemine.top import BY

TRACES = ("jax.xplane.pb", "engine/model.profile.json", "ort/profile.json", "run.chrome_trace", "run.hatchet")
OF_TORCH = re.compile(r"torch\.(?!onnx\b)|profiler schedule|with_stack|CPU activities")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    make.write_xplane(folder / TRACES[0], make.small_planes())
    exported(folder / "engine", gap_engine())
    profiled(folder / "ort", chain("MatMul", "Div", "Erf", "Add", "Mul", "Mul", device_us=None))
    for name in TRACES[3:]:
        shutil.copy(FIXTURES / "proton" / name, folder)
    two_steps(folder).written()
    return served(folder)


def answers(server: Served, path: str) -> list[dict[str, Any]]:
    """Return every answer about one trace but those of tools that refuse: an agent's walk through it."""
    scan = answer(server, "scan", path=path, min_saving="0ns", limit=10)
    found = [scan, *(answer(server, tool, path=path) for tool in ("doctor", "why_not"))]
    found += [answer(server, "top", path=path, by=by) for by in (*BY, "host", "host_tree", "waits")]
    for row in scan["untrusted"]["findings"]:
        found.append(answer(server, "explain", path=path, id=row["id"]))
        assert found[-1]["id"] == row["id"]
    return [*found, answer(server, "diff", before=path, after=path)]


@pytest.mark.parametrize("path", TRACES)
def test_answers_are_short_and_in_the_producers_words(server: Served, path: str) -> None:
    for given in answers(server, path):
        assert tokens(given) <= MOST_TOKENS
        assert given["next"]
        assert path.startswith("run.") or not OF_TORCH.search(str(given)), given  # Proton is recorded beside torch


def test_a_recording_of_rocprofv3_is_walked_through(server: Served) -> None:
    (row,) = [row for row in answer(server, "traces", limit=25)["untrusted"]["traces"] if row["path"].endswith(".db")]
    assert all(tokens(given) <= MOST_TOKENS for given in answers(server, row["path"]))


def test_host_times_add_up_by_node_where_no_gpu_and_no_line_was_recorded(server: Served) -> None:
    path = "ort/profile.json"
    assert answer(server, "top", path=path)["next"] == "top by host"
    rows = answer(server, "top", path=path, by="host")["untrusted"]["rows"]
    assert {"onnx::MatMul", "onnx::Erf"} <= {row["name"] for row in rows}


def test_what_to_do_about_an_engine_is_said_first(server: Served) -> None:
    (row, *_) = answer(server, "scan", path=TRACES[1])["untrusted"]["findings"]
    assert row["do"].startswith("Put Q/DQ on the skip input of each sum")
