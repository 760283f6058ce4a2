"""Sides of a comparison made by hand, and random ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tracemine.comparison.record import ComparedSide, ComparedTrace, Item
from tracemine.findings.record import Range, Recorded, Spent, UnprofiledTime

US = 1_000
STEP_NS, BUSY_NS = 1_000 * US, 600 * US
RECORDED = Recorded(
    tracemine="0",
    torch="2.9",
    world_size=1,
    devices=1,
    shapes=True,
    stacks=True,
    traced=False,
    tensors=False,
    operators=1.0,
)


def item(fingerprint: str, us: int, ops: Sequence[str] = ("aten::mul",), **more: Any) -> Item:
    """A finding that costs so many microseconds a step: of GPU time where nothing else is said."""
    facts: dict[str, Any] = {"rule": "chain", "title": f"Finding {fingerprint}", "on_gpu": True, "reported": True}
    saving = Range(us * US // 4, us * US // 2, us * US)
    facts |= {"gpu_saving_ns": saving, "step_saving_ns": saving} | more
    return Item(fingerprint=fingerprint, ops=tuple(ops), measured_ns=us * US, **facts)


def gap(fingerprint: str, us: int, ops: Sequence[str] = ("aten::mul",), **more: Any) -> Item:
    """As item, of idle time."""
    return item(fingerprint, us, ops, **({"on_gpu": False, "rule": "gap", "gpu_saving_ns": Range(0, 0, 0)} | more))


def side(
    *items: Item,
    gpu: Mapping[str, int] | None = None,
    idle: Mapping[str, int] | None = None,
    recorded: Recorded | None = RECORDED,
    alone_us: tuple[int, int, int] | None = None,
    source: str = "estimated",
    name: str | None = "G",
    **about: Any,
) -> ComparedSide:
    """One side. What operators took is what its findings do, where it is not said: microseconds."""
    facts: dict[str, Any] = {"trace": "t.json", "format": "kineto", "gpu": name, "steps": 2}
    facts |= {"span_ns": STEP_NS, "gpu_busy_ns": BUSY_NS} | about
    if alone_us is not None:
        low, mid, high = (us * US for us in alone_us)
        facts["unprofiled_ns"] = UnprofiledTime(low=low, mid=mid, high=high, source=source)
    spent = Spent(gpu_ns=_spent(items, gpu, on_gpu=True), idle_ns=_spent(items, idle, on_gpu=False))
    return ComparedSide(about=ComparedTrace(recorded=recorded, **facts), spent=spent, items=items)


def _spent(items: Iterable[Item], given: Mapping[str, int] | None, *, on_gpu: bool) -> dict[str, int]:
    if given is not None:
        return {op: us * US for op, us in given.items()}
    found: dict[str, int] = {}
    for one in items:
        if one.on_gpu == on_gpu and one.ops:
            found[one.ops[0]] = found.get(one.ops[0], 0) + one.measured_ns
    return found


NAMES = tuple(f"{digit}" * 16 for digit in "0123456789")
OPS = ("aten::mul", "aten::add", "aten::mm", "aten::cat")


@st.composite
def items(draw: st.DrawFn) -> tuple[Item, ...]:
    """Some findings whose names cross each other in every way."""
    marks = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    return tuple(
        (item if draw(st.booleans()) else gap)(
            mark,
            draw(st.integers(0, 400)),
            draw(st.lists(st.sampled_from(OPS), unique=True, max_size=3)),
            rule=draw(st.sampled_from(("chain", "norm"))),
            aliases=tuple(draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))),
            variants=tuple(draw(st.lists(st.sampled_from([f"v{name}" for name in NAMES]), unique=True, max_size=2))),
            module=draw(st.sampled_from((None, "A_*.Norm_*", "B_*"))),
            dtype=draw(st.sampled_from((None, "float32", "bfloat16"))),
            shapes=tuple(draw(st.lists(st.sampled_from(("[1]", "[2]")), unique=True, max_size=2))),
            reported=draw(st.booleans()),
        )
        for mark in marks
    )


@st.composite
def sides(draw: st.DrawFn) -> ComparedSide:
    """A side with findings, operators and recordings of any kind."""
    time = st.dictionaries(st.sampled_from(OPS), st.integers(0, 900), max_size=4)
    spent = draw(st.one_of(st.none(), st.tuples(time, time)))
    span = draw(st.integers(1, 3_000))
    return side(
        *draw(items()),
        gpu=spent and spent[0],
        idle=spent and spent[1],
        name=draw(st.sampled_from((None, "G", "H"))),
        steps=draw(st.sampled_from((0, 2, 3))),
        span_ns=span * US,
        gpu_busy_ns=draw(st.integers(1, span)) * US,
        alone_us=draw(st.one_of(st.none(), st.just((span // 3, span // 2, span)))),
        source=draw(st.sampled_from(("estimated", "captured"))),
        span_spread_ns=draw(st.one_of(st.none(), st.integers(0, span * US))),
        gpu_busy_spread_ns=draw(st.one_of(st.none(), st.integers(0, span * US))),
        recorded=draw(
            st.one_of(
                st.none(),
                st.builds(
                    Recorded,
                    tracemine=st.just("0"),
                    torch=st.sampled_from((None, "2.9")),
                    world_size=st.sampled_from((None, 1, 8)),
                    devices=st.integers(0, 2),
                    shapes=st.booleans(),
                    stacks=st.booleans(),
                    traced=st.booleans(),
                    tensors=st.booleans(),
                    operators=st.sampled_from((0.0, 0.95, 1.0)),
                ),
            )
        ),
    )
