"""Loops in Python: what each goes over, and what looks like one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.dispatched import dispatched  # noqa: E402
from tracemine.causes.python_loop.kinds import Body  # noqa: E402
from tracemine.causes.python_loop.kinds import over as kind_of_loop  # noqa: E402
from tracemine.columns import with_columns  # noqa: E402
from tracemine.pipeline import analysed, mined  # noqa: E402
from tracemine.rows.table import category, number  # noqa: E402
from tracemine.timeline import Timeline  # noqa: E402

Made = Callable[[], Callable[[], Any]]


def over(made: Made) -> set[tuple[str, int]]:
    """What the loops of a step go over of which one call could do all turns, and how often they turn."""
    torch.manual_seed(0)
    rows = analysed(dispatched(made(), steps=2)).rows["activities"]
    column, loop, turn = category(rows, "loop_over"), number(rows, "loop", -1), number(rows, "loop_turn")
    found = set()
    for each in set(loop[column.codes >= 0].tolist()):
        of = loop == each
        found.add((column.values[column.codes[of][0]], int(turn[of].max()) + 1))
    return found


# -- loops -------------------------------------------------------------------------------------------------------------


def experts() -> Callable[[], Any]:
    x, up, chosen = torch.randn(96, 16), torch.randn(8, 16, 16), torch.randint(0, 8, (96,))

    def step() -> Any:
        out = torch.zeros_like(x)
        for at in range(8):
            rows = torch.nonzero(chosen == at).flatten()
            out.index_add_(0, rows, torch.relu(x[rows] @ up[at]))
        return out

    return step


def masked_experts() -> Callable[[], Any]:
    x, up, chosen = torch.randn(96, 16), [torch.randn(16, 16) for _ in range(6)], torch.randint(0, 6, (96,))

    def step() -> Any:
        out = torch.zeros_like(x)
        for at, weight in enumerate(up):
            out = out + torch.relu(x @ weight) * (chosen == at)[:, None]
        return out

    return step


def boxes() -> Callable[[], Any]:
    corner = torch.rand(24, 2) * 100
    all_boxes, kept = torch.cat((corner, corner + 30), 1), torch.ones(24, dtype=torch.bool)

    def step() -> Any:
        alive = kept.clone()
        for at in range(23):
            low = torch.maximum(all_boxes[at, :2], all_boxes[:, :2])
            high = torch.minimum(all_boxes[at, 2:], all_boxes[:, 2:])
            shared = (high - low).clamp(min=0).prod(1)
            alive = alive & ~((shared > 300) & alive[at])
        return alive

    return step


def segments() -> Callable[[], Any]:
    x, label = torch.randn(200, 8), torch.randint(0, 10, (200,))

    def step() -> Any:
        return torch.stack([(x * (label == at)[:, None]).sum(0) for at in range(10)])

    return step


def limits() -> Callable[[], Any]:
    score, limit = torch.rand(500), torch.linspace(0, 1, 12)

    def step() -> Any:
        return torch.stack([(score > limit[at]).float().sum() for at in range(12)])

    return step


def tables() -> Callable[[], Any]:
    weights, ids = [torch.randn(50, 16) for _ in range(20)], torch.randint(0, 50, (20, 32))
    return lambda: torch.cat([F.embedding(ids[at], weight) for at, weight in enumerate(weights)], 1)


def sign_momentum() -> Callable[[], Any]:
    parameters = [torch.randn(8 + at, 8) for at in range(9)]
    gradients = [torch.randn_like(each) for each in parameters]
    moments = [torch.zeros_like(each) for each in parameters]

    def step() -> Any:
        for parameter, gradient, moment in zip(parameters, gradients, moments, strict=True):
            move = (moment * 0.9 + gradient * 0.1).sign() + parameter * 0.01
            moment.mul_(0.99).add_(gradient, alpha=0.01)
            parameter.sub_(move * 1e-3)

    return step


def gated_recurrence() -> Callable[[], Any]:
    x, weight_in, weight = torch.randn(8, 20, 32), torch.randn(32, 64), torch.randn(32, 64)

    def step() -> Any:
        state, outs = torch.zeros(8, 32), []
        for at in range(20):
            gate, new = (x[:, at] @ weight_in + state @ weight).chunk(2, 1)
            gate = torch.sigmoid(gate)
            state = gate * state + (1 - gate) * torch.tanh(new)
            outs.append(state)
        return torch.stack(outs, 1)

    return step


def linear_scan() -> Callable[[], Any]:
    decay, x = torch.rand(30, 8, 32), torch.randn(30, 8, 32)

    def step() -> Any:
        state, outs = torch.zeros(8, 32), []
        for at in range(30):
            state = decay[at] * state + x[at]
            outs.append(state)
        return torch.stack(outs)

    return step


def running_sum() -> Callable[[], Any]:
    x = torch.randn(24, 8, 32)

    def step() -> Any:
        total, outs = torch.zeros(8, 32), []
        for at in range(24):
            total = total + x[at]
            outs.append(total)
        return torch.stack(outs)

    return step


def heads() -> Callable[[], Any]:
    x, layers = torch.randn(16, 32), [(torch.randn(32, 32), torch.randn(32, 4)) for _ in range(6)]
    return lambda: torch.cat([torch.relu(x @ first).tanh() @ last for first, last in layers], 1)


def samples() -> Callable[[], Any]:
    pictures, gain = torch.rand(12, 3, 16, 16), torch.rand(12)

    def step() -> Any:
        return torch.stack([((pictures[at] * gain[at]).clamp(0, 1) - 0.5) / 0.2 for at in range(12)])

    return step


def losses_of_samples() -> Callable[[], Any]:
    x, y = [torch.randn(4, 8) for _ in range(9)], torch.randn(9, 4, 8)

    def step() -> Any:
        total = torch.zeros(())
        for at, each in enumerate(x):
            total = total + (each - y[at]).pow(2).mean()
        return total

    return step


def sequences() -> Callable[[], Any]:
    rows, first, last = [torch.randn(4 + at, 16) for at in range(8)], torch.randn(16, 32), torch.randn(32, 16)
    return lambda: [torch.relu(each @ first) @ last for each in rows]


def mirrored_by_chance() -> Callable[[], Any]:
    """Some samples get more than others, in no order."""
    pictures, gain, coin = torch.rand(16, 3, 16, 16), torch.rand(16), "0110100001011101"

    def step() -> Any:
        out = []
        for at in range(16):
            picture = (pictures[at] * gain[at]).clamp(0, 1)
            if coin[at] == "1":
                picture = picture.flip(-1)
            out.append((picture - 0.5) / 0.2)
        return torch.stack(out)

    return step


def suppressed_boxes_skipped() -> Callable[[], Any]:
    overlap = torch.rand(40, 40)

    def step() -> Any:
        gone = torch.zeros(40, dtype=torch.bool)
        for at in range(40):
            if not gone[at].item():
                gone = gone | ((overlap[at] > 0.9) & ~gone)
        return gone

    return step


def layer_wise_ratios() -> Callable[[], Any]:
    """A custom optimizer whose steps are as long as norms allow, kept on the device."""
    parameters = [torch.randn(8 + at % 3, 8) for at in range(10)]
    gradients = [torch.randn_like(each) for each in parameters]

    def step() -> Any:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            ratio = parameter.norm() / (gradient.norm() + 1e-9)
            parameter.sub_(gradient * ratio * 1e-3)

    return step


def teacher_forced_decoder() -> Callable[[], Any]:
    """The words are there before: their rows are looked up in the loop, one position after another."""
    table, words = torch.randn(50, 32), torch.randint(0, 50, (16, 12))
    weight_in, weight, head = torch.randn(32, 32) * 0.1, torch.randn(32, 32) * 0.1, torch.randn(32, 50)

    def step() -> Any:
        state, outs = torch.zeros(12, 32), []
        for at in range(16):
            state = torch.tanh(F.embedding(words[at], table) @ weight_in + state @ weight)
            outs.append(state @ head)
        return torch.stack(outs)

    return step


def attention_heads() -> Callable[[], Any]:
    q, k, v = torch.randn(3, 6, 20, 16)

    def step() -> Any:
        return torch.cat([torch.softmax(q[at] @ k[at].T / 4, -1) @ v[at] for at in range(6)], -1)

    return step


def profiles() -> Callable[[], Any]:
    """Rows of as many entries as each has are looked up, multiplied and reduced."""
    table, weight, lengths = torch.randn(60, 16), torch.randn(16, 16), [3, 9, 5, 7, 4, 8, 6, 2]
    entries = torch.randint(0, 60, (8, 9))
    return lambda: torch.stack([(table[entries[at, :n]] @ weight).mean(0) for at, n in enumerate(lengths)])


def pairs_of_each() -> Callable[[], Any]:
    """A loss of all pairs within each part of one buffer; parts differ in length."""
    scores, lengths = torch.randn(44), [3, 9, 5, 7, 4, 8, 6, 2]
    starts = [sum(lengths[:at]) for at in range(8)]

    def step() -> Any:
        total = torch.zeros(())
        for start, length in zip(starts, lengths, strict=True):
            part = scores[start : start + length]
            total = total + F.softplus(part[None] - part[:, None]).sum()
        return total

    return step


def padded_rows() -> Callable[[], Any]:
    """Rows of one tensor put into a padded batch, one after another."""
    flat, table, lengths = torch.randint(1, 60, (44,)), torch.randn(60, 16), [3, 9, 5, 7, 4, 8, 6, 2]
    starts = [sum(lengths[:at]) for at in range(8)]

    def step() -> Any:
        batch = flat.new_zeros(8, 9)
        for at, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            batch[at, :length] = flat[start : start + length]
        return table[batch].sum(1)

    return step


def packed_attention() -> Callable[[], Any]:
    """Attention within each of several texts, packed one behind the other."""
    lengths = [9, 17, 12, 25, 10, 31, 14, 21]
    packed = torch.randn(sum(lengths), 3, 4, 16)

    def step() -> Any:
        parts = [part.permute(1, 2, 0, 3)[:, None] for part in packed.split(lengths)]
        return torch.cat([F.scaled_dot_product_attention(*part)[0].transpose(0, 1) for part in parts])

    return step


def silenced_strips() -> Callable[[], Any]:
    """A strip of time and one of pitch of each clip: their sizes differ, in two dimensions."""
    clips, weight = torch.randn(8, 12, 20), torch.randn(20, 4)

    def step() -> Any:
        silenced = clips.clone()
        for at in range(8):
            silenced[at, :, at : 2 * at + 1] = 0
            silenced[at, at : at + 2] = 0
        return silenced @ weight

    return step


def pages_of_texts() -> Callable[[], Any]:
    pages, weight = torch.randn(32, 4, 16), torch.randn(16, 4)
    tables = [[(5 * text + 3 * at) % 32 for at in range(4)] for text in range(10)]
    return lambda: torch.stack([torch.cat([pages[at] for at in table]) for table in tables]) @ weight


def crops_resized() -> Callable[[], Any]:
    pictures, boxes = torch.randn(10, 3, 32, 32), [(at, 2 * at + 8) for at in range(10)]

    def step() -> Any:
        crops = [pictures[at : at + 1, :, low:high, low:high] for at, (low, high) in enumerate(boxes)]
        return torch.cat([F.interpolate(crop, size=(8, 8), mode="bilinear") for crop in crops])

    return step


def padded_and_stacked() -> Callable[[], Any]:
    rows = [torch.randn(3 + at, 8) for at in range(10)]
    return lambda: torch.stack([F.pad(row, (0, 0, 0, 16 - len(row))) for row in rows]).sum(1)


def tables_summed() -> Callable[[], Any]:
    weights, ids = [torch.randn(20 + at, 8) for at in range(10)], torch.randint(0, 20, (10, 6))
    return lambda: sum(F.embedding(ids[at], weight) for at, weight in enumerate(weights))


def orders_of_speakers() -> Callable[[], Any]:
    """The loss of each order, a sum that begins anew: what the inner loop hands on the outer one does not."""
    said, true = torch.randn(6, 20, 4), torch.rand(6, 20, 4)

    def step() -> Any:
        losses = [
            sum((said[..., mine] - true[..., theirs]).abs().mean(1) for mine, theirs in enumerate(order))
            for order in itertools.permutations(range(4))
        ]
        return torch.stack(losses).amin(0)

    return step


def weights_averaged() -> Callable[[], Any]:
    """Clients' weights, tensor by tensor and not in place."""
    clients = [[torch.randn(4 + at, 8) for at in range(10)] for _ in range(5)]
    server = [torch.empty_like(weight) for weight in clients[0]]

    def step() -> None:
        means = [sum(0.2 * weight for weight in weights) for weights in zip(*clients, strict=True)]
        for weight, mean in zip(server, means, strict=True):
            weight.copy_(mean)

    return step


