"""Labelled programs that no detector was made with: written before what finds their kinds. Labels: `labels.py`.

Each was added whole, and none is to be looked at while a detector changes: `labelled.py score` counts them apart.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU()))).to(dtype)


# -- loops -------------------------------------------------------------------------------------------------------------


def class_prototypes(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, classes: int = 40, rows: int = 2000
) -> Built:
    """Few-shot classification: the mean of each class's examples, a class at a time, and the nearest of these."""
    width = 256
    encode = perceptron(width, 3, dtype)
    x, y = torch.randn(rows, width, dtype=dtype), torch.arange(rows) % classes
    asked = torch.randn(256, width, dtype=dtype)
    counts = torch.bincount(y, minlength=classes).to(dtype)

    def nearest(x: Tensor, asked: Tensor) -> Tensor:
        seen, wanted = encode(x), encode(asked)
        if fixed:
            means = torch.zeros(classes, width, dtype=x.dtype, device=x.device).index_add_(0, y, seen)
            means = means / counts[:, None]  # near: host_sync
        else:
            found = []
            for each in range(classes):  # cause: host_sync, main  # same: python_loop
                found.append(seen[y == each].mean(0))  # noqa: PERF401  # same: host_sync
            means = torch.stack(found)
        return torch.cdist(wanted.float(), means.float())

    function = wrap(nearest)
    return Built(lambda: function(x, asked))


