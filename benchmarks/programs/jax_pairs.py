"""JAX programs with one cause each, as they are and with the cause taken away: timed, and recorded as users record.

`python benchmarks/programs/jax_pairs.py OUT [PROGRAM...]` on a machine with a GPU. A step is timed without a profiler
(the median of steps, each waited for), then three are recorded with `jax.profiler.trace` and its default options.
OUT/pairs.json has a row a variant, written anew after each; OUT/PROGRAM/VARIANT.xplane.pb.xz the recordings. Needs jax
alone, not tracemine. `jax_score.py` compares what `scan` says of a recording with what its fix won.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

LIMIT_S = 145.0  # no compiling begins in its last seconds
SIDE_BY_SIDE = 16  # variants that compile at once
STEPS, RECORDED = 20, 3
SPLIT_K_OFF = "--xla_gpu_enable_triton_gemm=false"
Step = Callable[[], Any]
Built = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and what it is called with
HALF = jnp.bfloat16


def normal(seed: int, *shape: int, dtype: Any = HALF, scale: float = 1.0) -> jax.Array:
    return jax.jit(lambda key: (jax.random.normal(key, shape) * scale).astype(dtype))(jax.random.key(seed))


# -- attention ---------------------------------------------------------------------------------------------------------


def spelled(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5)
    mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e30), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def fused(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = True) -> jax.Array:
    on_gpu = jax.default_backend() == "gpu"
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn" if on_gpu else "xla")


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def block(weights: dict[str, jax.Array], x: jax.Array, attend: Callable[..., jax.Array], heads: int) -> jax.Array:
    batch, tokens, width = x.shape
    q, k, v = jnp.split(norm(x, weights["a"]) @ weights["qkv"], 3, -1)
    parts = [each.reshape(batch, tokens, heads, width // heads) for each in (q, k, v)]
    x = x + attend(*parts).reshape(batch, tokens, width) @ weights["o"]
    return x + jax.nn.gelu(norm(x, weights["b"]) @ weights["up"]) @ weights["down"]


def blocks(count: int, width: int) -> list[dict[str, jax.Array]]:
    shapes = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return [
        {name: normal(7 * at + n, *shape, scale=0.02) for n, (name, shape) in enumerate(shapes.items())}
        | {"a": jnp.ones(width, HALF), "b": jnp.ones(width, HALF)}
        for at in range(count)
    ]


def sgd(loss: Callable[..., jax.Array]) -> Callable[..., Any]:
    def step(weights: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, *batch)
        return value, jax.tree.map(lambda w, g: w - (0.001 * g).astype(w.dtype), weights, grads)

    return jax.jit(step)


def attention_train(attend: Callable[..., jax.Array], batch: int, tokens: int, width: int, heads: int) -> Built:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for one in weights:
            x = block(one, x, attend, heads)
        return jnp.square(x.astype(jnp.float32)).mean()

    return sgd(loss), (blocks(2, width), normal(1, batch, tokens, width))


def attention_forward(attend: Callable[..., jax.Array], batch: int, tokens: int, heads: int, size: int) -> Built:
    given = tuple(normal(at, batch, tokens, heads, size) for at in range(3))
    return jax.jit(attend), given


# -- op by op ----------------------------------------------------------------------------------------------------------


def mixer(x: jax.Array, w: jax.Array) -> jax.Array:
    for _ in range(4):
        y = x - x.mean(-1, keepdims=True)
        y = y / jnp.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * w
        x = x + y * jax.nn.sigmoid(y) * 0.5
    return x


def op_by_op(rows: int, width: int, jitted: bool) -> Built:
    return (jax.jit(mixer) if jitted else mixer), (normal(1, rows, width), jnp.ones(width, HALF))


def losses(x: jax.Array, y: jax.Array) -> jax.Array:
    gap = jnp.abs(x - y)
    huber = jnp.where(gap < 1.0, 0.5 * gap * gap, gap - 0.5)
    return (huber * jnp.exp(-gap) + jnp.log1p(gap)).sum(-1).mean()


def op_by_op_loss(jitted: bool) -> Built:
    given = normal(1, 4096, 8192, dtype=jnp.float32), normal(2, 4096, 8192, dtype=jnp.float32)
    return (jax.jit(losses) if jitted else losses), given


# -- products ----------------------------------------------------------------------------------------------------------


def perceptron(precision: str, dtype: Any = jnp.float32) -> Built:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        with jax.default_matmul_precision(precision):
            for w in weights:
                x = jax.nn.relu(x @ w)
        return jnp.square(x).mean()

    weights = [normal(at, 2048, 2048, dtype=dtype, scale=0.02) for at in range(3)]
    return sgd(loss), (weights, normal(9, 4096, 2048, dtype=dtype))


def language_head(vocabulary: int, by_mask: bool = False) -> Built:
    def loss(weights: Any, x: jax.Array, words: jax.Array) -> jax.Array:
        hidden = x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]
        logs = jax.nn.log_softmax((hidden @ weights["head"]).astype(jnp.float32), -1)
        if by_mask:
            return -jnp.where(jnp.arange(vocabulary) == words[:, None], logs, 0).sum(-1).mean()
        return -jnp.take_along_axis(logs, words[:, None], -1).mean()

    weights = {
        "up": normal(1, 1024, 4096, scale=0.02),
        "down": normal(2, 4096, 1024, scale=0.02),
        "head": normal(3, 1024, vocabulary, scale=0.02),
    }
    words = jax.jit(lambda key: jax.random.randint(key, (4096,), 0, 30000))(jax.random.key(4))
    return sgd(loss), (weights, normal(5, 4096, 1024), words)


def tall_product() -> Built:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.square(x.astype(jnp.float32)).mean()

    return sgd(loss), ([normal(at, 256, 256, scale=0.06) for at in range(4)], normal(9, 65536, 256))


# -- quantised ---------------------------------------------------------------------------------------------------------

EIGHT, STEP_SIZE = jnp.int8, 0.02


def codes(seed: int, *shape: int, dtype: Any = EIGHT) -> jax.Array:
    return jax.jit(lambda key: jax.random.randint(key, shape, -127, 128, EIGHT).astype(dtype))(jax.random.key(seed))


def quantised(y: jax.Array, dtype: Any = EIGHT) -> jax.Array:
    scaled = y.astype(jnp.float32) / STEP_SIZE
    return (jnp.clip(jnp.round(scaled), -128, 127) if dtype == EIGHT else jnp.clip(scaled, -448, 448)).astype(dtype)


def of_codes(layers: int, width: int, dtype: Any = EIGHT) -> tuple[list[jax.Array], list[jax.Array]]:
    """Weights of 8 bits, and their scales."""
    scales = [jnp.abs(normal(50 + at, 1, width, scale=1 / width)) for at in range(layers)]
    return [codes(at, width, width, dtype=dtype) for at in range(layers)], scales


def by_codes(rows: int, width: int, how: str) -> Built:
    """Weights that are dequantised in each step (`each`), `once`, or by a scale `behind` their product."""
    weights, scales = of_codes(3, width)

    def run(weights: Any, scales: Any, x: jax.Array) -> jax.Array:
        for w, s in zip(weights, scales, strict=True):
            x = jnp.tanh(
                (x @ w.astype(HALF)) * s if how == "behind" else x @ (w.astype(HALF) * s if how == "each" else w)
            )
        return x

    ready = [w.astype(HALF) * s for w, s in zip(weights, scales, strict=True)] if how == "once" else weights
    return jax.jit(run), (ready, scales, normal(9, rows, width))


def of_eight(rows: int, width: int, form: str, wide: frozenset[int] = frozenset(), dtype: Any = EIGHT) -> Built:
    """Products of what is quantised: those in `wide` are dequantised for it and quantised again, the others of 8 bits.

    form: `first` where weights are summed along their first axis, `last` along their last one.
    """
    total = jnp.int32 if dtype == EIGHT else jnp.float32
    axis = 0 if form == "first" else 1

    def run(weights: Any, scales: Any, q: jax.Array) -> jax.Array:
        for at, (w, s) in enumerate(zip(weights, scales, strict=True)):
            if at in wide:
                y = (q.astype(HALF) * STEP_SIZE) @ (w.astype(HALF) * s)
            else:
                sums = lax.dot_general(q, w, (((1,), (axis,)), ((), ())), preferred_element_type=total)
                y = sums.astype(jnp.float32) * (STEP_SIZE * s.astype(jnp.float32))
            q = quantised(y, dtype)
        return q

    return jax.jit(run), (*of_codes(4, width, dtype), codes(9, rows, width, dtype=dtype))


def rounded(fake: bool) -> Built:
    """Operands that are rounded to 8 bits and back in front of each product, as such training leaves them."""

    def as_codes(y: jax.Array) -> jax.Array:
        return quantised(y).astype(HALF) * STEP_SIZE if fake else y

    def run(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = as_codes(x) @ as_codes(w)
        return x

    return jax.jit(run), ([normal(at, 4096, 4096, scale=0.02) for at in range(4)], normal(9, 4096, 4096))


# -- loops -------------------------------------------------------------------------------------------------------------


def lstm(width: int, batch: int, count: int, hoisted: bool, dtype: Any = jnp.float32) -> Built:
    def run(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
        def cell(state: tuple[jax.Array, jax.Array], x: jax.Array) -> Any:
            h, c = state
            i, f, g, o = jnp.split((x if hoisted else x @ w) + h @ u, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((xs.shape[1], width), xs.dtype)
        return lax.scan(cell, (zero, zero), xs @ w if hoisted else xs)[1]

    weights = (normal(at, width, 4 * width, dtype=dtype, scale=0.03) for at in range(2))
    return jax.jit(run), (*weights, normal(3, count, batch, width, dtype=dtype))


def filtered(hoisted: bool) -> Built:
    """A running average of features: the features do not depend on the average."""

    def run(w: jax.Array, xs: jax.Array) -> jax.Array:
        def one(state: jax.Array, x: jax.Array) -> Any:
            state = 0.9 * state + 0.1 * jnp.tanh(x if hoisted else x @ w)
            return state, state.sum(-1)

        zero = jnp.zeros((xs.shape[1], 512), xs.dtype)
        return lax.scan(one, zero, xs @ w if hoisted else xs)[1]

    return jax.jit(run), (
        normal(1, 512, 512, dtype=jnp.float32, scale=0.03),
        normal(2, 200, 128, 512, dtype=jnp.float32),
    )


# -- the host and layouts ----------------------------------------------------------------------------------------------


def asked(each: bool) -> Built:
    step = jax.jit(lambda w, x: (w - 0.001 * w * jnp.tanh(x @ w).mean(), jnp.square(x @ w).mean()))

    def run(w: jax.Array, x: jax.Array) -> Any:
        values = []
        for _ in range(10):
            w, loss = step(w, x)
            values.append(float(loss) if each else loss)
        return w, (values if each else jnp.stack(values))

    return run, (normal(1, 1024, 1024, dtype=jnp.float32, scale=0.03), normal(2, 512, 1024, dtype=jnp.float32))


def pictures(layout: str) -> Built:
    numbers = (layout, "HWIO", layout)

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers))
        return jnp.square(x.astype(jnp.float32)).mean()

    shape = {"NHWC": (32, 56, 56, 128), "NCHW": (32, 128, 56, 56)}[layout]
    return sgd(loss), ([normal(at, 3, 3, 128, 128, scale=0.03) for at in range(3)], normal(9, *shape))


PROGRAMS: dict[str, dict[str, Callable[[], Built]]] = {
    "attention_train": {
        "before": partial(attention_train, spelled, 4, 2048, 1024, 16),
        "after": partial(attention_train, fused, 4, 2048, 1024, 16),
    },
    "attention_forward": {
        "before": partial(attention_forward, spelled, 4, 4096, 16, 64),
        "after": partial(attention_forward, fused, 4, 4096, 16, 64),
    },
    "op_by_op": {"before": partial(op_by_op, 2048, 2048, False), "after": partial(op_by_op, 2048, 2048, True)},
    "op_by_op_loss": {"before": partial(op_by_op_loss, False), "after": partial(op_by_op_loss, True)},
    "highest": {"before": partial(perceptron, "highest"), "after": partial(perceptron, "tensorfloat32")},
    "odd_vocabulary": {"before": partial(language_head, 32003, True), "after": partial(language_head, 32064, True)},
    "loss_scatter": {"before": partial(language_head, 32768), "after": partial(language_head, 32768, True)},
    "scan_lstm": {"before": partial(lstm, 512, 128, 200, False), "after": partial(lstm, 512, 128, 200, True)},
    "scan_filter": {"before": partial(filtered, False), "after": partial(filtered, True)},
    "asked_each": {"before": partial(asked, True), "after": partial(asked, False)},
    "tall_product": {"before": tall_product, "after": tall_product},
    "pictures": {"before": partial(pictures, "NCHW"), "after": partial(pictures, "NHWC")},
    "int8_weights": {
        "before": partial(by_codes, 2048, 4096, "each"),
        "after": partial(by_codes, 2048, 4096, "once"),
        "behind": partial(by_codes, 2048, 4096, "behind"),
    },
    "int8_decode": {
        "before": partial(by_codes, 16, 4096, "each"),
        "after": partial(by_codes, 16, 4096, "once"),
        "behind": partial(by_codes, 16, 4096, "behind"),
    },
    "int8_island": {
        "before": partial(of_eight, 2048, 4096, "first", frozenset(range(4))),
        "transposed": partial(of_eight, 2048, 4096, "first"),
        "after": partial(of_eight, 2048, 4096, "last"),
    },
    "float8_island": {
        "before": partial(of_eight, 2048, 4096, "first", frozenset(range(4)), jnp.float8_e4m3fn),
        "after": partial(of_eight, 2048, 4096, "last", frozenset(), jnp.float8_e4m3fn),
    },
    "int8_one_wide": {
        "before": partial(of_eight, 2048, 4096, "last", frozenset({2})),
        "after": partial(of_eight, 2048, 4096, "last"),
    },
    "int8_few_rows": {"before": partial(of_eight, 64, 4096, "first"), "after": partial(of_eight, 64, 4096, "last")},
    "int8_some_rows": {"before": partial(of_eight, 512, 4096, "first"), "after": partial(of_eight, 512, 4096, "last")},
    "int8_large": {"before": partial(of_eight, 4096, 8192, "first"), "after": partial(of_eight, 4096, 8192, "last")},
    "float8_turned": {
        "before": partial(of_eight, 2048, 4096, "first", frozenset(), jnp.float8_e4m3fn),
        "after": partial(of_eight, 2048, 4096, "last", frozenset(), jnp.float8_e4m3fn),
    },
    "int8_rounded": {"before": partial(rounded, True), "after": partial(rounded, False)},
    # Nothing to find, or nothing that is worth it.
    "clean_default": {"clean": partial(perceptron, "default")},
    "clean_half": {"clean": partial(perceptron, "default", HALF)},
    "clean_scan": {"clean": partial(lstm, 4096, 512, 12, True, HALF)},
    "clean_short_attention": {"clean": partial(attention_train, spelled, 8, 128, 1024, 16)},
    "clean_jitted": {"clean": partial(op_by_op, 8192, 8192, True)},
}


def timed(step: Step) -> list[float]:
    """Milliseconds of steps that nothing records, each waited for."""
    found = []
    begin = time.perf_counter()
    while len(found) < STEPS and (len(found) < 5 or time.perf_counter() - begin < 1.0):
        start = time.perf_counter_ns()
        jax.block_until_ready(step())
        found.append((time.perf_counter_ns() - start) / 1e6)
    return found


def recorded(step: Step, path: Path) -> int:
    """Record three steps, and return the bytes of what is kept."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for number in range(RECORDED):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    jax.block_until_ready(step())
        (raw,) = Path(folder).rglob("*.xplane.pb")
        packed = lzma.compress(raw.read_bytes(), preset=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed)
    return len(packed)


