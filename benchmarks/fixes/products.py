"""Time what stands in place of heads over a vocabulary and of epilogues: `python -m benchmarks products OUT`.

Cross-entropy of a linear layer (forward and backward), log-probabilities, distillation, the largest over tokens, bias
and activation, residual sums, attention whose scores go through a function: each in eager PyTorch, by torch.compile,
and as `verify` tries them. OUT/products.jsonl gets a line a variant as soon as it is known: median and its 95 %
interval of interleaved blocks with a cold cache, peak memory beyond the inputs, errors against float32. OUT/PROGRAM/:
recordings of steps that have such products. After `--seconds` nothing new is begun.
`--device cpu` tries the machinery at small sizes.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F
from fixes.product_steps import STEPS, step_of

from programs.run import machine
from tracemine.verify.gpu import linear_losses, strips
from tracemine.verify.gpu import vocabulary_max as heads_module
from tracemine.verify.gpu.linear_losses import chosen_log_probs, linear_cross_entropy, linear_kl_div
from tracemine.verify.gpu.vocabulary_max import vocabulary_max

Work = Callable[[], Any]
LEAST, MOST = 5, 25  # blocks
NEWEST = ("soft_capped", "quantised_decode", "sparse_encoder", "sparse_encoding")  # recorded and verified first
PEERS = {  # module and function: called with hidden states, weight and labels
    "Liger": ("liger_kernel.transformers.functional", "liger_fused_linear_cross_entropy"),
    "cut-cross-entropy": ("cut_cross_entropy", "linear_cross_entropy"),
}
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


class Report:
    """Lines of results, and how much time is left."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.path, self.until = out / "products.jsonl", time.monotonic() + seconds

    def line(self, **said: Any) -> None:
        text = json.dumps(said)
        with self.path.open("a") as file:
            file.write(text + "\n")
        print(text, flush=True)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()


def settle() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def took(work: Work, flush: torch.Tensor) -> float:
    """Return milliseconds of one call: the cache cold, the host ahead of the device."""
    flush.zero_()
    if not ON_GPU:
        begin = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - begin)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(3_000_000)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def interval(samples: Sequence[float]) -> dict[str, Any]:
    """Return the median and its 95 % interval, by resampling."""
    drawn = random.Random(1)
    medians = sorted(statistics.median(drawn.choices(samples, k=len(samples))) for _ in range(400))
    return {
        "ms": round(statistics.median(samples), 4),
        "low": round(medians[9], 4),
        "high": round(medians[389], 4),
        "blocks": len(samples),
    }


def peak(work: Work) -> int:
    """Return bytes that a call needs at once beyond what is there."""
    if not ON_GPU:
        work()
        return 0
    settle()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    settle()
    return torch.cuda.max_memory_allocated() - before


def compared(report: Report, case: str, variants: Mapping[str, Work], seconds: float, **facts: Any) -> None:
    """Time interleaved variants, and write a line each. What raises is a result."""
    flush = torch.empty((64 << 20) if ON_GPU else 1, dtype=torch.int32, device=DEVICE)
    ready, lines = dict[str, Work](), dict[str, dict[str, Any]]()
    for name, work in variants.items():
        begun = time.monotonic()
        if report.left < 0 or (name.startswith("max_autotune") and report.left < 45):
            report.line(case=case, variant=name, left_out="no time was left", **facts)
            continue
        try:
            work()
            settle()
            lines[name] = {"first_s": round(time.monotonic() - begun, 2), "peak_bytes": peak(work)}
            ready[name] = work
        except Exception as error:
            report.line(case=case, variant=name, raised=f"{type(error).__name__}: {str(error)[:300]}", **facts)
            release()
    samples: dict[str, list[float]] = {name: [] for name in ready}
    order, until = random.Random(2), time.monotonic() + seconds
    for block in range(MOST):
        if block >= LEAST and (time.monotonic() > until or report.left < 0):
            break
        for name in order.sample(list(ready), len(ready)):
            samples[name].append(took(ready[name], flush))
    for name, each in samples.items():
        report.line(case=case, variant=name, **interval(each), **lines[name], **facts)
    release()


def release() -> None:
    gc.collect()
    if ON_GPU:
        torch.cuda.empty_cache()
    torch._dynamo.reset()