def hidden_states() -> Callable[[], Any]:
    said, change = torch.randn(6, 20, 4), torch.randn(4, 4)

    def step() -> Any:
        state = said[:, 0]
        for at in range(1, 20):
            state = torch.logsumexp(state[..., None] + change, 1) + said[:, at]
        return state

    return step


def pairs_of_models() -> Callable[[], Any]:
    said = [torch.randn(16, 8) for _ in range(6)]
    return lambda: torch.stack([(one - other).square().mean() for one, other in itertools.combinations(said, 2)])


def trees_walked() -> Callable[[], Any]:
    """Each tree is walked level by level: a loop whose iterations need each other, within one whose do not."""
    x, trees = torch.randn(20, 6), [(torch.randint(0, 6, (15,)), torch.randn(15)) for _ in range(10)]

    def walked(column: Any, limit: Any) -> Any:
        node = torch.zeros(20, dtype=torch.long)
        for _ in range(5):
            right = x.gather(1, column[node][:, None])[:, 0] > limit[node]
            node = (2 * node + 1 + right) % 15
        return limit[node]

    return lambda: torch.stack([walked(*tree) for tree in trees], 1)


def windows_slid() -> Callable[[], Any]:
    """Two convolutions prepare what each pair takes its part of, by the same operator."""
    x, kernels, weight = torch.randn(12, 4, 12, 12), torch.randn(12, 4, 5, 5), torch.randn(4, 4, 3, 3)

    def step() -> Any:
        search, kernel = F.conv2d(x, weight), F.conv2d(kernels, weight)
        pairs = [F.conv2d(search[at : at + 1], kernel[at][:, None], groups=4) for at in range(12)]
        return torch.cat(pairs)

    return step