def padded_clips(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, clips: int = 64, longest: int = 4000
) -> Built:
    """Clips of sound, tensors of their own, put into one padded batch one by one, and convolved."""
    lengths = [longest // 2 + 37 * at % (longest // 2) for at in range(clips)]
    sounds = [torch.randn(length, dtype=dtype) for length in lengths]
    joined, ends = torch.cat(sounds), torch.tensor(lengths)
    known = torch.arange(longest) < ends[:, None]
    layers = nn.Sequential(nn.Conv1d(1, 32, 16, 8), nn.GELU(), nn.Conv1d(32, 32, 8, 4), nn.GELU()).to(dtype)

    def hear(sounds: list[Tensor]) -> Tensor:
        batch = sounds[0].new_zeros(clips, longest)
        for at, sound in enumerate(sounds):  # cause: python_loop, main
            batch[at, : lengths[at]] = sound
        return layers(batch[:, None]).mean(2)

    def at_once(sounds: list[Tensor]) -> Tensor:
        batch = joined.new_zeros(clips, longest).masked_scatter_(known, joined)  # near: host_sync
        return layers(batch[:, None]).mean(2)

    function = wrap(at_once if fixed else hear)
    return Built(lambda: function(sounds))


def many_heads(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tasks: int = 48, rows: int = 512
) -> Built:
    """One body and a head a task: heads have one shape, and are called one after another."""
    width = 384
    body, heads = perceptron(width, 4, dtype), [nn.Linear(width, 16).to(dtype) for _ in range(tasks)]
    weight = torch.cat([head.weight for head in heads]).detach()
    bias = torch.cat([head.bias for head in heads]).detach()
    x = torch.randn(rows, width, dtype=dtype)

    def each(x: Tensor) -> Tensor:
        hidden = body(x)  # near: python_loop
        said = []
        for head in heads:  # cause: python_loop, main
            said.append(torch.softmax(head(hidden), -1))  # noqa: PERF401
        return torch.stack(said, 1)

    def together(x: Tensor) -> Tensor:
        return torch.softmax(F.linear(body(x), weight, bias).unflatten(1, (tasks, -1)), -1)

    function = wrap(together if fixed else each)
    return Built(lambda: function(x))


def noisy_gradients(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 40, width: int = 128
) -> Built:
    """Training with gradients that are shrunk and decayed a tensor at a time before the optimizer takes them."""
    model = perceptron(width, layers, dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    x, y = torch.randn(256, width, dtype=dtype), torch.randn(256, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(function(x), y)
        loss.backward()
        with torch.no_grad():
            gradients = [parameter.grad for parameter in parameters]
            if fixed:
                torch._foreach_mul_(gradients, 0.9)  # near: parameter_loop
                torch._foreach_add_(gradients, parameters, alpha=1e-3)
            else:
                for gradient, parameter in zip(gradients, parameters, strict=True):  # cause: parameter_loop, main
                    gradient.mul_(0.9)
                    gradient.add_(parameter, alpha=1e-3)
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


# -- waits -------------------------------------------------------------------------------------------------------------


def accuracy_each_part(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, parts: int = 6
) -> Built:
    """Training whose loss and accuracy are read part by part for a progress bar."""
    width = 512
    model, head = perceptron(width, 6, dtype), nn.Linear(width, 32).to(dtype)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y = torch.randn(parts, rows, width, dtype=dtype), torch.randint(0, 32, (parts, rows))
    function = wrap(lambda x: head(model(x)))

    def step() -> Tensor:
        right: Any = 0.0
        total: Any = 0.0
        for at in range(parts):
            said = function(x[at]).float()
            loss = F.cross_entropy(said, y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # near: optimizer_unfused
            hits = (said.argmax(1) == y[at]).float().mean()
            if fixed:
                right, total = right + hits, total + loss.detach()
            else:
                right += hits.item()  # cause: host_sync, main
                total += loss.item()  # same: host_sync
        return torch.stack((right, total)) if fixed else torch.tensor((right, total))

    return Built(step, parameters)


def distinct_items(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 512, items: int = 20_000
) -> Built:
    """Embeds what differs of the items of a batch, and hands it out again: a detour that costs a wait."""
    table, tower = torch.randn(items, 128, dtype=dtype) * 0.1, perceptron(128, 2, dtype)
    seen, weights = torch.randint(0, items, (rows, 20)), torch.softmax(torch.randn(rows, 20), 1).to(dtype)

    def embed(seen: Tensor) -> Tensor:
        if fixed:
            each = tower(table[seen])
        else:
            kept, place = torch.unique(seen, return_inverse=True)  # cause: host_sync, main
            each = tower(table[kept])[place]
        return (each * weights[..., None]).sum(1)

    function = wrap(embed)
    return Built(lambda: function(seen))


def shown_boxes(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 16, boxes: int = 3000
) -> Built:
    """A detector's boxes above a limit, a picture at a time; or as many of each as can be shown."""
    head, x = nn.Linear(256, 5).to(dtype), torch.randn(pictures, boxes, 256, dtype=dtype)
    most = 100

    def shown(x: Tensor) -> Tensor:
        said = head(x)
        scores, places = said[..., 4].sigmoid().float(), said[..., :4].float()
        limit = scores.topk(most, 1).values[:, -1:]
        if fixed:
            best = scores.topk(most, 1)
            kept = places.gather(1, best.indices[..., None].expand(-1, -1, 4))
            return (kept * best.values[..., None]).sum(1)
        found = []
        for score, place, least in zip(scores, places, limit, strict=True):  # cause: host_sync, main
            above = score >= least
            found.append((place[above] * score[above][:, None]).sum(0))  # same: host_sync
        return torch.stack(found)

    function = wrap(shown)
    return Built(lambda: function(x))


def scheduled_noise(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 64, rounds: int = 25
) -> Built:
    """A sampler that reads its schedule's numbers off the device in each round; or off lists made before."""
    width = 512
    model, start = perceptron(width, 5, dtype), torch.randn(rows, width, dtype=dtype)
    kept = torch.linspace(0.2, 0.99, rounds)
    numbers = kept.tolist()
    function = wrap(model)

    def step() -> Tensor:
        x = start
        for at in range(rounds):
            share = numbers[at] if fixed else float(kept[at])  # cause: host_sync, main
            guess = function(x)
            x = math.sqrt(share) * x - math.sqrt(1 - share) * guess
        return x

    return Built(step)


def mask_from_host(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 8, length: int = 1024
) -> Built:
    """Attention whose causal mask is made on the host in each step, and copied; or kept on the device."""
    width, heads = 512, 8
    device = torch.get_default_device()
    qkv, out = nn.Linear(width, 3 * width).to(dtype), nn.Linear(width, width).to(dtype)
    x = torch.randn(texts, length, width, dtype=dtype)
    kept = torch.ones(length, length, dtype=torch.bool).tril()

    def encode(x: Tensor) -> Tensor:
        if fixed:
            shown = kept
        else:
            with torch.device("cpu"):
                shown = torch.ones(length, length, dtype=torch.bool).tril()  # may: step_begins_late
            shown = shown.to(device)  # cause: pageable_copy, main
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=shown)  # near: attention_unfused
        return x + out(mixed.transpose(1, 2).flatten(2))

    function = wrap(encode)
    return Built(lambda: function(x))


# -- models ------------------------------------------------------------------------------------------------------------


def minimal_cell(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, length: int = 96
) -> Built:
    """A recurrent cell that no library has, both of its inputs' products made in each round."""
    width = 384
    into = [torch.randn(width, width, dtype=dtype) * width**-0.5 for _ in range(2)]
    over = [torch.randn(width, width, dtype=dtype) * width**-0.5 for _ in range(2)]
    x = torch.randn(texts, length, width, dtype=dtype)

    def encode(x: Tensor) -> Tensor:
        state = x.new_zeros(texts, width)
        gates, news = (x @ into[0], x @ into[1]) if fixed else (x, x)
        for at in range(length):  # may: recurrence_unfused
            gate, new = gates[:, at], news[:, at]
            if not fixed:
                gate = gate @ into[0]  # cause: input_projection_in_loop, main
                new = new @ into[1]  # same: input_projection_in_loop
            kept = torch.sigmoid(gate + state @ over[0])
            state = (1 - kept) * state + kept * torch.tanh(new + (kept * state) @ over[1])
        return state

    function = wrap(encode)
    return Built(lambda: function(x))


def both_directions(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 48, length: int = 40
) -> Built:
    """An LSTM's cell called once a position, forwards and then backwards."""
    width = 192
    library = nn.LSTM(width, width, batch_first=True, bidirectional=True).to(dtype)
    cells = [nn.LSTMCell(width, width).to(dtype) for _ in range(2)]
    with torch.no_grad():
        for mine, theirs in zip([p for c in cells for p in c.parameters()], library.parameters(), strict=True):
            mine.copy_(theirs)
    x = torch.randn(texts, length, width, dtype=dtype)

    def along(cell: nn.LSTMCell, x: Tensor, places: Any) -> list[Tensor]:
        state, said = (x.new_zeros(texts, width), x.new_zeros(texts, width)), []
        for at in places:  # cause: recurrence_unfused, main
            state = cell(x[:, at], state)  # cause: input_projection_in_loop
            said.append(state[0])
        return said

    def encode(x: Tensor) -> Tensor:
        if fixed:
            return library(x)[0]  # near: recurrence_unfused
        onwards = torch.stack(along(cells[0], x, range(length)), 1)
        back = torch.stack(along(cells[1], x, range(length - 1, -1, -1))[::-1], 1)
        return torch.cat((onwards, back), 2)

    function = wrap(encode)
    return Built(lambda: function(x))


def answered_words(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 16, length: int = 256
) -> Built:
    """Fine-tuning on answers: three quarters of the words are a prompt's, whose labels are left out of the loss."""
    width, words, prompt = 512, 30_000, 3 * length // 4
    body, head = perceptron(width, 4, dtype), nn.Linear(width, words, bias=False).to(dtype)
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, labels = torch.randn(texts, length, width, dtype=dtype), torch.randint(0, words, (texts, length))
    labels[:, :prompt] = -100

    def loss_of(x: Tensor) -> Tensor:
        hidden, y = (body(x)[:, prompt:], labels[:, prompt:]) if fixed else (body(x), labels)
        said = head(hidden).float().flatten(0, 1)  # cause: linear_cross_entropy, main, stays
        return F.cross_entropy(said, y.flatten())  # same: linear_cross_entropy

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()  # same: linear_cross_entropy
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def read_by_queries(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 24, length: int = 1024
) -> Built:
    """Learned queries that read long texts through attention spelled out, padding hidden by a mask."""
    width, heads, queries, layers = 512, 8, 128, 3
    q_of, kv_of = ([nn.Linear(width, n * width).to(dtype) for _ in range(layers)] for n in (1, 2))
    asked, x = torch.randn(texts, queries, width, dtype=dtype), torch.randn(texts, length, width, dtype=dtype)
    shown = torch.arange(length) < torch.tensor([length - 31 * at % 500 for at in range(texts)])[:, None, None, None]

    def read(asked: Tensor, x: Tensor) -> Tensor:
        for first, other in zip(q_of, kv_of, strict=True):  # near: python_loop
            q = first(asked).unflatten(-1, (heads, -1)).transpose(1, 2)
            k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in other(x).chunk(2, -1))
            if fixed:
                mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=shown)  # near: attention_unfused
            else:
                scores = (q @ k.transpose(-2, -1) / math.sqrt(width // heads)).masked_fill(~shown, -1e4)
                mixed = torch.softmax(scores.float(), -1).to(v.dtype) @ v  # cause: attention_unfused, main
            asked = asked + mixed.transpose(1, 2).flatten(2)
        return asked

    function = wrap(read)
    return Built(lambda: function(asked, x))


def user_table(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = torch.float32,
    users: int = 1_000_000,
    rows: int = 2048,
) -> Built:
    """A large table of users of which a step reads few rows, trained by plain SGD; a small table beside it."""
    width = 64
    table, days = nn.Embedding(users, width, sparse=fixed), nn.Embedding(7, width)
    tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1)).to(dtype)
    parameters = [*table.parameters(), *days.parameters(), *tower.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    who, day, y = torch.randint(0, users, (rows,)), torch.randint(0, 7, (rows,)), torch.rand(rows)

    def loss_of(who: Tensor) -> Tensor:
        when = days(day)  # near: embedding_gradient_dense
        said = tower(table(who) + when)  # cause: embedding_gradient_dense, main
        return F.binary_cross_entropy_with_logits(said.squeeze(1), y)  # near: linear_cross_entropy

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(who)
        loss.backward()  # same: embedding_gradient_dense
        optimizer.step()  # same: embedding_gradient_dense
        return loss.detach()

    return Built(step, parameters)


# -- nothing to be found -----------------------------------------------------------------------------------------------


def wide_training(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8192, width: int = 2048
) -> Built:
    """Training of wide layers, fused AdamW, nothing read."""
    model = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(width, width), nn.ReLU()))).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(rows, width, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()  # near: gradient_zeroing
        loss = F.mse_loss(function(x), y)  # near: linear_cross_entropy
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)  # near: parameter_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, list(model.parameters()))


