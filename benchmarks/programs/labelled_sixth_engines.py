"""Engines that serve, decode and imagine in rounds: of `labelled_sixth.py`.

Labels: `labels.py`.
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
COPIES = "copies from ordinary memory"


class Feed(nn.Sequential):
    """The second half of a transformer's layer, without what it is added to."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Layer(nn.Module):
    """A layer of a transformer that sees all of its texts at once."""

    def __init__(self, width: int, head: int = 64, causal: bool = False) -> None:
        super().__init__()
        self.head, self.causal = min(head, width), causal
        self.norm, self.enter, self.leave = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = Feed(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.enter(self.norm(x)).unflatten(-1, (3, -1, self.head)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.leave(seen.transpose(1, 2).flatten(2))
        return x + self.feed(x)


def requests_batched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, running: int = 96, width: int = 1024
) -> Built:
    """Continuous batching over pages: what was said goes to the device anew each round, so that no word is repeated."""
    layers, page, words, longest, head = 6, 16, 32000, 512, min(64, width)
    device, each = torch.get_default_device(), longest // page

    class Request:
        def __init__(self, number: int, pages: list[int]) -> None:
            begin = longest // 2 + 37 * number % (longest // 4)
            self.number, self.pages = number, pages
            self.text = [(31 * number + 7 * at) % words for at in range(begin)]

        def filled(self) -> list[int]:
            return self.text + [words] * (longest - len(self.text))

    class Paged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.enter, self.leave = (
                nn.LayerNorm(width),
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
            )
            self.feed = Feed(width)

        def forward(self, x: Tensor, cache: Tensor, slots: Tensor, table: Tensor, reach: Tensor) -> Tensor:
            q, k, v = self.enter(self.norm(x)).view(running, 3, -1, head).unbind(1)
            flat = cache.flatten(1, 2)
            flat[0, slots], flat[1, slots] = k, v  # near: host_sync
            keys, values = cache[:, table].flatten(2, 3).transpose(2, 3)  # near: cache_grown
            seen = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=reach)
            x = x + self.leave(seen.flatten(1))
            return x + self.feed(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(words + 1, width), nn.Linear(width, words, bias=False)
            self.layers = nn.ModuleList(Paged() for _ in range(layers))

        def forward(self, caches: Tensor, text: Tensor, place: Tensor, table: Tensor) -> Tensor:
            x = self.table(text.gather(1, place[:, None])[:, 0])
            slots = table.gather(1, place[:, None] // page)[:, 0] * page + place % page
            reach = (torch.arange(longest, device=x.device) <= place[:, None])[:, None, None]
            for layer, cache in zip(self.layers, caches, strict=True):  # near: python_loop
                x = layer(x, cache, slots, table, reach)
            said = torch.zeros(running, words + 1, device=x.device).scatter_(1, text, 1.0)[:, :words]
            return (self.head(x).float() - 2 * said).argmax(-1)

    class Engine:
        def __init__(self) -> None:
            free = [(5 * at + 1) % (running * each) for at in range(running * each)]
            self.running = [Request(at, free[at * each : (at + 1) * each]) for at in range(running)]
            self.caches = torch.randn(layers, 2, running * each, page, width // head, head, dtype=dtype)
            self.text, self.place, self.table = self.sent()

        def sent(self) -> tuple[Tensor, Tensor, Tensor]:
            texts = [one.filled() for one in self.running]  # same: step_begins_late
            text = torch.tensor(texts).to(device)  # cause: step_begins_late, main  # may: pageable_copy
            ends = [len(one.text) - 1 for one in self.running]  # same: step_begins_late
            place = torch.tensor(ends).to(device)  # same: step_begins_late  # may: pageable_copy
            pages = [one.pages for one in self.running]  # same: step_begins_late
            return text, place, torch.tensor(pages).to(device)  # same: step_begins_late  # may: pageable_copy

        def round(self) -> Tensor:
            if not fixed:
                self.text, self.place, self.table = self.sent()  # same: step_begins_late  # may: pageable_copy
            word = function(self.caches, self.text, self.place, self.table)
            if fixed:
                self.place += 1
                self.text.scatter_(1, self.place[:, None], word[:, None])
            for at, (one, said) in enumerate(zip(self.running, word.tolist(), strict=True)):  # may: host_sync
                one.text.append(said)
                if len(one.text) == longest:
                    self.admit(at, one)
            return word

        def admit(self, at: int, done: Request) -> None:
            self.running[at] = Request(done.number + running, done.pages)
            self.text[at] = torch.tensor(self.running[at].filled())
            self.place[at] = len(self.running[at].text) - 1

    function = wrap(Model().to(dtype))
    return Built(Engine().round)


def stops_matched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 16, width: int = 1024
) -> Built:
    """Chat: after each word, the end of every answer is compared with sequences that end a turn."""
    rounds, words = 8, 16000
    stops = torch.randint(0, words, (3, 3))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words)
            self.feeds = nn.ModuleList(Feed(width) for _ in range(4))

        def forward(self, state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
            state = 0.5 * state + self.table(word)
            for feed in self.feeds:  # near: python_loop
                state = state + feed(state)
            return state, self.head(state).argmax(-1)

    class Stops:
        def __init__(self, ends: Tensor) -> None:
            self.ends = list(ends)

        def met(self, answer: Tensor) -> bool:
            return any(torch.equal(answer[-len(end) :], end) for end in self.ends)  # cause: host_sync, main

        def __call__(self, texts: Tensor) -> Tensor:
            if fixed:
                return (texts[:, None, -stops.shape[1] :] == stops).all(-1).any(-1)
            met = [self.met(answer) for answer in texts]  # same: host_sync  # may: python_loop
            return torch.tensor(met, device=texts.device)  # may: pageable_copy

    model, stopped = wrap(Model().to(dtype)), Stops(stops)
    asked, begin = torch.randint(0, words, (rows, 8)), torch.randn(rows, width, dtype=dtype)

    def answer() -> Tensor:
        text, done, state = F.pad(asked, (0, rounds)), torch.zeros_like(asked[:, 0], dtype=torch.bool), begin
        for at in range(asked.shape[1], text.shape[1]):  # may: recurrence_unfused  # may: python_loop
            state, word = model(state, text[:, at - 1])
            text[:, at] = torch.where(done, 0, word)  # near: cache_grown
            done = done | stopped(text[:, : at + 1])  # same: host_sync  # may: pageable_copy
            if done.all():  # cause: host_sync, stays
                break
        return text

    return Built(answer)


def speech_translated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, talks: int = 64, width: int = 1024
) -> Built:
    """Speech translation: an encoder listens once; the decoder projects what it heard again for each word."""
    heard, layers, rounds, words, head = 1024, 3, 8, 16000, min(64, width)

    class Decoding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.ask, self.both, self.leave = (
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.Linear(width, 2 * width),
                nn.Linear(width, width),
            )
            self.feed = Feed(width)

        def keys(self, memory: Tensor) -> Tensor:
            return self.both(memory).unflatten(-1, (2, -1, head)).permute(2, 0, 3, 1, 4)  # same: loop_invariant

        def forward(self, x: Tensor, memory: Tensor, kept: Tensor | None = None) -> Tensor:
            keys, values = self.keys(memory) if kept is None else kept  # cause: loop_invariant, main
            q = self.ask(self.norm(x)).view(len(x), 1, -1, head).transpose(1, 2)
            x = x + self.leave(F.scaled_dot_product_attention(q, keys, values).flatten(1))
            return x + self.feed(x)

    encoder = wrap(Layer(width).to(dtype))
    layers_of = nn.ModuleList(Decoding() for _ in range(layers)).to(dtype)
    table, out = nn.Embedding(words, width, dtype=dtype), nn.Linear(width, words, dtype=dtype)
    sound, first = torch.randn(talks, heard, width, dtype=dtype), torch.zeros(talks, dtype=torch.long)

    def decoded(memory: Tensor, word: Tensor, kept: list[Tensor | None], state: Tensor) -> tuple[Tensor, Tensor]:
        x = table(word) + state
        for layer, pair in zip(layers_of, kept, strict=True):  # near: python_loop  # same: loop_invariant
            x = layer(x, memory, pair)  # same: loop_invariant
        return out(x).float(), x

    def translate() -> Tensor:
        memory, word, state, said = encoder(sound), first, torch.zeros_like(sound[:, 0]), []
        kept = [layer.keys(memory) for layer in layers_of] if fixed else [None] * layers
        for _ in range(rounds):  # may: recurrence_unfused  # may: python_loop  # same: loop_invariant
            logits, state = decoded(memory, word, kept, state)  # same: loop_invariant
            word = logits.argmax(-1)
            said.append(logits[:, :8])
        return torch.stack(said)

    return Built(translate)


def worlds_imagined(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, worlds: int = 192, width: int = 1024
) -> Built:
    """Robots: a world model that has watched many scenes imagines what follows, and each moment joins its memory."""
    seen, ahead, layers, head, actions = 480, 12, 3, min(64, width), 16

    class Memory:
        def __init__(self, watched: Tensor) -> None:
            self.length, self.room = seen, F.pad(watched, (0, 0, 0, ahead)) if fixed else None
            self.keys, self.values = watched

        def joined(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            self.length += 1
            if self.room is not None:
                self.room[:, :, :, self.length - 1 : self.length] = torch.stack((k, v))
                return self.room[0, :, :, : self.length], self.room[1, :, :, : self.length]
            self.keys = torch.cat((self.keys, k), 2)  # cause: cache_grown, main
            self.values = torch.cat((self.values, v), 2)  # same: cache_grown
            return self.keys, self.values

        def forget(self) -> None:
            self.length = seen

    class Moment(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.enter, self.leave = (
                nn.LayerNorm(width),
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
            )
            self.feed = Feed(width)

        def forward(self, x: Tensor, memory: Memory) -> Tensor:
            q, k, v = self.enter(self.norm(x)).view(len(x), 3, -1, 1, head).unbind(1)
            keys, values = memory.joined(k, v)  # same: cache_grown
            x = x + self.leave(F.scaled_dot_product_attention(q, keys, values).flatten(1))
            return x + self.feed(x)

    moments = nn.ModuleList(wrap(Moment().to(dtype)) for _ in range(layers))
    policy, world = nn.Linear(width, actions, dtype=dtype), nn.Linear(width + actions, width, dtype=dtype)
    watched = torch.randn(layers, 2, worlds, width // head, seen, head, dtype=dtype)
    memories, begin = [Memory(each) for each in watched] if fixed else [], torch.randn(worlds, width, dtype=dtype)

    def imagine() -> Tensor:
        mine = memories if fixed else [Memory(each) for each in watched]
        x, rewards = begin, []
        for _ in range(ahead):  # may: recurrence_unfused  # may: python_loop  # same: cache_grown
            x = world(torch.cat((x, policy(x).softmax(-1)), 1))  # near: cache_grown
            for moment, memory in zip(moments, mine, strict=True):  # may: python_loop  # same: cache_grown
                x = moment(x, memory)  # same: cache_grown
            rewards.append(x.float().mean(1))
        for memory in mine:
            memory.forget()
        return torch.stack(rewards, 1)

    return Built(imagine)


def outputs_streamed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 2048, width: int = 2048
) -> Built:
    """Streaming of answers: words go to pinned memory as they are made, and are read rounds later."""
    words, rounds, behind = 32000, 6, 1 if fixed else 2  # either is as quick: the device has work meanwhile
    device = torch.get_default_device()
    timed = device.type == "cuda"

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words)
            self.feeds = nn.ModuleList(Feed(width) for _ in range(4))

        def forward(self, state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
            state = 0.5 * state + self.table(word)
            for feed in self.feeds:  # near: python_loop
                state = state + feed(state)
            return state, self.head(state).argmax(-1)

    class Stream:
        def __init__(self) -> None:
            self.pinned = torch.zeros(rounds, rows, dtype=torch.long, device="cpu")
            self.pinned = self.pinned.pin_memory() if timed else self.pinned
            self.told = [torch.cuda.Event() for _ in range(rounds)] if timed else []
            self.texts: list[list[int]] = [[] for _ in range(rows)]

        def send(self, at: int, word: Tensor) -> None:
            self.pinned[at].copy_(word, non_blocking=True)  # near: pageable_copy
            if timed:
                self.told[at].record()

        def read(self, at: int) -> None:
            if timed:
                self.told[at].synchronize()  # near: host_sync
            for text, word in zip(self.texts, self.pinned[at].tolist(), strict=True):  # near: host_sync
                text.append(word)

    model, stream = wrap(Model().to(dtype)), Stream()
    first, begin = torch.arange(rows) % words, torch.randn(rows, width, dtype=dtype)

    def answer() -> Tensor:
        word, state = first, begin
        for at in range(rounds):  # near: recurrence_unfused  # near: python_loop
            state, word = model(state, word)
            stream.send(at, word)  # near: pageable_copy
            stream.read((at - behind) % rounds)  # near: host_sync
        return state.float()

    return Built(answer)


ENGINES = (
    Labelled(requests_batched, "sixth", {"running": 3, "width": 16}, Expected(WAITS)),
    Labelled(stops_matched, "sixth", {"rows": 3, "width": 16}, Expected(WAITS)),
    Labelled(speech_translated, "sixth", {"talks": 2, "width": 16}, tolerance=5e-2),
    Labelled(worlds_imagined, "sixth", {"worlds": 2, "width": 16}, tolerance=5e-2),
    Labelled(outputs_streamed, "sixth", {"rows": 4, "width": 16}, Expected(WAITS), tolerance=5e-2),
)
