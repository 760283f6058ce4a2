"""Losses of a linear layer and maxima over tokens, in strips, held against float64: each case yields its faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

WORDS, WIDTH, ROWS, STRIP = 131, 16, 3, 2
_MOST = 1.25  # times eager's error
Space = Any  # what holds the functions: a module, or a page


def _drawn(dtype: torch.dtype, *, bias: bool, seed: int = 1, rows: int = ROWS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, WIDTH), (WORDS, WIDTH), *([(WORDS,)] if bias else [])]
    made = [torch.randn(shape, generator=generator).div(1 if k == 0 else WIDTH**0.5) for k, shape in enumerate(shapes)]
    return [each.to(dtype) for each in made]


def _leaves(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    return [each.detach().to(dtype).requires_grad_() for each in tensors]


def _faults(
    name: str,
    inputs: list[torch.Tensor],
    ours: Callable[..., torch.Tensor],
    eager: Callable[..., torch.Tensor],
    upstream: float | torch.Tensor = 1.0,
    floor_eps: float = 8.0,
) -> Iterator[str]:
    """Yield where results or gradients are further from float64 than eager's are."""
    found = []
    for work, kind in ((ours, inputs[0].dtype), (eager, inputs[0].dtype), (eager, torch.float64)):
        leaves = _leaves(inputs, kind)
        made = work(*leaves)
        (made * torch.as_tensor(upstream).to(made.dtype)).sum().backward()
        found.append([made.detach(), *(leaf.grad for leaf in leaves)])
    for k, (mine, theirs, truth) in enumerate(zip(*found, strict=True)):
        what = f"{name}: {'the result' if k == 0 else f'gradient {k}'}"
        if mine is None or mine.shape != truth.shape or (k and mine.dtype != inputs[0].dtype):
            yield f"{what} has another shape or type"
            continue
        size = float(truth.square().mean().sqrt()) if truth.isfinite().all() else 0.0
        floor = floor_eps * torch.finfo(mine.dtype).eps * size
        off, allowed = (float((t.double() - truth).square().mean().sqrt()) for t in (mine, theirs))
        same_holes = torch.equal(mine.isnan(), truth.isnan())
        if not same_holes or (truth.isfinite().all() and off > max(_MOST * allowed, floor, 1e-30)):
            yield f"{what} is off by {off:.3g}, eager by {allowed:.3g}, of {size:.3g}"


def sums_of_strips(space: Space) -> Iterator[str]:
    """Yield faults of the weights' gradient where 256 strips add to it: sums in bfloat16 lose what each adds.

    A strip is one row: it is how many are added that counts.
    """
    rows = 256
    labels = torch.randint(0, WORDS, (rows,), generator=torch.Generator().manual_seed(4))

    def eager(h: Any, w: Any) -> Any:
        logits = F.linear(h, w)
        return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), labels)

    inputs = _drawn(torch.bfloat16, bias=False, rows=rows)
    yield from _faults(
        "sums of strips", inputs, lambda h, w: space.linear_cross_entropy(h, w, labels, rows=1), eager, floor_eps=0.5
    )


