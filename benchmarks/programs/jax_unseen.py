"""Programs of JAX that no rule was written by: labelled first (`jax_unseen.toml`), then recorded, then judged once.

`python benchmarks/programs/jax_unseen.py OUT [PROGRAM...]` times and records them as `jax_pairs.py` does its own, and
`jax_score.py OUT` says what `scan` finds in them. A change to a rule that they led to makes them seen: they stay as
they are, and show from then on that nothing got lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.programs.jax_pairs import EIGHT, HALF, Built, codes, fused, main, norm, normal, of_codes, sgd


def attended(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q / q.shape[-1] ** 0.5, k).astype(jnp.float32)
    if causal:
        scores = scores + jnp.where(jnp.arange(k.shape[1]) > jnp.arange(q.shape[1])[:, None], -1e9, 0.0)
    high = scores.max(-1, keepdims=True)
    weights = jnp.exp(scores - lax.stop_gradient(high))
    return jnp.einsum("bhqk,bkhd->bqhd", (weights / weights.sum(-1, keepdims=True)).astype(v.dtype), v)


def cross_attention(library: bool) -> Built:
    """A decoder's tokens look at an encoder's, in training."""

    def loss(weights: Any, x: jax.Array, memory: jax.Array) -> jax.Array:
        for w in weights:
            q = (norm(x, w["a"]) @ w["q"]).reshape(4, 1024, 16, 64)
            k, v = jnp.split((memory @ w["kv"]).reshape(4, 4096, 16, 128), 2, -1)
            y = fused(q, k, v, causal=False) if library else attended(q, k, v, False)
            x = x + y.reshape(4, 1024, 1024) @ w["o"]
        return jnp.square(x.astype(jnp.float32)).mean()

    sizes = {"q": (1024, 1024), "kv": (1024, 2048), "o": (1024, 1024)}
    weights = [
        {n: normal(9 * at + i, *size, scale=0.03) for i, (n, size) in enumerate(sizes.items())}
        | {"a": jnp.ones(1024, HALF)}
        for at in range(3)
    ]
    return sgd(loss), (weights, normal(1, 4, 1024, 1024), normal(2, 4, 4096, 1024))


def grouped_prefill(library: bool) -> Built:
    """Eight queries' heads share a key's, which is repeated for them."""

    def run(x: jax.Array, wq: jax.Array, wkv: jax.Array, wo: jax.Array) -> jax.Array:
        q = (x @ wq).reshape(1, 4096, 32, 128)
        k, v = jnp.split((x @ wkv).reshape(1, 4096, 4, 256), 2, -1)
        if not library:
            k, v = (jnp.repeat(each, 8, axis=2) for each in (k, v))
        y = fused(q, k, v) if library else attended(q, k, v, True)
        return x + y.reshape(1, 4096, 4096) @ wo

    shapes = (1, 4096, 4096), (4096, 4096), (4096, 1024), (4096, 4096)
    return jax.jit(run), tuple(normal(at, *shape, scale=0.02) for at, shape in enumerate(shapes))


def adam(jitted: bool) -> Built:
    """The gradient is compiled; the optimizer's update is not."""

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.gelu(x @ w)
        return jnp.square(x.astype(jnp.float32)).mean()

    gradient = jax.jit(jax.grad(loss))

    def update(weights: Any, first: Any, second: Any, grads: Any) -> Any:
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        weights = jax.tree.map(lambda w, m, v: w - 0.001 * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return weights, first, second

    updated = jax.jit(update) if jitted else update
    weights = [normal(at, 1024, 1024, scale=0.04) for at in range(8)]
    zeros = [jnp.zeros_like(w) for w in weights]
    return (lambda w, m, v, x: updated(w, m, v, gradient(w, x))), (weights, zeros, zeros, normal(9, 512, 1024))


def gru(hoisted: bool) -> Built:
    def run(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
        def cell(h: jax.Array, x: jax.Array) -> Any:
            r, z, n = jnp.split(x if hoisted else x @ w, 3, -1)
            hr, hz, hn = jnp.split(h @ u, 3, -1)
            z = jax.nn.sigmoid(z + hz)
            h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn) + z * h
            return h, h

        return lax.scan(cell, jnp.zeros((64, 1024), xs.dtype), xs @ w if hoisted else xs)[1]

    weights = normal(1, 2048, 3072, scale=0.02), normal(2, 1024, 3072, scale=0.03)
    return jax.jit(run), (*weights, normal(3, 256, 64, 2048))


def mixer(precision: lax.Precision) -> Built:
    """Tokens are mixed along both axes, by products whose precision is asked for in the call."""

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for across, along in weights:
            x = x + jnp.einsum("btc,ts->bsc", jax.nn.relu(x), across, precision=precision)
            x = x + jnp.matmul(jax.nn.relu(x), along, precision=precision)
        return jnp.square(x).mean()

    pairs = [tuple(normal(2 * at + n, 1024, 1024, dtype=jnp.float32, scale=0.02) for n in range(2)) for at in range(3)]
    return sgd(loss), (pairs, normal(9, 8, 1024, 1024, dtype=jnp.float32))


def best_kept(each: bool) -> Built:
    """The lowest loss so far, asked for after each of eight small steps."""

    @jax.jit
    def step(w: jax.Array, x: jax.Array, best: jax.Array) -> Any:
        loss, grad = jax.value_and_grad(lambda w: jnp.square(jnp.tanh(x @ w)).mean())(w)
        return w - 0.01 * grad, loss, jnp.minimum(best, loss)

    def run(w: jax.Array, x: jax.Array, start: jax.Array) -> Any:
        best, kept = start, w
        for _ in range(8):
            w, loss, lowest = step(w, x, start if each else best)
            if not each:
                best = lowest
            elif (value := np.asarray(loss)) < best:
                best, kept = value, w
        return w, kept, best

    start = np.float32(9.0)
    return run, (normal(1, 768, 768, dtype=jnp.float32), normal(2, 256, 768, dtype=jnp.float32), start)


def word_loss(by_index: bool) -> Built:
    """The loss picks a word's logarithm by its number."""

    def loss(head: jax.Array, x: jax.Array, words: jax.Array) -> jax.Array:
        logits = (x @ head).astype(jnp.float32)
        logs = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        if by_index:
            return -logs[jnp.arange(2048), words].mean()
        return -jnp.where(jnp.arange(50304) == words[:, None], logs, 0).sum(-1).mean()

    words = jax.jit(lambda key: jax.random.randint(key, (2048,), 0, 50000))(jax.random.key(4))
    return sgd(loss), (normal(1, 2048, 50304, scale=0.02), normal(2, 2048, 2048), words)


def gated_codes(once: bool) -> Built:
    """A gated layer of weights in 8 bits, for 64 rows."""

    def run(weights: Any, x: jax.Array) -> jax.Array:
        gate, up, down = (w if once else w[0].astype(HALF) * w[1] for w in weights)
        return x + (jax.nn.silu(x @ gate) * (x @ up)) @ down

    shapes = (4096, 11008), (4096, 11008), (11008, 4096)
    pairs = [(codes(at, *shape), normal(at, 1, shape[1], scale=0.001)) for at, shape in enumerate(shapes)]
    return jax.jit(run), ([w.astype(HALF) * s for w, s in pairs] if once else pairs, normal(9, 64, 4096))


def odd_features(width: int) -> Built:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for gate, up, down in weights:
            x = x + (jax.nn.silu(x @ gate) * (x @ up)) @ down
        return jnp.square(x.astype(jnp.float32)).mean()

    shapes = (2048, width), (2048, width), (width, 2048)
    weights = [tuple(normal(3 * at + n, *shape, scale=0.02) for n, shape in enumerate(shapes)) for at in range(2)]
    return sgd(loss), (weights, normal(9, 4096, 2048))


def residual_pictures(layout: str) -> Built:
    numbers, axes = (layout, "HWIO", layout), (1, 2) if layout == "NHWC" else (2, 3)
    ones = (1, 1, 1, 256) if layout == "NHWC" else (1, 256, 1, 1)

    def run(weights: Any, x: jax.Array) -> jax.Array:
        for w, scale in weights:
            wide = x.astype(jnp.float32)
            wide = (wide - wide.mean(axes, keepdims=True)) * lax.rsqrt(wide.var(axes, keepdims=True) + 1e-5)
            y = jax.nn.silu(wide * scale.reshape(ones)).astype(x.dtype)
            x = x + lax.conv_general_dilated(y, w, (1, 1), "SAME", dimension_numbers=numbers)
        return x

    shape = (16, 48, 48, 256) if layout == "NHWC" else (16, 256, 48, 48)
    weights = [(normal(at, 3, 3, 256, 256, scale=0.02), normal(at, 256, dtype=jnp.float32)) for at in range(4)]
    return jax.jit(run), (weights, normal(9, *shape))


def rows_quantised(last: bool) -> Built:
    """Rows are quantised as they come, and multiplied by weights of 8 bits."""

    def run(weights: Any, scales: Any, x: jax.Array) -> jax.Array:
        for w, scale in zip(weights, scales, strict=True):
            size = jnp.abs(x).max(-1, keepdims=True).astype(jnp.float32) / 127
            q = jnp.round(x / size).astype(EIGHT)
            sums = lax.dot_general(q, w, (((1,), (1 if last else 0,)), ((), ())), preferred_element_type=jnp.int32)
            x = jax.nn.relu(sums.astype(jnp.float32) * size * scale.astype(jnp.float32)).astype(HALF)
        return x

    return jax.jit(run), (*of_codes(3, 6144), normal(9, 1024, 6144))


# -- nothing to find, or nothing that is worth it ----------------------------------------------------------------------


def words_trained() -> Built:
    """An embedding's gradient is a scatter that nothing can replace by a comparison."""

    def loss(weights: Any, words: jax.Array) -> jax.Array:
        x = weights["table"][words]
        q, k, v = jnp.split((x @ weights["qkv"]).reshape(8, 1024, 16, 192), 3, -1)
        return jnp.square((fused(q, k, v).reshape(8, 1024, 1024) @ weights["o"]).astype(jnp.float32)).mean()

    weights = {"table": normal(1, 4096, 1024), "qkv": normal(2, 1024, 3072), "o": normal(3, 1024, 1024)}
    words = jax.jit(lambda key: jax.random.randint(key, (8, 1024), 0, 4096))(jax.random.key(4))
    return sgd(loss), (weights, words)


def decoded() -> Built:
    """One token looks at a cache of keys, which is as fast as the cache is read."""

    def run(weights: Any, caches: Any, x: jax.Array, at: jax.Array) -> Any:
        kept = []
        for (qkv, o), (keys, values) in zip(weights, caches, strict=True):
            q, k, v = jnp.split((x @ qkv).reshape(16, 1, 32, 384), 3, -1)
            keys, values = (lax.dynamic_update_slice(c, n, (0, at, 0, 0)) for c, n in ((keys, k), (values, v)))
            x = x + attended(q, keys, values, False).reshape(16, 1, 4096) @ o
            kept.append((keys, values))
        return x, kept

    def step(state: list[Any], *given: Any) -> Any:
        y, state[0] = compiled(weights, state[0], *given)  # the caches are given away
        return y

    compiled = jax.jit(run, donate_argnums=1)
    weights = [(normal(at, 4096, 12288, scale=0.02), normal(at + 5, 4096, 4096, scale=0.02)) for at in range(3)]
    caches = [(normal(at, 16, 2048, 32, 128), normal(at + 5, 16, 2048, 32, 128)) for at in range(3)]
    return step, ([caches], normal(1, 16, 1, 4096), jnp.int32(1500))


def layers_scanned() -> Built:
    """The layers of a network as a loop: each product reads what the one before made."""

    def run(weights: Any, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: Any) -> Any:
            return x + jax.nn.relu(x @ w[0]) @ w[1], None

        return lax.scan(layer, x, weights)[0]

    stacked = normal(1, 8, 2048, 8192, scale=0.02), normal(2, 8, 8192, 2048, scale=0.02)
    return jax.jit(run), (stacked, normal(3, 4096, 2048))


def experts() -> Built:
    def run(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", x, up)), down)

    shapes = (8, 2048, 2048), (8, 2048, 8192), (8, 8192, 2048)
    return jax.jit(run), tuple(normal(at, *shape, scale=0.02) for at, shape in enumerate(shapes))


PROGRAMS: dict[str, dict[str, Callable[[], Built]]] = {
    "cross_attention": {"before": partial(cross_attention, False), "after": partial(cross_attention, True)},
    "grouped_prefill": {"before": partial(grouped_prefill, False), "after": partial(grouped_prefill, True)},
    "adam": {"before": partial(adam, False), "after": partial(adam, True)},
    "gru": {"before": partial(gru, False), "after": partial(gru, True)},
    "mixer": {"before": partial(mixer, lax.Precision.HIGHEST), "after": partial(mixer, lax.Precision.DEFAULT)},
    "best_kept": {"before": partial(best_kept, True), "after": partial(best_kept, False)},
    "word_loss": {"before": partial(word_loss, True), "after": partial(word_loss, False)},
    "gated_codes": {"before": partial(gated_codes, False), "after": partial(gated_codes, True)},
    "odd_features": {"before": partial(odd_features, 5461), "after": partial(odd_features, 5504)},
    "residual_pictures": {"before": partial(residual_pictures, "NCHW"), "after": partial(residual_pictures, "NHWC")},
    "rows_quantised": {"before": partial(rows_quantised, False), "after": partial(rows_quantised, True)},
    "words_trained": {"clean": words_trained},
    "decoded": {"clean": decoded},
    "layers_scanned": {"clean": layers_scanned},
    "experts": {"clean": experts},
}


if __name__ == "__main__":
    raise SystemExit(main(PROGRAMS))
