"""What `apply` is made of: steps, settings, comparisons, joining, the table and the command line, each alone."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from msgspec.structs import replace

from tests.test_schemas import Run, closed, wrong
from tracemine.api.pictures import tops_of
from tracemine.apply.asked import AskedShares, Wanted, asked_for, found_in, predicted
from tracemine.apply.child import CHECKED, SAMPLED, chosen, place_of, rounding_of, sampled
from tracemine.apply.compare import course_faults, errors, faults, loss_error
from tracemine.apply.edits import edited, mark_of
from tracemine.apply.questions import Checked, TrialJob
from tracemine.apply.record import Applied, Timed, Tried, append, known_in
from tracemine.apply.run import Trying, fastest, instead, joined, modes_for, not_tried, pared, saved_alone, together
from tracemine.apply.step import NotAStep, Step, built, taken
from tracemine.apply.table import table
from tracemine.apply.timing import compared, interleaved
from tracemine.apply.trials import Trials, resting
from tracemine.apply.variants import AFTER, BEFORE, VARIANTS, OneCall, edit_name, excluded, kept
from tracemine.causes import load_rules
from tracemine.errors import InputError, UsageError
from tracemine.findings.record import PerStep
from tracemine.fix.ways import WAYS, way_of
from tracemine.perfmodel import Range
from tracemine.pipeline import ScanOptions, analyse, mined

ROOT = Path(__file__).parents[2]


def result(*variants: str, ratio: float | None = None, said: str = "faster") -> Tried:
    timed = None if ratio is None else Timed(said=said, base_ns=100, own_ns=50, ratio=ratio, low=ratio, high=ratio)
    return Tried(variants=variants, said=said, timed=timed)


def test_a_step_is_any_object_with_the_names() -> None:
    weight = torch.ones(2)
    step = taken(SimpleNamespace(run=len, batches=iter([[1]]), parameters=[weight]))
    assert (step.batches, step.run([1, 2])) == ([[1]], 2)
    assert step.named_parameters() == {"0": weight}
    assert taken(SimpleNamespace(run=len, batches=[1], parameters=lambda: {"w": weight})).named_parameters() == {
        "w": weight
    }
    for given, why in (
        (SimpleNamespace(run=len), "no batches: it is"),
        (SimpleNamespace(run=len, batches=[]), "no batches"),
    ):
        with pytest.raises(NotAStep, match=why):
            taken(given)
    with pytest.raises(NotAStep, match="has no function build"):
        built("json", str(ROOT))


def test_each_variant_is_a_row_and_its_rules_are_there_or_named() -> None:
    assert {*BEFORE, *AFTER} == {*VARIANTS}
    named = {rule for variant in VARIANTS.values() for rule in variant.rules}
    assert [rule for rule in named if not (ROOT / "rules" / rule).is_dir()] == []
    assert excluded("compile", ("tf32", "compile_max_autotune"))
    assert not excluded("compile", ("tf32", "optimizer_fused"))
    assert not excluded("edit:0:a.diff", ("edit:0:b.diff",))


def test_a_mode_is_predicted_by_what_it_touches_and_so_is_what_stands_in_for_it() -> None:
    chain, other, graphs = (0.0, 0.1, 0.2), (0.1, 0.1, 0.1), (0.3, 0.5, 0.6)
    wanted: Wanted = {
        "compile": AskedShares({"chain": chain}),
        "compile_reduce_overhead": AskedShares({"gaps": (0.1, 0.4, 0.6), "chain": chain}, graphs),
        "optimizer_fused": AskedShares({"optimizer": other}),
        "edit:1:norm.diff": AskedShares({"chain": chain}),
        "edit:2:unasked.diff": AskedShares({}),
    }

    def said(*names: str) -> list[float | None]:
        found = predicted(wanted, names)
        return [found[f"predicted{end}"] for end in ("_low", "", "_high")]

    assert said("compile") == [*chain]  # where no graph is known, what findings save
    assert said("compile_graphs_by_step") == said("compile_reduce_overhead") == [*graphs]
    assert said("edit:1:norm.diff", "compile_reduce_overhead") == [*graphs]  # what the mode fuses is in it
    assert said("optimizer_fused", "compile_reduce_overhead") == [
        0.3,
        0.55,
        0.64,
    ]  # of what the other leaves, or nothing
    assert said("edit:2:unasked.diff", "compile_reduce_overhead") == [None] * 3
    measured = {"edit:2:unasked.diff": (-0.1, 0.2, 0.5)}
    assert said("edit:2:unasked.diff") == [None] * 3
    with_it = predicted(wanted, ("edit:2:unasked.diff", "compile_reduce_overhead"), measured)
    assert [with_it[f"predicted{end}"] for end in ("_low", "", "_high")] == [0.23, 0.6, 0.8]
    assert predicted(wanted, ("optimizer_fused", "compile"))["findings"] == ("optimizer", "chain")
    assert {*VARIANTS["compile"].rules} < {*VARIANTS["compile_reduce_overhead"].rules}
    assert VARIANTS["compile_max_autotune"].rules == VARIANTS["compile_reduce_overhead"].rules


def test_a_mode_that_is_not_known_to_work_where_others_are_is_predicted_by_nothing() -> None:
    saving, report = Range(10, 20, 30), mined(analyse(ROOT / "fixtures" / "captures" / "decoder_prefill"))
    step = PerStep(measured_ns=50, step_saving_ns=saving, share_of_unprofiled=0.2, gpu_saving_ns=saving)
    chains = [replace(one, per_step=step) for one in report.findings if one.rule == "memory_bound_chain"][:1]
    known = {"default": (0.1, 0.2, 0.3)}
    unknown, of_findings = asked_for(chains, known), asked_for(chains, {})
    assert predicted(of_findings, ("compile_reduce_overhead",))["predicted"]
    assert predicted(unknown, ("compile_reduce_overhead",))["predicted"] is None
    assert predicted(unknown, ("compile_reduce_overhead",))["findings"]
    assert predicted(unknown, ("compile",))["predicted"] == 0.2


def test_what_modes_save_is_as_far_off_as_it_was_elsewhere() -> None:
    analysis = analyse(ROOT / "benchmarks" / "results" / "h200" / "programs" / "encoder_small_batch")
    scan = mined(analysis)
    _, modes = found_in(scan, tops_of(analysis, scan, ScanOptions()).graphs())
    assert {*modes} == {variant.way for variant in VARIANTS.values() if variant.way}
    for low, likely, high in modes.values():
        assert low <= likely <= high <= 1
    low, _, high = modes["reduce_overhead"]
    assert low < 0.903 < high  # what it saved on an H200
    assert modes["default"][0] < 0  # which may be slower where the host sets the pace


def test_when_the_time_is_over_nothing_begins_and_what_is_being_built_is_given_up(tmp_path: Path) -> None:
    told = list[Any]()
    trials = Trials(TrialJob(entry="model:build", folder=str(ROOT), start=str(tmp_path / "start")), tmp_path, 60.0, 0.0)
    trying = Trying(trials, {}, {}, 0.0, lambda text: None, lambda found: told.append([*found]))
    found = trying.several([("tf32",)], [("compile",)])
    assert [(tried.said, tried.why) for tried in found.values()] == [("not tried", "no time was left")] * 2
    assert told == [[*found.values()]]
    with ExitStack() as stack, pytest.raises(UsageError, match="model:build does not run: no time was left"):
        trials.begin(stack)


def test_optimizers_take_an_option_and_gradients_become_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in vars(torch.optim).values():
        if isinstance(kind, type):
            monkeypatch.setattr(kind, "__init__", vars(kind)["__init__"])
            if kind is torch.optim.Optimizer:
                monkeypatch.setattr(kind, "zero_grad", kind.zero_grad)
    BEFORE["optimizer_fused"]()
    BEFORE["gradients_to_none"]()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight], 0.5, foreach=False)
    assert (optimizer.defaults["fused"], optimizer.defaults["lr"]) == (True, 0.5)
    assert "fused" not in torch.optim.RMSprop([weight]).defaults
    weight.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad is None


def test_graphs_of_modules_hold_one_call_and_refuse_what_needs_more() -> None:
    weight, x = torch.ones(2, requires_grad=True), torch.ones(3, 2)
    once = OneCall(lambda x: x @ weight, [weight])
    with torch.no_grad():
        once(x), once(x)
    for _ in range(2):  # gradients may be dropped behind the call
        loss = once(x).sum()
        weight.grad = None
        loss.backward()
    with pytest.raises(RuntimeError, match="gradients are added up"):
        once(x).sum().backward()
    held = once(x)
    with pytest.raises(RuntimeError, match="called again before its gradients"):
        once(x)
    assert held.requires_grad


def test_channels_last_reaches_modules_and_what_they_are_given() -> None:
    convolution, seen = torch.nn.Conv2d(3, 4, 3), list[Any]()
    step = Step(run=convolution, batches=[torch.randn(2, 3, 8, 8)], modules=[convolution])
    before = step.run(step.batches[0])
    convolution.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    AFTER["channels_last"](step)
    assert step.run(step.batches[0]).allclose(before, atol=1e-5)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_batches_of_each_shape_are_looked_at_first() -> None:
    step = Step(run=len, batches=[torch.ones(2)] * CHECKED + [torch.ones(3)])
    assert chosen(step) == [*range(CHECKED - 1), CHECKED]
    shape, kept = sampled(torch.arange(SAMPLED * 3))
    assert (shape, len(kept)) == ((SAMPLED * 3,), SAMPLED)


@pytest.mark.parametrize(
    ("mine", "why"),
    [
        (torch.tensor([1.0, 2.0, 4.0]), None),
        (torch.tensor([1.0, 2.0, 4.0]) * (1 + 2e-7), None),
        (torch.tensor([1.0, 2.0, 4.0]) * 1.0001, "is rounding"),
        (torch.tensor([1.0, 2.0, float("nan")]), "not finite"),
        (torch.tensor([1.0, 2.0]), "shape (2,) in place of (3,)"),
        (torch.tensor([1.0, 2.0, 4.0]).double(), "float64 in place of float32"),
    ],
)
def test_what_differs_by_more_than_roundings_is_a_fault(mine: Any, why: str | None) -> None:
    base = {"random": "a", "x": sampled(torch.tensor([1.0, 2.0, 4.0]))}
    found = faults(base, {"random": "a", "x": sampled(mine)}, [base])
    assert found == [] if why is None else why in found[0]


def test_noise_of_the_unchanged_step_and_asked_for_roundings_are_allowed() -> None:
    base, near = ({"random": "a", "x": sampled(torch.ones(4) * by)} for by in (1.0, 1.001))
    assert faults(base, near, [base])
    assert not faults(base, near, [{"random": "a", "x": sampled(torch.ones(4) * 1.0002)}])
    assert not faults(base, near, [base], rounding=2.0**-11)
    assert faults(base, {**near, "random": "b"}, [base]) == [
        "draws other random numbers, so what it computes cannot be compared"
    ]
    assert faults(base, {"random": "a"}, [base]) == ["gives no x"]
    one = torch.ones(4096)
    one[7] += 0.02  # of TF32's roundings too many for one element, and few for all
    for name, seen in (("gradient of w, batch 0", True), ("parameter w", False)):
        base, mine = ({"random": "a", name: sampled(t)} for t in (torch.ones(4096), one))
        assert bool(faults(base, mine, [base], rounding=2.0**-11)) == seen
    assert (
        "of its largest element" in faults({**base, "x": sampled(one * 0 + 1)}, {**mine, "x": sampled(one)}, [base])[0]
    )


def test_a_diff_holds_where_an_editor_took_the_blanks_of_empty_lines(tmp_path: Path) -> None:
    source, diff = tmp_path / "source", tmp_path / "a.diff"
    source.mkdir()
    (source / "m.py").write_text("a = 1\n\nb = '\f'\n\nc = 1\n")
    diff.write_text("--- a/m.py\n+++ b/m.py\n@@ -1,4 +1,4 @@\n-a = 1\n+a = 2\n\n b = '\f'\n\n\n")
    with edited(source, [diff]) as (folder, refused):
        assert refused == ""
        assert (folder / "m.py").read_text() == "a = 2\n\nb = '\f'\n\nc = 1\n"


def test_results_are_of_the_source_that_they_were_made_of(tmp_path: Path) -> None:
    source, file = tmp_path / "source", tmp_path / "applied.jsonl"
    (source / ".venv").mkdir(parents=True)
    (source / "m.py").write_text("a = 1\n")
    mark = mark_of(source)
    append(file, Applied(entry="m:b", device="cpu", step_ns=1, source=mark, alone=(result("tf32", ratio=0.9),)))
    (source / ".venv" / "other.py").write_text("a = 1\n")
    (source / "notes.txt").write_text("a = 1\n")
    os.mkfifo(source / "pipe.py")  # which would be waited for
    assert known_in(file, "m:b", source=mark_of(source)).keys() == {("tf32",)}
    (source / "m.py").write_text("a = 2\n")
    assert known_in(file, "m:b", source=mark_of(source)) == {}


def test_an_error_is_placed_in_the_users_own_line(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for file, text in (
        (".venv/site-packages/library.py", "def fail():\n    raise ValueError(0)"),
        ("step.py", "\ndef run():\n    fail()"),
    ):
        exec(compile(text, str(tmp_path / file), "exec"), names)  # noqa: S102
    with pytest.raises(ValueError, match="0") as raised:
        names["run"]()
    assert place_of(raised.value, str(tmp_path)) == " (step.py:3)"


def test_where_sums_differ_by_chance_one_element_of_a_parameter_may_go_the_other_way() -> None:
    flipped, other = torch.ones(4096), torch.ones(4096)
    flipped[7], other[9] = 1.002, 1.0 + 1e-6
    base, mine, chance = ({"random": "a", "gradient of w": sampled(g), "parameter w": sampled(p)} for g, p in (
        (torch.ones(4096), torch.ones(4096)), (torch.ones(4096), flipped), (other, torch.ones(4096)),
    ))  # fmt: skip
    assert "parameter w" in faults(base, mine, [base])[0]
    assert faults(base, mine, [chance]) == []
    assert "gradient" in faults(base, {**mine, "gradient of w": sampled(flipped)}, [chance])[0]
    assert "parameter w" in faults(base, {**mine, "parameter w": sampled(flipped * 1.01)}, [chance])[0]


def test_losses_and_memory_are_held_against_the_unchanged_step() -> None:
    from tracemine.apply.questions import Checked

    base = Checked(device="NVIDIA H200", losses=(2.0, 1.0), peak_bytes=100 << 20)
    assert not course_faults(base, Checked(losses=(2.0, 1.005), peak_bytes=101 << 20), [base])
    assert "loss comes to 1.5" in course_faults(base, Checked(losses=(2.0, 1.5)), [base])[0]
    assert "loss comes to nan" in course_faults(base, Checked(losses=(2.0, None)), [base])[0]
    lost = Checked(losses=(2.0, None))
    assert not course_faults(lost, lost, [lost])  # of a step whose own loss is lost nothing is asked
    assert "leaks" in course_faults(base, Checked(losses=(2.0, 1.0), grown_bytes=32 << 20), [base])[0]
    assert "1.10 times" in course_faults(base, Checked(losses=(2.0, 1.0), peak_bytes=110 << 20), [base])[0]


def test_two_processes_that_do_the_same_say_what_is_no_difference() -> None:
    base, mine, again, near = ([1000 + k % 3 + by for k in range(30)] for by in (0, 30, 20, -30))
    assert compared(base, mine).said == "slower"
    assert compared(mine, base).said == "faster"
    assert compared(base, near).said == "faster"
    assert compared(base, near, again).said == "no difference"
    assert compared(base, mine, again).said == "slower"  # what may be slower is not kept
    assert compared(base, base).said == "no difference"
    much = [value // 4 for value in base]
    other = [value * 3 // 2 for value in base]  # of two that do the same one may take half as long again
    assert (compared(base, much, other).said, compared(base, much, other).apart) == ("faster", 1.4995)
    assert compared(base, [value * 7 // 10 for value in base], other).said == "no difference"
    # Two unchanged processes are 4.8 % apart, as on the host of an H200 once: a step that is 2.3 % longer says nothing,
    # and with 3.7 % more of the device it does; 0.7 % more of the device says nothing, nor does a step that is shorter.
    apart, longer = [round(value * 1.048) for value in base], [round(value * 1.048) for value in base]
    assert [compared(base, longer, apart, on_device=device).said for device in (None, 1.037, 1.007)] == [
        "no difference", "slower", "no difference",
    ]  # fmt: skip
    assert compared(base, base, apart, on_device=1.037).said == "no difference"


def test_what_is_known_well_or_is_far_behind_runs_no_longer() -> None:
    noise = iter(range(10_000))
    ran = dict[str, int]()

    def takes(name: str, ns: int, by: int) -> Callable[[], int]:
        def block() -> int:
            ran[name] = ran.get(name, 0) + 1
            return ns + next(noise) * 7919 % 100 * by

        return block

    timers = {"base": takes("base", 10_000, 1), "again": takes("again", 10_000, 1)}
    timers |= {"far": takes("far", 5_000, 20), "close": takes("close", 2_000, 20), "well": takes("well", 9_000, 0)}
    took = interleaved(timers, OSError, blocks=30, unchanged=("base", "again"))
    assert ran["far"] < ran["close"] == ran["base"] == 31
    assert ran["well"] < 31
    lengths = {name: len(blocks) for name, blocks in took.items() if isinstance(blocks, list)}
    assert lengths == {name: count - 1 for name, count in ran.items()}
    slow = {"base": takes("slow", 10_000, 1), "none": takes("none", 10_000, 1)}
    found = interleaved(slow, OSError, 30, ("base", "none"))
    assert all(isinstance(values, list) and len(values) < 30 for values in found.values())


class Races:
    """What `together` asks, answered from a table of how long sets of variants take."""

    def __init__(self, ratios: dict[tuple[str, ...], float], folder: Path) -> None:
        self.ratios, self.asked, self.alive = ratios, list[Any](), dict[Any, Any]()
        self.until, self.wrong = math.inf, list[str]()
        self.trials = SimpleNamespace(job=SimpleNamespace(folder=str(folder)), course=lambda names, seed: self.wrong)

    def keep(self, sets: Any) -> None:
        self.alive = dict.fromkeys(sets)

    def several(self, sets: Any, again: Any = (), anew: bool = False) -> dict[Any, Tried]:
        self.asked.append(list(sets))
        return {n: result(*n, ratio=self.ratios[n], said="faster" if self.ratios[n] < 0.99 else "slower") for n in sets}

    def beside(self, names: Any, other: Any) -> Timed:
        ratio = self.ratios[names] / self.ratios[other]
        said = "faster" if ratio < 0.99 else "no difference"
        return Timed(said=said, base_ns=100, own_ns=50, ratio=ratio, low=ratio, high=ratio)


def test_what_was_right_is_joined_with_each_mode_and_what_adds_nothing_is_left_out(tmp_path: Path) -> None:
    ratios = {
        ("optimizer_fused", "cudnn_benchmark"): 0.7,
        ("optimizer_fused", "cudnn_benchmark", "compile"): 0.4,
        ("optimizer_fused", "cudnn_benchmark", "compile_reduce_overhead"): 0.3,
        ("cudnn_benchmark", "compile_reduce_overhead"): 0.5,
        ("optimizer_fused", "compile_reduce_overhead"): 0.3,
        ("compile",): 0.6,
        ("compile_max_autotune",): 0.61,
        ("compile_reduce_overhead",): 0.6,
        ("optimizer_fused",): 0.8,
    }
    alone = (
        result("cudnn_benchmark", ratio=0.9),
        result("compile", ratio=0.6),
        result("compile_reduce_overhead", said="failed"),
        result("compile_max_autotune", ratio=0.59),
        result("tf32", said="wrong"),
        result("optimizer_fused", ratio=0.8),
        result("optimizer_foreach", ratio=0.85),
    )
    assert joined(alone, tmp_path) == ("optimizer_fused", "cudnn_benchmark")
    assert modes_for(alone) == ["compile", "compile_reduce_overhead"]
    assert modes_for((*alone[:3], result("compile_max_autotune", ratio=0.5)))[-1] == "compile_max_autotune"
    assert instead(alone) == ["compile_graphs_by_step"]
    races = Races(ratios, tmp_path)
    run = Applied(entry="m:b", device="cpu", step_ns=1, alone=(*alone[:3], *alone[4:]))
    found = together(races, run, ["compile_max_autotune"])  # type: ignore[arg-type]
    assert found.alone[-1].variants == ("compile_max_autotune",)
    assert not any("compile_max_autotune" in tried.variants for tried in found.together)
    assert found.best == ("optimizer_fused", "compile_reduce_overhead")
    assert found.compiled == "compile"
    assert found.beside_compile
    assert found.beside_compile.ratio == 0.3 / 0.6
    assert fastest([result("tf32", said="slower", ratio=1.2)]) is None
    ratios |= {("cudnn_benchmark", "compile"): 0.55, ("optimizer_fused", "compile"): 0.5}
    ranks, changes = Races(ratios, tmp_path), ("optimizer_fused", "cudnn_benchmark")
    together(ranks, replace(run, alone=(alone[0], alone[5])), ["compile"])  # type: ignore[arg-type]
    assert ranks.asked[:2] == [[changes, (*changes, "compile"), ("compile",)], []]
    races.wrong = ["from another seed the loss comes to 2 in place of 1"]
    found = together(races, run, [])  # type: ignore[arg-type]
    assert found.best == ()
    assert [tried.said for tried in found.together if tried.why.startswith("from another seed")] == ["wrong"]


def test_what_is_no_faster_gives_way_to_the_next_and_to_torch_compile_where_that_is(tmp_path: Path) -> None:
    first, second, mode = ("tf32", "cudnn_benchmark"), ("optimizer_fused",), ("compile",)
    alone = (result(*second, ratio=0.8), result(*mode, ratio=0.75))
    run = Applied(entry="m:b", device="cpu", step_ns=1, alone=alone, together=(result(*first, ratio=0.5),))
    ratios = {first: 1.02, second: 0.8, mode: 0.75, ("tf32",): 1.0, ("cudnn_benchmark",): 1.0}
    found = pared(Races(ratios, tmp_path), run, first, mode)  # type: ignore[arg-type]
    assert (found.best, found.together[0].said) == (mode, "slower")
    ratios |= {first: 0.9}
    found = pared(Races(ratios, tmp_path), run, first, mode)  # type: ignore[arg-type]
    assert found.best == mode
    assert found.beside_compile is not None
    assert found.beside_compile.ratio == 1
    late = Races(ratios, tmp_path)
    late.several = lambda sets, *_, **__: not_tried(sets)  # type: ignore[method-assign]
    found = pared(late, replace(run, best=first), first, mode)  # type: ignore[arg-type]
    assert (found.best, found.together[0].timed) == (first, run.together[0].timed)


def test_beside_a_graph_a_change_counts_as_it_was_measured_on_the_device() -> None:
    slower = replace(result("edit:0:/a.diff", ratio=1.1, said="slower"), device_ratio=0.5)
    unknown = saved_alone([slower])
    ((low, likely, high),) = saved_alone([slower], ("edit:0:/a.diff", "cuda_graph")).values()
    assert low < likely == 0.5 < high < 0.52
    beside_default = saved_alone([slower], ("edit:0:/a.diff", "compile"))
    assert unknown == beside_default
    assert unknown["edit:0:/a.diff"][1] == pytest.approx(-0.1)
    assert saved_alone([replace(slower, device_ratio=None)], ("cuda_graph",)) == unknown


def test_a_race_goes_on_without_what_fails() -> None:
    turns = iter(range(100))

    def fails() -> int:
        if next(turns) > 3:
            raise OSError("gone")
        return 5

    took = interleaved({"a": lambda: 7, "b": fails}, OSError, blocks=6)
    assert took["a"] == [7] * 6
    assert isinstance(took["b"], OSError)


def test_what_is_being_built_rests_while_others_are_timed() -> None:
    def state() -> str:
        return Path(f"/proc/{child.pid}/stat").read_text("ascii").rpartition(") ")[2][0]

    with subprocess.Popen((sys.executable, "-c", "while True: pass"), process_group=0) as child:
        try:
            with resting([child.pid, 1 << 30]):
                until = time.monotonic() + 10
                while state() != "T" and time.monotonic() < until:
                    time.sleep(0.01)
                assert state() == "T"
            assert state() != "T"
        finally:
            child.kill()


def test_how_coarsely_a_step_computes_is_seen() -> None:
    weight = torch.ones(4, 4)
    assert rounding_of(lambda: weight @ weight) == 0.0
    assert rounding_of(lambda: (weight.bfloat16() @ weight.bfloat16()).float()) == 2.0**-7

    def breaks() -> None:
        weight.half()
        raise ValueError("no")

    assert rounding_of(breaks) == 2.0**-10


def test_a_table_is_a_screen_and_runs_are_added_to_a_file(tmp_path: Path) -> None:
    rows = (*(result(f"edit:0:/tmp/{k}.diff", ratio=0.9) for k in range(40)), result("tf32", said="not tried"))
    run = Applied(entry="m:b\x1b", device="cpu", step_ns=5000, alone=rows, best=("tf32",))
    lines = list(table(run))
    assert len(lines) <= 24
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "keep: tf32"
    file = tmp_path / "applied.jsonl"
    for each in (run, run):
        append(file, each)
    assert known_in(file, "m:b\x1b").keys() == {row.variants for row in rows[:-1]}
    assert known_in(file, "other:b") == known_in(None, "") == {}
    file.write_text("{}\n")
    with pytest.raises(InputError, match="no result of apply"):
        known_in(file, "m:b")


def test_a_diff_that_does_not_fit_is_named_and_source_stays(tmp_path: Path) -> None:
    source, diff = tmp_path / "source", tmp_path / "a.diff"
    source.mkdir()
    (source / "m.py").write_text("a = 1\n")
    diff.write_text("--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n")
    with edited(source, [diff]) as (folder, refused):
        assert ((folder / "m.py").read_text(), refused) == ("a = 2\n", "")
    assert not folder.exists()
    assert (source / "m.py").read_text() == "a = 1\n"
    first = edit_name(diff)
    diff.write_text(diff.read_text().replace("a = 1", "a = 3"))
    assert edit_name(diff) != first
    with edited(source, [diff]) as (_, refused):
        assert refused.startswith("a.diff: ")


def test_the_command_tries_what_findings_ask_for(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    def applied(entry: str, source: Path, wanted: Any, **options: Any) -> Applied:
        given.update(wanted=wanted, entry=entry, **options)
        return Applied(
            entry=entry, device="cpu", step_ns=1000, alone=(result("compile", ratio=0.5),), best=("compile",)
        )

    monkeypatch.setattr(importlib.import_module("tracemine.apply.run"), "applied", applied)
    trace = ROOT / "fixtures" / "captures" / "decoder_prefill"
    code, out, _ = run("apply", trace, "--entry", "m:build", "--budget", "60s", "--format", "json", "--quiet")
    assert code == 0
    assert wrong("applied", json.loads(out), closed("applied")) == []
    assert {"compile", "compile_reduce_overhead", "compile_max_autotune"} <= given["wanted"].keys()
    assert "tf32" not in given["wanted"]
    assert given["budget_s"] == 60
    assert any(share for asking in given["wanted"].values() for share in asking.findings.values())
    _, _, said = run("apply", trace, "--entry", "m:build", "--try", "tf32")
    assert "tf32 rounds by up to 0.0005 of a number" in said  # before it is tried
    assert run("apply", trace, "--entry", "m:build", "--try", "tf32", "--quiet")[0] == 0
    assert [*given["wanted"]] == ["tf32"]
    for options, said in (
        (("--try", "no"), "there is no no"),
        (("--budget", "x"), "seconds"),
        (("--edit", "x"), "file x"),
    ):
        code, _, err = run("apply", trace, "--entry", "m:build", "--quiet", *options)
        assert (code, said in err) == (2, True), err


def test_what_is_interrupted_keeps_what_it_knows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def applied(entry: str, *_: Any, progress: Callable[[Applied], None], **options: Any) -> Applied:
        for found in ((), (result("compile", ratio=0.5),)):
            progress(Applied(entry=entry, device="cpu", step_ns=1000, alone=found))
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("tracemine.apply.run"), "applied", applied)
    trace, file = ROOT / "fixtures" / "captures" / "decoder_prefill", tmp_path / "applied.jsonl"
    assert run("apply", trace, "--entry", "m:build", "-o", file, "--quiet")[0] != 0
    assert [*known_in(file, "m:build")] == [("compile",)]


COARSER = {name for variant in VARIANTS.values() if variant.rounding for name in variant.rules}


@pytest.mark.parametrize("name", sorted(COARSER | {name for name, way in WAYS.items() if way.arithmetic}))
def test_advice_to_compute_more_coarsely_says_by_how_much(name: str) -> None:
    assert way_of(name).arithmetic
    for rule in (known for known in load_rules() if known.id == name):
        for text in (rule.fix, *(advice.text for advice in rule.advice)):
            assert re.search(r"\b\de-\d\b|[Aa]ccuracy", text), rule.id


def test_what_was_measured_in_a_step_stays_with_its_finding(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ROOT / "fixtures" / "captures" / "decoder_prefill"
    scan = json.loads(run("scan", trace, "--format", "json")[1])
    finding = next(one for one in scan["findings"] if one["reported"])
    mark = (finding["variants"] or [{"identity": {"finding": finding["fingerprint"]}}])[0]["identity"]["finding"]
    timed = Timed(said="faster", base_ns=100, own_ns=80, ratio=0.8, low=0.78, high=0.83)
    tried = Tried(variants=("edit:0:/tmp/a.diff",), said="faster", level="L7", timed=timed, findings=(mark, "0" * 16))
    applied = Applied(entry="m:b", device=scan["trace"]["gpu"], step_ns=100, alone=(tried, result("tf32", ratio=0.9)))
    file = tmp_path / "applied.jsonl"
    append(file, applied)
    code, out, _ = run("scan", trace, "--evidence", file, "--all")
    assert code == 0
    assert "L7, in your step a.diff saved 20.0% (17.0% to 22.0%)" in out
    assert "1 measured in your step: 1 L7" in out
    kept = tmp_path / "findings.json"
    assert run("scan", trace, "--evidence", file, "--format", "json", "-o", kept)[0] == 0
    assert "in your step a.diff saved" in run("explain", finding["fingerprint"][:8], kept)[1]
    other = tmp_path / "other.jsonl"
    append(other, Applied(entry="m:b", device="another GPU", step_ns=100, alone=(tried,)))
    assert "in your step" not in run("scan", trace, "--evidence", other)[1]
    monkeypatch.setenv("TRACEMINE_EVIDENCE", str(file))  # as a project's settings name it
    assert "1 measured in your step: 1 L7" in run("scan", trace, "--all")[1]


def test_what_asks_for_coarser_arithmetic_says_how_far_off_it_is() -> None:
    base, mine = ({"random": "a", "output.0 of batch 0": sampled(torch.full((4,), 2.0) * by)} for by in (1.0, 1.01))
    assert errors(base, mine) == {"output": 0.01}
    layer = torch.nn.Linear(8, 8)
    step = Step(run=layer, batches=[torch.randn(2, 8)], modules=[layer])
    AFTER["autocast_bfloat16"](step)
    assert step.run(step.batches[0]).dtype == torch.float32
    assert step.run(step.batches[0]).equal(step.run(step.batches[0]).bfloat16().float())
    timed = Timed(said="faster", base_ns=100, own_ns=80, ratio=0.8, low=0.78, high=0.83)
    off = errors(base, mine) | loss_error(Checked(losses=(9.0, 2.0)), Checked(losses=(9.0, 2.4)))
    assert loss_error(Checked(), Checked()) == loss_error(Checked(losses=(1.0,)), Checked(losses=(None,))) == {}
    tried = Tried(variants=("tf32",), said="faster", timed=timed, errors=off, peak_bytes=150)
    lines = list(table(Applied(entry="m:b", device="NVIDIA H200", step_ns=100, alone=(tried,), peak_bytes=100)))
    assert "faster; memory +50%; output off by 0.01, loss off by 0.2" in lines[2]


def test_what_stays_is_one_patch_with_lines_of_settings(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "m.py").write_text("a = 1\nb = 1\nc = 1\n")
    names = ["tf32"]
    for name, old, new in (("first", "a = 1", "a = 2"), ("second", "c = 1", "c = 2")):
        diff = tmp_path / f"{name}.diff"
        changed = f" b = 1\n-{old}\n+{new}\n" if name == "second" else f"-{old}\n+{new}\n b = 1\n"
        diff.write_text(f"--- a/m.py\n+++ b/m.py\n@@ -{1 if name == 'first' else 2},2 +1,2 @@\n{changed}")
        names.append(edit_name(diff))
    text = kept(names, source)
    assert text.startswith('# tf32: torch.set_float32_matmul_precision("high")\n--- a/m.py\n')
    assert text.count("+++ b/m.py") == 1
    both = tmp_path / "both.patch"
    both.write_text(text)
    with edited(source, [both]) as (folder, refused):
        assert refused == ""
        assert (folder / "m.py").read_text() == "a = 2\nb = 1\nc = 2\n"
