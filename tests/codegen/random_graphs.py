"""Chains of operators drawn at random: shapes that broadcast, odd sizes, every layout, mixed dtypes, writes in place.

    python -m tests.codegen.random_graphs [--first SEED] [--seconds S]

Proves chain after chain, as the suite proves a few. Of each that is not right it says what is wrong, and prints it
without the calls that it takes none of; at the end it counts what came of them, and why chains were refused.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from math import prod

import msgspec

from tests.codegen.random_steps import FLOATS, MOST_ELEMENTS, SIZES, STEPS, WHOLE, Drawn
from tracemine.codegen import Graph, GraphBuilder, Unsupported
from tracemine.codegen.graph import GraphError, LiteralArg, Ref, Refs, Scalar, Value, mutated
from tracemine.errors import TracemineError
from tracemine.validate.sandbox import Sandbox

FINDINGS = ("wrong", "not generated", "not proved")


def _strides(draw: random.Random, shape: Sequence[int]) -> list[int] | None:
    """How an input lies: contiguous, turned, with gaps, repeated, or with rows that overlap."""
    kind = draw.choice(("contiguous", "contiguous", "turned", "gaps", "repeated", "overlapping"))
    order = draw.sample(range(len(shape)), len(shape)) if kind == "turned" else list(range(len(shape)))
    strides, step = [0] * len(shape), 2 if kind == "gaps" else 1
    for d in reversed(order):
        strides[d] = step
        step = step * max(shape[d], 1) + (3 if kind == "gaps" else 0)
    if kind == "repeated" and shape:
        strides[draw.randrange(len(shape))] = 0
    if kind == "overlapping" and len(shape) > 1:
        strides[0] = max(1, strides[0] // 2)
    return strides


def random_chain(seed: int, most_calls: int = 8) -> Graph | None:
    """A chain that a seed stands for; None where its draws come to nothing."""
    draw = random.Random(seed)
    base = [draw.choice(SIZES) for _ in range(draw.randint(1, 4))]
    while prod(base) > MOST_ELEMENTS:
        base[draw.randrange(len(base))] = draw.choice((1, 2, 3))
    if draw.random() < 0.03:
        base[draw.randrange(len(base))] = 0
    b = GraphBuilder(f"random_{seed}")
    d = Drawn(draw, b, [], {})
    kinds = draw.choice((("float32",), ("bfloat16",), ("float32", "bfloat16"), FLOATS, (*FLOATS, *WHOLE, "bool")))
    for k in range(draw.randint(1, 4)):
        shape = [n if draw.random() < 0.75 else 1 for n in base[draw.choice((0, 0, 0, -1)) :]]
        if k and draw.random() < 0.1:
            shape = []
        dtype = draw.choice(kinds) if draw.random() < 0.9 else draw.choice((*FLOATS, *WHOLE, "bool"))
        b.input(f"x{k}", shape, dtype, _strides(draw, shape))
        d.specs.append(b.specs[-1])
    if draw.random() < 0.3 and base[0]:
        shape = draw.choice(([4], [3, 2], [min(n, 3) for n in base]))
        ref = b.input("places", shape, "int64", below=draw.choice(base))
        d.specs.append(b.specs[-1])
        d.indices[ref.value] = b.inputs[-1].below or 1
    steps, weights = zip(*STEPS, strict=True)
    for _ in range(draw.randint(1, most_calls)):
        before = len(b.calls), len(b.specs)
        with contextlib.suppress(GraphError):
            draw.choices(steps, weights)[0](d)
        d.specs = list(b.specs)
        if (len(b.calls), len(b.specs)) != before and not eager_allows(b):
            del b.calls[before[0] :], b.specs[before[1] :]
            d.specs = list(b.specs)
    made = range(len(b.inputs), len(b.specs))
    if not b.calls or not made:
        return None
    live = {made[-1]} | {draw.choice(made) for _ in range(draw.randrange(3))}
    return b.done(*(Ref(v) for v in sorted(live)))


def eager_allows(b: GraphBuilder) -> bool:
    """Whether eager runs the calls so far on some numbers."""
    from tracemine.validate import reference, trials

    chain = Graph(b.name, tuple(b.inputs), tuple(b.calls), (len(b.specs) - 1,))
    scalars = {s.name: s.value for s in chain.scalars}
    try:
        reference.run(chain, trials.tensors(chain, trials.Trial()), scalars, {})
    except (RuntimeError, IndexError, ValueError, TypeError, TracemineError, NotImplementedError):
        return False
    return True


def verdict(process: Sandbox, chain: Graph) -> tuple[str, str]:
    """What came of a chain, in a word or two, and what there is to say about it."""
    try:
        proof = process.validate(chain, mutants=False)
    except Unsupported as refusal:
        return "refused", refusal.message.rpartition("): ")[2]
    except Exception as error:  # whatever generating ends with is a finding
        return "not generated", f"{type(error).__name__}: {error}"
    if isinstance(proof, str):
        return "not proved", proof
    if proof.faults:
        return "wrong", f"{proof.faults[0].trial}: {proof.faults[0].says}"
    return "right", f"{proof.trials} trials"


def shorter(process: Sandbox, chain: Graph, kind: str) -> Graph:
    """A chain of which one value is wanted, without what that does not need, if that comes to the same."""
    for value in chain.live:
        alone = _needed(msgspec.structs.replace(chain, live=(value,)))
        if verdict(process, alone)[0] == kind:
            return alone
    return chain


def _needed(chain: Graph) -> Graph:
    """Without the last calls, as long as nothing needs them; a call before another may be written by it."""
    calls = list(chain.calls)
    while calls and not any(
        v in chain.live or v < len(chain.inputs) for v in (*_given(chain, len(calls) - 1), *mutated(calls[-1]))
    ):
        calls.pop()
    return msgspec.structs.replace(chain, calls=tuple(calls)) if calls else chain


def _given(chain: Graph, number: int) -> range:
    first = chain.first_output(number)
    return range(first, first + len(chain.calls[number].outputs))


def text(chain: Graph) -> str:
    """A chain for a reader: its inputs, its calls, what is wanted of it."""
    lines = [f"{e.name}: {e.spec.dtype}{list(e.spec.shape)} {e.spec.strides} {e.below or ''}" for e in chain.inputs]
    for number, call in enumerate(chain.calls):
        gives = ", ".join(f"%{v}: {chain.specs[v].dtype}{list(chain.specs[v].shape)}" for v in _given(chain, number))
        takes = ", ".join(f"{name}={_said(value)}" for name, value in call.given().items() if value is not None)
        lines.append(f"{gives} = {call.label}({takes})")
    return "\n".join(f"    {line}" for line in (*lines, f"wanted: {chain.live}"))


def _said(value: Value) -> str:
    if isinstance(value, Ref | Refs):
        return ", ".join(f"%{v}" for v in ((value.value,) if isinstance(value, Ref) else value.values))
    return repr(value.value) if isinstance(value, Scalar | LiteralArg) else repr(value)


def main() -> int:
    """Chains until time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="no chain is begun after this")
    given = parser.parse_args()
    end, seed = time.monotonic() + given.seconds, given.first
    found: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    with Sandbox() as process:
        while time.monotonic() < end:
            chain = random_chain(seed)
            kind, says = ("nothing drawn", "") if chain is None else verdict(process, chain)
            found[kind] += 1
            reasons[says] += kind == "refused"
            if chain is not None and kind in FINDINGS:
                print(f"seed {seed}: {kind}: {says}\n{text(shorter(process, chain, kind))}", flush=True)
            seed += 1
    print(f"seeds {given.first} to {seed - 1}: " + ", ".join(f"{n} {kind}" for kind, n in found.most_common()))
    for reason, count in reasons.most_common():
        if count:
            print(f"    {count} refused: {reason}")
    return 1 if any(found[kind] for kind in FINDINGS) else 0


if __name__ == "__main__":
    sys.exit(main())