def gates_made_one_by_one() -> Callable[[], Any]:
    """Each iteration turns what the one before gave, by a matrix that needs its own angle only."""
    angles, state = torch.randn(10), torch.randn(64, 2)

    def step() -> Any:
        x = state
        for at in range(10):
            cos, sin = torch.cos(angles[at] / 2), torch.sin(angles[at] / 2)
            x = x @ torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))
        return x

    return step


LOOPS = {
    windows_slid: ("samples", 12),
    gates_made_one_by_one: ("ahead", 10),
    trees_walked: ("samples", 10),
    pairs_of_models: ("samples", 15),
    orders_of_speakers: ("samples", 24),
    weights_averaged: ("parameters", 10),
    hidden_states: ("scan", 19),
    crops_resized: ("crops", 10),
    padded_and_stacked: ("copies", 10),
    tables_summed: ("tables", 10),
    silenced_strips: ("copies", 16),
    pages_of_texts: ("copies", 10),
    packed_attention: ("lengths", 8),
    padded_rows: ("copies", 8),
    experts: ("experts", 8),
    masked_experts: ("experts", 6),
    boxes: ("boxes", 23),
    segments: ("segments", 10),
    limits: ("limits", 12),
    tables: ("tables", 20),
    sign_momentum: ("parameters", 9),
    gated_recurrence: ("steps", 20),
    linear_scan: ("scan", 30),
    running_sum: ("scan", 24),
    heads: ("layers", 6),
    samples: ("samples", 12),
    losses_of_samples: ("samples", 9),
    sequences: ("lengths", 8),
    profiles: ("lengths", 8),
    pairs_of_each: ("lengths", 8),
    mirrored_by_chance: ("samples", 16),
    suppressed_boxes_skipped: ("boxes", 40),
    layer_wise_ratios: ("parameters", 10),
    teacher_forced_decoder: ("steps", 16),
    attention_heads: ("samples", 6),
}