def prepared(make: Callable[[], Built]) -> Step:
    """The step of a variant, compiled and called once."""
    function, given = make()
    step = partial(function, *given)
    for _ in range(3):
        jax.block_until_ready(step())
    return step


def machine() -> dict[str, Any]:
    device = jax.devices()[0]
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0].strip()
    except OSError:
        driver = ""
    return {"gpu": device.device_kind, "driver": driver, "jax": jax.__version__, "python": sys.version.split()[0]}


def variant_row(program: str, variant: str, step: Step, out: Path) -> dict[str, Any]:
    times = timed(step)
    size = recorded(step, out / program / f"{variant}.xplane.pb.xz")
    tenth = statistics.quantiles(times, n=10)
    return {
        "program": program,
        "variant": variant,
        "step_ms": statistics.median(times),
        "p10_ms": tenth[0],
        "p90_ms": tenth[-1],
        "steps": len(times),
        "bytes": size,
        "flags": os.environ.get("XLA_FLAGS", ""),
    }


def without_split_k(out: Path) -> None:
    """Time and record `tall_product` in a process that does not split the sum of a product."""
    command = [sys.executable, __file__, str(out), "tall_product", "--only", "after"]
    subprocess.run(command, env=os.environ | {"XLA_FLAGS": SPLIT_K_OFF}, check=False)