def cross_entropy(space: Space) -> Iterator[str]:
    """Yield faults of cross-entropy, in all its forms and types; the last strip has fewer rows."""
    labels = torch.randint(0, WORDS, (ROWS,), generator=torch.Generator().manual_seed(1))
    some, none = labels.clone(), torch.full_like(labels, -100)
    some[::3] = -100
    weights = torch.rand(WORDS, generator=torch.Generator().manual_seed(2)) + 0.1
    kinds = (torch.float64, torch.float16, torch.float32, torch.bfloat16)
    forms: list[dict[str, Any]] = [
        {}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}, {"class_weights": weights},
        {"class_weights": weights, "label_smoothing": 0.2}, {"class_weights": weights, "reduction": "none"},
        {"class_weights": weights, "reduction": "none", "label_smoothing": 0.1}, {"ignore_index": 7},
    ]  # fmt: skip
    h, w = _leaves(_drawn(torch.bfloat16, bias=False), torch.bfloat16)
    loss = space.linear_cross_entropy(h, w, none, rows=STRIP)
    loss.backward()
    if not loss.isnan() or h.grad.any() or w.grad.any():
        yield "without any label it is not NaN, or has gradients"
    if space.linear_cross_entropy(h, w, none, rows=STRIP, reduction="sum") != 0:
        yield "without any label the sum is not 0"
    asked = [
        (kind, form, bias)
        for kind, form, bias in itertools.product(kinds, range(len(forms)), (False, True))
        if not (bias and form % 3) and not (kind in (torch.float64, torch.float16) and form not in (0, 5))
    ]
    first = [(torch.float64, 5), (torch.float16, 5), (torch.float32, 7), (torch.float32, 8)]  # show most mistakes
    for kind, form, bias in sorted(asked, key=lambda each: each[:2] not in first):
        given = forms[form]
        for which, words in (("all", labels), ("some", some))[bool(form) :]:
            words = words.where(words != 7, -100) if which == "some" and "ignore_index" in given else words
            words = words.where(words != -100, given.get("ignore_index", -100))
            inputs = _drawn(kind, bias=bias)
            upstream = torch.rand(ROWS, generator=torch.Generator().manual_seed(3)) - 0.5
            eager_given = {"weight" if k == "class_weights" else k: v for k, v in given.items()}

            def eager(h: Any, w: Any, b: Any = None, words: Any = words, more: Any = eager_given) -> Any:
                logits = F.linear(h, w, b)
                wide = logits if logits.dtype == torch.float64 else logits.float()
                more = {k: v.to(wide.dtype) if k == "weight" else v for k, v in more.items()}
                return F.cross_entropy(wide, words, **more)

            def ours(h: Any, w: Any, b: Any = None, words: Any = words, more: Any = given) -> Any:
                return space.linear_cross_entropy(h, w, words, b, rows=STRIP, **more)

            name = f"cross-entropy of {kind}, {which} labels, {sorted(given)}, bias {bias}"
            yield from _faults(name, inputs, ours, eager, upstream if given.get("reduction") == "none" else 0.37)


def far_logits(space: Space) -> Iterator[str]:
    """Yield faults where a row's first words are far below the others, or hidden: no float32 holds what is between."""
    labels = torch.randint(64, WORDS, (ROWS,), generator=torch.Generator().manual_seed(6))

    def eager(h: Any, w: Any, b: Any) -> Any:
        logits = F.linear(h, w, b)
        return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), labels)

    def ours(h: Any, w: Any, b: Any) -> Any:
        return space.linear_cross_entropy(h, w, labels, b, rows=STRIP)

    for first, others in ((0.0, 300.0), (-torch.inf, -300.0), (-torch.inf, -104.0), (300.0, 0.0), (-torch.inf, 0.0)):
        hidden, weight, bias = _drawn(torch.bfloat16, bias=True)
        bias = bias + torch.where(torch.arange(WORDS) < 64, first, others).bfloat16()
        yield from _faults(f"logits {first} and {others} off", [hidden, weight, bias], ours, eager)