@pytest.mark.parametrize("made", LOOPS, ids=lambda made: made.__name__)
def test_a_loop_goes_over(made: Made) -> None:
    assert over(made) == {LOOPS[made]}


def pulled_apart() -> Callable[[], Any]:
    """Two sums over tensors, one right behind the other: both end with the same operators."""
    mine, other = ([torch.randn(8 + at % 3, 8) for at in range(10)] for _ in range(2))

    def step() -> Any:
        dot = sum((a.double() * b.double()).sum() for a, b in zip(mine, other, strict=True))
        return dot / sum(each.double().square().sum() for each in other)

    return step


def test_of_two_loops_that_end_with_the_same_operators_neither_hides_the_other() -> None:
    torch.manual_seed(0)
    rows = analysed(dispatched(pulled_apart(), steps=1)).rows
    loop, turn = number(rows["activities"], "loop", -1), number(rows["activities"], "loop_turn")
    assert sorted(turn[loop == each].max() + 1 for each in set(loop[loop >= 0].tolist())) == [10, 10]


def test_what_a_model_says_of_batches_and_is_counted_is_no_loop_over_experts_or_segments() -> None:
    counted = Body(
        operations=frozenset({"addmm", "relu", "argmax", "eq", "sum", "add"}),
        classes=frozenset({"gemm", "pointwise", "reduction"}),
        in_place=True,
        dependence="accumulates",
        differs="slices",
        sizes=False,
    )
    assert kind_of_loop(counted) == "samples"
    chosen = replace(counted, operations=counted.operations | {"mul"}, differs="weights")
    assert kind_of_loop(chosen) == "experts"
    of_classes = replace(counted, operations=frozenset({"eq", "sum"}), classes=frozenset({"pointwise", "reduction"}))
    assert kind_of_loop(of_classes) == "segments"