def trained(loss_of: Callable[..., torch.Tensor], leaves: Sequence[torch.Tensor], upstream: Any = None) -> Work:
    """Return a forward and a backward pass."""

    def work() -> list[torch.Tensor]:
        made = loss_of(*leaves)
        made_of = torch.autograd.grad(made, leaves, upstream, allow_unused=True)
        return [made.detach(), *(each for each in made_of if each is not None)]

    return work


def errors(found: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> list[float]:
    """Return relative errors by root mean square."""
    return [
        float(f"{((a.float() - b).norm() / b.norm().clamp_min(1e-30)).item():.4g}")
        for a, b in zip(found, truth, strict=True)
    ]


def peers(report: Report) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """Yield other packages' cross-entropy of a linear layer, of those that are installed."""
    for name, (module, function) in PEERS.items():
        try:
            yield name, getattr(importlib.import_module(module), function)
        except Exception as error:
            report.line(case="cross-entropy", variant=name, left_out=f"not installed: {error}"[:200])


def head(rows: int, width: int, words: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hidden states, a weight whose logits are about N(0, 1), and labels."""
    torch.manual_seed(seed)
    hidden = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    weight = (torch.randn(words, width, device=DEVICE) / width**0.5).bfloat16()
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(0, words, (rows,), device=DEVICE)


def true_gradients(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Return loss and gradients in float32, some rows at a time."""
    h, w = (each.detach().float().requires_grad_() for each in (hidden, weight))
    total = torch.zeros((), device=DEVICE)
    for first in range(0, len(h), 1024):
        part = slice(first, first + 1024)
        loss = F.cross_entropy(h[part] @ w.t(), labels[part], reduction="sum") / len(labels)
        loss.backward()
        total += loss.detach()
    return [total, h.grad, w.grad]


def cross_entropy(report: Report, sizes: Sequence[tuple[int, int, int]]) -> None:
    """Linear layer and cross-entropy, forward and backward."""
    for rows, width, words in sizes:
        hidden, weight, labels = head(rows, width, words)

        def eager(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor = labels) -> torch.Tensor:
            return F.cross_entropy(F.linear(h, w).float(), labels)

        works = {"eager": eager, "compiled": torch.compile(eager, dynamic=False)}
        works["strips"] = lambda h, w, y=labels: linear_cross_entropy(h, w, y)
        for count in (1024, 2048):
            works[f"strips of {count}"] = lambda h, w, y=labels, n=count: linear_cross_entropy(h, w, y, rows=n)
        for name, loss in peers(report):
            works[name] = lambda h, w, y=labels, loss=loss: loss(h, w, y)
        case, size = f"cross-entropy {rows}x{width}x{words}", {"rows": rows, "width": width, "words": words}
        truth = true_gradients(hidden, weight, labels)
        for name, work in works.items():
            if name != "compiled":
                trained_errors(report, f"{case} errors", name, trained(work, (hidden, weight)), truth)
        del truth
        release()
        variants = {name: trained(work, (hidden, weight)) for name, work in works.items()}
        compared(report, case, variants, 2.5, **size)


def trained_errors(report: Report, case: str, name: str, work: Work, truth: Sequence[torch.Tensor]) -> None:
    """Write the errors of a loss and its gradients. What raises is a result."""
    try:
        found = errors(work(), truth)
        report.line(case=case, variant=name, loss=found[0], of_hidden=found[1], of_weight=found[2])
    except Exception as error:
        report.line(case=case, variant=name, raised=f"{type(error).__name__}: {str(error)[:300]}")
    release()


def blocks(report: Report) -> None:
    """How a row is walked: which blocks of words are fastest."""
    kept = strips.row_block
    for words in (32_768, 128_256):
        z = torch.randn(1024, words, device=DEVICE, dtype=torch.bfloat16)
        of = linear_losses._Words(torch.randint(0, words, (1024,), device=DEVICE), z.t(), None, -100, 0.0)
        one = torch.ones((), device=DEVICE)

        def run(block: int, warps: int, z: Any = z, of: Any = of, one: Any = one) -> None:
            linear_losses.row_block = lambda *_: {"BLOCK": block, "num_warps": warps}
            of.strip(z, slice(0, 1024), one)

        shapes = ((4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16), (16384, 32), (32768, 16), (32768, 32))
        variants = {f"{block}, {warps} warps": partial(run, block, warps) for block, warps in shapes}
        compared(report, f"loss and gradient 1024x{words}", variants, 0.5)
    linear_losses.row_block = kept


def log_probs(report: Report, sizes: Sequence[tuple[int, int, int]]) -> None:
    """Log-probabilities of chosen words: forward alone, and with a gradient a row."""
    for rows, width, words in sizes:
        hidden, weight, labels = head(rows, width, words)

        def eager(h: torch.Tensor, w: torch.Tensor, y: torch.Tensor = labels) -> torch.Tensor:
            return F.linear(h, w).float().log_softmax(-1).gather(-1, y[:, None])[:, 0]

        works = {"eager": eager, "compiled": torch.compile(eager, dynamic=False)}
        works |= {"strips": lambda h, w, y=labels: chosen_log_probs(h, w, y)}

        def forward(work: Callable[..., Any], h: torch.Tensor = hidden, w: torch.Tensor = weight) -> Work:
            return torch.no_grad()(lambda: work(h, w))

        size = {"rows": rows, "width": width, "words": words}
        variants = {name: forward(work) for name, work in works.items()}
        variants["product alone"] = forward(F.linear)
        compared(report, f"log-probs forward {rows}x{width}x{words}", variants, 1.0, **size)
        upstream = torch.rand(rows, device=DEVICE)
        variants = {name: trained(work, (hidden, weight), upstream) for name, work in works.items()}
        compared(report, f"log-probs {rows}x{width}x{words}", variants, 1.0, **size)


def distillation(report: Report, sizes: Sequence[tuple[int, int, int]]) -> None:
    """KL divergence of two heads, forward and backward."""
    for rows, width, words in sizes:
        hidden, weight, _ = head(rows, width, words)
        other, teacher, _ = (each.detach() for each in head(rows, width, words, 1))

        def eager(h: torch.Tensor, w: torch.Tensor, o: torch.Tensor = other, t: torch.Tensor = teacher) -> torch.Tensor:
            with torch.no_grad():
                wanted = F.linear(o, t).float().log_softmax(-1)
            return F.kl_div(F.linear(h, w).float().log_softmax(-1), wanted, reduction="batchmean", log_target=True)

        works = {"eager": eager, "compiled": torch.compile(eager, dynamic=False)}
        works["strips"] = lambda h, w, o=other, t=teacher: linear_kl_div(h, w, o, t)
        variants = {name: trained(work, (hidden, weight)) for name, work in works.items()}
        compared(report, f"divergence {rows}x{width}x{words}", variants, 1.5, rows=rows, width=width, words=words)


def in_strips(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function makes of its logits where these are written."""
    kept = heads_module._in_flight
    heads_module._in_flight = lambda *_: False
    try:
        return function(*given)
    finally:
        heads_module._in_flight = kept


def true_scores(given: Sequence[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """Return the largest over tokens in float32, a document at a time."""
    hidden, weight, bias = (each.float() for each in given)
    found = [
        (F.linear(h, weight, bias).relu().log1p() * m.unsqueeze(-1)).amax(0) for h, m in zip(hidden, mask, strict=True)
    ]
    return torch.stack(found)


def attention(report: Report, sizes: Sequence[tuple[int, int, int, int]]) -> None:
    """Attention with a soft cap and a causal mask: as the fix writes it, and by hand."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    for batch, lines, length, width in sizes:
        q, k, v = (torch.randn(batch, lines, length, width, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
        mask = torch.full((1, 1, length, length), -torch.inf, device=DEVICE, dtype=torch.bfloat16).triu(1)

        def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor = mask) -> torch.Tensor:
            scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
            return torch.matmul((torch.tanh(scores / 50.0) * 50.0 + m).softmax(-1), v)

        def capped(score: Any, b: Any, h: Any, q_at: Any, k_at: Any, width: int = width) -> Any:
            return torch.tanh(score * width**-0.5 / 50.0) * 50.0

        def causal(b: Any, h: Any, q_at: Any, k_at: Any) -> Any:
            return q_at >= k_at

        module = written_flex(batch, lines, length, width)
        given = (q, k, v, mask)
        flex = torch.compile(flex_attention, dynamic=False) if ON_GPU else flex_attention
        blocks_of = create_block_mask(causal, None, None, length, length, device=DEVICE)
        works: dict[str, Work] = {
            "eager": partial(eager, q, k, v),
            "compiled": partial(torch.compile(eager, dynamic=False), q, k, v),
            "ours": partial(first_of, module.fixed, *module.masked(given)),
            "ours, every block": partial(first_of, module.fixed, *given),
            "ours, blocks found": lambda given=given, m=module: first_of(m.fixed, *m.masked(given)),
            "by hand, block mask": lambda q=q, k=k, v=v, m=blocks_of, f=flex, s=capped: f(
                q, k, v, score_mod=s, block_mask=m, scale=1.0
            ),
        }
        truth = eager(q.float(), k.float(), v.float(), mask.float())
        for name, work in works.items():
            report.line(case="soft cap errors", variant=name, of_result=errors([work()], [truth])[0])
        del truth
        compared(report, f"soft cap {batch}x{lines}x{length}x{width}", works, 1.0, rows=length, width=width)


def first_of(function: Callable[..., Any], *given: Any) -> Any:
    """Return the first of a function's results."""
    return function(*given)[0]


def written_flex(batch: int, lines: int, length: int, width: int) -> Any:
    """Return what the fix writes for attention with a soft cap."""
    from tracemine.causes.attention_unfused.fix import attended
    from tracemine.codegen import GraphBuilder
    from tracemine.verify.fixes.record import Around

    b, flat = GraphBuilder("soft_cap"), batch * lines
    q, k, v = (b.input(name, (batch, lines, length, width), "bfloat16") for name in "qkv")
    mask = b.input("added", (1, 1, length, length), "bfloat16")
    turned = b.call("aten::clone", b.call("aten::permute", k, [0, 1, 3, 2]), memory_format=0)
    sides = b.call("aten::view", q, [flat, length, width]), b.call("aten::view", turned, [flat, width, length])
    scores = b.call("aten::view", b.call("aten::bmm", *sides), [batch, lines, length, length])
    squeezed = b.call("aten::tanh", b.call("aten::div.Tensor", b.call("aten::mul.Tensor", scores, width**-0.5), 50.0))
    added = b.call("aten::add.Tensor", b.call("aten::mul.Tensor", squeezed, 50.0), mask)
    weights = b.call("aten::view", b.call("aten::_softmax", added, -1, False), [flat, length, length])
    out = b.call("aten::bmm", weights, b.call("aten::view", v, [flat, length, width]))
    graph = b.done(b.call("aten::view", out, [batch, lines, length, width]))
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(f"import torch\n\n{attended(graph, Around()).source}\n")
    spec = importlib.util.spec_from_file_location(Path(file.name).stem, file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what compiles its functions asks for it by name
    spec.loader.exec_module(module)
    return module


def sparse_head(report: Report, sizes: Sequence[tuple[int, int, int, int]], modes: Mapping[str, str | None]) -> None:
    """The largest over tokens of log1p(relu(logits)): forward, and with gradients."""
    for documents, tokens, width, words in sizes:
        hidden, weight, _ = head(documents * tokens, width, words)
        hidden = hidden.detach().view(documents, tokens, width).requires_grad_()
        bias = torch.zeros(words, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        mask = (torch.rand(documents, tokens, device=DEVICE) < 0.9).long()
        padded = F.pad(weight.detach(), (0, 0, 0, -words % 64))

        def eager(h: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor = mask) -> torch.Tensor:
            return (F.linear(h, w, b).relu().log1p() * m.unsqueeze(-1)).max(1).values

        case, size = (
            f"{documents}x{tokens}x{width}x{words}",
            {"rows": documents * tokens, "width": width, "words": words},
        )
        of_size = {"documents": documents, **size}
        works: dict[str, Any] = {"eager": eager}
        works |= {f"{name}": torch.compile(eager, dynamic=False, mode=mode) for name, mode in modes.items()}
        if "compiled" in modes:
            works["ours"] = lambda h, w, b, m=mask: vocabulary_max(h, w, b, m)
            works["ours, strips"] = lambda h, w, b, m=mask: in_strips(vocabulary_max, h, w, b, m)
        given = [each.detach() for each in (hidden, weight, bias)]

        def forward(work: Callable[..., Any], given: Any = given) -> Work:
            return torch.no_grad()(lambda: work(*given))

        variants = {name: forward(work) for name, work in works.items()}
        if "compiled" in modes:
            flat = given[0].view(-1, width)
            variants["product alone"] = lambda flat=flat, w=given[1]: F.linear(flat, w)
            variants["product alone, padded weight"] = lambda flat=flat, w=padded: F.linear(flat, w)
        compared(report, f"largest over tokens, forward {case}", variants, 1.5, **of_size)
        upstream = torch.rand(documents, words, device=DEVICE).bfloat16()
        variants = {name: trained(work, (hidden, weight, bias), upstream) for name, work in works.items()}
        truth = true_scores(given, mask)
        for name, work in works.items():
            report.line(
                case=f"largest over tokens {case} errors", variant=name, scores=errors([forward(work)()], [truth])[0]
            )
        del truth
        compared(report, f"largest over tokens {case}", variants, 1.5, **of_size)


def with_epilogues(hidden: torch.Tensor, weight: torch.Tensor) -> dict[str, tuple[Work, Work]]:
    """Return products with what stands behind them, as it is and in the library's call."""
    rows, words, turned = len(hidden), len(weight), weight.t()
    bias, other = torch.randn(words, device=DEVICE).bfloat16(), torch.randn(rows, words, device=DEVICE).bfloat16()
    return {
        "bias and tanh GELU": (
            lambda: F.gelu(F.linear(hidden, weight, bias), approximate="tanh"),
            lambda: torch._addmm_activation(bias, hidden, turned, use_gelu=True),
        ),
        "bias and ReLU": (
            lambda: F.relu(F.linear(hidden, weight, bias)),
            lambda: torch._addmm_activation(bias, hidden, turned),
        ),
        "residual": (lambda: F.linear(hidden, weight) + other, lambda: torch.addmm(other, hidden, turned)),
    }


def epilogues(report: Report, sizes: Sequence[tuple[int, int, int]], modes: Mapping[str, str | None]) -> None:
    """Bias with an activation, and a residual sum: the library's own epilogue, and the rest."""
    for rows, words, width in sizes:
        hidden, weight, _ = (each.detach() for each in head(rows, width, words))
        for name, (eager, library) in with_epilogues(hidden, weight).items():
            variants = {"eager": eager, "library": library, "product alone": partial(F.linear, hidden, weight)}
            variants |= {mode: torch.compile(eager, dynamic=False, mode=option) for mode, option in modes.items()}
            compared(report, f"{name} {rows}x{words}x{width}", variants, 0.4, rows=rows, width=width, words=words)


def scaled(report: Report, sizes: Sequence[tuple[int, int, int]]) -> None:
    """Products of float8 with a scale a row: dequantised and multiplied, and as the library takes them."""
    for rows, words, width in sizes:
        hidden, weight, _ = (each.detach() for each in head(rows, width, words))
        (x, of_x), (w, of_w) = (narrowed(each) for each in (hidden, weight))
        bias = torch.randn(words, device=DEVICE).bfloat16()

        def eager(x: Any = x, of_x: Any = of_x, w: Any = w, of_w: Any = of_w, bias: Any = bias) -> torch.Tensor:
            return F.linear((x.float() * of_x).bfloat16(), (w.float() * of_w).bfloat16(), bias)

        def library(x: Any = x, of_x: Any = of_x, w: Any = w, of_w: Any = of_w, bias: Any = bias) -> torch.Tensor:
            return torch._scaled_mm(x, w.t(), of_x, of_w.t(), bias=bias, out_dtype=torch.bfloat16)

        truth = (x.float() * of_x) @ (w.float() * of_w).t() + bias.float()
        case, works = f"float8 {rows}x{words}x{width}", {"eager": eager, "library": library}
        works |= {"compiled": torch.compile(eager, dynamic=False)} if ON_GPU else {}
        for name, work in works.items():
            report.line(case=f"{case} errors", variant=name, of_result=errors([work()], [truth])[0])
        del truth
        works["product in half"] = partial(F.linear, hidden, weight, bias)
        compared(report, case, works, 0.4, rows=rows, width=width, words=words)


def narrowed(wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix in float8, and the scale of each row."""
    scale = wide.float().abs().amax(1, keepdim=True) / 448
    return (wide.float() / scale).to(torch.float8_e4m3fn), scale


def recordings(report: Report, out: Path, names: Sequence[str]) -> None:
    """Record steps that have such products, as their user would."""
    from tracemine.recording import capture

    for name in sorted(names, key=lambda name: NEWEST.index(name) if name in NEWEST else len(NEWEST)):
        begun = time.monotonic()
        if report.left < 20:
            break
        try:
            step, _ = step_of(name, DEVICE)
            for _ in range(5):
                step()
            settle()
            with capture(out / name, steps=2, timed=10, quiet=True) as recording:
                for _ in recording.steps():
                    step()
            report.line(case="recording", variant=name, seconds=round(time.monotonic() - begun, 1))
        except Exception as error:
            report.line(case="recording", variant=name, raised=f"{type(error).__name__}: {str(error)[:300]}")
        release()


def verified(report: Report, out: Path, names: Sequence[str]) -> None:
    """What `verify` says of the recordings: OUT/NAME.verdicts.json."""
    for name in sorted(names, key=lambda name: NEWEST.index(name) if name in NEWEST else len(NEWEST)):
        if report.left < 15 or not (out / name).is_dir():
            continue
        command = [sys.executable, "-m", "tracemine", "verify", str(out / name), "--format", "json", "--quiet"]
        rules = ("logits_written", "vocabulary_maximum", "epilogue_apart", "attention_unfused", "dequantised_product")
        command += [each for rule in rules for each in ("--rule", rule)]
        command += ["--quick"] * (report.left < 90)
        begun = time.monotonic()
        try:
            ran = subprocess.run(command, capture_output=True, timeout=min(60, report.left), check=False)
            (out / f"{name}.verdicts.json").write_bytes(ran.stdout)
            said = {"code": ran.returncode, "said": ran.stderr.decode("utf-8", "replace")[-300:]}
        except subprocess.TimeoutExpired:
            said = {"raised": "took too long"}
        report.line(case="verified", variant=name, seconds=round(time.monotonic() - begun, 1), **said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=205.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    if (given.device == "cuda") != ON_GPU:
        raise SystemExit("this needs a GPU, and torch finds none" if not ON_GPU else "there is a GPU: --device cuda")
    given.out.mkdir(parents=True, exist_ok=True)
    report = Report(given.out, given.seconds)
    report.line(case="machine", **machine(given.device))
    plain, tuned = {"compiled": None}, {"max_autotune": "max-autotune-no-cudagraphs"}
    large = ON_GPU
    heads = [(8192, 2048, words) for words in (32_768, 128_256, 256_000)] if large else [(40, 16, 300)]
    documents = [(8, 256, 768, 30_522), (32, 256, 1024, 128_256)] if large else [(3, 5, 16, 99)]
    products = (
        [(16, 16384, 4096), (2048, 16384, 4096), (8192, 8192, 2048), (8192, 2048, 8192)] if large else [(8, 24, 16)]
    )
    parts: dict[str, Work] = {
        "cross_entropy": lambda: cross_entropy(report, heads),
        "sparse_head": lambda: sparse_head(report, documents, plain),
        "recordings": lambda: recordings(report, given.out, list(STEPS)),
        "verified": lambda: verified(report, given.out, list(STEPS)),
        "attention": lambda: attention(report, [(4, 16, 2048, 128), (1, 8, 8192, 256)] if large else [(1, 2, 16, 8)]),
        "log_probs": lambda: log_probs(report, heads[:2]),
        "epilogues": lambda: epilogues(report, products, plain),
        "scaled": lambda: scaled(report, products if large else [(16, 32, 16)]),
        "distillation": lambda: distillation(report, [(4096, 2048, 128_256)] if large else heads),
        "blocks": lambda: blocks(report) if large else None,
        "sparse_head_tuned": lambda: sparse_head(report, documents[:1], tuned),
        "epilogues_tuned": lambda: epilogues(report, products[1:3], tuned),
    }
    for name, part in parts.items():
        if given.only and name not in given.only:
            continue
        if report.left < 0:
            report.line(case=name, left_out="no time was left")
            continue
        begun = time.monotonic()
        try:
            part()
        except Exception as error:
            report.line(case=name, raised=f"{type(error).__name__}: {str(error)[:300]}")
        report.line(case=name, seconds=round(time.monotonic() - begun, 1), left_s=round(report.left, 1))
        release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
