"""What Python was at while a device waited for a launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.formats.kineto_file import call, frame, kernel, op, timeline
from tracemine import pipeline
from tracemine.rows import row_sets
from tracemine.rows.table import category
from tracemine.timeline import Timeline

LAUNCH, SCHEDULE, LOOP = "engine/runner.py(25): run", "engine/sched.py(3): schedule", "engine/core.py(9): loop"
MS = 1_000_000


def _engine(folder: Path, rounds: int, schedule: tuple[int, int], *between: dict[str, Any]) -> Timeline:
    """Rounds of 10 ms: 8 ms without a launch, of which something ran for `schedule`, then 1.6 ms on the device.

    The launches take 0.1 ms, so the host is at the next round long before the device is done with this one.
    """
    events = []
    for at in range(rounds):
        begin = at * 10 * MS
        events += [
            frame(LOOP, begin, begin + 10 * MS - 1),
            frame(SCHEDULE, begin + schedule[0], begin + schedule[1]),
            frame(LAUNCH, begin + 8 * MS, begin + 8 * MS + 200_000),
            op("aten::mm", begin + 8 * MS + 1_000, begin + 8 * MS + 100_000),
            call("cudaLaunchKernel", begin + 8 * MS + 2_000, begin + 8 * MS + 9_000, at + 1),
            kernel("sm90_xmma_gemm_bf16", begin + 8 * MS + 12_000, begin + 9 * MS + 600_000, at + 1),
        ]
    return timeline(folder, *events, *between)


def _sources(of: Timeline) -> list[str | None]:
    source = category(row_sets(of)["gaps"], "source")
    return [source.values[code] if code >= 0 else None for code in source.codes.tolist()]


@pytest.mark.parametrize(("rounds", "schedule"), [(4, (100_000, 7_900_000)), (7, (200_000, 7_100_000))])
def test_the_function_that_spans_the_gap_is_named_not_the_one_that_launches(
    tmp_path: Path, rounds: int, schedule: tuple[int, int]
) -> None:
    of = _engine(tmp_path, rounds, schedule)
    assert _sources(of) == ["engine/sched.py:3 schedule"] * (rounds - 1)
    found = pipeline.mined(pipeline.analysed(of)).findings
    assert [(one.rule, one.source[0].function) for one in found] == [("host_stall", "schedule")]
    assert [each.function for each in found[0].source] == ["schedule", "loop"]


def test_a_function_that_lasts_for_half_of_the_gap_is_not(tmp_path: Path) -> None:
    assert _sources(_engine(tmp_path, 3, (2 * MS, 6 * MS))) == ["engine/runner.py:25 run"] * 2


def test_what_the_launch_was_made_from_is_no_answer(tmp_path: Path) -> None:
    events = [
        frame("train.py(1): step", 0, 30 * MS),
        *(call("cudaLaunchKernel", at * 10 * MS + 100, at * 10 * MS + 5_000, at + 1) for at in range(3)),
        *(kernel("k", at * 10 * MS + 9_000, at * 10 * MS + 50_000, at + 1) for at in range(3)),
    ]
    assert _sources(timeline(tmp_path, *events)) == ["train.py:1 step"] * 2


def test_a_function_behind_another_call_is_not_what_the_device_waited_for(tmp_path: Path) -> None:
    asked = [call("cudaEventQuery", at * 10 * MS + 7_500_000, at * 10 * MS + 7_501_000, 90 + at) for at in range(3)]
    late = [frame("engine/log.py(7): write", at * 10 * MS + 7_520_000, at * 10 * MS + 7_990_000) for at in range(3)]
    of = _engine(tmp_path, 3, (2 * MS, 6 * MS), *asked, *late)
    assert _sources(of) == ["engine/runner.py:25 run"] * 2