def test_lengths_of_tensors_are_taken_in_one_call_and_what_is_looked_up_is_not_compared_with_limits() -> None:
    lengths = Body(
        operations=frozenset({"linalg_vector_norm"}),
        classes=frozenset({"reduction"}),
        in_place=False,
        dependence="independent",
        differs="tensors",
        sizes=True,
    )
    assert kind_of_loop(lengths) == "parameters"
    assert kind_of_loop(replace(lengths, operations=frozenset({"sum"}))) is None
    looked_up = replace(
        lengths, operations=frozenset({"gather", "gt", "add"}), classes=frozenset({"gather"}), sizes=False
    )
    assert kind_of_loop(looked_up) == "samples"


# -- near misses -------------------------------------------------------------------------------------------------------


def layers_of_recurrences() -> Callable[[], Any]:
    """Each layer reads what the one before gave, step by step: neither loop's iterations are apart."""
    x, layers = torch.randn(20, 8), [torch.randn(8, 8) / 4 for _ in range(6)]

    def step() -> Any:
        rows = list(x)
        for weight in layers:
            state, out = torch.zeros(8), []
            for row in rows:
                state = torch.erf(state @ weight + row)
                out.append(state)
            rows = out
        return torch.stack(rows)

    return step


def layers_in_a_row() -> Callable[[], Any]:
    model = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU())))
    x = torch.randn(8, 32)
    return lambda: model(x)


def one_layer_again_and_again() -> Callable[[], Any]:
    """As in deep equilibrium models: carried, and no sequence is read."""
    x, weight = torch.randn(8, 32), torch.randn(32, 32) * 0.1

    def step() -> Any:
        state = torch.zeros(8, 32)
        for _ in range(12):
            state = torch.tanh(state @ weight + x)
        return state

    return step


def power_iteration() -> Callable[[], Any]:
    matrix = torch.randn(32, 32)

    def step() -> Any:
        vector = torch.ones(32)
        for _ in range(12):
            vector = matrix @ vector
            vector = vector / vector.norm()
        return vector

    return step


def sampler_with_schedule() -> Callable[[], Any]:
    """Diffusion: each turn reads a number of the schedule, and the state is what the one before made."""
    first, last, sigma = torch.randn(16, 32), torch.randn(32, 16), torch.linspace(1, 0, 13)

    def step() -> Any:
        x = torch.ones(4, 16)
        for at in range(12):
            x = x + torch.tanh(x @ first) @ last * (sigma[at + 1] - sigma[at])
        return x

    return step


def own_output_as_input() -> Callable[[], Any]:
    """Decoding: what goes in is what came out."""
    table, weight, head = torch.randn(50, 32), torch.randn(32, 32) * 0.1, torch.randn(32, 50)

    def step() -> Any:
        token, state = torch.zeros(4, dtype=torch.long), torch.zeros(4, 32)
        for _ in range(10):
            state = torch.tanh(F.embedding(token, table) + state @ weight)
            token = (state @ head).argmax(-1)
        return token

    return step


def queries_keys_values() -> Callable[[], Any]:
    x, weights = torch.randn(16, 32), [torch.randn(32, 32) for _ in range(3)]
    return lambda: [torch.relu(x @ weight).sigmoid().tanh().exp() @ weight for weight in weights]


def four_small_calls() -> Callable[[], Any]:
    x, weights = torch.randn(16, 32), [torch.randn(32, 32) for _ in range(4)]
    return lambda: [x @ weight for weight in weights]