def log_probs(space: Space) -> Iterator[str]:
    """Yield faults of log-probabilities, and of a preference loss of their sums."""
    generator = torch.Generator().manual_seed(4)
    words = torch.randint(0, WORDS, (6, 5), generator=generator)
    words[:, :2] = -1
    reference = torch.randn(6, generator=generator)

    def preference(logps: torch.Tensor) -> torch.Tensor:
        sums = logps.sum(-1) - reference.to(logps.dtype)
        return -F.logsigmoid(0.1 * (sums[:3] - sums[3:])).mean()

    def eager(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        logits = F.linear(h.view(6, 5, WIDTH), w)
        logps = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
        chosen = logps.gather(-1, words.where(words >= 0, 0).unsqueeze(-1)).squeeze(-1)
        return preference(chosen.where(words >= 0, 0))

    def ours(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return preference(space.chosen_log_probs(h.view(6, 5, WIDTH), w, words, ignore_index=-1, rows=STRIP))

    for kind in (torch.float64, torch.float32, torch.bfloat16):
        yield from _faults(f"preference loss of {kind}", _drawn(kind, bias=False, rows=30), ours, eager)


def divergence(space: Space) -> Iterator[str]:
    """Yield faults of the KL divergence between two heads."""
    keep = torch.rand(ROWS, generator=torch.Generator().manual_seed(5)) < 0.7
    for kind, reduction, temperature, bias, masked in itertools.product(
        (torch.float64, torch.bfloat16), ("batchmean", "sum", "mean"), (1.0, 2.0), (False, True), (0, 1)
    ):
        if (bias or masked == (temperature == 1.0)) and reduction != "sum":
            continue
        inputs, teacher = _drawn(kind, bias=bias), _drawn(kind, bias=bias, seed=9)

        def eager(
            h: Any,
            w: Any,
            b: Any = None,
            given: Any = teacher,
            t: Any = temperature,
            how: Any = reduction,
            m: Any = masked,
        ) -> Any:
            other = F.linear(*(each.to(h.dtype) for each in given))
            logits = F.linear(h, w, b)
            ours, theirs = (
                ((z if z.dtype == torch.float64 else z.float()) / t).log_softmax(-1) for z in (logits, other)
            )
            ours, theirs = (ours[keep], theirs[keep]) if m else (ours, theirs)
            return F.kl_div(ours, theirs, reduction=how, log_target=True)

        def ours(
            h: Any,
            w: Any,
            b: Any = None,
            given: Any = teacher,
            t: Any = temperature,
            how: Any = reduction,
            m: Any = masked,
        ) -> Any:
            more = {"teacher_bias": given[2]} if b is not None else {}
            return space.linear_kl_div(
                h, w, given[0], given[1], b, keep=keep if m else None, temperature=t, reduction=how, rows=STRIP, **more
            )

        yield from _faults(f"divergence of {kind}, {temperature}, {reduction}, bias {bias}", inputs, ours, eager, 0.7)


def largest(space: Space) -> Iterator[str]:
    """Yield faults of the largest over tokens: ragged strips, masks, a document without tokens."""
    documents, tokens = 5, 19
    mask = (torch.rand(documents, tokens, generator=torch.Generator().manual_seed(6)) < 0.8).long()
    mask[1] = 0
    mask[2] = 0
    mask[2, -1] = 1
    for kind, bias in itertools.product((torch.float64, torch.float32), (True, False)):
        inputs = _drawn(kind, bias=bias, rows=documents * tokens)
        upstream = torch.rand(documents, WORDS, generator=torch.Generator().manual_seed(7)) - 0.3

        def eager(h: Any, w: Any, b: Any = None) -> Any:
            scores = F.linear(h.view(documents, tokens, WIDTH), w, b).relu().log1p()
            return (scores * mask.unsqueeze(-1)).max(1).values

        def ours(h: Any, w: Any, b: Any = None) -> Any:
            return space.vocabulary_max(h.view(documents, tokens, WIDTH), w, b, mask, documents=2)

        yield from _faults(f"largest of {kind}, bias {bias}", inputs, ours, eager, upstream)
    for kind in (torch.bfloat16, torch.float16):
        h, w, b = _drawn(kind, bias=True, rows=documents * tokens)
        scores = F.linear(h.float(), w.float(), b.float()).view(documents, tokens, WORDS).relu().log1p()
        wide = scores * mask.unsqueeze(-1)
        off = (space.vocabulary_max(h.view(documents, tokens, WIDTH), w, b, mask).float() - wide.amax(1)).abs().max()
        if off > 0.02:
            yield f"largest of {kind} is off by {off:.3g}"
        h[3, 0] = torch.nan
        if not space.vocabulary_max(h.view(documents, tokens, WIDTH), w, b, mask.clamp_min(1))[0].isnan().all():
            yield f"a NaN of {kind} is lost"
    yield from _long_documents(space)


def _long_documents(space: Space) -> Iterator[str]:
    """Yield faults of documents of more tokens than are multiplied at once: their parts' largest are joined."""
    inputs = _drawn(torch.float16, bias=True, rows=2 * 600)
    mask = (torch.rand(2, 600, generator=torch.Generator().manual_seed(8)) < 0.5).long()
    inputs[0].view(2, 600, WIDTH)[1] /= 4  # a document's largest are no other's
    found = []
    for work in (space.vocabulary_max, None):
        h, w, b = _leaves(inputs, torch.float16 if work else torch.float64)
        scores = F.linear(h.view(2, 600, WIDTH), w, b).relu().log1p() * mask.unsqueeze(-1)
        made = scores.amax(1) if work is None else work(h.view(2, 600, WIDTH), w, b, mask)
        made.sum().backward()
        with torch.no_grad():
            alone = made if work is None else work(h.view(2, 600, WIDTH), w, b, mask)
        found.append([made.detach().double(), alone.double(), h.grad.double(), w.grad.double()])
    names = ("largest", "largest without gradients", "gradient of hidden", "gradient of the weight")
    for name, ours, truth in zip(names, *found, strict=True):
        if (ours - truth).square().mean().sqrt() > 0.02 * truth.square().mean().sqrt():
            yield f"{name} of long documents is off by {(ours - truth).abs().max():.3g}"
    small, weight = (each / 1024 for each in inputs[:2])
    given = small.view(2, 600, WIDTH), weight, None, mask
    truth = (F.linear(given[0].double(), weight.double()).relu().log1p() * mask.unsqueeze(-1)).amax(1)
    if (space.vocabulary_max(*given).double() - truth).abs().max() > 3.5e-8:  # half of what float16 steps by
        yield "small logits are rounded by what is added to them"
