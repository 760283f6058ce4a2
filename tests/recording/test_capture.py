"""`tracemine capture` in processes of their own: programs that train and serve, alone and several at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import forked
from tests.recording.running import ROOT, captured, python
from tracemine.formats import open_trace
from tracemine.recording import ABOUT, EXECUTION_TRACE, TRACE

WHOLE = {ABOUT, EXECUTION_TRACE, TRACE}
QUICK = ["--no-stacks", "--no-execution-trace"]  # torch imports 900 modules for the second
MODEL = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
"""
TRAIN = f"""{MODEL}
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 4 * 24
    def __getitem__(self, index): return torch.full((8,), float(index))
if __name__ == "__main__":
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for batch in torch.utils.data.DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context=sys.argv[1]):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    print("trained", flush=True)
    sys.exit(int(sys.argv[2]))
"""
SERVE = f"""{MODEL}
import http.server, os, signal, threading, time, urllib.request
model.eval()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with torch.inference_mode():
            model(torch.rand(4, 8))
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
def written():
    return os.stat("run").st_ino if os.path.exists("run") else None
def ask():
    url, until = f"http://127.0.0.1:{{server.server_port}}", time.monotonic() + 20
    for _ in range(2):
        before = written()
        os.kill(os.getpid(), signal.SIGUSR2)
        while written() == before and time.monotonic() < until:
            urllib.request.urlopen(url).close()
        print("window", flush=True)
        time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=ask, daemon=True).start()
server.serve_forever()
"""
PLAIN = f"""{MODEL}
for _ in range(int(sys.argv[1])):
    model(torch.rand(4, 8))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, program in (("train.py", TRAIN), ("serve.py", SERVE), ("infer.py", PLAIN)):
        (tmp_path / name).write_text(program)
    return tmp_path


def test_a_training_program_with_loading_processes_is_recorded_and_scan_can_read_it(folder: Path) -> None:
    ran = captured("train.py", "fork", "5", cwd=folder, options=["-o", "run"])
    assert (ran.code, ran.out) == (5, "trained\n")
    assert {path.name for path in (folder / "run").iterdir()} == WHOLE
    assert len(ran.said) == 1 and ran.said[0].startswith(f"{folder}/run: 3 steps by calls of SGD.step, ")
    assert ran.said[0].endswith(f"Next: tracemine scan {folder}/run")
    timeline = open_trace(folder / "run")
    assert timeline.steps.num_rows == 3 and "aten::addmm" in timeline.ops.column("name").to_pylist()
    about = json.loads((folder / "run" / ABOUT).read_text())
    assert about["alone_step_ns"] > 0 and about["recorded_step_ns"] > 0


def test_a_server_is_recorded_at_each_signal_and_ends_by_ctrl_c(folder: Path) -> None:
    ran = captured("serve.py", cwd=folder, options=["-o", "run", "--on-signal", "--after", "2", *QUICK])
    assert (ran.code, ran.out) == (130, "window\nwindow\n")
    assert "KeyboardInterrupt" in ran.err
    assert [line.split(",")[0] for line in ran.said[1:]] == [f"{folder}/run: 3 steps by calls of Sequential"] * 2
    assert open_trace(folder / "run").steps.num_rows == 3


def test_too_few_steps_exit_with_2_and_a_program_that_fails_with_its_own_code(folder: Path) -> None:
    ran = captured("infer.py", "5", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.said == [
        "nothing was recorded: the program ended after 5 steps by calls of Sequential, "
        "and a window needs 21 (--after 20)"
    ]
    assert not (folder / "capture").exists()


def test_a_folder_of_others_is_refused_before_the_program_runs(folder: Path) -> None:
    ran = captured("train.py", "fork", "0", cwd=folder, options=["-o", "."])
    assert (ran.code, ran.out) == (2, "")
    assert "holds what no capture wrote: infer.py, serve.py, train.py" in ran.err and ran.err.count("\n") == 2


def test_the_processes_of_a_job_record_into_folders_of_their_own(folder: Path) -> None:
    """The launcher begins with torch loaded, the processes that it starts do not."""
    launcher = folder / "launch.py"
    launcher.write_text("from torch.distributed.run import main\nmain()\n")
    capture = ["-m", "tracemine", "capture", "-o", "run", "--after", "2", *QUICK, "--", "infer.py", "9"]
    words = ["--nproc-per-node", "2", "--master-port", "0", *capture]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = forked.run(forked.TORCH, words, file=launcher, cwd=folder, env=env)
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in (folder / "run").iterdir()) == ["rank0", "rank1"]
    for number in (0, 1):
        assert {path.name for path in (folder / "run" / f"rank{number}").iterdir()} == {ABOUT, TRACE}


def test_an_argument_of_the_program_may_be_empty_and_options_after_it_are_its_own(folder: Path) -> None:
    (folder / "says.py").write_text("import sys; print(sys.argv)")
    assert captured("says.py", "", "--after", "3", cwd=folder).out == "['says.py', '', '--after', '3']\n"
    ran = python("-m", "tracemine", "capture", "--after", "0", "--", "says.py", cwd=folder)
    assert (ran.code, ran.out) == (2, "") and ran.said[0].startswith("invalid value for '--after'")