def attended_recurrence() -> Callable[[], Any]:
    """Attention in each turn: no library's layer does it."""
    x, memory, weight = torch.randn(8, 12, 32), torch.randn(8, 20, 32), torch.randn(64, 32) * 0.1

    def step() -> Any:
        state = torch.zeros(8, 32)
        for at in range(12):
            share = torch.softmax(torch.bmm(memory, state[:, :, None])[:, :, 0], 1)
            read = torch.bmm(share[:, None], memory)[:, 0]
            state = torch.tanh(torch.cat((x[:, at], read), 1) @ weight)
        return state

    return step


def buckets() -> Callable[[], Any]:
    flat, parts = torch.zeros(40 * 16), [torch.randn(16) for _ in range(40)]

    def step() -> Any:
        for at, part in enumerate(parts):
            flat[16 * at : 16 * (at + 1)].copy_(part)

    return step


def blocks_of_a_network() -> Callable[[], Any]:
    weights = [(torch.randn(32, 64) * 0.1, torch.randn(64, 32) * 0.1) for _ in range(6)]
    x = torch.randn(8, 32)

    def step() -> Any:
        h = x
        for up, down in weights:
            h = h + F.silu(F.layer_norm(h, (32,)) @ up) @ down
        return h

    return step


def pyramid() -> Callable[[], Any]:
    """A convolution at several sizes: no call takes all of them."""
    levels, weight = [torch.randn(1, 8, 4 << at, 4 << at) for at in range(5)], torch.randn(8, 8, 3, 3)
    return lambda: [F.conv2d(F.relu(F.conv2d(each, weight)), weight, padding=2) for each in levels]


def attention_grows() -> Callable[[], Any]:
    """Each position attends to what those before it gave, longer and longer."""
    x = torch.randn(12, 1, 4, 1, 16)

    def step() -> Any:
        seen = x[0]
        for at in range(1, 12):
            seen = torch.cat((seen, F.scaled_dot_product_attention(x[at], seen, seen)), 2)
        return seen

    return step


def sinkhorn() -> Callable[[], Any]:
    cost = torch.rand(16, 16)

    def step() -> Any:
        f = g = torch.zeros(16)
        for _ in range(10):
            f = -torch.logsumexp(g[None] - cost, 1)
            g = -torch.logsumexp(f[:, None] - cost, 0)
        return f

    return step


def weights_that_change() -> Callable[[], Any]:
    """Each turn trains what the next one uses."""
    x, weight = torch.randn(10, 8, 16), torch.randn(16, 16)

    def step() -> Any:
        for at in range(10):
            error = x[at] @ weight - x[at]
            weight.sub_(x[at].T @ error, alpha=1e-3)

    return step


def one_layer_by_turns() -> Callable[[], Any]:
    """A state that goes through one layer and, now and then, another."""
    first, other, x = torch.randn(32, 32) * 0.1, torch.randn(32, 32) * 0.1, torch.randn(8, 32)

    def step() -> Any:
        h = x
        for at in range(12):
            h = torch.relu(h @ first)
            if at % 5 in (1, 2):
                h = h + torch.sigmoid(h @ other)
        return h

    return step


def message_passing() -> Callable[[], Any]:
    """Each round gathers from what the one before scattered, with a weight of its own."""
    (sources, targets), weights = torch.randint(0, 20, (2, 64)), [torch.randn(16, 16) * 0.1 for _ in range(6)]
    x = torch.randn(20, 16)

    def step() -> Any:
        h = x
        for weight in weights:
            h = torch.relu(torch.zeros_like(h).index_add_(0, targets, h[sources]) @ weight)
        return h

    return step


def gradual_levels() -> Callable[[], Any]:
    """What equals a level is found from the level before: no count by index gives it."""
    edges, start = torch.rand(24, 24) < 0.2, torch.zeros(24)

    def step() -> Any:
        level = start.clone()
        level[0] = 1
        for at in range(8):
            reached = edges[level == at + 1].any(0)
            level = torch.where(reached & (level == 0), at + 2, level)
        return level

    return step


def copies_into_several() -> Callable[[], Any]:
    """As inputs are put where a compiled graph reads them: each has a buffer of its own."""
    parts = [torch.randn(4 + at, 16) for at in range(10)]
    buffers, weight = [torch.zeros_like(part) for part in parts], torch.randn(16, 16)

    def step() -> Any:
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part)
        return [buffers[0] @ weight, buffers[1] @ weight]

    return step


def casts() -> Callable[[], Any]:
    """Copies that other operators make: each weight in half precision."""
    weights = [torch.randn(8, 8 + at) for at in range(10)]
    return lambda: torch.cat([weight.to(torch.bfloat16) for weight in weights], 1)


