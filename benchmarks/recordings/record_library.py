"""Times what libraries do with the same work asked for in several ways, on the GPU at hand.

    python -m benchmarks record_library OUT.json [--seconds 110]

Pairs of a cause and its fixes, each way timed by the durations of its kernels, all of a call together: five blocks of
ten calls after three to warm up, of which the median counts:

    misaligned   products with a dimension of 30522, 49, 77, 197 … beside the same padded, once or in each call
    tf32         products and convolutions in float32 with TF32 allowed and not
    float64      the same product in float64, float32 and TF32
    grouped      grouped 1-D convolutions beside unfold + bmm, cudnn.benchmark and channels_last
    patches      patch embeddings beside reshape + linear, cudnn.benchmark and channels_last
    layout       convolutions in NCHW, channels_last, with cudnn.benchmark
    attention    spelled out beside F.scaled_dot_product_attention and each of its backends, forward and backward, with
                 a mask, causal, with dropout

A case whose time is up is left out and named. Each way of a case is held against the first in float64 where that is
the same computation: its largest error relative to the largest value. OUT is JSON: GPU, driver, versions, and a row a
way: case, name, dtype, median and quartiles in nanoseconds, error, and the kernels that ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

Way = Callable[[], Any]
CALLS, WARM_UP, BLOCKS = 10, 3, 5


@dataclass(frozen=True)
class Case:
    """One piece of work, and the ways to ask for it; the first is as it is found in a trace."""

    kind: str
    name: str
    dtype: str
    ways: dict[str, Way]
    compared: bool = True  # whether all ways compute the same
    around: dict[str, Callable[[], AbstractContextManager[Any]]] = field(default_factory=dict)


class Settings:
    """Backends' switches for the time of a `with`, put back behind it."""

    def __init__(self, **values: Any) -> None:
        self.values, self.before = values, {}

    def __enter__(self) -> None:
        import torch

        self.places = {
            "tf32": (torch.backends.cuda.matmul, "allow_tf32"),
            "cudnn_tf32": (torch.backends.cudnn, "allow_tf32"),
            "benchmark": (torch.backends.cudnn, "benchmark"),
        }
        for name, value in self.values.items():
            place, attribute = self.places[name]
            self.before[name] = getattr(place, attribute)
            setattr(place, attribute, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self.before.items():
            place, attribute = self.places[name]
            setattr(place, attribute, value)


def cases() -> Iterator[Case]:
    """Every case, the most telling first: what time does not allow is at the end."""
    yield from misaligned()
    yield from tf32()
    yield from grouped()
    yield from patches()
    yield from attention()
    yield from layouts()
    yield from float64()


def misaligned() -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for dtype in ("float16", "bfloat16"):
        kind = getattr(torch, dtype)
        for rows, inner, columns in ((2048, 768, 30522), (8192, 1024, 50257), (4096, 1500, 1024), (8192, 4096, 4097)):
            x = torch.randn(rows, inner, device="cuda", dtype=kind)
            w = torch.randn(columns, inner, device="cuda", dtype=kind) / inner**0.5
            more, deeper = -columns % 8, -inner % 8
            wide = F.pad(w, (0, deeper, 0, more))
            long = F.pad(x, (0, deeper))

            def once(x: Any = long, wide: Any = wide, columns: int = columns) -> Any:
                return F.linear(x, wide)[:, :columns]

            def each(x: Any = x, w: Any = w, d: int = deeper, m: int = more, columns: int = columns) -> Any:
                return F.linear(F.pad(x, (0, d)), F.pad(w, (0, d, 0, m)))[:, :columns]

            def plain(x: Any = x, w: Any = w) -> Any:
                return F.linear(x, w)

            ways = {"as_is": plain, "padded_once": once, "padded_in_each_call": each}
            yield Case("misaligned", f"{rows}×{inner}×{columns}", dtype, ways)
        for batch, side, width in ((1536, 49, 32), (192, 197, 64), (96, 77, 64)):
            q = torch.randn(batch, side, width, device="cuda", dtype=kind)
            s = torch.randn(batch, side, side, device="cuda", dtype=kind)
            more = -side % 8
            padded, keys = F.pad(s, (0, more)), F.pad(q, (0, 0, 0, more))
            ways = {
                "as_is": lambda s=s, q=q: s @ q,
                "padded_once": lambda s=padded, q=keys: s @ q,
                "padded_in_each_call": lambda s=s, q=q, m=more: F.pad(s, (0, m)) @ F.pad(q, (0, 0, 0, m)),
            }
            yield Case("misaligned", f"bmm {batch}×{side}×{side}×{width}", dtype, ways)


def tf32() -> Iterator[Case]:
    import torch

    for rows, inner, columns in (
        *((256, 512, 512), (1024, 1024, 1024), (2048, 768, 3072), (2048, 2048, 2048), (4096, 4096, 4096)),
        *((8192, 2048, 2048), (16, 4096, 4096), (64, 1024, 1024), (1, 8192, 8192)),
    ):
        a = torch.randn(rows, inner, device="cuda")
        b = torch.randn(columns, inner, device="cuda").t()

        def product(a: Any = a, b: Any = b) -> Any:
            return a @ b

        around = {"as_is": lambda: Settings(tf32=False), "tf32": lambda: Settings(tf32=True)}
        ways = {"as_is": product, "tf32": product}
        yield Case("tf32", f"{rows}×{inner}×{columns}", "float32", ways, around=around)
    for batch, channels, side, out, window in ((16, 64, 56, 64, 3), (32, 256, 14, 256, 3), (32, 512, 28, 512, 1)):
        x = torch.randn(batch, channels, side, side, device="cuda")
        w = torch.randn(out, channels, window, window, device="cuda")

        def convolved(x: Any = x, w: Any = w, pad: int = window // 2) -> Any:
            return torch.nn.functional.conv2d(x, w, padding=pad)

        around = {"as_is": lambda: Settings(cudnn_tf32=False), "tf32": lambda: Settings(cudnn_tf32=True)}
        name = f"conv {batch}×{channels}×{side}² → {out}, {window}"
        yield Case("tf32", name, "float32", {"as_is": convolved, "tf32": convolved}, around=around)


def float64() -> Iterator[Case]:
    import torch

    for side in (512, 1024, 2048):
        a = torch.randn(side, side, device="cuda", dtype=torch.float64)
        single = a.float()
        ways = {"as_is": lambda a=a: a @ a, "float32": lambda a=single: a @ a, "tf32": lambda a=single: a @ a}
        around = {"float32": lambda: Settings(tf32=False), "tf32": lambda: Settings(tf32=True)}
        yield Case("float64", f"{side}³", "float64", ways, around=around)


def unfolded(x: Any, weight: Any, groups: int, padding: int) -> Any:
    """The fix that the rule grouped_convolution prints, without a bias."""
    import torch
    import torch.nn.functional as F

    b, _, _ = x.shape
    out, each, window = weight.shape
    windows = F.pad(x, (padding, padding)).unfold(-1, window, 1)
    places = windows.shape[2]
    windows = windows.reshape(b, groups, each, places, window).permute(1, 0, 3, 2, 4)
    windows = windows.reshape(groups, b * places, each * window)
    y = torch.bmm(windows, weight.reshape(groups, out // groups, each * window).transpose(1, 2))
    return y.reshape(groups, b, places, -1).permute(1, 0, 3, 2).reshape(b, out, places)


def grouped() -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for dtype in ("float16", "float32"):
        kind = getattr(torch, dtype)
        for batch, channels, places, groups, window in (
            (8, 768, 499, 16, 128),
            (2, 256, 49, 16, 128),
            (4, 512, 200, 8, 31),
            (8, 768, 499, 16, 3),
        ):
            x = torch.randn(batch, channels, places, device="cuda", dtype=kind)
            w = torch.randn(channels, channels // groups, window, device="cuda", dtype=kind) / window**0.5
            pad = window // 2

            def plain(x: Any = x, w: Any = w, groups: int = groups, pad: int = pad) -> Any:
                return F.conv1d(x, w, padding=pad, groups=groups)

            def batched(x: Any = x, w: Any = w, groups: int = groups, pad: int = pad) -> Any:
                return unfolded(x, w, groups, pad)

            ways = {"as_is": plain, "unfolded": batched, "unfolded_tf32": batched, "benchmark": plain}
            around = {"unfolded_tf32": lambda: Settings(tf32=True), "benchmark": lambda: Settings(benchmark=True)}
            name = f"{batch}×{channels}×{places}, {groups} groups, window {window}"
            yield Case("grouped", name, dtype, ways, around=around)


def patched(x: Any, w: Any) -> Any:
    """The fix that the rule patch_convolution prints."""
    import torch.nn.functional as F

    b, c, h, wide = x.shape
    p, q = w.shape[2:]
    x = x.reshape(b, c, h // p, p, wide // q, q).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * q)
    return F.linear(x, w.flatten(1)).transpose(1, 2).reshape(b, -1, h // p, wide // q)


def patches() -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for dtype in ("float16", "float32"):
        kind = getattr(torch, dtype)
        for batch, channels, side, out, p in (
            *((64, 3, 224, 768, 32), (16, 3, 224, 768, 16), (2, 3, 224, 384, 16), (32, 3, 256, 96, 4)),
            (8, 160, 32, 160, 2),
        ):
            x = torch.randn(batch, channels, side, side, device="cuda", dtype=kind)
            w = torch.randn(out, channels, p, p, device="cuda", dtype=kind) / p
            turned = [one.to(memory_format=torch.channels_last) for one in (x, w)]
            ways = {
                "as_is": lambda x=x, w=w, p=p: F.conv2d(x, w, stride=p),
                "reshaped": lambda x=x, w=w: patched(x, w),
                "benchmark": lambda x=x, w=w, p=p: F.conv2d(x, w, stride=p),
                "channels_last": lambda both=turned, p=p: F.conv2d(*both, stride=p),
            }
            around = {"benchmark": lambda: Settings(benchmark=True)}
            yield Case("patches", f"{batch}×{channels}×{side}² → {out}, patches of {p}", dtype, ways, around=around)


def layouts() -> Iterator[Case]:
    import torch
    import torch.nn.functional as F

    for dtype in ("float16", "float32"):
        kind = getattr(torch, dtype)
        for batch, channels, side, out, window, groups in (
            *((32, 64, 56, 64, 3, 1), (32, 256, 14, 256, 3, 1), (32, 512, 7, 512, 3, 1), (32, 256, 56, 64, 1, 1)),
            *((32, 3, 224, 64, 7, 1), (32, 256, 28, 256, 3, 256), (32, 208, 28, 208, 3, 26)),
        ):
            x = torch.randn(batch, channels, side, side, device="cuda", dtype=kind)
            w = torch.randn(out, channels // groups, window, window, device="cuda", dtype=kind) / window
            turned = [one.to(memory_format=torch.channels_last) for one in (x, w)]
            given = {"padding": window // 2, "groups": groups}
            ways = {
                "as_is": lambda x=x, w=w, given=given: F.conv2d(x, w, **given),
                "benchmark": lambda x=x, w=w, given=given: F.conv2d(x, w, **given),
                "channels_last": lambda both=turned, given=given: F.conv2d(*both, **given),
                "both": lambda both=turned, given=given: F.conv2d(*both, **given),
            }
            around = dict.fromkeys(("benchmark", "both"), lambda: Settings(benchmark=True))
            name = f"{batch}×{channels}×{side}² → {out}, window {window}, {groups} groups"
            yield Case("layout", name, dtype, ways, around=around)


def spelled(q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0) -> Any:
    """Attention as older models write it."""
    import torch

    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1)
    return torch.dropout(weights, dropout, dropout > 0) @ v


def with_gradients(forward: Way, inputs: list[Any]) -> Way:
    """The backward pass alone, of a forward pass that was done before."""
    import torch

    given = [one.detach().requires_grad_() for one in inputs]
    result = forward(*given)
    grad = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, given, grad, retain_graph=True)


def attention() -> Iterator[Case]:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    fused = F.scaled_dot_product_attention
    shapes = (
        *((8, 12, 512, 512, 64), (16, 12, 197, 197, 64), (4, 16, 1024, 1024, 128), (2, 16, 2048, 2048, 64)),
        *((128, 6, 49, 49, 32), (8, 8, 64, 64, 64), (4, 16, 1, 1024, 128), (1, 16, 4096, 4096, 128)),
    )
    for dtype in ("float16", "float32"):
        kind = getattr(torch, dtype)
        for batch, heads, queries, keys, width in shapes if dtype == "float16" else shapes[:2]:
            like = {"device": "cuda", "dtype": kind}
            q = torch.randn(batch, heads, queries, width, **like)
            k, v = (torch.randn(batch, heads, keys, width, **like) for _ in range(2))
            bias = torch.zeros(1, 1, queries, keys, **like)
            variants: dict[str, dict[str, Any]] = {"plain": {}, "mask": {"attn_mask": bias}}
            variants |= {"causal": {"is_causal": True}, "dropout": {"dropout_p": 0.1}}
            for variant, given in variants.items():
                if variant == "causal" and queries != keys:
                    continue
                mask = bias.expand(batch, heads, queries, keys) if variant == "mask" else None
                if variant == "causal":
                    mask = torch.full((queries, keys), -torch.inf, **like).triu(1)
                dropout = given.get("dropout_p", 0.0)

                def by_hand(q: Any = q, k: Any = k, v: Any = v, mask: Any = mask, dropout: float = dropout) -> Any:
                    return spelled(q, k, v, mask, dropout)

                def one_call(q: Any = q, k: Any = k, v: Any = v, given: Any = given) -> Any:
                    return fused(q, k, v, **given)

                around = {name: (lambda b=b: sdpa_kernel([b])) for name, b in backends.items()}
                name = f"{batch}×{heads}×{queries}×{keys}×{width}, {variant}"
                ways = {"as_is": by_hand, "sdpa": one_call} | dict.fromkeys(backends, one_call)
                yield Case("attention", name, dtype, ways, compared=not dropout, around=around)
                if queries > 1 and variant == ("dropout" if width == 128 else "plain"):
                    yield backward_case(name, dtype, by_hand, one_call, [q, k, v], around, not dropout)


def backward_case(
    name: str, dtype: str, by_hand: Way, one_call: Way, inputs: list[Any], around: dict[str, Any], compared: bool
) -> Case:
    """The backward passes; each forward pass is done where it is first asked for, under its own settings."""
    made: dict[str, Way] = {}

    def lazily(key: str, forward: Way) -> Way:
        def run() -> Any:
            if key not in made:
                made[key] = with_gradients(forward, inputs)
            return made[key]()

        return run

    ways = {"as_is": lazily("as_is", by_hand)} | {
        key: lazily(key, one_call) for key in ("sdpa", "flash", "efficient", "cudnn")
    }
    return Case("attention_backward", name, dtype, ways, compared, around)


# --- timing ----------------------------------------------------------------------------------------------------------


def timed(run: Way) -> tuple[list[int], list[str]]:
    """Nanoseconds a call, of each block, by the profiler's kernels alone; and the kernels of one call."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(BLOCKS * CALLS):
            run()
        torch.cuda.synchronize()
    found = sorted(
        (event.start_ns(), event.name(), event.duration_ns())
        for event in profiled.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    each = len(found) // (BLOCKS * CALLS)
    part = max(len(found) // BLOCKS, 1)
    blocks = [sum(dur for _, _, dur in found[at : at + part]) // CALLS for at in range(0, part * BLOCKS, part)]
    return blocks, [name[:200] for _, name, _ in found[:each]]


def error_of(result: Any, wanted: Any) -> float | None:
    """The largest error, relative to the largest value wanted; None where the shapes differ."""
    results, expected = (one if isinstance(one, tuple) else (one,) for one in (result, wanted))
    worst = 0.0
    for got, right in zip(results, expected, strict=True):
        if got.shape != right.shape:
            return None
        most = float(right.double().abs().max()) or 1.0
        worst = max(worst, float((got.double() - right.double()).abs().max()) / most)
    return worst


def rows_of(case: Case, until: float) -> Iterator[dict[str, Any]]:
    """A row a way. What cannot run says why."""
    first = None
    for name, run in case.ways.items():
        row = {"kind": case.kind, "case": case.name, "dtype": case.dtype, "way": name}
        if time.monotonic() > until:
            yield row | {"left_out": "no time was left"}
            continue
        try:
            with case.around.get(name, nullcontext)():
                result = run()
                blocks, kernels = timed(run)
            first = result if first is None else first
            low, mid, high = quantiles(blocks, n=4)
            wrong = error_of(result, first) if case.compared else None
        except Exception as error:
            yield row | {
                "left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
            }
            continue
        yield row | {
            "ns": round(mid),
            "quartiles_ns": [round(low), round(high)],
            "difference_from_first": wrong,
            "kernels": kernels,
        }


def environment() -> dict[str, Any]:
    """GPU, driver and versions."""
    import torch

    asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader"]
    try:
        driver = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        driver = None
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def main() -> None:
    """Time every case until the time is up, and write what came out."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=110)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device to time")
    torch.manual_seed(0)
    until = time.monotonic() + options.seconds
    rows: list[dict[str, Any]] = []
    for case in cases():
        rows += rows_of(case, until)
        torch.cuda.empty_cache()
        options.out.write_text(json.dumps({"environment": environment_once(), "rows": rows}, indent=1) + "\n", "utf-8")
    for row in rows:
        print(*(row.get(key, "") for key in ("kind", "case", "dtype", "way", "ns", "left_out")), sep="\t")


_ENVIRONMENT: dict[str, Any] = {}


def environment_once() -> dict[str, Any]:
    """Asked once."""
    if not _ENVIRONMENT:
        _ENVIRONMENT.update(environment())
    return _ENVIRONMENT


if __name__ == "__main__":
    main()
