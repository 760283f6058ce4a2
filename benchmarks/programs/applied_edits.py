# ruff: noqa: E501 - text of sources as it is there
"""What a finding advises for a step of `steps/`, as changes of its source; and faults that are planted in one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STEPS = Path(__file__).resolve().parent / "steps"


@dataclass(frozen=True)
class Edit:
    """rules: whose findings advise it. changes: text before and after."""

    rules: Sequence[str]
    changes: Sequence[tuple[str, str]]


WAITS = ("host_sync",)
NORM = """        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)
"""
CACHE = (
    (
        "        pass\n",
        "        for name in ('keys', 'values'):\n"
        "            self.register_buffer(name, torch.zeros(ROWS, HEADS, TOKENS, WIDTH // HEADS))\n",
    ),
    (
        "        if past is not None:\n            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)\n"
        "        mixed = F.scaled_dot_product_attention(q, k, v)\n",
        "        self.keys.index_copy_(2, at, k)\n        self.values.index_copy_(2, at, v)\n"
        "        seen = (torch.arange(TOKENS, device=x.device) <= at)[None]\n"
        "        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)\n",
    ),
    ("* self.up(hidden)), (k, v)\n", "* self.up(hidden)), None\n"),
)
SORTED = """        order = torch.argsort(chosen.flatten(), stable=True)
        rows = order // 2
        ends = torch.bincount(chosen.flatten(), minlength=EXPERTS).cumsum(0).to(torch.int32)
        hidden = torch._grouped_mm(F.silu(torch._grouped_mm(x[rows], self.up, offs=ends)), self.down, offs=ends)
        return torch.zeros_like(x).index_add_(0, rows, hidden * weights.flatten()[order, None])
"""
EXPERT_LOOP = """        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            rows, slots = torch.where(chosen == expert)
            hidden = F.silu(x[rows] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, rows, hidden * weights[rows, slots, None])
        return out
"""
BACKWARDS = """        after = values[at + 1] if at + 1 < LENGTH else torch.zeros(PLAYERS, device=rewards.device)
        delta = rewards[at] + 0.99 * after * (1 - ends[at]) - values[at]
        last = delta + 0.99 * 0.95 * (1 - ends[at]) * last
"""
GRU = """        state = x.new_zeros(x.shape[0], WIDTH)
        for at in range(LENGTH):
            state = self.cell(x[:, at], state)
        return self.head(state)
"""
ATTENTION = """        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        mixed = torch.softmax(scores, -1) @ v
"""
LIBRARY_ATTENTION = "        mixed = F.scaled_dot_product_attention(q, k, v)\n"
AVERAGE = """            for old, new in zip(average, model.parameters(), strict=True):
                old.mul_(0.999).add_(new, alpha=0.001)