def main(programs: dict[str, dict[str, Callable[[], Built]]]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*", default=[*programs])
    parser.add_argument("--only", help="this variant alone, in this process")
    arguments = parser.parse_args()
    begin, out = time.perf_counter(), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "pairs.json"
    about = machine()
    wanted = [
        (program, variant, make)
        for program in arguments.programs
        for variant, make in programs[program].items()
        if (variant == arguments.only if arguments.only else (program, variant) != ("tall_product", "after"))
    ]
    for first in range(0, len(wanted), SIDE_BY_SIDE):
        some = wanted[first : first + SIDE_BY_SIDE]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:  # compiling is what takes long
            steps: list[Future[Step]] = [pool.submit(prepared, make) for _, _, make in some]
        for (program, variant, _), one in zip(some, steps, strict=True):
            try:
                row = variant_row(program, variant, one.result(), out)
            except Exception as error:  # a variant that fails is a result
                row = {"program": program, "variant": variant, "error": str(error)[:500]}
            rows = json.loads(kept.read_text())["rows"] if kept.exists() else []
            kept.write_text(json.dumps({"machine": about, "rows": [*rows, row]}, indent=1))
            print(f"{time.perf_counter() - begin:.0f} s", row, flush=True)
        if time.perf_counter() - begin > LIMIT_S - 25:
            break
    if "tall_product" in arguments.programs and not arguments.only and time.perf_counter() - begin < LIMIT_S - 30:
        without_split_k(out)
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(PROGRAMS))
