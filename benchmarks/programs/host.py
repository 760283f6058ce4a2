"""Programs whose host sets the pace: loops in Python, waits for the device, many small calls.

Each `make` takes `wrap`, which it applies to the function that its user would give to torch.compile.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.program import Program, Step, unchanged

# -- experts in a loop -------------------------------------------------------------------------------------------------


def expert_weights(experts: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    scale = width**-0.5
    up = torch.randn(experts, width, 2 * width, dtype=torch.bfloat16) * scale
    down = torch.randn(experts, 2 * width, width, dtype=torch.bfloat16) * scale
    return torch.randn(width, experts, dtype=torch.bfloat16) * scale, up, down


def experts_loop(wrap: Any = unchanged, layers: int = 4, experts: int = 16, width: int = 512) -> Step:
    """Route each token to two experts; a loop asks each expert which tokens are its own."""
    built = [expert_weights(experts, width) for _ in range(layers)]
    tokens = torch.randn(1024, width, dtype=torch.bfloat16)

    def forward(x: Tensor) -> Tensor:
        for gate, up, down in built:
            weights, chosen = torch.topk(torch.softmax(x @ gate, -1), 2, dim=-1)
            out = torch.zeros_like(x)
            for expert in range(experts):
                rows, slots = torch.where(chosen == expert)
                hidden = F.silu(x[rows] @ up[expert]) @ down[expert]
                out.index_add_(0, rows, hidden * weights[rows, slots, None])
            x = x + out
        return x

    function = wrap(forward)
    return lambda: function(tokens)


def experts_sorted(wrap: Any = unchanged, layers: int = 4, experts: int = 16, width: int = 512) -> Step:
    """The same with tokens sorted by expert and one grouped product for all."""
    built = [expert_weights(experts, width) for _ in range(layers)]
    tokens = torch.randn(1024, width, dtype=torch.bfloat16)

    def forward(x: Tensor) -> Tensor:
        for gate, up, down in built:
            weights, chosen = torch.topk(torch.softmax(x @ gate, -1), 2, dim=-1)
            order = torch.argsort(chosen.flatten(), stable=True)
            rows = order // 2
            ends = torch.bincount(chosen.flatten(), minlength=experts).cumsum(0).to(torch.int32)
            hidden = torch._grouped_mm(F.silu(torch._grouped_mm(x[rows], up, offs=ends)), down, offs=ends)
            out = torch.zeros_like(x).index_add_(0, rows, hidden * weights.flatten()[order, None])
            x = x + out
        return x

    function = wrap(forward)
    return lambda: function(tokens)


# -- selection in rounds -----------------------------------------------------------------------------------------------


def boxes_of(count: int) -> tuple[Tensor, Tensor]:
    corner = torch.rand(count, 2) * 900
    return torch.cat((corner, corner + 20 + torch.rand(count, 2) * 80), 1), torch.rand(count)


def overlap(box: Tensor, others: Tensor) -> Tensor:
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    return shared / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - shared)


def suppression(wrap: Any = unchanged, count: int = 400) -> Step:
    """Greedy suppression of boxes, one round a kept box."""
    boxes, scores = boxes_of(count)

    def select(boxes: Tensor, scores: Tensor) -> Tensor:
        left, kept = scores.argsort(descending=True), []
        while left.numel():
            best = left[0]
            kept.append(best)
            left = left[1:]
            left = left[overlap(boxes[best], boxes[left]) <= 0.3]
        return torch.stack(kept)

    function = wrap(select)
    return lambda: function(boxes, scores)


def suppression_by_library(wrap: Any = unchanged, count: int = 400) -> Step:
    from torchvision.ops import nms

    boxes, scores = boxes_of(count)
    function = wrap(lambda: nms(boxes, scores, 0.3))
    return lambda: function()


# -- a test in each round ----------------------------------------------------------------------------------------------


def power_iteration(wrap: Any = unchanged, every: int = 1) -> Step:
    """The largest eigenvalue, until it no longer moves; looked at in each round, or in each tenth."""
    matrix = torch.randn(512, 512)
    matrix = matrix @ matrix.T / 512

    def round_of(vector: Tensor) -> tuple[Tensor, Tensor]:
        product = matrix @ vector
        return product / product.norm(), torch.dot(vector, product)

    function = wrap(round_of)

    def step() -> Tensor:
        vector, before = matrix.new_ones(512), matrix.new_zeros(())
        for at in range(60):
            vector, value = function(vector)
            if at % every == every - 1 and (value - before).abs().item() < 1e-7:
                break
            before = value
        return value

    return step


def seldom_checked(wrap: Any = unchanged) -> Step:
    return power_iteration(wrap, every=10)


# -- a schedule that lives on the device -------------------------------------------------------------------------------


def sampler(wrap: Any = unchanged, on_host: bool = False, rounds: int = 20) -> Step:
    """A sampler of a diffusion model that asks its schedule, a tensor on the device, for one number a round."""
    net = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256)).requires_grad_(False)
    sigmas, start = torch.linspace(10.0, 0.1, rounds + 1), torch.randn(64, 256)
    numbers = sigmas.tolist()
    function = wrap(net)

    def step() -> Tensor:
        x = start
        for at in range(rounds):
            now, after = numbers[at : at + 2] if on_host else (sigmas[at].item(), sigmas[at + 1].item())
            slope = (x - function(x / math.sqrt(now * now + 1))) / now
            x = x + slope * (after - now)
        return x

    return step


def schedule_on_host(wrap: Any = unchanged) -> Step:
    return sampler(wrap, on_host=True)


# -- decoding ----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attend: Any) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(attend(self, q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Decoder(nn.Module):
    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8, words: int = 4096) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, token: Tensor, attend: Any) -> Tensor:
        x = self.embed(token)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(x[:, -1])


def decoder() -> Decoder:
    return Decoder().to(torch.bfloat16).requires_grad_(False)


def decode(wrap: Any = unchanged, tokens: int = 12) -> Step:
    """Greedy decoding: the cache grows by `cat`, and each token is asked for on the host."""
    model, prompt = decoder(), torch.randint(0, 4096, (4, 1))
    function = wrap(model)

    def step() -> Tensor:
        cache: dict[Any, tuple[Tensor, Tensor]] = {}

        def attend(block: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if block in cache:
                k, v = torch.cat((cache[block][0], k), 2), torch.cat((cache[block][1], v), 2)
            cache[block] = (k, v)
            return F.scaled_dot_product_attention(q, k, v)

        token, said = prompt, []
        for _ in range(tokens):
            token = function(token, attend).argmax(-1, keepdim=True)
            said.append(token)
            if (token == 4095).all().item():
                break
        return torch.cat(said, 1)

    return step


def decode_static(wrap: Any = unchanged, tokens: int = 12) -> Step:
    """The same with a cache of fixed size, one CUDA graph a token, and no question in between."""
    model, prompt = decoder(), torch.randint(0, 4096, (4, 1))
    heads, room = 8, 16
    cache = {block: torch.zeros(2, 4, heads, room, 64, dtype=torch.bfloat16) for block in model.blocks}
    at, token = torch.zeros(1, dtype=torch.long), prompt.clone()
    places = torch.arange(room)

    def attend(block: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache[block][0].index_copy_(2, at, k)
        cache[block][1].index_copy_(2, at, v)
        return F.scaled_dot_product_attention(q, cache[block][0], cache[block][1], attn_mask=(places <= at)[None])

    def one() -> None:
        token.copy_(model(token, attend).argmax(-1, keepdim=True))
        at.add_(1)

    replay = graph_of(one)

    def step() -> Tensor:
        token.copy_(prompt)
        at.zero_()
        said = []
        for _ in range(tokens):
            replay()
            said.append(token.clone())
        return torch.cat(said, 1)

    return step


def graph_of(step: Step) -> Step:
    """One CUDA graph of a step that has no arguments; without a GPU the step itself."""
    if not torch.cuda.is_available():
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    held.append(step)  # a graph does not keep what it reads

    def replay() -> Any:
        graph.replay()
        return out

    return replay


held: list[Step] = []


# -- small models ------------------------------------------------------------------------------------------------------


def encoder_small_batch(wrap: Any = unchanged) -> Step:
    """A text encoder on one short sentence: hundreds of small kernels, nothing else."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).to(torch.bfloat16).eval().requires_grad_(False)
    model.train()  # so that the fused inference path of the library stays out of it
    x, function = torch.randn(1, 32, 384, dtype=torch.bfloat16), wrap(model)
    return lambda: function(x)