def windows_at_once(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, length: int = 2048
) -> Built:
    """Windows of long texts through wide layers and the library's attention; sizes known, nothing read."""
    width, heads, window = 768, 12, 256
    qkv = [nn.Linear(width, 3 * width, bias=False).to(dtype) for _ in range(4)]
    x, shown = torch.randn(texts, length, width, dtype=dtype), torch.arange(length) < length - 9

    def encode(x: Tensor) -> Tensor:
        x = torch.where(shown[:, None], x, 0).unflatten(1, (-1, window)).flatten(0, 1)  # near: host_sync
        for layer in qkv:  # near: python_loop  # near: recurrence_unfused
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in layer(x).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)  # near: attention_unfused
        return x.unflatten(0, (texts, -1)).flatten(1, 2).mean(1)

    function = wrap(encode)
    return Built(lambda: function(x))


FRESH = (
    Labelled(class_prototypes, "fresh", {"classes": 4, "rows": 30}, Expected(WAITS, BREAKS, BREAKS)),
    Labelled(padded_clips, "fresh", {"clips": 5, "longest": 200}, tolerance=4e-2),
    Labelled(many_heads, "fresh", {"tasks": 5, "rows": 6}, tolerance=4e-2),
    Labelled(noisy_gradients, "fresh", {"layers": 3, "width": 16}, training=True, tolerance=5e-2),
    Labelled(accuracy_each_part, "fresh", {"rows": 6, "parts": 3}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(distinct_items, "fresh", {"rows": 6, "items": 50}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2),
    Labelled(shown_boxes, "fresh", {"pictures": 3, "boxes": 150}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2),
    Labelled(
        scheduled_noise,
        "fresh",
        {"rows": 4, "rounds": 5},
        Expected(WAITS, graphs="what it gave is kept"),
        tolerance=0.1,
    ),
    Labelled(
        mask_from_host,
        "fresh",
        {"texts": 1, "length": 12},
        Expected("copies from ordinary memory", graphs="a tensor on the host is among the inputs"),
        tolerance=4e-2,
    ),
    Labelled(minimal_cell, "fresh", {"texts": 2, "length": 8}, tolerance=6e-2),
    Labelled(both_directions, "fresh", {"texts": 2, "length": 6}, tolerance=6e-2),
    Labelled(answered_words, "fresh", {"texts": 2, "length": 8}, training=True, tolerance=5e-2),
    Labelled(read_by_queries, "fresh", {"texts": 2, "length": 40}, tolerance=6e-2),
    Labelled(user_table, "fresh", {"users": 300, "rows": 12}, training=True, tolerance=1e-4),
    Labelled(wide_training, "fresh", {"rows": 4, "width": 16}, training=True, tolerance=5e-2),
    Labelled(windows_at_once, "fresh", {"texts": 1, "length": 512}, tolerance=5e-2),
)