"""
SUPPRESSED = """        if not kept or overlaps(boxes[at : at + 1], boxes[kept]).max().item() <= 0.5:
"""
LONG_NORM = """        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
"""
LIBRARY_NORM = "        return F.rms_norm(x, (WIDTH,), self.weight, 1e-6)\n"
LONG_ATTENTION = """    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
"""
DEGREE = "        degree = torch.zeros(x.shape[0], device=x.device).index_add_(0, target, torch.ones_like(target, dtype=x.dtype))\n"

EDITS: Mapping[str, Mapping[str, Edit]] = {
    "generate": {
        "asked_seldom": Edit(WAITS, [("            if (token == END)", "            if at % 8 == 7 and (token == END)")]),
        "room_for_all": Edit(("cache_grown",), CACHE),
        "norm_by_library": Edit(("rmsnorm_unfused",), [(NORM, LIBRARY_NORM)]),
    },
    "amp_training": {
        "loss_on_device": Edit(
            WAITS,
            [
                ("        total = 0.0\n", "        total = torch.zeros((), device=DEVICE)\n"),
                ("total += loss.item()", "total += loss.detach()"),
            ],
        ),
        "attention_by_library": Edit(("attention_unfused",), [(ATTENTION, LIBRARY_ATTENTION)]),
    },
    "pictures_training": {
        "average_of_lists": Edit(
            ("parameter_loop",), [(AVERAGE, "            torch._foreach_lerp_(average, list(model.parameters()), 0.001)\n")]
        ),
        "accuracy_kept": Edit(WAITS, [(".float().mean().item())", ".float().mean())")]),
    },
    "sampler": {
        "levels_on_host": Edit(
            WAITS,
            [
                ("torch.linspace(3.0, 0.1, ROUNDS + 1, device=DEVICE)", "torch.linspace(3.0, 0.1, ROUNDS + 1).tolist()"),
                ("return sigmas[at].item()", "return sigmas[at]"),
            ],
        ),
        "one_pass": Edit(
            ("small_products_apart", "python_loop"),
            [
                (
                    "        bare = model(x, level, none)\n        meant = model(x, level, text)\n",
                    "        both = model(torch.cat((x, x)), torch.cat((level, level)), torch.cat((none, text)))\n"
                    "        bare, meant = both.chunk(2)\n",
                )
            ],
        ),
    },
    "recurrent": {
        "library": Edit(
            ("recurrence_unfused",),
            [
                (
                    GRU,
                    "        weights = [self.cell.weight_ih, self.cell.weight_hh, self.cell.bias_ih, self.cell.bias_hh]\n"
                    "        start = x.new_zeros(1, x.shape[0], WIDTH)\n"
                    "        _, state = torch.gru(x, start, weights, True, 1, 0.0, self.training, False, True)\n"
                    "        return self.head(state[0])\n",
                )
            ],
        ),
        "loss_kept": Edit(WAITS, [("return loss.item()", "return loss.detach()")]),
    },
    "policy": {
        "shown_later": Edit(
            WAITS,
            [
                (
                    '{"loss": loss.item(), "entropy": entropy.item(), "clipped": ((ratio - 1).abs() > 0.2).float().mean().item()}',
                    '{"loss": loss.detach(), "entropy": entropy.detach(), "clipped": ((ratio - 1).abs() > 0.2).float().mean()}',
                )
            ],
        ),
        "steps_prepared": Edit(
            ("python_loop",),
            [
                (
                    "    last = torch.zeros(PLAYERS, device=rewards.device)\n",
                    "    last = torch.zeros(PLAYERS, device=rewards.device)\n"
                    "    after = torch.cat((values[1:], values.new_zeros(1, PLAYERS)))\n"
                    "    deltas, stays = rewards + 0.99 * after * (1 - ends) - values, 0.99 * 0.95 * (1 - ends)\n",
                ),
                (BACKWARDS, "        last = torch.addcmul(deltas[at], stays[at], last)\n"),
            ],
        ),
    },
    "graph_network": {
        "degree_once": Edit(
            ("loop_invariant",),
            [
                ("    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:\n        own =",
                 "    def forward(self, x: Tensor, source: Tensor, target: Tensor, degree: Tensor) -> Tensor:\n        own ="),
                (DEGREE, ""),
                ("        for layer in self.layers:\n            x = layer(x, source, target)\n",
                 DEGREE + "        for layer in self.layers:\n            x = layer(x, source, target, degree)\n"),
            ],
        ),
        "products_on_nodes": Edit((), [("self.message(x[source])", "self.message(x)[source]")]),
    },
    "recommender": {
        "sparse": Edit(("embedding_gradient_dense",), [("nn.Embedding(ROWS, WIDTH)", "nn.Embedding(ROWS, WIDTH, sparse=True)")]),
        "loss_kept": Edit(WAITS, [("return loss.item()", "return loss.detach()")]),
    },
    "experts": {"sorted": Edit(("expert_sort", "host_sync", "python_loop"), [(EXPERT_LOOP, SORTED)])},
    "detections": {
        "overlaps_once": Edit(
            ("host_sync", "python_loop"),
            [
                ("    kept: list[int] = []\n", "    kept: list[int] = []\n    apart = (overlaps(boxes, boxes) <= 0.5).tolist()\n"),
                (SUPPRESSED, "        if all(apart[at][other] for other in kept):\n"),
            ],
        )
    },
    "preference": {
        "shown_later": Edit(
            WAITS,
            [
                (
                    '{"loss": loss.item(), "margin": margin.mean().item(), "right": (margin > 0).float().mean().item()}',
                    '{"loss": loss.detach(), "margin": margin.detach().mean(), "right": (margin > 0).float().mean()}',
                )
            ],
        ),
        "together": Edit(
            ("small_products_apart", "python_loop"),
            [("    return said(model, chosen), said(model, rejected)\n",
              "    first, second = said(model, torch.cat((chosen, rejected))).chunk(2)\n    return first, second\n")],
        ),
        "cross_entropy": Edit(
            ("logits_written", "memory_bound_chain"),
            [
                (
                    "    log_probabilities = torch.log_softmax(logits, -1)\n"
                    "    return log_probabilities.gather(2, words[:, 1:, None]).squeeze(2).sum(1)\n",
                    "    lost = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten(), reduction='none')\n"
                    "    return -lost.view(len(words), -1).sum(1)\n",
                )
            ],
        ),
    },
    "language_model": {
        "attention_by_library": Edit(
            ("attention_unfused",),
            [(LONG_ATTENTION, "    return F.scaled_dot_product_attention(q, k, v, is_causal=True)\n")],
        ),
        "norm_by_library": Edit(("rmsnorm_unfused",), [(LONG_NORM, LIBRARY_NORM)]),
    },
}  # fmt: skip

END = "        optimizer.step()\n"
RUN = "        out = Scaled.apply(model(batch))\n"
WILD = """import triton
import triton.language as tl


