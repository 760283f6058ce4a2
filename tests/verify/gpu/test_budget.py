"""A chain has so many seconds on a GPU: what is needed comes first and always fits, the rest is left out and said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracemine.verify.gpu import timing, tuning  # noqa: E402  (they need torch)
from tracemine.verify.gpu.timing import NO_TIME  # noqa: E402


class Clock:
    """Time that goes by as it is told, and what went on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.did = 0.0, list[str]()
        for module in (timing, tuning):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
            monkeypatch.setattr(module, "make_inputs", lambda _: [])

    def takes(self, seconds: float, what: str, found: Any) -> Any:
        self.did.append(what)
        self.now += seconds
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def examined(clock: Clock, monkeypatch: pytest.MonkeyPatch, *, right_s: float, within: float) -> Any:
    limits: dict[str, float] = {}

    def right(eager: object, variants: Any, *_: object) -> Any:
        return clock.takes(right_s, f"right {' '.join(variants)}", {name: {"faults": []} for name in variants})

    def compiled(eager: object, inputs: object, names: Any, seconds: float) -> Any:
        limits[names[0]] = seconds
        return clock.takes(min(seconds, 5.0), f"compile {names[0]}", ({names[0]: len}, {}))

    def measure(variants: Any, *_: object) -> Any:
        return clock.takes(1.0, f"time {' '.join(variants)}", {"left_out": {}})

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "GPU")
    monkeypatch.setattr(timing, "replayed", lambda *_: clock.takes(0.5, "replay", {}))
    monkeypatch.setattr(timing, "right", right)
    monkeypatch.setattr(timing, "repeats", lambda *_: True)
    monkeypatch.setattr(timing, "compiled_variants", compiled)
    monkeypatch.setattr(timing, "measure", measure)
    known: dict[str, Any] = {
        "ulp": 0.0,
        "nbytes": 1,
        "read_bytes": 1,
        "draws": False,
        "compile_s": 15.0,
        "seconds": 3.0,
    }
    found = timing.examined(len, {"fused": len}, [], [], compiles=("compiled", "tuned"), within=within, **known)
    return found, limits


def test_what_is_right_comes_first_then_compilers_and_all_are_timed_together(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, limits = examined(clock, monkeypatch, right_s=1.0, within=45.0)
    expected = ["replay", "right fused", "compile compiled", "compile tuned", "right compiled tuned"]
    assert clock.did == [*expected, "time eager fused compiled tuned"]
    assert found["times"]["left_out"] == {}
    assert limits["compiled"] == pytest.approx(0.3 * (45.0 - 1.5 - 1.0))  # a share of what is left


def test_where_comparing_takes_all_the_time_compilers_are_left_out_and_eager_is_timed_all_the_same(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = examined(clock, monkeypatch, right_s=20.0, within=45.0)
    assert clock.did == ["replay", "right fused", "time eager fused"]
    assert found["times"]["left_out"] == {"compiled": NO_TIME, "tuned": NO_TIME}
    assert found["times"]["compile_failed"] == NO_TIME


def test_after_the_end_one_block_of_samples_is_enough(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def block(variants: Any, states: Any, *_: object) -> Any:
        samples = {s: {n: {"sum_ns": [10, 900], "span_ns": [10, 900]} for n in variants} for s in states}
        return clock.takes(8.0, "block", {"samples": samples, "clocks": [None], "kernels": dict.fromkeys(variants, 1)})

    monkeypatch.setattr(timing, "block", block)
    monkeypatch.setattr(timing, "flusher", lambda: lambda: None)
    variants = {"eager": list, "fused": list}
    assert timing.times(variants, list, until=3.0, end=10.0)["blocks"] == 1
    clock.now = 0.0
    assert timing.times(variants, list, until=3.0, end=100.0)["blocks"] == 3


def test_other_clocks_are_left_out_after_the_end_and_said_to_be(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {"sum_ns": [10, 10], "span_ns": [10, 10]}
    samples = {state: {"eager": sums, "fused": sums} for state in ("cold", "warm")}
    sampled = {"samples": samples, "kernels": {"eager": 1, "fused": 1}}
    monkeypatch.setattr(timing, "times", lambda *_: clock.takes(9.0, "times", dict(sampled)))
    monkeypatch.setattr(timing, "peak_bytes_per_second", lambda: 1e12)
    monkeypatch.setattr(timing, "other_clock", lambda *_: clock.takes(2.0, "other", {}))
    monkeypatch.setattr(timing, "captured", lambda *_: clock.takes(1.0, "graph", None))
    monkeypatch.setattr(timing, "wall_times", lambda *_: clock.takes(1.0, "wall", {}))
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *given, device: randn(*given))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "GPU")
    found = timing.measure({"eager": list, "fused": list}, [], 8, 8, 3.0, end=10.0)
    assert clock.did == ["times", "other"]
    assert found["left_out"] == {"CUDA graphs": NO_TIME, "calls from Python": NO_TIME}
    clock.now, clock.did = 2.0, []
    assert timing.measure({"eager": list, "fused": list}, [], 8, 8, 3.0, end=10.0)["left_out"] == {
        "second clock": NO_TIME,
        "CUDA graphs": NO_TIME,
        "calls from Python": NO_TIME,
    }


@pytest.mark.parametrize(("seconds", "tried"), [(100.0, [1, 2, 3]), (25.0, [1, 2]), (5.0, [1])])
def test_another_cut_is_tried_where_it_should_be_compiled_in_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float, tried: list[int]
) -> None:
    tile_configs = [(1, 1), (2, 1), (3, 1)]
    blocks = {"kernel": list(tile_configs)}
    compiled: list[int] = []

    def fused() -> None:
        tile_config = blocks["kernel"][0][0]
        if tile_config not in compiled:
            compiled.append(tile_config)
            clock.now += 10.0

    monkeypatch.setattr(tuning, "flusher", lambda: lambda: None)
    monkeypatch.setattr(tuning, "traced", lambda work: work() or [])
    monkeypatch.setattr(tuning, "between_marks", lambda events: [[]] * 6 * len(compiled))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    found = tuning.tuned(fused, blocks, [], seconds)
    assert compiled == tried
    assert blocks["kernel"] == tile_configs == [tile_config for tile_config, _ in found["kernel"]]
