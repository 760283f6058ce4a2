"""Labelled programs whose host waits for the device, or the device for the host. Labels: `labels.py`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
KEPT = "what it gave is kept over its next call"
WAITS = "asks the device for a number"
BREAKS = "what follows depends on a number that the device has"


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))).to(dtype)


def loss_of_each_part(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 512, width: int = 512
) -> Built:
    """Gradients gathered over eight parts of a batch, the loss added up in Python."""
    model = perceptron(width, 8, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=True)
    x, y = torch.randn(8, rows, width, dtype=dtype), torch.randn(8, rows, width, dtype=dtype)
    function, seen = wrap(model), []

    def step() -> Tensor:
        optimizer.zero_grad()
        total: Any = 0.0
        for at in range(8):
            loss = F.mse_loss(function(x[at]), y[at]) / 8
            loss.backward()
            if fixed:
                total = total + loss.detach()
            else:
                total += loss.item()  # cause: host_sync, main
        optimizer.step()
        seen.append(total.item() if fixed else total)  # near: host_sync
        return torch.tensor(seen[-1])

    return Built(step, list(model.parameters()))


def guarded_loss(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    """Training that stops where a loss is no number: asked in front of each backward, or one step later."""
    model = perceptron(width, 12, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=True)
    x, y = torch.randn(rows, width, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    on_gpu = torch.get_default_device().type == "cuda"
    flag, event = torch.zeros((), dtype=torch.bool, device="cpu", pin_memory=on_gpu), [None]
    function = wrap(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(function(x), y)
        bad = ~torch.isfinite(loss)
        if fixed:
            if event[0] is not None:
                event[0].synchronize()  # near: host_sync
            if flag:
                raise FloatingPointError
            flag.copy_(bad, non_blocking=True)  # near: pageable_copy
            event[0] = torch.cuda.current_stream().record_event() if on_gpu else None
        elif bad:  # cause: host_sync, main
            raise FloatingPointError
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, list(model.parameters()))


def masked_words(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 32, length: int = 256
) -> Built:
    """A loss over the words that were hidden, picked by a mask; or by places that the collator knew."""
    width, words, hidden = 512, 6000, max(length // 8, 1)
    body, head = nn.Sequential(nn.Linear(width, width), nn.GELU()).to(dtype), nn.Linear(width, words).to(dtype)
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, foreach=True)
    x, labels = torch.randn(texts, length, width, dtype=dtype), torch.randint(0, words, (texts, length))
    places = torch.stack([torch.randperm(length)[:hidden].sort().values for _ in range(texts)])
    mask = torch.zeros(texts, length, dtype=torch.bool).scatter_(1, places, True)
    flat = (torch.arange(texts)[:, None] * length + places).flatten()

    def by_mask(x: Tensor) -> Tensor:
        said = body(x)[mask]  # cause: host_sync, main
        return F.cross_entropy(head(said).float(), labels[mask])  # cause: host_sync

    def by_place(x: Tensor) -> Tensor:
        said = body(x).flatten(0, 1)[flat]  # near: host_sync
        return F.cross_entropy(head(said).float(), labels.flatten()[flat])  # near: linear_cross_entropy

    function = wrap(by_place if fixed else by_mask)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, parameters)


def pageable_features(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, width: int = 1024
) -> Built:
    """Features of each batch come from ordinary memory; a small mask beside them from pinned memory."""
    device = torch.get_default_device()
    on_gpu = device.type == "cuda"
    with torch.device("cpu"):
        features, weights = torch.randn(rows, width), torch.rand(rows)
    weights = weights.pin_memory() if on_gpu else weights
    features = features.pin_memory() if fixed and on_gpu else features
    model = perceptron(width, 4, dtype)
    function = wrap(model)

    def step() -> Tensor:
        small = weights.to(device, non_blocking=True)  # near: pageable_copy
        x = features.to(device, non_blocking=fixed)  # cause: pageable_copy, main
        return (function(x.to(dtype)) * small[:, None].to(dtype)).sum(1)

    return Built(step)


def longest_text(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, texts: int = 64, longest: int = 200
) -> Built:
    """A batch cut to its longest text, whose length is asked of the device; the loader knew it."""
    lengths = [1 + 13 * at % (3 * longest // 4) for at in range(texts)]
    on_device, reach = torch.tensor(lengths), max(lengths)
    words, table = torch.randint(0, 8000, (texts, longest)), torch.randn(8000, 256, dtype=dtype) * 0.1
    layers = [nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(dtype) for _ in range(6)]

    def encode(words: Tensor, lengths: Tensor) -> Tensor:
        cut = reach if fixed else int(lengths.max())  # cause: host_sync, main
        x = table[words[:, :cut]]
        for layer in layers:  # near: python_loop
            x = x + layer(x)
        known = torch.arange(cut, device=x.device) < lengths[:, None]
        return torch.where(known[..., None], x, 0).sum(1)

    function = wrap(encode)
    return Built(lambda: function(words, on_device))


def anchors_made(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch: int = 8, side: int = 80
) -> Built:
    """A detector's boxes decoded with strides and anchors that become tensors anew for each level, in each step."""
    device = torch.get_default_device()
    anchors = {
        8: [[10, 13], [16, 30], [33, 23]],
        16: [[30, 61], [62, 45], [59, 119]],
        32: [[116, 90], [156, 198], [373, 326]],
    }
    heads = [nn.Conv2d(64, 18, 1).to(dtype) for _ in anchors]
    maps = [torch.randn(batch, 64, side * 8 // stride, side * 8 // stride, dtype=dtype) for stride in anchors]
    kept = {stride: (torch.tensor(sizes), torch.tensor(stride)) for stride, sizes in anchors.items()}

    def decode(maps: list[Tensor]) -> Tensor:
        found = []
        for (stride, sizes), head, level in zip(anchors.items(), heads, maps, strict=True):
            raw = head(level).unflatten(1, (3, 6)).permute(0, 1, 3, 4, 2).sigmoid()
            if fixed:
                size, scale = kept[stride]
            else:
                size = torch.tensor(sizes).to(device)  # cause: pageable_copy, main
                scale = torch.tensor(stride).to(device)  # cause: pageable_copy
            rows, columns = (torch.arange(n, device=raw.device) for n in raw.shape[2:4])
            grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)
            centre = (raw[..., :2] * 2 - 0.5 + grid) * scale
            extent = (raw[..., 2:4] * 2) ** 2 * size[:, None, None]
            found.append(torch.cat((centre, extent, raw[..., 4:]), -1).flatten(1, 3))
        return torch.cat(found, 1)

    function = wrap(decode)
    return Built(lambda: function(maps))


def decode_until(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16, longest: int = 48
) -> Built:
    """Greedy decoding by a recurrent model: after each word all rows are asked whether they have ended."""
    words, width, stop = 4000, 512, 4000
    table, cell = torch.randn(words, width, dtype=dtype) * 0.5, nn.GRUCell(width, width).to(dtype)
    head = nn.Linear(width, words).to(dtype)
    start, nothing = torch.zeros(rows, dtype=torch.long), torch.zeros(rows, width, dtype=dtype)

    def one(word: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = cell(table[word], state)  # near: input_projection_in_loop
        return head(state).argmax(-1), state

    function = wrap(one)

    def step() -> Tensor:
        word, state, said = start, nothing, []
        for at in range(longest):  # near: recurrence_unfused
            word, state = function(word, state)
            said.append(word)
            if fixed and at % 16 < 15:
                continue
            if (word == stop).all():  # cause: host_sync, main, stays
                break
        return torch.stack(said, 1)

    return Built(step)


def features_on_host(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 8192, width: int = 128
) -> Built:
    """Raw columns become features on the host while the device has nothing to do; or one batch ahead, by a thread."""
    device = torch.get_default_device()
    on_gpu = device.type == "cuda"
    with torch.device("cpu"):
        raw = torch.rand(rows, width) * 1000
    model = perceptron(2 * width, 6, dtype)
    function = wrap(model)

    def features() -> Tensor:
        logs = torch.log1p(raw)
        scaled = (logs - logs.mean(0)) / (logs.std(0) + 1e-6)
        ranks = raw.argsort(0).argsort(0).float() / rows
        both = torch.cat((scaled, ranks), 1).to(dtype)
        return both.pin_memory() if fixed and on_gpu else both

    pool = ThreadPoolExecutor(1)
    ahead = [pool.submit(features)]

    def step() -> Tensor:
        if fixed:
            batch = ahead.pop().result()  # may: step_begins_late
            ahead.append(pool.submit(features))
        else:
            batch = features()  # cause: step_begins_late, main
        x = batch.to(device, non_blocking=fixed)  # cause: pageable_copy
        return function(x).sum(1)

    return Built(step)


def evaluated_each(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, batches: int = 8
) -> Built:
    """Evaluation: what each batch gave is copied to the host and counted there."""
    model, head = perceptron(512, 6, dtype), nn.Linear(512, 100).to(dtype)
    x, y = torch.randn(batches, rows, 512, dtype=dtype), torch.randint(0, 100, (batches, rows))
    function = wrap(lambda x: head(model(x)))

    def step() -> Tensor:
        right, said = torch.zeros((), dtype=torch.long, device=x.device), []
        hits = 0
        for at in range(batches):  # may: python_loop
            best = function(x[at]).argmax(-1)
            if fixed:
                right += (best == y[at]).sum()
                said.append(best)
            else:
                hits += int((best == y[at]).sum())  # cause: host_sync, main
                said.append(best.cpu())  # cause: host_sync
        every = torch.cat(said).cpu()  # near: host_sync
        return torch.cat((every, torch.tensor([int(right) if fixed else hits])))

    return Built(step)


def codebook(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 4096, codes: int = 512
) -> Built:
    """Vector quantisation: codes that nothing chose are looked for, and set anew if there are any."""
    width, decay = 64, 0.9
    book, usage = torch.randn(codes, width, dtype=dtype), torch.ones(codes)
    x = torch.randn(rows, width, dtype=dtype)
    spare = x[torch.arange(codes) % rows]

    def assign(x: Tensor) -> Tensor:
        distances = (book**2).sum(1) - 2 * x @ book.T
        chosen = distances.argmin(1)
        counts = torch.zeros_like(usage).index_add_(0, chosen, torch.ones_like(chosen, dtype=usage.dtype))
        usage.mul_(decay).add_(counts, alpha=1 - decay)
        if fixed:
            book.copy_(torch.where((usage < 0.5)[:, None], spare, book))  # near: host_sync
            usage.copy_(torch.where(usage < 0.5, 1.0, usage))
        else:
            dead = (usage < 0.5).nonzero().squeeze(1)  # cause: host_sync, main
            if dead.numel():
                book[dead] = spare[dead]
                usage[dead] = 1.0
        return book[chosen]

    function = wrap(assign)
    return Built(lambda: function(x), [book, usage])


WAITING = (
    Labelled(loss_of_each_part, "waits", {"rows": 4, "width": 12}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(guarded_loss, "waits", {"rows": 4, "width": 12}, Expected(WAITS), training=True, tolerance=5e-2),
    Labelled(
        masked_words,
        "waits",
        {"texts": 2, "length": 16},
        Expected(WAITS, BREAKS, BREAKS),
        training=True,
        tolerance=5e-2,
    ),
    Labelled(pageable_features, "waits", {"rows": 6, "width": 16}, Expected("copies from ordinary memory")),
    Labelled(longest_text, "waits", {"texts": 4, "longest": 12}, Expected(WAITS, BREAKS, BREAKS)),
    Labelled(
        anchors_made,
        "waits",
        {"batch": 1, "side": 4},
        Expected("copies from ordinary memory", graphs="a tensor on the host is among the inputs"),
    ),
    Labelled(decode_until, "waits", {"rows": 2, "longest": 20}, Expected(WAITS, graphs=KEPT)),
    Labelled(features_on_host, "waits", {"rows": 32, "width": 8}, Expected("copies from ordinary memory")),
    Labelled(evaluated_each, "waits", {"rows": 4, "batches": 3}, Expected(WAITS)),
    Labelled(codebook, "waits", {"rows": 40, "codes": 16}, Expected(WAITS, BREAKS, BREAKS)),
)
