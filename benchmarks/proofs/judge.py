"""Kernels of code that users write, compiled and judged on a GPU by the rule that `tracemine verify` judges by.

    python -m benchmarks judge [-o FILE] [--seconds S] [--processes N] [--wrong N] [--dry] [FUNCTION …]
    python -m benchmarks judge --show FILE

The functions are those of tests/codegen/user_written.py: losses with their gradients, optimizers, samplers, norms,
rotary embeddings, activations, quantisers, each at several sizes and dtypes. Nothing is timed: processes compile and
judge side by side. Right kernels come first; then of each kernel as many wrong ones (--wrong), of those kinds that
change numbers. A GPU's judge sees three seeds of plain values; that every wrong kernel is caught is the interpreter's
to show (`python -m benchmarks verify_catalogue --user-written`: the same functions, small, on a CPU).

After S seconds no kernel is begun, and what is begun has FURTHER_S more. A process that does not go even when it is
killed, as one that a driver holds, is left behind: S + FURTHER_S + LEFT_S seconds after torch is imported the run ends.
FILE (JSON) is written as results come, whole each time, so that a run that is cut off leaves what it knew: --show
prints its summary, and how many kernels were reached. --dry: on a CPU, in Triton's interpreter. Exits with 1 where a
right kernel is refused or fails. Needs torch, triton and msgspec.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from tests.codegen.user_written import USER_WRITTEN, recorded
from tracemine.codegen import Graph, generate
from tracemine.codegen.graph import GraphError, Unsupported
from tracemine.codegen.lowering.driver import lower
from tracemine.processes import Ended, Process, TooLate, serve
from tracemine.validate.input_domains import domains
from tracemine.validate.mutants import mutants_of
from tracemine.verify.gpu.correctness import repeats, right
from tracemine.verify.repro.eager import eager_text

# Rows, columns, dtype, and whether the gradients are in the graph too.
SIZES = (
    (256, 1024, "float32", True),
    (512, 2000, "bfloat16", True),
    (64, 5000, "float32", True),
    (1000, 384, "float32", False),
)
SMALL = ((5, 36, "float32", True), (3, 70, "bfloat16", True))
LIMIT_S = 90.0  # of one kernel with its wrong ones
FURTHER_S = 15.0  # after the time is up, for what is begun
LEFT_S = 5.0  # and for processes that are told to go
# Wrong kernels that plain values tell from right ones: others need layouts, sizes or numbers that only the interpreter
# is given.
TOLD = (
    *("place off by one", "plus for times", "another maximum", "root for its inverse", "another exponential"),
    *("result not written", "last step left out", "wrong scalar", "divisor and dividend swapped"),
    *("last block of a loop left out", "first block of a loop left out"),
    *("reduced along the other axis", "running sum begins anew"),
)
# One element of hundreds, or of thousands: below what 16 bits round.
TOLD_WIDE = (*TOLD, "columns end one early", "rows end one early", "one element fewer counted")


def described(chain: Graph) -> list[tuple[Any, ...]]:
    """A chain's inputs as a reproduction's table has them."""
    holds = domains(chain)
    return [
        (i.name, i.spec.shape, getattr(torch, str(i.spec.dtype)), i.spec.strides, holds.get(k, i.below))
        for k, i in enumerate(chain.inputs)
    ]


def eager_of(chain: Graph, device: str) -> Callable[..., Any]:
    """The chain as eager runs it, as reproductions hold it."""
    named: dict[str, Any] = {"torch": torch}
    exec(eager_text(chain).replace('device="cuda"', f'device="{device}"'), named)  # noqa: S102 - our own text
    found: Callable[..., Any] = named["eager"]
    return found


class Judge:
    """What a process does: one kernel, or wrong ones of it, a question."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder, self.loaded = device, folder, 0
        if device == "cpu":
            from tracemine.validate import interpreter

            interpreter.install()

    def load(self, text: str) -> Callable[..., Any]:
        """A source's launcher: Triton reads kernels from files."""
        self.loaded += 1
        path = self.folder / f"fused_{self.loaded}.py"
        path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.fused if self.device == "cuda" else _interpreted(module)

    def __call__(self, line: bytes) -> bytes:
        """Answers a question."""
        asked = json.loads(line)
        begun = time.monotonic()
        chain = recorded(asked["name"], asked["n"], asked["k"], asked["dtype"], asked["backward"])
        try:
            text = generate(chain).text
        except Unsupported as refusal:
            return json.dumps({"unsupported": refusal.message}).encode()
        work = self.wrong if "wrong" in asked else self.right
        found = work(chain, text, asked)
        return json.dumps({**found, "seconds": round(time.monotonic() - begun, 2)}).encode()

    def right(self, chain: Graph, text: str, asked: Any) -> dict[str, Any]:
        """The verdict on a right kernel."""
        begun = time.monotonic()
        eager, table, fused = eager_of(chain, self.device), described(chain), self.load(text)
        found = right(eager, {"fused": fused}, table, lower(chain).ulp, self.device)["fused"]
        if not repeats(fused, table, self.device):
            found["faults"].append("ten runs differ from each other")
        return {**found, "calls": len(chain.calls), "judging_s": round(time.monotonic() - begun, 2)}

    def wrong(self, chain: Graph, text: str, asked: Any) -> dict[str, Any]:
        """The verdicts on wrong kernels, from `begin` on, `wrong` of them in all; `fatal`: the process is of no more
        use.
        """
        told = TOLD_WIDE if asked["dtype"] == "float32" else TOLD
        able = [w for w in mutants_of(chain, text) if w.needs is None and w.name in told]
        chosen = able[:: max(1, len(able) // asked["wrong"])][: asked["wrong"]] if able else []
        eager, table, ulp = eager_of(chain, self.device), described(chain), lower(chain).ulp
        verdicts: list[dict[str, Any]] = []
        fatal = False
        for wrong in chosen[asked["begin"] :]:
            says = ""
            try:
                faults = right(eager, {"fused": self.load(wrong.source)}, table, ulp, self.device)["fused"]["faults"]
                says = faults[0] if faults else ""
            except Exception as error:
                says = f"it raised {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
                fatal = self.device == "cuda" and not _lives()
            verdicts.append({"kind": wrong.name, "line": wrong.line, "caught_by": says})
            if fatal:
                break
        return {"verdicts": verdicts, "fatal": fatal, "left": len(chosen) - asked["begin"] - len(verdicts)}


def _lives() -> bool:
    """Whether the GPU still answers this process: after a read out of bounds it does not."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


def _interpreted(module: Any) -> Callable[..., Any]:
    """A launcher run by Triton's interpreter."""
    from tracemine.validate import interpreter
    from tracemine.validate.guarded_memory import Torch

    def fused(*given: torch.Tensor) -> Any:
        stand_in = Torch()
        module.torch = stand_in
        with interpreter.watching() as watch:
            stand_in.watch, watch.far, watch.contracts = watch, False, True
            for tensor in given:
                watch.allow(tensor)
            return module.fused(*given)

    return fused


def work(device: str) -> None:
    """A process of its own: questions from standard input."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(device, Path(folder))
        if device == "cuda":
            torch.zeros(1, device="cuda")

        def answer(line: bytes) -> bytes:
            try:
                return judge(line)
            except GraphError as error:
                return json.dumps({"unsupported": str(error)}).encode()
            except Exception as error:  # this kernel is done, the next may be well
                text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
                return json.dumps({"failed": text, "fatal": device == "cuda" and not _lives()}).encode()
            finally:
                if device == "cuda":
                    with contextlib.suppress(RuntimeError):
                        torch.cuda.empty_cache()

        serve(answer)


class Run:
    """Questions dealt out to processes; answers as they come."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.end = time.monotonic() + given.seconds
        self.path: Path | None = given.output
        self.device = "cpu" if given.dry else "cuda"
        self.count = given.processes
        self.asked = 0
        self.results: list[dict[str, Any]] = []
        self.lock, self.kept = threading.Lock(), time.monotonic()
        self.machine: dict[str, Any] = {"torch": torch.__version__}

    def ask(self, questions: list[dict[str, Any]]) -> None:
        """All questions that the time allows; whatever a process does, no longer than that."""
        waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for each in questions:
            waiting.put(each)
        threads = [threading.Thread(target=self._serve, args=(waiting,), daemon=True) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(self.end + FURTHER_S + LEFT_S - time.monotonic(), 0.0))
        if behind := sum(thread.is_alive() for thread in threads):
            print(f"{behind} processes do not go: left behind", flush=True)

    def _serve(self, waiting: queue.SimpleQueue[dict[str, Any]]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if self.device == "cpu":
            environment["TRITON_INTERPRET"] = "1"
        with Process((sys.executable, __file__, "--work", self.device), environment) as process:
            for asked in _taken(waiting):
                if time.monotonic() > self.end:
                    return
                while True:
                    answer = self._answered(process, asked)
                    if answer.pop("fatal", False):
                        process.end()
                    self._keep({**asked, **answer})
                    if not answer.get("left"):
                        break
                    asked = {**asked, "begin": asked["begin"] + len(answer["verdicts"])}

    def _answered(self, process: Process, asked: dict[str, Any]) -> dict[str, Any]:
        left = max(self.end + FURTHER_S - time.monotonic(), 1.0)
        try:
            found: dict[str, Any] = json.loads(process.ask(json.dumps(asked).encode(), min(LIMIT_S, left)))
        except TooLate:
            return {"failed": f"no answer within {LIMIT_S:g} s"} if left > LIMIT_S else {"unfinished": True}
        except Ended as end:
            return {"failed": f"the process {end.how}"}
        except (OSError, ValueError) as error:  # this kernel has none, the next may have
            return {"failed": f"no answer: {type(error).__name__}: {error}"[:300]}
        return found

    def _keep(self, result: dict[str, Any]) -> None:
        with self.lock:
            self.results.append(result)
            says = verdict(result)
            if says:
                print(f"{named(result)}: {says}", flush=True)
            if time.monotonic() - self.kept > 5:
                self.write()

    def write(self) -> None:
        """What is known so far, to the file."""
        self.kept = time.monotonic()
        if self.path is not None:
            text = json.dumps({**self.machine, "asked": self.asked, "results": self.results}, indent=1)
            whole = self.path.with_name(f"{self.path.name}.part")
            whole.write_text(text, "utf-8")
            whole.replace(self.path)


def _taken(waiting: queue.SimpleQueue[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def named(result: dict[str, Any]) -> str:
    """Which kernel an answer is about."""
    forward = "" if result["backward"] else " forward"
    return f"{result['name']} {result['dtype']} {result['n']}x{result['k']}{forward}"


def verdict(result: dict[str, Any]) -> str:
    """What is to be said of an answer; "" where all is well."""
    if "unsupported" in result:
        return f"no kernel: {result['unsupported']}"
    if "failed" in result:
        return f"FAILED: {result['failed']}"
    if "unfinished" in result:
        return "not finished in time"
    if "verdicts" in result:
        missed = [f"{v['kind']}: {v['line']}" for v in result["verdicts"] if not v["caught_by"]]
        return "not caught: " + "; ".join(missed) if missed else ""
    return f"REFUSED: {'; '.join(result['faults'][:3])}" if result["faults"] else ""


def questions(names: list[str], sizes: tuple[tuple[int, int, str, bool], ...]) -> list[dict[str, Any]]:
    """Every function at one size, then at the next: what time does not allow is the last sizes."""
    return [
        {"name": name, "kind": USER_WRITTEN[name].kind, "n": n, "k": k, "dtype": dtype, "backward": backward}
        for n, k, dtype, backward in sizes
        for name in names
        if backward or USER_WRITTEN[name].learns
    ]


def summary(results: list[dict[str, Any]], wanted: int) -> int:
    """Prints what it came to. How many right kernels were refused or failed."""
    judged = [r for r in results if "faults" in r]
    refused = [r for r in judged if r["faults"]]
    failed = [r for r in results if "failed" in r and "wrong" not in r]
    none = [r for r in results if "unsupported" in r and "wrong" not in r]
    shares = [r["judged"] for r in judged if "judged" in r]
    kinds = Counter(r["kind"] for r in judged)
    print(f"{len(judged)} judged, {len(refused)} refused ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})")
    if shares:
        whole = sum(share == 1 for share in shares)
        print(
            f"elements judged by number: {sum(shares) / len(shares):.4%} on average, {min(shares):.2%} at least; "
            f"of {whole} of {len(shares)} kernels all"
        )
    left = wanted - len(judged) - len(failed) - len(none)
    print(f"{len(failed)} crashed, {len(none)} without a kernel, {left} not reached in time")
    for each in (*refused, *failed):
        print(f"    {named(each)}: {verdict(each)}")
    wrong = [v for r in results for v in r.get("verdicts", ())]
    caught = sum(bool(v["caught_by"]) for v in wrong)
    functions = len({r["name"] for r in results if r.get("verdicts")})
    kernels = sum(bool(r.get("verdicts")) for r in results)
    print(f"{caught} of {len(wrong)} wrong kernels caught, of {kernels} kernels of {functions} functions")
    lost = [r for r in results if "failed" in r and "wrong" in r]
    if lost:
        print(f"of {len(lost)} kernels wrong ones gave no verdict: {', '.join(named(r) for r in lost[:5])}")
    missed = Counter(v["kind"] for v in wrong if not v["caught_by"])
    if missed:
        print("not caught:", ", ".join(f"{n} {kind}" for kind, n in missed.most_common()))
    return len(refused) + len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help="of tests/codegen/user_written.py (all of them)")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file")
    parser.add_argument("--seconds", type=float, default=240.0, help="after them no kernel is begun")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--wrong", type=int, default=4, help="wrong kernels of each right one")
    parser.add_argument("--dry", action="store_true", help="on a CPU, small, in Triton's interpreter")
    parser.add_argument("--show", type=Path, metavar="FILE", help="the summary of a run, cut off or not")
    parser.add_argument("--work", choices=("cpu", "cuda"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return 0
    if given.show:
        kept = json.loads(given.show.read_text("utf-8"))
        print(*(f"{key} {kept[key]}" for key in ("device", "torch") if key in kept), sep=", ")
        return int(summary(kept["results"], kept["asked"]) > 0)
    begun = time.monotonic()
    run = Run(given)
    names = given.functions or list(USER_WRITTEN)
    if unknown := [name for name in names if name not in USER_WRITTEN]:
        parser.error(f"no such function: {unknown[0]}")
    if run.device == "cuda":
        if not torch.cuda.is_available():
            parser.error("this needs a GPU, and torch finds none (--dry: on a CPU)")
        run.machine["device"] = torch.cuda.get_device_name(0)
    asked = questions(names, SMALL if given.dry else SIZES)
    print(f"{len(names)} functions, {len(asked)} kernels, {run.count} processes, {run.machine}", flush=True)
    run.asked = len(asked)
    run.ask(asked)
    print(f"right kernels: {time.monotonic() - begun:.0f} s", flush=True)
    if given.wrong:
        run.ask([{**each, "wrong": given.wrong, "begin": 0} for each in asked])
    bad = summary(run.results, len(asked))
    run.write()
    print(f"{time.monotonic() - begun:.0f} s in all")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
