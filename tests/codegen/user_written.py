"""Losses, optimizers, samplers, norms and quantisers as users write them: plain PyTorch, recorded call by call.

Each is a function of tensors. `recorded` runs it once on a CPU and keeps the ATen calls that eager makes, those of
autograd too, as a graph. A specification says what a tensor is: a letter for each axis (`n` rows, `k` columns, `h` half
as many columns), then `<k` for indices below k, `?` for truths, `!` for float32 whatever the others are. Those that
begin with `^` have gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tracemine.codegen import Graph, GraphBuilder

_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_NO_CALLS = ("detach", "alias", "lift_fresh")  # the same tensor
_PLACES = ("device", "layout", "pin_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One function: what it computes, its tensors, and what kind of code it is."""

    kind: str
    run: Callable[..., Any]
    tensors: dict[str, str]

    @property
    def learns(self) -> bool:
        """Whether it has gradients."""
        return any(spec.startswith("^") for spec in self.tensors.values())


USER_WRITTEN: dict[str, Written] = {}


def of(kind: str, **tensors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function to the table."""

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        USER_WRITTEN[run.__name__] = Written(kind=kind, run=run, tensors=tensors)
        return run

    return add


class _Calls(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    """Tells a builder of every call."""

    def __init__(self, builder: GraphBuilder, known: Sequence[tuple[torch.Tensor, Any]]) -> None:
        super().__init__()
        self.builder, self.known = builder, {id(t): (t, ref) for t, ref in known}

    def ref(self, value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            return [self.ref(v) for v in value]
        if isinstance(value, torch.Tensor):
            return self.known[id(value)][1]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return _FORMATS.get(value, value) if isinstance(value, torch.memory_format) else value

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        named = named or {}
        found = function(*given, **named)
        name = function.overloadpacket._qualified_op_name.replace("aten::", "")
        if name in _NO_CALLS:
            self.known[id(found)] = (found, self.ref(given[0]))
            return found
        overload = "" if function._overloadname == "default" else f".{function._overloadname}"
        plain = {key: self.ref(value) for key, value in named.items() if key not in _PLACES}
        made = self.builder.call(f"aten::{name}{overload}", *map(self.ref, given), **plain)
        refs = made if isinstance(made, tuple) else (made,)
        tensors = [t for t in (found if isinstance(found, list | tuple) else (found,)) if isinstance(t, torch.Tensor)]
        self.known |= {id(t): (t, ref) for t, ref in zip(tensors, refs, strict=False)}
        return found


def recorded(name: str, n: int, k: int, dtype: str = "float32", backward: bool = True) -> Graph:
    """A function of the table at a size, its gradients with it where it has some. Raises GraphError where a call is
    none that graphs know.
    """
    written = USER_WRITTEN[name]
    builder, known, generator = GraphBuilder(name[:32]), [], torch.Generator().manual_seed(0)
    sizes = {"n": n, "k": k, "h": k // 2, "4": 4, "1": 1}
    for tensor, spec in written.tensors.items():
        body = spec.lstrip("^")
        axes, _, bound = body.rstrip("?!").partition("<")
        shape, below = tuple(sizes[a] for a in axes), sizes[bound] if bound else None
        kind = "int64" if bound else "bool" if body.endswith("?") else "float32" if body.endswith("!") else dtype
        value = torch.rand(shape, generator=generator)
        made = (value * (below or 2)).to(getattr(torch, kind)) if kind != dtype else value.to(getattr(torch, dtype))
        made.requires_grad_(spec.startswith("^") and backward)
        known.append((made, builder.input(tensor, shape, kind, below=below)))
    with _Calls(builder, known) as calls:
        results = written.run(*(t for t, _ in known))
        results = tuple(results) if isinstance(results, list | tuple) else () if results is None else (results,)
        if written.learns and backward:
            results += torch.autograd.grad(results[0], [t for t, _ in known if t.requires_grad])
    live = dict.fromkeys(calls.known[id(t)][1].value for t in results)
    refs = {ref.value: ref for _, ref in calls.known.values()}
    return builder.done(*(refs[v] for v in live if v >= len(known)))


# Losses.


@of("loss", logits="^nk", actions="n<k", old_logp="n", rewards="n")
def policy_gradient(logits: Any, actions: Any, old_logp: Any, rewards: Any) -> Any:
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    logp = F.log_softmax(logits, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    ratio = torch.exp(logp - old_logp)
    return -torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages).mean()


@of("loss", logits="^4nk", actions="4n<k", old_logp="4n", rewards="4n", ref_logp="4n")
def grpo(logits: Any, actions: Any, old_logp: Any, rewards: Any, ref_logp: Any) -> Any:
    centred = rewards - rewards.mean(-1, keepdim=True)
    advantages = centred / (rewards.std(-1, keepdim=True) + 1e-4)
    logp = F.log_softmax(logits.float(), -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    ratio = torch.exp(logp - old_logp)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    gap = ref_logp - logp
    kl = torch.exp(gap) - gap - 1
    return (-torch.min(ratio * advantages, clipped * advantages) + 0.04 * kl).mean()


@of("loss", logits="^nk", actions="n<k", old_logp="n", advantages="n", values="^n", returns="n")
def ppo(logits: Any, actions: Any, old_logp: Any, advantages: Any, values: Any, returns: Any) -> Any:
    logp = F.log_softmax(logits, -1)
    chosen = logp.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    ratio = torch.exp(chosen - old_logp)
    surrogate = torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)
    entropy = -(logp.exp() * logp).sum(-1)
    return -surrogate.mean() + 0.5 * (values - returns).pow(2).mean() - 0.01 * entropy.mean()


@of("loss", logp="^nk", old_logp="nk", advantages="n", valid="nk")
def ppo_of_tokens(logp: Any, old_logp: Any, advantages: Any, valid: Any) -> Any:
    ratio = torch.exp(logp - old_logp)
    gain = advantages.unsqueeze(-1)
    loss = -torch.min(ratio * gain, torch.clamp(ratio, 0.8, 1.2) * gain)
    kept = (valid > 0).to(loss.dtype)
    return (loss * kept).sum() / kept.sum().clamp(min=1)


@of("loss", logp="^nk", old_logp="nk", rewards="n")
def reinforce_normalised(logp: Any, old_logp: Any, rewards: Any) -> Any:
    advantages = (rewards - rewards.mean()) / (rewards.std(unbiased=False) + 1e-8)
    weight = torch.clamp(torch.exp(logp.sum(-1) - old_logp.sum(-1)), max=2.0)
    return -(weight.detach() * logp.sum(-1) * advantages).mean()


@of("loss", logits="^nk", actions="n<k", returns="n")
def reinforce(logits: Any, actions: Any, returns: Any) -> Any:
    logp = F.log_softmax(logits, -1).gather(1, actions.unsqueeze(1)).squeeze(1)
    return -(logp * returns).mean()


@of("loss", logp="^n", ref_logp="n", old_logp="n", advantages="n")
def kl_penalised_policy(logp: Any, ref_logp: Any, old_logp: Any, advantages: Any) -> Any:
    ratio = (logp - old_logp).exp()
    kl = (ref_logp - logp).exp() - (ref_logp - logp) - 1
    return (-(ratio * advantages) + 0.1 * kl).mean()


@of("loss", chosen="^n", rejected="^n", ref_chosen="n", ref_rejected="n")
def dpo(chosen: Any, rejected: Any, ref_chosen: Any, ref_rejected: Any) -> Any:
    margin = (chosen - rejected) - (ref_chosen - ref_rejected)
    return F.softplus(-0.1 * margin).mean()


@of("loss", chosen="^n", rejected="^n", ref_chosen="n", ref_rejected="n")
def ipo(chosen: Any, rejected: Any, ref_chosen: Any, ref_rejected: Any) -> Any:
    margin = (chosen - rejected) - (ref_chosen - ref_rejected)
    return (margin - 1 / (2 * 0.1)).pow(2).mean()


@of("loss", logits="^nk", target="nk")
def focal(logits: Any, target: Any) -> Any:
    p = torch.sigmoid(logits)
    wanted = (target > 0).to(logits.dtype)
    ce = torch.clamp(logits, min=0) - logits * wanted + torch.log1p(torch.exp(-logits.abs()))
    p_t = p * wanted + (1 - p) * (1 - wanted)
    alpha = 0.25 * wanted + 0.75 * (1 - wanted)
    return (alpha * (1 - p_t) ** 2 * ce).mean()


@of("loss", logits="^nk", target="n<k")
def focal_softmax(logits: Any, target: Any) -> Any:
    logp = F.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (-((1 - logp.exp()) ** 2) * logp).mean()


@of("loss", logits="^nk", target="n<k")
def label_smoothing(logits: Any, target: Any) -> Any:
    logp = F.log_softmax(logits, dim=-1)
    nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (0.9 * nll + 0.1 * -logp.mean(-1)).mean()


@of("loss", logits="^nk", target="n<k")
def z_loss(logits: Any, target: Any) -> Any:
    total = torch.logsumexp(logits.float(), -1)
    chosen = logits.float().gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (total - chosen).mean() + 1e-4 * total.pow(2).mean()


@of("loss", sims="^nk", target="n<k")
def info_nce(sims: Any, target: Any) -> Any:
    scaled = sims / 0.07
    top = scaled.amax(-1, keepdim=True).detach()
    total = (scaled - top).exp().sum(-1).log() + top.squeeze(-1)
    return (total - scaled.gather(-1, target.unsqueeze(-1)).squeeze(-1)).mean()


@of("loss", sims="^nk", positives="nk?")
def supervised_contrastive(sims: Any, positives: Any) -> Any:
    logits = sims / 0.1
    logits = logits - logits.amax(1, keepdim=True).detach()
    logp = logits - torch.log(torch.exp(logits).sum(1, keepdim=True) + 1e-12)
    kept = positives.to(logp.dtype)
    return -((kept * logp).sum(1) / (kept.sum(1) + 1e-6)).mean()


@of("loss", sims="^nk", labels="nk")
def siglip(sims: Any, labels: Any) -> Any:
    sign = torch.where(labels > 0, 1.0, -1.0)
    return F.softplus(-(sign * (sims * 10.0 - 10.0))).sum() / sims.shape[0]


@of("loss", anchor="^nk", positive="^nk", negative="^nk")
def triplet(anchor: Any, positive: Any, negative: Any) -> Any:
    near = (anchor - positive).pow(2).sum(-1)
    far = (anchor - negative).pow(2).sum(-1)
    return F.relu(near - far + 0.2).mean()


@of("loss", anchor="^nk", positive="^nk", negative="^nk")
def triplet_of_roots(anchor: Any, positive: Any, negative: Any) -> Any:
    near = torch.sqrt((anchor - positive).pow(2).sum(-1) + 1e-6)
    far = torch.sqrt((anchor - negative).pow(2).sum(-1) + 1e-6)
    return F.relu(near - far + 1.0).mean()


@of("loss", a="^nk", b="^nk", alike="n")
def contrastive_pairs(a: Any, b: Any, alike: Any) -> Any:
    distance = torch.sqrt((a - b).pow(2).sum(-1) + 1e-9)
    same = (alike > 0).to(distance.dtype)
    return (same * distance.pow(2) + (1 - same) * F.relu(1.0 - distance).pow(2)).mean()


@of("loss", student="^nk", teacher="nk")
def distillation(student: Any, teacher: Any) -> Any:
    logp, logq = F.log_softmax(student / 2.0, -1), F.log_softmax(teacher / 2.0, -1)
    return (logq.exp() * (logq - logp)).sum(-1).mean() * 4.0


@of("loss", student="^nk", teacher="nk")
def reverse_distillation(student: Any, teacher: Any) -> Any:
    logp, logq = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    return (logp.exp() * (logp - logq)).sum(-1).mean()


@of("loss", student="^nk", teacher="nk")
def feature_distillation(student: Any, teacher: Any) -> Any:
    a = student / (student.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()
    b = teacher / (teacher.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()
    return (a - b).pow(2).sum(-1).mean()


@of("loss", x="^nk", y="nk")
def huber(x: Any, y: Any) -> Any:
    gap = (x - y).abs()
    return torch.where(gap < 1.0, 0.5 * gap * gap, gap - 0.5).mean()


@of("loss", x="^nk", y="nk")
def charbonnier(x: Any, y: Any) -> Any:
    return torch.sqrt((x - y) ** 2 + 1e-6).mean()


@of("loss", x="^nk", y="nk")
def log_cosh(x: Any, y: Any) -> Any:
    gap = x - y
    return (gap + F.softplus(-2.0 * gap) - math.log(2.0)).mean()


@of("loss", x="^nk", y="nk")
def quantile(x: Any, y: Any) -> Any:
    gap = y - x
    return torch.max(0.9 * gap, -0.1 * gap).mean()


@of("loss", x="^nk", y="nk")
def relative_squared(x: Any, y: Any) -> Any:
    return ((x - y).pow(2).sum(-1) / (y.pow(2).sum(-1) + 1e-5)).mean()


@of("loss", logits="^nk", target="nk")
def dice(logits: Any, target: Any) -> Any:
    p, wanted = torch.sigmoid(logits), (target > 0).to(logits.dtype)
    both, each = (p * wanted).sum(-1), p.sum(-1) + wanted.sum(-1)
    return (1 - (2 * both + 1.0) / (each + 1.0)).mean()


@of("loss", logits="^nk", target="nk")
def tversky(logits: Any, target: Any) -> Any:
    p, wanted = torch.sigmoid(logits), (target > 0).to(logits.dtype)
    hit = (p * wanted).sum(-1)
    missed, false = ((1 - p) * wanted).sum(-1), (p * (1 - wanted)).sum(-1)
    return (1 - (hit + 1) / (hit + 0.3 * false + 0.7 * missed + 1)).mean()


@of("loss", logits="^nk", target="nk")
def jaccard(logits: Any, target: Any) -> Any:
    p, wanted = torch.sigmoid(logits), (target > 0).to(logits.dtype)
    both = (p * wanted).sum(-1)
    return -torch.log((both + 1.0) / (p.sum(-1) + wanted.sum(-1) - both + 1.0)).mean()


@of("loss", logits="^nk", target="nk", weight="k")
def bce_with_logits(logits: Any, target: Any, weight: Any) -> Any:
    wanted = (target > 0).to(logits.dtype)
    loss = logits.clamp(min=0) - logits * wanted + torch.log1p(torch.exp(-logits.abs()))
    return (loss * weight).mean()


@of("loss", emit="^nk", stay="^nk", skip="^nk")
def ctc_step(emit: Any, stay: Any, skip: Any) -> Any:
    top = torch.maximum(stay, skip)
    alpha = emit + top + torch.log(torch.exp(stay - top) + torch.exp(skip - top))
    return -torch.logsumexp(alpha, -1).mean()


@of("loss", a="^nk", b="^nk")
def cosine(a: Any, b: Any) -> Any:
    norms = a.pow(2).sum(-1).sqrt() * b.pow(2).sum(-1).sqrt()
    return (1 - (a * b).sum(-1) / norms.clamp(min=1e-8)).mean()


@of("loss", scores="^nk", target="n<k")
def hinge(scores: Any, target: Any) -> Any:
    chosen = scores.gather(-1, target.unsqueeze(-1))
    return F.relu(scores - chosen + 1.0).sum(-1).mean()


@of("loss", mean="^nk", log_var="^nk")
def vae_kl(mean: Any, log_var: Any) -> Any:
    return -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1).mean()


@of("loss", mean="^nk", log_var="^nk", y="nk")
def gaussian_nll(mean: Any, log_var: Any, y: Any) -> Any:
    return 0.5 * (log_var + (y - mean).pow(2) * torch.exp(-log_var)).mean()


@of("loss", rate="^nk", y="nk")
def poisson_nll(rate: Any, y: Any) -> Any:
    return (rate.exp() - y * rate).mean()


@of("loss", logits="^nk")
def load_balance(logits: Any) -> Any:
    p = F.softmax(logits, -1)
    top = p.amax(-1, keepdim=True)
    share = (p >= top).to(p.dtype).mean(0)
    return (p.mean(0) * share).sum() * p.shape[-1]


@of("loss", logits="^nk")
def entropy_bonus(logits: Any) -> Any:
    logp = logits - torch.logsumexp(logits, -1, keepdim=True)
    return -(logp.exp() * logp).sum(-1).mean()


@of("loss", z="^nk")
def variance_and_mean(z: Any) -> Any:
    std = torch.sqrt(z.var(0) + 1e-4)
    return F.relu(1 - std).mean() + z.mean(0).pow(2).mean()


@of("loss", good="^n", bad="^n")
def bradley_terry(good: Any, bad: Any) -> Any:
    return F.softplus(-(good - bad)).mean() + 0.01 * (good + bad).pow(2).mean()


@of("loss", logits="^nk", soft="nk")
def soft_cross_entropy(logits: Any, soft: Any) -> Any:
    return -(F.softmax(soft, -1) * F.log_softmax(logits, -1)).sum(-1).mean()


@of("loss", values="^nk", old="nk", returns="nk")
def clipped_values(values: Any, old: Any, returns: Any) -> Any:
    clipped = old + (values - old).clamp(-0.2, 0.2)
    return 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()


# Optimizers, without gradients: in place.


@of("optimizer", p="nk", g="nk", m="nk!", v="nk!")
def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m.mul_(0.9).add_(g.float(), alpha=0.1)
    v.mul_(0.999).addcmul_(g.float(), g.float(), value=0.001)
    denominator = (v / 0.02).sqrt().add_(1e-8)
    p.addcdiv_(m / 0.19, denominator, value=-1e-3) if p.dtype == torch.float32 else p.copy_(
        p.float() - 1e-3 * (m / 0.19) / denominator
    )


@of("optimizer", p="nk!", g="nk", m="nk!", v="nk!")
def adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    p.mul_(1 - 1e-3 * 0.01)
    m.lerp_(g.float(), 0.1)
    v.mul_(0.95).addcmul_(g.float(), g.float(), value=0.05)
    p.addcdiv_(m, v.sqrt() / 0.3 + 1e-8, value=-1e-3)


@of("optimizer", p="nk", g="nk", m="nk")
def lion(p: Any, g: Any, m: Any) -> Any:
    update = (m * 0.9 + g * 0.1).sign()
    p.mul_(0.999).add_(update, alpha=-1e-4)
    m.mul_(0.99).add_(g, alpha=0.01)


@of("optimizer", p="nk!", g="nk!", buf="nk!")
def sgd_momentum(p: Any, g: Any, buf: Any) -> Any:
    d = g + 1e-4 * p
    buf.mul_(0.9).add_(d)
    p.add_(d + 0.9 * buf, alpha=-0.01)


@of("optimizer", p="nk!", g="nk!", v="nk!")
def rmsprop(p: Any, g: Any, v: Any) -> Any:
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(g, v.sqrt().add_(1e-8), value=-0.01)


@of("optimizer", p="nk!", g="nk!", total="nk!")
def adagrad(p: Any, g: Any, total: Any) -> Any:
    total.addcmul_(g, g, value=1.0)
    p.addcdiv_(g, total.sqrt().add_(1e-10), value=-0.01)


@of("optimizer", g="nk", by_row="n1!", by_column="1k!")
def adafactor(g: Any, by_row: Any, by_column: Any) -> Any:
    square = g.float() ** 2 + 1e-30
    row = by_row.abs() * 0.99 + square.mean(-1, keepdim=True) * 0.01
    column = by_column.abs() * 0.99 + square.mean(0, keepdim=True) * 0.01
    scale = (row / row.mean()).rsqrt() * column.rsqrt()
    update = g.float() * scale
    return update / (update.pow(2).mean().sqrt() / 1.0).clamp(min=1.0), row, column


@of("optimizer", p="nk!", u="nk!")
def lamb(p: Any, u: Any) -> Any:
    update = u + 0.01 * p
    size, step = p.pow(2).sum().sqrt(), update.pow(2).sum().sqrt()
    trust = torch.where((size > 0) & (step > 0), size / step, 1.0)
    return p - 1e-3 * trust * update


@of("optimizer", average="nk!", p="nk")
def ema(average: Any, p: Any) -> Any:
    average.mul_(0.999).add_(p.float(), alpha=0.001)


@of("optimizer", g="nk")
def clip_by_norm(g: Any) -> Any:
    norm = g.float().pow(2).sum().sqrt()
    return g * (1.0 / (norm + 1e-6)).clamp(max=1.0), norm


@of("optimizer", g="nk!")
def clip_by_rows(g: Any) -> Any:
    norm = g.pow(2).sum(-1, keepdim=True).sqrt()
    return g * torch.where(norm > 1.0, 1.0 / (norm + 1e-6), 1.0)


@of("optimizer", p="nk!", g="nk!")
def weight_decay(p: Any, g: Any) -> Any:
    p.sub_(0.01 * (g + 0.1 * p))


@of("optimizer", g="nk!", m="nk!")
def muon_momentum(g: Any, m: Any) -> Any:
    m.mul_(0.95).add_(g)
    update = g + 0.95 * m
    return update / (update.pow(2).sum().sqrt() + 1e-7)


@of("optimizer", p="nk!", g="nk!", m="nk!", u="nk!")
def adamax(p: Any, g: Any, m: Any, u: Any) -> Any:
    m.mul_(0.9).add_(g, alpha=0.1)
    u.copy_(torch.maximum(u.abs() * 0.999, g.abs() + 1e-8))
    p.sub_(0.002 * m / u)


# Samplers.


@of("sampler", logits="nk", floor="n1")
def temperature_and_top_k(logits: Any, floor: Any) -> Any:
    scaled = logits / 0.8
    return F.softmax(scaled.masked_fill(scaled < floor, -math.inf).float(), -1)


@of("sampler", logits="nk", counts="nk")
def repetition_penalty(logits: Any, counts: Any) -> Any:
    lowered = torch.where(logits > 0, logits / 1.2, logits * 1.2)
    return torch.where(counts > 0, lowered, logits)


@of("sampler", logits="nk", counts="nk", presence="n1", frequency="n1")
def penalties(logits: Any, counts: Any, presence: Any, frequency: Any) -> Any:
    seen = counts.clamp(min=0)
    return logits - frequency * seen - presence * (seen > 0)


@of("sampler", logits="nk")
def min_p(logits: Any) -> Any:
    p = F.softmax(logits.float(), -1)
    kept = p >= 0.05 * p.amax(-1, keepdim=True)
    q = torch.where(kept, p, 0.0)
    return q / q.sum(-1, keepdim=True)


@of("sampler", logits="nk", uniform="nk")
def gumbel(logits: Any, uniform: Any) -> Any:
    u = uniform.float().abs().clamp(1e-6, 1 - 1e-6)
    noise = -torch.log(-torch.log(u))
    return F.softmax((logits.float() + noise) / 0.7, -1)


@of("sampler", logits="nk")
def typical(logits: Any) -> Any:
    logp = F.log_softmax(logits.float(), -1)
    entropy = -(logp.exp() * logp).sum(-1, keepdim=True)
    return (-logp - entropy).abs()


@of("sampler", ordered="nk")
def nucleus(ordered: Any) -> Any:
    p = F.softmax(ordered.float(), -1)
    before = p.cumsum(-1) - p
    return p.masked_fill(before > 0.9, 0.0)


@of("sampler", logits="nk", other="nk")
def guidance(logits: Any, other: Any) -> Any:
    a, b = F.log_softmax(logits, -1), F.log_softmax(other, -1)
    return b + 1.5 * (a - b)


@of("sampler", logits="nk", draft="nk", uniform="n")
def speculative(logits: Any, draft: Any, uniform: Any) -> Any:
    p, q = F.softmax(logits.float(), -1), F.softmax(draft.float(), -1)
    left = (p - q).clamp(min=0)
    return left / left.sum(-1, keepdim=True).clamp(min=1e-9), (p / q.clamp(min=1e-9)).amin(-1) > uniform


@of("sampler", logits="nk", other="nk")
def contrastive_decoding(logits: Any, other: Any) -> Any:
    a, b = F.log_softmax(logits, -1), F.log_softmax(other, -1)
    return (a - b).masked_fill(a < a.amax(-1, keepdim=True) + math.log(0.1), -math.inf)


@of("sampler", logits="nk", tokens="n<k")
def logprob_and_entropy(logits: Any, tokens: Any) -> Any:
    logp = F.log_softmax(logits.float(), -1)
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1), -(logp.exp() * logp).sum(-1)


@of("sampler", logits="nk", bias="k")
def capped_and_biased(logits: Any, bias: Any) -> Any:
    return F.softmax(30.0 * torch.tanh((logits + bias) / 30.0), -1)


@of("sampler", logits="nk")
def eta_cutoff(logits: Any) -> Any:
    p = F.softmax(logits.float(), -1)
    entropy = -(p * torch.log(p + 1e-10)).sum(-1, keepdim=True)
    bound = torch.minimum(torch.full_like(entropy, 3e-4), 0.0173 * torch.exp(-entropy))
    return logits.masked_fill(p < bound, -math.inf)


# Norms, rotary embeddings, activations.


@of("norm", x="^nk", weight="^k")
def rms_norm_written(x: Any, weight: Any) -> Any:
    wide = x.float()
    return ((wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight).float().pow(2).mean()


@of("norm", x="nk", weight="k", bias="k")
def layer_norm_written(x: Any, weight: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


@of("norm", x="^nk", weight="^k")
def norm_with_gradient(x: Any, weight: Any) -> Any:
    return (F.layer_norm(x, (x.shape[-1],)) * weight).tanh().float().sum()


@of("norm", x="nk", scale="k", shift="k")
def instance_norm(x: Any, scale: Any, shift: Any) -> Any:
    variance, mean = torch.var_mean(x.float(), -1, keepdim=True, correction=0)
    return ((x.float() - mean) * torch.rsqrt(variance + 1e-5) * scale + shift).to(x.dtype)


@of("norm", x="nk", gate="nk", weight="k")
def gated_rms_norm(x: Any, gate: Any, weight: Any) -> Any:
    wide = x.float() * F.silu(gate.float())
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight).to(x.dtype)


@of("norm", x="nk")
def l2_normalised(x: Any) -> Any:
    return x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)


@of("norm", x="nk")
def standardised(x: Any) -> Any:
    return (x - x.mean()) / (x.std() + 1e-8)


@of("norm", w="nk", g="n1")
def weight_norm(w: Any, g: Any) -> Any:
    return w * (g / w.pow(2).sum(-1, keepdim=True).sqrt().add(1e-7))


@of("rotary", x="nk", cos="nk", sin="nk")
def rotary(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


@of("rotary", x="nk", angle="nh!")
def rotary_of_angles(x: Any, angle: Any) -> Any:
    a, b = x.float().chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


@of("rotary", x="^nk", cos="nk", sin="nk")
def rotary_and_gradient(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).float().pow(2).sum()


@of("activation", gate="^nk", up="^nk")
def swiglu_and_gradient(gate: Any, up: Any) -> Any:
    return (F.silu(gate) * up).float().sum()


@of("activation", x="nk", bias="k", residual="nk")
def bias_gelu_residual(x: Any, bias: Any, residual: Any) -> Any:
    return residual + F.gelu(x + bias, approximate="tanh")


@of("activation", x="^nk")
def mish_written(x: Any) -> Any:
    return (x * torch.tanh(F.softplus(x))).float().mean()


@of("activation", x="nk")
def gelu_written(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x.pow(3))))


@of("activation", x="nk", alpha="k", beta="k")
def snake(x: Any, alpha: Any, beta: Any) -> Any:
    return x + torch.sin(x * alpha) ** 2 / (beta.abs() + 1e-2)


@of("activation", x="nk", gate="nk")
def gated_relu_squared(x: Any, gate: Any) -> Any:
    return F.relu(x) ** 2 * torch.sigmoid(gate)


# Quantisation.


@of("quantisation", x="nk")
def int8_by_row(x: Any) -> Any:
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0
    return (x.float() / scale).round().clamp(-128, 127).to(torch.int8), scale


@of("quantisation", x="nk")
def fp8_by_row(x: Any) -> Any:
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


@of("quantisation", x="nk")
def fake_quantised(x: Any) -> Any:
    low, high = x.float().amin(-1, keepdim=True), x.float().amax(-1, keepdim=True)
    scale = ((high - low) / 15.0).clamp(min=1e-8)
    return ((x.float() - low) / scale).round().clamp(0, 15) * scale + low


@of("quantisation", w="^nk", scale="n1!")
def straight_through(w: Any, scale: Any) -> Any:
    step = scale.abs() + 0.01
    q = (w.float() / step).round().clamp(-8, 7) * step
    return (w.float() + (q - w.float()).detach()).pow(2).mean()


@of("quantisation", x="nk", smooth="k")
def smoothed_int8(x: Any, smooth: Any) -> Any:
    y = x.float() * (smooth.float().abs() + 0.1)
    scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0
    return (y / scale).round().clamp(-127, 127).to(torch.int8), scale


@of("quantisation", w="nk")
def ternary(w: Any) -> Any:
    scale = 1.0 / w.float().abs().mean().clamp(min=1e-5)
    return (w.float() * scale).round().clamp(-1, 1) / scale
