"""Labelled programs that no detector had been made with, after those of `labelled_fresh.py`. Labels: `labels.py`.

They were labelled before anything looked at them, recorded, and scored once; detectors have changed since.
`labelled.py score` counts them apart.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"
COPIES = "copies from ordinary memory"
FROM_HOST = "a tensor on the host is among the inputs"


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.SiLU()))).to(dtype)


# -- loops -------------------------------------------------------------------------------------------------------------


def beam_search(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 24, rounds: int = 8
) -> Built:
    """Beam search that chooses the next beams of one text after another."""
    width, words, beams = 256, 4000, 4
    table, body, head = torch.randn(words, width, dtype=dtype), perceptron(width, 2, dtype), nn.Linear(width, words)
    head, begin = head.to(dtype), torch.randn(texts, beams, width, dtype=dtype)

    def chosen(total: Tensor) -> tuple[Tensor, Tensor]:
        if fixed:
            found = total.flatten(1).topk(beams, 1)
            return found.values, found.indices
        values, places = [], []
        for each in total:  # cause: python_loop, main
            found = each.flatten().topk(beams)
            values.append(found.values)
            places.append(found.indices)
        return torch.stack(values), torch.stack(places)

    def search(state: Tensor) -> Tensor:
        scores = torch.zeros(texts, beams, device=state.device)
        for _ in range(rounds):  # may: recurrence_unfused
            said = F.log_softmax(head(body(state)).float(), -1)
            scores, places = chosen(scores[..., None] + said)
            beam, word = places // words, places % words
            state = state.gather(1, beam[..., None].expand(-1, -1, width)) + table[word]
        return scores

    function = wrap(search)
    return Built(lambda: function(begin))


def clipped_each(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, layers: int = 24, width: int = 384
) -> Built:
    """Gradients clipped as a whole, by norms that Python adds up."""
    model = perceptron(width, layers, dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y = torch.randn(256, width, dtype=dtype), torch.randn(256, width, dtype=dtype)
    function = wrap(model)

    def clip() -> None:
        if fixed:
            torch.nn.utils.clip_grad_norm_(parameters, 0.05, foreach=True)  # near: parameter_loop
            return
        total = 0.0
        for each in parameters:  # cause: host_sync, main  # same: parameter_loop
            total += each.grad.float().norm().item() ** 2  # same: host_sync
        if total**0.5 > 0.05:
            for each in parameters:  # cause: parameter_loop
                each.grad.mul_(0.05 / (total**0.5 + 1e-6))

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(function(x), y)
        loss.backward()
        clip()  # same: host_sync  # same: parameter_loop
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def bank_of_rows(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 96, size: int = 50_000
) -> Built:
    """A bank of features of which a step's rows are moved on, a row at a time; the loader knows the places."""
    width = 128
    encode = perceptron(width, 2, dtype)
    bank, x = torch.randn(size, width, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    places = [(7919 * at + 13) % size for at in range(rows)]
    known = torch.tensor(places)

    def step() -> Tensor:
        new = encode(x)
        if fixed:
            bank[known] = 0.9 * bank[known] + 0.1 * new
        else:
            for at, place in enumerate(places):  # cause: python_loop, main
                bank[place] = 0.9 * bank[place] + 0.1 * new[at]
        return (new @ bank[:1000].T).amax(1)  # near: host_sync

    return Built(wrap(step), [bank])


def trees(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, count: int = 16, depth: int = 5
) -> Built:
    """Binary trees read bottom up, a node at a time; or a level at a time."""
    width = 256
    join, leaves = nn.Linear(2 * width, width).to(dtype), torch.randn(count, 2**depth, width, dtype=dtype)

    def by_node(leaves: Tensor) -> Tensor:
        level = list(leaves.unbind(1))
        while len(level) > 1:  # cause: recurrence_unfused, main  # may: python_loop  # may: input_projection_in_loop
            level = [torch.tanh(join(torch.cat(pair, 1))) for pair in zip(level[::2], level[1::2], strict=True)]
        return level[0]

    def by_level(leaves: Tensor) -> Tensor:
        for _ in range(depth):  # near: python_loop
            leaves = torch.tanh(join(leaves.unflatten(1, (-1, 2)).flatten(2)))
        return leaves[:, 0]

    function = wrap(by_level if fixed else by_node)
    return Built(lambda: function(leaves))


def chosen_by_experts(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, tokens: int = 2048, experts: int = 32
) -> Built:
    """A mixture in which each expert takes the tokens that it likes best, as many as all others."""
    width, inner, each = 256, 256, max(tokens // experts, 1)
    router, x = nn.Linear(width, experts).to(dtype), torch.randn(tokens, width, dtype=dtype)
    up, down = (
        torch.randn(experts, width, inner, dtype=dtype) / 16,
        torch.randn(experts, inner, width, dtype=dtype) / 16,
    )

    def mixed(x: Tensor) -> Tensor:
        best = router(x).float().softmax(1).topk(each, 0)
        share, place = best.values.T.to(x.dtype), best.indices.T
        y = torch.zeros_like(x)
        if fixed:
            said = torch.bmm(F.silu(torch.bmm(x[place], up)), down) * share[..., None]
            return y.index_add_(0, place.flatten(), said.flatten(0, 1))
        for at in range(experts):  # cause: python_loop, main
            own = x[place[at]]
            y.index_add_(0, place[at], (F.silu(own @ up[at]) @ down[at]) * share[at, :, None])
        return y

    function = wrap(mixed)
    return Built(lambda: function(x))


def packed_texts(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, longest: int = 96
) -> Built:
    """Texts packed one behind the other, which attend within themselves, a text at a time; or padded, all at once."""
    width, heads = 256, 4
    lengths = [longest // 3 + 17 * at % (2 * longest // 3) for at in range(texts)]
    qkv, x = nn.Linear(width, 3 * width).to(dtype), torch.randn(sum(lengths), width, dtype=dtype)
    shown = torch.arange(longest) < torch.tensor(lengths)[:, None]
    (places,) = torch.nonzero(shown.flatten(), as_tuple=True)

    def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (each.unflatten(-1, (heads, -1)).transpose(-3, -2) for each in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(-3, -2).flatten(-2)

    def apart(x: Tensor) -> Tensor:
        found = []
        for part in qkv(x).split(lengths):  # cause: python_loop, main
            found.append(attended(*part[None].chunk(3, -1))[0])  # noqa: PERF401  # near: attention_unfused
        return torch.cat(found)

    def padded(x: Tensor) -> Tensor:
        wide = x.new_zeros(texts * longest, 3 * width).index_copy_(0, places, qkv(x)).unflatten(0, (texts, longest))
        mixed = attended(*wide.chunk(3, -1), shown[:, None, None, :])  # near: attention_unfused
        return mixed.flatten(0, 1)[places]  # near: host_sync

    function = wrap(padded if fixed else apart)
    return Built(lambda: function(x))


# -- waits -------------------------------------------------------------------------------------------------------------


def soft_suppression(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, boxes: int = 600, rounds: int = 40
) -> Built:
    """Soft suppression: the best box is taken, and what is near it gets worth less, again and again."""
    head, x = nn.Linear(128, 3).to(dtype), torch.randn(boxes, 128, dtype=dtype)

    def taken(x: Tensor) -> Tensor:
        said = head(x).float()
        places, scores, found = said[:, :2], said[:, 2].sigmoid(), []
        for _ in range(rounds):  # cause: host_sync, main  # may: recurrence_unfused
            if fixed:
                best = scores.argmax()[None]
                place = places.index_select(0, best)
                score = scores.index_select(0, best)
                scores = scores.index_fill(0, best, 0.0)
            else:
                at = int(scores.argmax())  # same: host_sync
                place, score = places[at : at + 1], scores[at : at + 1]
                scores = scores.clone()
                scores[at] = 0.0
            found.append(score)
            scores = scores * (1 - torch.exp(-(places - place).square().sum(1)))
        return torch.cat(found)

    function = wrap(taken)
    return Built(lambda: function(x))


def simulated_on_host(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, worlds: int = 64, length: int = 24
) -> Built:
    """Trajectories of a policy on the device through worlds on the host: actions go there, and states come back."""
    width, states = 256, 8
    into, body, out = nn.Linear(states, width).to(dtype), perceptron(width, 3, dtype), nn.Linear(width, 4).to(dtype)
    device = torch.get_default_device()
    moves = torch.randn(4, states) * 0.1
    start, moves_on_host = torch.randn(worlds, states), moves.cpu()
    start_on_host = start.cpu()
    function = wrap(lambda state: out(body(into(state.to(dtype)))).argmax(1))

    def step() -> Tensor:
        if fixed:
            state, rewards = start, []
            for _ in range(length):  # may: recurrence_unfused
                state = (0.9 * state + moves[function(state)]).clamp(-1, 1)
                rewards.append(state.sum(1))
            return torch.stack(rewards)
        state, rewards = start_on_host, []
        for _ in range(length):  # may: recurrence_unfused
            seen = state.to(device)  # same: host_sync
            action = function(seen).cpu()  # cause: host_sync, main
            state = (0.9 * state + moves_on_host[action]).clamp(-1, 1)  # may: step_begins_late
            rewards.append(state.sum(1))
        return torch.stack(rewards).to(device)  # same: host_sync

    return Built(step)


def metrics_each_step(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 512, width: int = 512
) -> Built:
    """Training that logs five numbers in every step, in the middle of it, each asked for by itself."""
    model, classes = perceptron(width, 6, dtype), 100
    head = nn.Linear(width, classes).to(dtype)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, y = torch.randn(rows, width, dtype=dtype), torch.randint(0, classes, (rows,))
    function = wrap(lambda x: head(model(x)).float())

    def metrics(said: Tensor, loss: Tensor) -> list[Tensor]:
        share = said.detach().softmax(1)
        best = share.max(1)
        right = (best.indices == y).float().mean()
        return [loss.detach(), right, best.values.mean(), -(share * share.log()).sum(1).mean(), said.detach().norm()]

    def step() -> Tensor:
        optimizer.zero_grad()
        said = function(x)
        loss = F.cross_entropy(said, y)
        told = metrics(said, loss)
        logged = torch.stack(told) if fixed else torch.tensor([each.item() for each in told])  # cause: host_sync, main
        loss.backward()
        optimizer.step()
        return logged

    return Built(step, parameters)


def unpinned_loader(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 64, side: int = 128
) -> Built:
    """Pictures that the step itself stacks and copies from ordinary memory; or batches stacked and pinned before."""
    device = torch.get_default_device()
    on_gpu = device.type == "cuda"
    with torch.device("cpu"):
        samples = [torch.randn(3, side, side) for _ in range(pictures)]
        ready = torch.stack(samples)
    ready = ready.pin_memory() if on_gpu else ready
    layers = nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.GELU(), nn.Conv2d(32, 64, 4, 4), nn.GELU()).to(dtype)
    function = wrap(layers)

    def step() -> Tensor:
        if fixed:
            batch = ready.to(device, non_blocking=True)  # near: pageable_copy
        else:
            stacked = torch.stack(samples)  # cause: step_begins_late, main
            batch = stacked.to(device)  # cause: pageable_copy
        return function(batch.to(dtype)).mean((2, 3))

    return Built(step)


def words_in_python(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, length: int = 200
) -> Built:
    """Texts cut into words and looked up in Python within the step."""
    width, words = 256, 5000
    table, body = torch.randn(words, width, dtype=dtype), perceptron(width, 3, dtype)
    number_of = {f"word{at}": at for at in range(words)}
    lines = [" ".join(f"Word{(31 * row + 7 * at * at) % words}" for at in range(length)) for row in range(texts)]
    device = torch.get_default_device()

    def numbers() -> list[list[int]]:
        return [[number_of[word.lower()] for word in line.split()] for line in lines]  # cause: step_begins_late, main

    kept = torch.tensor(numbers())
    function = wrap(lambda places: body(table[places].mean(1)))

    def step() -> Tensor:
        if fixed:
            return function(kept)
        found = numbers()  # same: step_begins_late
        places = torch.tensor(found, device=device)  # may: host_sync  # may: pageable_copy  # same: step_begins_late
        return function(places)

    return Built(step)


def answers_to_host(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, batches: int = 20
) -> Built:
    """An evaluation that takes the answers to each of its batches to the host; or those to all, once."""
    width = 512
    model, x = perceptron(width, 6, dtype), torch.randn(batches, rows, width, dtype=dtype)
    function = wrap(model)

    def step() -> Tensor:
        said = []
        for at in range(batches):  # same: host_sync  # may: python_loop
            each = function(x[at])[:, :64]
            said.append(each if fixed else each.cpu())  # cause: host_sync, main
        return torch.cat(said).float().cpu()  # near: pageable_copy  # may: host_sync

    return Built(step)


def batches_by_length(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, requests: int = 96, longest: int = 128
) -> Built:
    """Requests batched by length, groups found on the device; or all of them padded to the longest."""
    width, groups = 256, 8
    lengths = 1 + (37 * torch.arange(requests)) % longest
    x, body = torch.randn(requests, longest, width, dtype=dtype), perceptron(width, 2, dtype)

    def mean(x: Tensor, lengths: Tensor) -> Tensor:
        shown = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
        return torch.where(shown, body(x), 0).sum(1) / lengths[:, None].to(x.dtype)  # near: host_sync

    def serve(x: Tensor) -> Tensor:
        if fixed:
            return mean(x, lengths)
        y, each = x.new_zeros(requests, width), -(-longest // groups)
        for group in range(groups):  # same: host_sync  # same: python_loop
            own = (lengths - 1) // each == group
            if own.any():  # same: host_sync
                y[own] = mean(x[own, : (group + 1) * each], lengths[own])  # cause: host_sync, main
        return y

    function = wrap(serve)
    return Built(lambda: function(x))


def hard_examples(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 24, anchors: int = 2000
) -> Built:
    """A loss over each picture's hardest background, thrice its objects, which are counted in Python."""
    width = 128
    head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)).to(dtype)
    parameters = list(head.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x = torch.randn(pictures, anchors, width, dtype=dtype)
    objects = (torch.arange(anchors) % 97 < 1 + torch.arange(pictures)[:, None] % 5).float()

    def loss_of(x: Tensor) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(head(x)[..., 0].float(), objects, reduction="none")
        background = losses * (1 - objects)
        if fixed:
            ordered = background.sort(1, descending=True).values
            hard = ordered * (torch.arange(anchors, device=x.device) < 3 * objects.sum(1, keepdim=True))
            return (hard.sum(1) + (losses * objects).sum(1)).mean()
        total = []
        for at in range(pictures):  # cause: host_sync, main  # same: python_loop
            count = int(objects[at].sum())  # same: host_sync
            hard = background[at].topk(3 * count).values
            total.append(hard.sum() + (losses[at] * objects[at]).sum())
        return torch.stack(total).mean()

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()  # same: python_loop
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


# -- models ------------------------------------------------------------------------------------------------------------


def spiking_layers(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, length: int = 64
) -> Built:
    """Neurons that leak and fire, whose inputs are weighed in each time step though all are there."""
    width = 512
    weigh, x = nn.Linear(width, width).to(dtype), torch.randn(length, rows, width, dtype=dtype)

    def fire(x: Tensor) -> Tensor:
        charge, fired = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        inputs = weigh(x) if fixed else x
        for at in range(length):  # may: recurrence_unfused
            given = inputs[at] if fixed else weigh(x[at])  # cause: input_projection_in_loop, main
            charge = 0.9 * charge + given
            spike = torch.sigmoid(8 * (charge - 1))
            charge = charge * (1 - spike)
            fired = fired + spike
        return fired

    function = wrap(fire)
    return Built(lambda: function(x))


def taught_in_float32(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, width: int = 1536
) -> Built:
    """Distillation: a small student in 16 bits, whose teacher answers in 32."""
    teacher = perceptron(width, 6, dtype if fixed else torch.float32)
    student = nn.Sequential(nn.Linear(width, 256), nn.SiLU(), nn.Linear(256, width)).to(dtype)
    parameters = list(student.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x = torch.randn(rows, width, dtype=dtype)

    def loss_of(x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = teacher(x if fixed else x.float())  # cause: float32_inference, main
        return F.mse_loss(student(x).float(), wanted.float())  # near: linear_cross_entropy

    function = wrap(loss_of)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(step, parameters)


# -- nothing to be found -----------------------------------------------------------------------------------------------


def pictures_in_training(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, pictures: int = 128, side: int = 64
) -> Built:
    """Convolutions in the order of memory that they want, an optimizer over lists, the loss kept on the device."""
    wide = [nn.Conv2d(128, 128, 3, padding=1) for _ in range(8)]
    model = nn.Sequential(*(part for each in wide for part in (each, nn.ReLU()))).to(dtype)
    model = model.to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    x = torch.randn(pictures, 128, side, side, dtype=dtype).to(memory_format=torch.channels_last)
    total, function = torch.zeros(()), wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()  # near: gradient_zeroing
        loss = function(x).float().square().mean()
        loss.backward()
        optimizer.step()  # near: optimizer_unfused
        total.add_(loss.detach())  # near: host_sync
        return total.clone()

    return Built(step, parameters)


def looped_but_wide(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16_384, width: int = 2048
) -> Built:
    """Rounds that refine one state by wide layers, numbers of the schedule in Python, one answer fetched behind all."""
    model = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)).to(dtype)
    x, schedule = torch.randn(rows, width, dtype=dtype), [0.9**at for at in range(12)]
    function = wrap(model)

    def step() -> Tensor:
        state = x
        for share in schedule:  # near: recurrence_unfused  # near: python_loop  # near: host_sync
            state = share * state + (1 - share) * function(state)
        return state[:16].float()

    return Built(step)


UNSEEN = (
    Labelled(beam_search, "unseen", {"texts": 3, "rounds": 3}, tolerance=4e-2),
    Labelled(clipped_each, "unseen", {"layers": 3, "width": 16}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(bank_of_rows, "unseen", {"rows": 6, "size": 1200}, tolerance=4e-2),
    Labelled(trees, "unseen", {"count": 2, "depth": 3}, tolerance=4e-2),
    Labelled(chosen_by_experts, "unseen", {"tokens": 24, "experts": 4}, tolerance=5e-2),
    Labelled(packed_texts, "unseen", {"texts": 3, "longest": 12}, tolerance=4e-2),
    Labelled(soft_suppression, "unseen", {"boxes": 30, "rounds": 4}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2),
    Labelled(simulated_on_host, "unseen", {"worlds": 3, "length": 3}, Expected(WAITS, graphs=FROM_HOST)),
    Labelled(metrics_each_step, "unseen", {"rows": 8, "width": 16}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(unpinned_loader, "unseen", {"pictures": 2, "side": 32}, Expected(COPIES), tolerance=4e-2),
    Labelled(words_in_python, "unseen", {"texts": 3, "length": 5}, Expected(COPIES), tolerance=4e-2),
    Labelled(answers_to_host, "unseen", {"rows": 4, "batches": 3}, Expected(WAITS), tolerance=4e-2),
    Labelled(
        batches_by_length, "unseen", {"requests": 12, "longest": 16}, Expected(WAITS, BREAKS, BREAKS), tolerance=4e-2
    ),
    Labelled(
        hard_examples,
        "unseen",
        {"pictures": 3, "anchors": 100},
        Expected(WAITS, BREAKS, BREAKS),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(spiking_layers, "unseen", {"rows": 3, "length": 5}, tolerance=6e-2),
    Labelled(taught_in_float32, "unseen", {"rows": 5, "width": 16}, training=True, tolerance=5e-2),
    Labelled(pictures_in_training, "unseen", {"pictures": 2, "side": 8}, training=True, tolerance=5e-2),
    Labelled(looped_but_wide, "unseen", {"rows": 8, "width": 16}, tolerance=5e-2),
)
