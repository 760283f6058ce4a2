"""Proofs that hang, crash or run out of memory become words, and the next chain is proved all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tracemine.codegen import Graph, GraphBuilder
from tracemine.codegen.graph import Ref
from tracemine.codegen.index_inputs import within
from tracemine.codegen.triton.source import generate
from tracemine.errors import TracemineError, UsageError
from tracemine.processes import Ended, Process
from tracemine.validate import Interpreter, downsize, pipeline
from tracemine.validate.downsize import elements, narrower, shorter, smaller
from tracemine.validate.sandbox import Sandbox, make_job
from tracemine.verify.repro import standalone


def chain(rows: int = 4) -> Graph:
    b = GraphBuilder("scaled")
    return b.done(b.call("aten::mul.Tensor", b.input("x", (rows, 8), "float32"), 0.5))


def stand_in(tmp_path: Path, text: str) -> tuple[str, str]:
    """A process in place of the one that proves kernels."""
    path = tmp_path / "worker.py"
    path.write_text(text)
    return sys.executable, str(path)


def test_a_hang_ends_after_its_time(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "while True: pass")
    with Sandbox(time_limit_s=0.2, command=command) as sandbox:
        assert sandbox.validate(chain()) == "validating took longer than 0.2 s"


LEAVES_A_FILE = (
    "import os, sys, tempfile\nprint(flush=True)\nsys.stdin.readline()\nopen(tempfile.mkdtemp() + '/kernel.py', 'w')\n"
)


@pytest.mark.parametrize("end", ["while True: pass", "os._exit(1)"])
def test_a_process_that_is_ended_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    with Sandbox(time_limit_s=0.5, command=stand_in(tmp_path, LEAVES_A_FILE + end)) as sandbox:
        sandbox.validate(chain())
        sandbox.validate(chain())
        assert len(list((tmp_path / "tmp").rglob("kernel.py"))) <= 1  # the second's
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("end", ["while True: pass", "os._exit(1)"])
def test_a_file_that_is_run_alone_and_ended_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    standalone.run(LEAVES_A_FILE.replace("sys.stdin.readline()", "") + end, [], 1.0, what="the step")
    assert list(tmp_path.iterdir()) == []


def test_a_crash_is_said_and_the_next_chain_gets_a_process_of_its_own(tmp_path: Path) -> None:
    mark = tmp_path / "crashed"
    command = stand_in(
        tmp_path,
        f"import os, pathlib\nprint(flush=True)\nmark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists(): raise SystemExit('second')\nmark.touch()\nos.kill(os.getpid(), 11)",
    )
    with Sandbox(command=command) as sandbox:
        assert sandbox.validate(chain()) == "the process that validates kernels was ended by SIGSEGV"
        assert sandbox.validate(chain()) == "the process that validates kernels ended with 1: second"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")
def test_a_lack_of_memory_is_said(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "import sys\nsys.stdin.readline()\nx = bytearray(8 << 30)")
    with Sandbox(memory_limit_bytes=1 << 30, command=command) as sandbox:
        assert sandbox.validate(chain()) == "validating needs more than 1 GiB of memory"


def test_a_proof_does_not_wait_for_compilers_that_it_has_no_use_for(tmp_path: Path) -> None:
    text = (
        "import sys, msgspec\nfrom tracemine.validate import interpreter, worker\ninterpreter.install()\n"
        "job = msgspec.json.decode(sys.stdin.buffer.readline(), type=worker.ValidationJob)\n"
        "proof = worker.validate(job)\n"
        "print(proof.trials > 10, [m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules])\n"
    )
    ran = subprocess.run(
        stand_in(tmp_path, text),
        input=msgspec.json.encode(make_job(chain(), False)) + b"\n",
        capture_output=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=True,
    )
    assert ran.stdout.decode().strip() == "True []"


def test_a_process_whose_answers_nobody_can_read_any_more_ends(tmp_path: Path) -> None:
    text = "from tracemine.processes import end_with_reader\nend_with_reader()\nprint(1, flush=True)\nwhile True: 1"
    with subprocess.Popen(stand_in(tmp_path, text), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        assert child.poll() is None
        child.stdout.close()
        try:
            assert child.wait(30) == 0
        finally:
            child.kill()


def test_what_is_printed_on_the_way_is_no_answer(tmp_path: Path) -> None:
    text = "def answer(line):\n    print('noise')\n    return line.strip()[::-1]\n"
    process = Process(stand_in(tmp_path, f"from tracemine.processes import serve\n{text}serve(answer)"), os.environ)
    assert [process.ask(line, 60.0) for line in (b"one", b"two")] == [b"eno\n", b"owt\n"]
    process.close()


def test_after_it_was_killed_a_process_begins_no_other(tmp_path: Path) -> None:
    process = Process(
        stand_in(tmp_path, "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"), os.environ
    )
    assert process.ask(b"one", 60.0) == b"one\n"
    process.kill()
    for _ in range(2):
        with pytest.raises(Ended) as end:
            process.ask(b"two", 60.0)
        assert end.value.how == "was ended by SIGKILL"
    process.close()


def test_a_terminal_interrupts_whoever_asks_and_not_who_answers(tmp_path: Path) -> None:
    process = Process(stand_in(tmp_path, "input()"), os.environ)
    try:
        assert os.getpgid(process.start()) != os.getpgrp()
    finally:
        process.close()


# A pipe is no file: what writes more than a file may have here goes on.
NOISY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for k in range(64):
    os.write(2, b"x" * (1 << 16) + b"\\n")
sys.exit("the last of it")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")
def test_of_what_a_process_says_of_errors_no_more_than_its_end_is_kept(tmp_path: Path) -> None:
    process = Process(stand_in(tmp_path, NOISY), os.environ)
    with process, pytest.raises(Ended) as end:
        process.ask(b"one", 60.0)
    assert end.value.how == "ended with 1: the last of it"
    assert sum(map(len, end.value.said)) < 10_000
    assert standalone.run(NOISY, [], 60.0, what="the step") == "the step ended with 1: the last of it"


def test_what_a_process_left_behind_holds_no_one_up(tmp_path: Path) -> None:
    text = "import subprocess, sys\nsubprocess.Popen(['sleep', '30'], stdout=2)\nsys.exit('gone')"
    begun = time.monotonic()
    with Process(stand_in(tmp_path, text), os.environ) as process, pytest.raises(Ended, match="gone"):
        process.ask(b"one", 60.0)
    assert time.monotonic() - begun < 20


def test_a_process_that_does_not_begin_to_answer_is_the_environments_fault(tmp_path: Path) -> None:
    with Sandbox(command=stand_in(tmp_path, "import no_such_module")) as sandbox, pytest.raises(UsageError) as raised:
        sandbox.validate(chain())
    assert raised.value.message == (
        "the process that validates kernels does not start: ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert "pip install torch triton" in str(raised.value.hint)


def test_an_import_that_fails_once_it_answers_costs_that_proof_alone(tmp_path: Path) -> None:
    text = "from tracemine.processes import serve\nimport msgspec\nserve(lambda line: __import__('no_such'))"
    with Sandbox(command=stand_in(tmp_path, text)) as sandbox:
        says = "the process that validates kernels ended with 1: ModuleNotFoundError: No module named 'no_such'"
        assert sandbox.validate(chain()) == says


def test_an_answer_that_is_no_proof_is_none(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "print('hello', flush=True)\nimport time\ntime.sleep(60)")
    with Sandbox(command=command) as sandbox:
        assert (
            sandbox.validate(chain())
            == "the process that validates kernels answered with something else than a validation"
        )


def test_who_does_not_read_the_question_is_not_waited_for_either(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "import time\ntime.sleep(60)")
    with Sandbox(time_limit_s=0.2, command=command) as sandbox:
        begun = time.monotonic()
        assert sandbox.answer(b"x" * (1 << 20)) == "validating took longer than 0.2 s"  # more than a pipe holds
        assert time.monotonic() - begun < 30


def test_a_process_that_reads_no_more_has_started_all_the_same(tmp_path: Path) -> None:
    text = "import os, time\nprint(flush=True)\nos.close(0)\ntime.sleep(1)\nraise SystemExit('no')"
    with Process(stand_in(tmp_path, text), dict(os.environ)) as process, pytest.raises(Ended) as raised:
        process.start()
        time.sleep(0.5)  # until it reads no more
        process.ask(b"a job", 10.0)
    assert (raised.value.code, raised.value.said, raised.value.unstarted) == (1, ("no",), False)


def test_without_limits_a_crash_is_an_error_that_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "WORKER", stand_in(tmp_path, "print(flush=True)\nraise SystemExit('no')"))
    with Interpreter() as process, pytest.raises(TracemineError) as raised:
        process.validate(chain())
    assert str(raised.value) == "scaled: the process that interprets kernels ended with 1: no"


def test_large_chains_are_tried_small_with_the_same_source() -> None:
    large = chain(1 << 20)
    small = smaller(large)
    assert elements(large) == 8 << 20
    assert elements(small) < 100
    assert generate(small).text == generate(large).text


def test_what_is_tried_small_is_the_source_at_the_recorded_sizes() -> None:
    b = GraphBuilder("long_rows")
    large = b.done(b.call("aten::_softmax", b.input("x", (3, 200_000), "float32"), -1, False))
    small = smaller(large)
    job = make_job(small, mutants=False, recorded=large)
    assert "for start in" in job.source  # which rows as short as these would not need
    assert "for start in" not in make_job(small, mutants=False).source
    step = "max(32, triton.next_power_of_2(columns // 16))"  # 17 steps at most: a proof of 64 took over a minute
    assert f"rblock = min({step}, min(elements * few, max_columns)" in job.source  # in several steps
    assert f"    rblock = min(rblock, {step})" in job.source  # and in two parts
    assert "columns, rblock * 2)" in job.source
    kernels = generate(large).text.partition("def fused(")[0].partition("def _expect(")[0]
    assert job.source.startswith(kernels)  # to the letter


def test_sizes_that_are_part_of_the_kernel_are_halved_where_an_interpreter_would_not_get_through_them() -> None:
    b = GraphBuilder("causal")
    places = b.call("aten::arange.start_step", 0, 2048, 1, "int64")
    views = [b.call("aten::view", places, shape) for shape in ((1, 2048), (2048, 1))]
    large = b.done(b.call("aten::le.Tensor", *views))
    assert elements(smaller(large)) == 2048 * 2048
    small = smaller(narrower(large))
    assert elements(small) == 256 * 256
    assert "2048" in generate(large).text
    assert generate(small).text.replace("256", "2048") == generate(large).text
    with Sandbox() as sandbox:
        proof = sandbox.validate(small, False)
    assert not isinstance(proof, str)
    assert proof.passed


def test_sizes_are_not_halved_where_that_makes_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder("joined")
    joined = b.call("aten::cat", [b.input(name, (4, 16_384), "float32") for name in "xy"], 1)
    large = b.done(b.call("aten::_softmax", joined, 1, False))
    monkeypatch.setattr(downsize, "MOST_INTERPRETED", 1000)
    assert "for start" in generate(large).text  # half of the row is held in registers
    assert narrower(large) == large


def test_of_long_lists_a_few_members_of_each_kind_are_tried_whose_code_the_others_share() -> None:
    b = GraphBuilder("many")
    shapes = [(6, 5) if k % 2 else (7,) for k in range(40)]
    given = [[b.input(f"{name}{k}", shape, "float32") for k, shape in enumerate(shapes)] for name in ("p", "g")]
    b.call("aten::_foreach_mul_.Scalar", given[0], 0.9)
    b.call("aten::_foreach_add_.List", *given, alpha=0.5)
    long = b.done()
    short = shorter(long)
    assert len(short.inputs) == 2 * 2 * 3  # of each shape three members, of either list
    assert shorter(short) == short
    assert "tl.load" in generate(short).text


def test_of_long_lists_members_that_are_wanted_are_tried_wherever_they_stand() -> None:
    b = GraphBuilder("many")
    given = [b.input(f"x{k}", (7,), "float32") for k in range(40)]
    short = shorter(b.done(b.call("aten::_foreach_mul.Scalar", given, 0.9)[-1]))
    assert (len(short.inputs), short.live) == (4, (7,))


def test_a_list_among_other_calls_is_left_as_it_is() -> None:
    b = GraphBuilder("norms")
    grads = [b.input(f"g{k}", (5,), "float32") for k in range(20)]
    total = b.call("aten::stack", list(b.call("aten::_foreach_norm.Scalar", grads, 2)), 0)
    chain = b.done(b.call("aten::linalg_vector_norm", total, 2))
    assert shorter(chain) == chain


def test_indices_stay_within_the_smallest_table_that_they_point_into() -> None:
    b = GraphBuilder("lookups")
    one, other = b.input("one", (5000, 8), "float32"), b.input("other", (5000, 8), "float32")
    index = b.input("index_1", (9000,), "int64", below=5000)
    found = [b.call("aten::index_select", table, 0, index) for table in (one, other)]
    small = smaller(b.done(b.call("aten::add.Tensor", *found)))
    assert elements(small) <= 4096
    tables = [i.spec.shape[0] for i in small.inputs[:2]]
    assert (small.inputs[2].below or 0) <= min(tables)


def test_places_that_are_copied_into_an_index_stay_within_its_table_too() -> None:
    b = GraphBuilder("written")
    table, x = b.input("table", (5000, 8), "float32"), b.input("x", (5000, 8), "int64", below=5000)
    places = b.input("places", (5000, 8), "int64", below=5000)
    b.call("aten::copy_", b.call("aten::view", x, (1, 40_000)), b.call("aten::view", places, (1, 40_000)))
    small = within(b.done(b.call("aten::gather", b.call("aten::slice.Tensor", table, 0, 0, 7, 1), 0, x, False)))
    assert [i.below for i in small.inputs] == [None, 7, 7]


def test_a_table_that_the_chain_computes_places_in_stays_as_large() -> None:
    b = GraphBuilder("positions")
    table, x = b.input("table", (600, 8), "float32"), b.input("x", (900, 512, 8), "float32")
    places = b.call("aten::add.Tensor", b.call("aten::arange.start_step", 0, 512, 1, dtype="int64"), 2)
    small = smaller(b.done(b.call("aten::add.Tensor", x, b.call("aten::embedding", table, places))))
    assert small.inputs[0].spec.shape[0] == 600
    assert elements(small) < elements(b.done(Ref(1))) / 100


def test_where_long_axes_are_part_of_the_kernel_the_others_are_short_and_blocks_large() -> None:
    b = GraphBuilder("cache")
    old, halves = b.input("old", (4, 16, 256, 64), "bfloat16"), [b.input(n, (4, 16, 1, 32), "bfloat16") for n in "xy"]
    large = b.done(b.call("aten::cat", [old, b.call("aten::cat", halves, 3)], 2))
    small = smaller(large)
    assert [i.spec.shape for i in small.inputs] == [(2, 2, 256, 64), (2, 2, 1, 32), (2, 2, 1, 32)]
    job = make_job(small, mutants=False, recorded=large)
    kernels, _, launcher = generate(large).text.partition("def _expect(")
    assert job.source.startswith(kernels)
    assert '_kernel": [(32768, ' not in launcher
    assert '_kernel": [(32768, ' in job.source
    with Sandbox() as sandbox:
        proof = sandbox.validate(small, False, large)
    assert not isinstance(proof, str)
    assert proof.passed