@triton.jit
def wild(place):
    tl.store(place + 1099511627776, 1.0)


def build() -> Any:
"""
FAULTS: Mapping[str, tuple[str, str, Sequence[tuple[str, str]]]] = {
    "wrong_kernel": (
        "wrong",
        "output",
        [("        return x * 2\n", "        return torch.cat((x[:-1] * 2, x[-1:]))\n")],
    ),
    "wrong_backward": ("wrong", "gradient", [("return gradient * 2", "return gradient * 2.002")]),
    "wrong_second_shape": ("wrong", "batch 1", [("model(batch))", "model(batch[:size(2048, 6)]))")]),
    "slower": ("slower", "", [(RUN, "        batch[: len(batch) * 3 // 4] @ model[0].weight\n" + RUN)]),
    "leaks": ("wrong", "leaks", [(RUN, "        held.append(torch.ones(1 << 20, device=DEVICE))\n" + RUN)]),
    "crashes": ("failed", "illegal", [("def build() -> Any:\n", WILD), (END, "        wild[(1,)](batch)\n" + END)]),
}
FAULTS_ON_CPU = {
    "slower": ("slower", "", [(RUN, "        import time; time.sleep(0.002)\n" + RUN)]),
    "crashes": ("failed", "SIGSEGV", [(RUN, "        import os; os.kill(os.getpid(), 11)\n" + RUN)]),
}
NOTHING = {f"nothing_{k}": [("held: list", f"unused_{k} = {k}\nheld: list")] for k in range(10)}


def diff_of(program: str, changes: Sequence[tuple[str, str]]) -> str:
    """Return a unified diff of a step's source. A text that is changed is there once."""
    old = (STEPS / f"{program}.py").read_text("utf-8")
    new = old
    for before, after in changes:
        if new.count(before) != 1:
            raise ValueError(f"{program}: {before!r} is there {new.count(before)} times")
        new = new.replace(before, after)
    name = f"{program}.py"
    lines = (text.splitlines(keepends=True) for text in (old, new))
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", n=1))