def fills_of_several() -> Callable[[], Any]:
    """Buffers that are cleared one by one: no tensor holds them all."""
    buffers, weight = [torch.zeros(4, 16) for _ in range(10)], torch.randn(16, 16)

    def step() -> Any:
        for buffer in buffers:
            buffer.fill_(1.0)
        return [buffer @ weight for buffer in buffers[:2]]

    return step


def pages_read_apart() -> Callable[[], Any]:
    """What is gathered of each is not put together."""
    pages, weight = torch.randn(32, 4, 16), torch.randn(16, 4)

    def step() -> Any:
        gathered = [torch.cat([pages[at], pages[at + 3]]) for at in range(10)]
        return gathered[2] @ weight, gathered[7] @ weight

    return step


def one_picture_in_many_sizes() -> Callable[[], Any]:
    picture = torch.randn(1, 3, 32, 32)
    sizes = [(8 + at, 8 + at) for at in range(10)]
    return lambda: torch.stack([F.interpolate(picture, size=size, mode="bilinear").mean() for size in sizes])


def pictures_of_own_sizes() -> Callable[[], Any]:
    pictures = [torch.randn(1, 3, 16 + at, 16 + at) for at in range(10)]
    return lambda: torch.cat([F.interpolate(picture, size=(8, 8), mode="bilinear") for picture in pictures])


def hidden_states_bent() -> Callable[[], Any]:
    """What bends the state in between joins nothing beforehand."""
    said, change = torch.randn(6, 20, 4), torch.randn(4, 4)

    def step() -> Any:
        state = said[:, 0]
        for at in range(1, 20):
            state = torch.logsumexp(torch.sin(state)[..., None] + change, 1) + said[:, at]
        return state

    return step


def sums_of_uneven_counts() -> Callable[[], Any]:
    """Sums that begin anew, but not every so many: no loop around them has equal iterations."""
    x, counts = torch.randn(40, 8, 16), [2, 5, 3, 7, 4, 6, 5, 8]
    ends = list(itertools.accumulate(counts))

    def step() -> Any:
        sums = [sum(x[at].sin() for at in range(end - n, end)) for end, n in zip(ends, counts, strict=True)]
        return torch.stack(sums)

    return step


def own_noise() -> Callable[[], Any]:
    """What an iteration draws would come in another order."""
    scales, state = torch.rand(10, 64), torch.randn(64)

    def step() -> Any:
        x = state
        for at in range(10):
            x = torch.sin(x) * torch.randn(64).mul(scales[at]).sin().exp().sqrt()
        return x

    return step


def matrices_turned_in_place() -> Callable[[], Any]:
    """What is made for an iteration is kept in a tensor that the next one overwrites."""
    angles, state, kept = torch.randn(10, 64), torch.randn(64, 64), torch.zeros(64)

    def step() -> Any:
        x = state
        for at in range(10):
            kept.copy_(angles[at])
            x = x @ state * kept.sin().exp().sqrt()
        return x

    return step


def weights_of_layers_scaled() -> Callable[[], Any]:
    """Each layer has a weight of its own: no tensor holds them all."""
    weights, x = [torch.randn(16, 16) for _ in range(8)], torch.randn(4, 16)

    def step() -> Any:
        y = x
        for weight in weights:
            y = y @ weight.abs().sqrt().exp().sub(0.5)
        return y

    return step


NEAR_MISSES = (
    own_noise, matrices_turned_in_place, weights_of_layers_scaled,
    layers_of_recurrences, hidden_states_bent, sums_of_uneven_counts,
    attention_grows,
    one_picture_in_many_sizes, pictures_of_own_sizes,
    fills_of_several, pages_read_apart,
    copies_into_several, casts,
    one_layer_by_turns, message_passing, gradual_levels,
    layers_in_a_row, one_layer_again_and_again, power_iteration, sampler_with_schedule, own_output_as_input,
    queries_keys_values, four_small_calls, attended_recurrence, buckets, blocks_of_a_network, pyramid, sinkhorn,
    weights_that_change,
)  # fmt: skip


@pytest.mark.parametrize("made", NEAR_MISSES, ids=lambda made: made.__name__)
def test_what_only_looks_like_a_loop_to_rewrite_is_none(made: Made) -> None:
    assert over(made) == set()


# -- findings ----------------------------------------------------------------------------------------------------------


