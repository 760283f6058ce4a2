"""A window that closes while other threads run operators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, profile

from tests.recording.running import python
from tracemine.recording.files import everywhere
from tracemine.recording.profilers import let_go

SERVES = """
import threading, torch, tracemine
x, over = torch.ones(4), threading.Event()
def serve():
    while not over.is_set():
        torch.add(x, x)
threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    with tracemine.capture("run", steps=1, warmup=0, timed=0, stacks=False, quiet=True) as recording:
        recording.step()
over.set()
print(torch.add(x, x).tolist())
"""


def test_windows_that_close_while_threads_run_operators_do_not_crash_the_process(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(SERVES)
    ran = python("serve.py", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "[2.0, 2.0, 2.0, 2.0]\n"), ran.err


def test_no_thread_is_recorded_any_more_when_the_profiler_stops(tmp_path: Path) -> None:
    x, observer = torch.ones(3), ExecutionTraceObserver()

    def elsewhere(operator: Callable[..., object]) -> None:
        thread = threading.Thread(target=operator, args=(x,))
        thread.start()
        thread.join()

    profiler = profile(execution_trace_observer=observer, experimental_config=everywhere(torch.profiler))
    profiler.prepare_trace()
    observer.register_callback(str(tmp_path / "et.json"))
    profiler.start_trace()
    elsewhere(torch.sin)
    let_go(torch, profiler, all_threads=True)
    elsewhere(torch.cos)
    profiler.stop_trace()
    observer.cleanup()
    assert {"aten::sin", "aten::cos"} & {event.name for event in profiler.events()} == {"aten::sin"}
    written = (tmp_path / "et.json").read_text()
    assert "aten::sin" in written and "aten::cos" not in written