def lstm_loop(wrap: Any = unchanged, steps: int = 48, size: int = 256) -> Step:
    """An LSTM written out, one time step after another."""
    inputs, weight_in, weight = lstm_weights(steps, size)

    def forward(inputs: Tensor) -> Tensor:
        hidden = cell = inputs.new_zeros(inputs.shape[0], size)
        outs = []
        for at in range(steps):
            i, f, g, o = (inputs[:, at] @ weight_in.T + hidden @ weight.T).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outs.append(hidden)
        return torch.stack(outs, 1)

    function = wrap(forward)
    return lambda: function(inputs)


def lstm_weights(steps: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(32, steps, size), torch.randn(4 * size, size) * 0.05, torch.randn(4 * size, size) * 0.05


def lstm_by_library(wrap: Any = unchanged, steps: int = 48, size: int = 256) -> Step:
    inputs, weight_in, weight = lstm_weights(steps, size)
    module = nn.LSTM(size, size, batch_first=True, bias=False).requires_grad_(False)
    module.weight_ih_l0.copy_(weight_in)
    module.weight_hh_l0.copy_(weight)
    function = wrap(module)
    return lambda: function(inputs)[0]


# -- training: what stands around the model ----------------------------------------------------------------------------


def perceptron(layers: int = 12, width: int = 512) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


def training(
    wrap: Any = unchanged, clip: str = "", logged: str = "", average: str = "", fused: bool | None = None
) -> Step:
    """A training step with what people put around it: clipping, logging, an average of weights."""
    model = perceptron()
    parameters = list(model.parameters())
    kept = [parameter.detach().clone() for parameter in parameters]
    options = {"foreach": False} if fused is None else {"fused": fused}
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **options)
    x, y = torch.randn(256, 512), torch.randn(256, 512)
    function, log = wrap(model), []

    def step() -> Tensor:
        optimizer.zero_grad()
        out = function(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        if clip == "loop":
            total = 0.0
            for parameter in parameters:
                total += parameter.grad.norm(2).item() ** 2
            if total**0.5 > 1.0:
                for parameter in parameters:
                    parameter.grad.mul_(1.0 / (total**0.5 + 1e-6))
        elif clip:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if logged == "once":  # the same numbers, read behind the loop and at once
            shown = [loss.detach(), out.detach().mean(), out.detach().abs().max()]
            log.append(torch.stack([*shown, *(parameter.grad.abs().mean() for parameter in parameters)]).tolist())
        elif logged:
            log.append({"loss": loss.item(), "out": out.mean().item(), "largest": out.abs().max().item()})
            log.append({name: parameter.grad.abs().mean().item() for name, parameter in model.named_parameters()})
        if average == "loop":
            with torch.no_grad():
                for old, new in zip(kept, parameters, strict=True):
                    old.mul_(0.999).add_(new, alpha=0.001)
        elif average:
            torch._foreach_lerp_(kept, [parameter.detach() for parameter in parameters], 0.001)
        return loss.detach()

    return step


def clip_in_loop(wrap: Any = unchanged) -> Step:
    return training(wrap, clip="loop", fused=True)


def clip_by_library(wrap: Any = unchanged) -> Step:
    return training(wrap, clip="library", fused=True)


def adamw_in_loop(wrap: Any = unchanged) -> Step:
    return training(wrap)


def adamw_fused(wrap: Any = unchanged) -> Step:
    return training(wrap, fused=True)


def logged_each_step(wrap: Any = unchanged) -> Step:
    return training(wrap, logged="each", fused=True)


def logged_at_once(wrap: Any = unchanged) -> Step:
    return training(wrap, logged="once", fused=True)


def not_logged(wrap: Any = unchanged) -> Step:
    return training(wrap, fused=True)


def average_in_loop(wrap: Any = unchanged) -> Step:
    return training(wrap, average="loop", fused=True)


def average_at_once(wrap: Any = unchanged) -> Step:
    return training(wrap, average="foreach", fused=True)


# -- data and measures -------------------------------------------------------------------------------------------------


def confusion_loop(wrap: Any = unchanged, classes: int = 12) -> Step:
    """A confusion matrix, a pair of classes at a time."""
    said, true = torch.randint(0, classes, (200_000,)), torch.randint(0, classes, (200_000,))

    def count(said: Tensor, true: Tensor) -> Tensor:
        matrix = torch.zeros(classes, classes, device=said.device)
        for row in range(classes):
            for column in range(classes):
                matrix[row, column] = ((true == row) & (said == column)).sum().item()
        return matrix

    function = wrap(count)
    return lambda: function(said, true)


def confusion_at_once(wrap: Any = unchanged, classes: int = 12) -> Step:
    said, true = torch.randint(0, classes, (200_000,)), torch.randint(0, classes, (200_000,))
    function = wrap(
        lambda said, true: torch.bincount(true * classes + said, minlength=classes**2).view(classes, classes).float()
    )
    return lambda: function(said, true)


def augment_each(wrap: Any = unchanged, count: int = 48) -> Step:
    """Pictures brightened, mirrored and normalised one by one on the device."""
    pictures, coin = torch.rand(count, 3, 96, 96), (torch.arange(count) % 2).tolist()
    gain = torch.rand(count)
    mean, deviation = torch.tensor([0.48, 0.45, 0.4])[:, None, None], torch.tensor([0.22, 0.22, 0.23])[:, None, None]

    def one(picture: Tensor, gain: Tensor) -> Tensor:
        picture = (picture * gain).clamp(0, 1)
        return (picture - mean) / deviation

    function = wrap(one)

    def step() -> Tensor:
        out = []
        for at in range(count):
            picture = function(pictures[at], gain[at])
            out.append(picture.flip(-1) if coin[at] else picture)
        return torch.stack(out)

    return step


def augment_batch(wrap: Any = unchanged, count: int = 48) -> Step:
    pictures, coin = torch.rand(count, 3, 96, 96), torch.arange(count) % 2 == 1
    gain = torch.rand(count)
    mean, deviation = torch.tensor([0.48, 0.45, 0.4])[:, None, None], torch.tensor([0.22, 0.22, 0.23])[:, None, None]

    def every(pictures: Tensor) -> Tensor:
        out = ((pictures * gain[:, None, None, None]).clamp(0, 1) - mean) / deviation
        return torch.where(coin[:, None, None, None], out.flip(-1), out)

    function = wrap(every)
    return lambda: function(pictures)


def preprocess_on_host(wrap: Any = unchanged, ahead: bool = False) -> Step:
    """Batches made on the main thread while the device waits; or by a thread ahead of time."""
    from concurrent.futures import ThreadPoolExecutor

    device = torch.get_default_device()
    with torch.device("cpu"):
        raw = [torch.rand(64, 3, 64, 64) for _ in range(4)]
    layers = [nn.Conv2d(3 if at == 0 else 64, 64, 3, padding=1) for at in range(8)]
    model = nn.Sequential(*layers).requires_grad_(False)
    function, turn = wrap(model), [0]

    def batch(at: int) -> Tensor:
        with torch.device("cpu"):
            pictures = raw[at % 4]
            pictures = (pictures - pictures.mean((2, 3), keepdim=True)) / pictures.std((2, 3), keepdim=True)
            return pictures.roll(3, -1).contiguous()

    pool = ThreadPoolExecutor(1)
    waiting = [pool.submit(batch, 0)]

    def step() -> Tensor:
        if ahead:
            pictures = waiting.pop().result()
            waiting.append(pool.submit(batch, 0))
        else:
            pictures = batch(0)
        turn[0] += 1
        return function(pictures.to(device))

    return step


def preprocess_ahead(wrap: Any = unchanged) -> Step:
    return preprocess_on_host(wrap, ahead=True)


WAITS, GAPS, LOADING = ("host_sync",), ("launch_gap", "tiny_kernels"), ("first_launch_late", "data_loading")
LOOPS, CELLS = ("python_loop",), ("recurrence_unfused",)

HOST = (
    Program("experts_loop", experts_loop, {"sorted": (WAITS, experts_sorted)}, tolerance=0.1),
    Program("suppression", suppression, {"library": (WAITS, suppression_by_library)}),
    Program("power_iteration", power_iteration, {"every_tenth": (WAITS, seldom_checked)}),
    Program("sampler", sampler, {"schedule_on_host": (WAITS, schedule_on_host)}),
    Program("decode", decode, {"static_cache_graph": ((*WAITS, *GAPS), decode_static)}, tolerance=2.0),
    Program("encoder_small_batch", encoder_small_batch, capturable=True),
    Program("lstm_loop", lstm_loop, {"library": (CELLS, lstm_by_library)}, capturable=True),
    Program(
        "clip_in_loop", clip_in_loop, {"library": (WAITS, clip_by_library)}, then_compiled=("library",), training=True
    ),
    Program("adamw_in_loop", adamw_in_loop, {"fused": (("optimizer_unfused",), adamw_fused)}, training=True),
    Program(
        "logged_each_step",
        logged_each_step,
        {"read_once": (WAITS, logged_at_once), "not_logged": ((), not_logged)},
        training=True,
    ),
    Program("average_in_loop", average_in_loop, {"foreach": (("parameter_loop",), average_at_once)}, training=True),
    Program("confusion_loop", confusion_loop, {"bincount": (WAITS, confusion_at_once)}),
    Program("augment_each", augment_each, {"batched": (LOOPS, augment_batch)}),
    Program("preprocess_on_host", preprocess_on_host, {"ahead": (LOADING, preprocess_ahead)}, then_compiled=("ahead",)),
)