def found_in(made: Made) -> Any:
    torch.manual_seed(0)
    scan = mined(analysed(dispatched(made(), steps=2)))
    (found,) = (one for one in scan.findings if one.rule == "python_loop")
    return found


def test_a_finding_says_how_often_its_loop_turns_and_what_a_turn_takes() -> None:
    found = found_in(samples)
    assert found.title.startswith("Python loop over samples")
    assert (found.loop.turns, found.loop.launches, found.loop.dependence) == (12, 4, "independent")
    assert (found.loop.differs, found.loop.sizes_differ, found.loop.waits) == ("slices", False, False)
    assert found.loop.host_ns == 4_000
    assert "a loop of 12 iterations, 4 launches" in found.why
    assert "torch.func.vmap" in found.fix


def test_all_turns_at_once_take_one_turns_launches_and_no_less_than_their_bytes() -> None:
    found = found_in(samples)
    moved = 12 * 4 * 2 * 3 * 16 * 16 * 4  # read and written, in float32
    assert found.occurrences == 2
    assert found.traffic_bytes.before == pytest.approx(2 * moved, rel=0.01)
    assert 2 * 4 * 1_500 <= found.fused_ns.low <= found.fused_ns.mid < found.measured_ns / 4


@pytest.mark.parametrize(("blocks", "share"), [(2, 0.0), (32 * 132, 0.8)])
def test_turns_whose_blocks_fill_the_device_take_as_long_at_once(blocks: int, share: float) -> None:
    torch.manual_seed(0)
    timeline = dispatched(samples(), steps=2)
    grid = pa.array([[blocks, 1, 1]] * timeline.activities.num_rows, timeline.activities.schema.field("grid").type)
    dur = pa.array([20_000] * timeline.activities.num_rows, pa.int64())
    timeline = replace(timeline, activities=with_columns(timeline.activities, {"grid": grid, "dur_ns": dur}))
    (found,) = (one for one in mined(analysed(slow_host(timeline, 60))).findings if one.rule == "python_loop")
    assert found.fused_ns is not None
    assert share * found.measured_ns < found.fused_ns.mid < (share + 0.1) * found.measured_ns
    assert found.fused_ns.low < 0.1 * found.measured_ns


def large_samples() -> Callable[[], Any]:
    pictures = torch.zeros(6, 16, 1024, 1024)  # no page of them is written
    return lambda: torch.stack([(pictures[at] - 0.5).clamp(0, 1).mul(2).add(1) for at in range(6)])


def test_turns_that_fill_the_device_are_left_alone() -> None:
    scan = mined(analysed(dispatched(large_samples(), steps=2)))
    assert not [one for one in scan.findings if one.rule == "python_loop"]


def test_a_row_of_layers_has_no_loop_to_speak_of() -> None:
    scan = mined(analysed(dispatched(layers_in_a_row(), steps=2)))
    assert scan.findings
    assert {one.loop for one in scan.findings} == {None}


def small_but_busy() -> Callable[[], Any]:
    """Products as fast as one of all of them would be: there is only the host to be saved."""
    x, weights = torch.randn(1024, 1024), torch.randn(12, 1024, 1024)
    return lambda: torch.stack([torch.tanh(x @ weight) for weight in weights])


def test_turns_between_which_the_device_mostly_idles_do_not_fill_it() -> None:
    timeline = dispatched(small_but_busy(), steps=2)
    rules = {one.rule for one in mined(analysed(timeline)).findings}
    assert not rules & {"python_loop", "small_products_apart"}
    rules = {one.rule for one in mined(analysed(slow_host(timeline, 20))).findings}
    assert "small_products_apart" in rules


def slow_host(timeline: Timeline, times: int) -> Timeline:
    """The same program on a host so many times as slow: all begins later, kernels last as long."""
    tables = {}
    for name in ("activities", "api", "ops", "steps"):
        table = getattr(timeline, name)
        at = table.schema.get_field_index("start_ns")
        start = pa.array([value * times for value in table["start_ns"].to_pylist()], table.schema.field(at).type)
        tables[name] = table.set_column(at, table.schema.field(at), start)
    step = tables["steps"].schema.get_field_index("dur_ns")
    lasts = pa.array([value * times for value in timeline.steps["dur_ns"].to_pylist()], pa.int64())
    tables["steps"] = tables["steps"].set_column(step, tables["steps"].schema.field(step), lasts)
    return replace(timeline, **tables)
