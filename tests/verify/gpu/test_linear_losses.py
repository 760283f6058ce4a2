# ruff: noqa: E501
"""Heads in strips: results and gradients against float64, as kernels and without, and pages with a mistake planted."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.verify.gpu import linear_cases as cases  # noqa: E402
from tracemine.fix.diff import PAGES, page_text  # noqa: E402
from tracemine.verify.gpu import linear_losses, strips, vocabulary_max  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:reduction. .mean.:UserWarning"),
]
CASES = [
    (linear_losses, cases.cross_entropy),
    (linear_losses, cases.sums_of_strips),
    (linear_losses, cases.far_logits),
    (linear_losses, cases.log_probs),
    (linear_losses, cases.divergence),
    (vocabulary_max, cases.largest),
]


def in_blocks(words: int, most: int = 0) -> dict[str, int]:
    """How a row is walked here: in several blocks, as long ones are."""
    return {"BLOCK": 64, "num_warps": 4}


@pytest.mark.filterwarnings("ignore:(overflow|divide by zero) encountered in")  # a GPU gives infinity
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(("module", "case"), CASES, ids=[case.__name__ for _, case in CASES])
def test_results_and_gradients_are_as_near_to_float64_as_eagers(
    module: Any, case: Callable[[Any], Iterator[str]], kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strips, "_INTERPRETED", kernels)
    monkeypatch.setattr(linear_losses, "row_block", in_blocks)
    assert list(case(module)) == []


# Of a page, a case that sees it, a text and what it becomes.
# fmt: off
MUTANTS = [
    ("linear_losses", cases.cross_entropy, "range(0, len(hidden), rows)", "range(0, len(hidden) - 1, rows)"),
    ("linear_losses", cases.cross_entropy, "range(0, len(hidden), rows)", "range(rows, len(hidden), rows)"),
    ("linear_losses", cases.cross_entropy, "min(first + rows, len(hidden))", "min(first + rows, len(hidden) - 1)"),
    ("linear_losses", cases.cross_entropy, "+= gradient.sum(0,", "+= gradient.abs().sum(0,"),
    ("linear_losses", cases.cross_entropy, "beta=0 if self._first else 1", "beta=0"),
    ("linear_losses", cases.sums_of_strips, "torch.float32)\n\n\ndef strip_rows", "tensor.dtype)\n\n\ndef strip_rows"),
    ("linear_losses", cases.cross_entropy, "torch.mm(gradient, self._weight", "torch.mm(-gradient, self._weight"),
    ("linear_losses", cases.cross_entropy, "tl.float32) * number", "tl.float32)"),
    ("linear_losses", cases.cross_entropy, "number != 1.0", "number == 1.0"),
    ("linear_losses", cases.cross_entropy, "first.reciprocal() if", "torch.ones_like(first) if"),
    ("linear_losses", cases.cross_entropy, "gradient * ctx.rest", "gradient"),
    ("linear_losses", cases.cross_entropy, "divisor.where(divisor > 0, 1)", "divisor"),
    ("linear_losses", cases.cross_entropy, "gradient * ctx.rest", "ctx.rest"),
    ("linear_losses", cases.cross_entropy, "return total / divisor", "return total / len(hidden)"),
    ("linear_losses", cases.cross_entropy, "losses[place] =", "losses[: place.stop - place.start] ="),
    ("linear_losses", cases.cross_entropy, "ctx.sums[place], known=True", "ctx.sums, known=True"),
    ("linear_losses", cases.cross_entropy, "gradient[place].contiguous()", "gradient.contiguous()"),
    ("linear_losses", cases.cross_entropy, "counted = self.labels != self.ignored", "counted = self.labels == self.labels"),
    ("linear_losses", cases.cross_entropy, "counted = label != ignored", "counted = label >= 0"),
    ("linear_losses", cases.cross_entropy, "self.labels[place]", "self.labels[: place.stop - place.start]"),
    ("linear_losses", cases.cross_entropy, "chosen = (1.0 - smoothing) * own", "chosen = own"),
    ("linear_losses", cases.cross_entropy, "spread * tl.load(all_weights)", "spread"),
    ("linear_losses", cases.cross_entropy, "            total += _exponentials(z, base, BLOCK)\n", ""),
    ("linear_losses", cases.cross_entropy, "tl.sum(total + _exponentials(z, base, BLOCK), 0)", "tl.sum(total, 0)"),
    ("linear_losses", cases.cross_entropy, "log_sum = base + tl.log2(whole)", "log_sum = tl.log2(whole)"),
    ("linear_losses", cases.cross_entropy, "found = log_sum * LN_2", "found = log_sum"),
    ("linear_losses", cases.cross_entropy, "tl.load(sums + row) * LOG2_E", "tl.load(sums + row)"),
    ("linear_losses", cases.cross_entropy, "column = (blocks - 1) * BLOCK + lane", "column = lane"),
    ("linear_losses", cases.cross_entropy, "first = (blocks - 1 - back) * BLOCK", "first = back * BLOCK"),
    ("linear_losses", cases.cross_entropy, "logits + column - BLOCK, mask", "logits + column, mask"),
    ("linear_losses", cases.cross_entropy, "mask=column >= BLOCK, other", "mask=column > BLOCK, other"),
    ("linear_losses", cases.far_logits, '(whole < 0.5) | (whole == float("inf"))', "whole < 0.5"),
    ("linear_losses", cases.far_logits, "whole < 0.5", "whole == 0.0"),
    ("linear_losses", cases.far_logits, '(whole < 0.5) | (whole == float("inf"))', 'whole == float("inf")'),
    ("linear_losses", cases.far_logits, 'tl.where(base == -float("inf"), 0.0, base)', "base"),
    ("linear_losses", cases.far_logits, 'tl.where(largest == -float("inf"), 0.0, largest * LOG2_E)', "0.0"),
    ("linear_losses", cases.far_logits, "largest = tl.maximum(largest, ", "largest = tl.minimum(largest, "),
    ("linear_losses", cases.cross_entropy, "- chosen * at_label", ""),
    ("linear_losses", cases.cross_entropy, " - spread * smooth", ""),
    ("linear_losses", cases.cross_entropy, "tl.float32), 0.0) * of_word", "tl.float32), 0.0)"),
    ("linear_losses", cases.cross_entropy, "factors + row * factor_step", "factors"),
    ("linear_losses", cases.cross_entropy, "column == label", "tl.arange(0, BLOCK) == label"),
    ("linear_losses", cases.cross_entropy, "gradient = count * tl.exp2", "gradient = chosen * tl.exp2"),
    ("linear_losses", cases.cross_entropy, "gradient -= spread * of_word", "gradient -= spread"),
    ("linear_losses", cases.cross_entropy, "tl.where(counted, gradient * factor, 0.0)", "gradient * factor"),
    ("linear_losses", cases.cross_entropy, "logits += row.to(tl.int64) * stride", "logits += row.to(tl.int64) * words"),
    ("linear_losses", cases.log_probs, "return -linear_cross_entropy(", "return linear_cross_entropy("),
    ("linear_losses", cases.log_probs, "ignore_index=ignore_index, reduction", "reduction"),
    ("linear_losses", cases.divergence, "1 / temperature", "temperature"),
    ("linear_losses", cases.divergence, "counted * count", "counted"),
    ("linear_losses", cases.divergence, "kept.sum(dtype", "torch.ones_like(kept).sum(dtype"),
    ("linear_losses", cases.divergence, "self.hidden[place], self.weight", "self.hidden[: place.stop - place.start], self.weight"),
    ("linear_losses", cases.divergence, "((theirs - highest) - (ours - higher))", "(theirs - highest)"),
    ("linear_losses", cases.divergence, "their_sum * less", "their_sum"),
    ("linear_losses", cases.divergence, "apart = less * (apart + ", "apart = (apart + "),
    ("linear_losses", cases.divergence, "their_sum - tl.log(their_sum) + tl.log", "their_sum + tl.log(their_sum) - tl.log"),
    ("linear_losses", cases.divergence, "tl.exp(z - ours) - tl.exp(w - theirs)", "tl.exp(w - theirs) - tl.exp(z - ours)"),
    ("linear_losses", cases.divergence, "tl.load(factors).to(tl.float32) * sharper", "tl.load(factors).to(tl.float32)"),
    ("linear_losses", cases.divergence, "counted = tl.load(kept + row) != 0", "counted = row >= 0"),
    ("linear_losses", cases.divergence, "other=0.0).to(tl.float32) * sharper", "other=0.0).to(tl.float32)"),
    ("vocabulary_max", cases.largest, "kept[:, None], z, -float", "kept[:, None], z, 0.0 * float"),
    ("vocabulary_max", cases.largest, "z > best, at[:, None]", "z > best, tl.arange(0, TOKENS)[:, None]"),
    ("vocabulary_max", cases.largest, "logits += document * tokens * stride", "logits += document * stride"),
    ("vocabulary_max", cases.largest, "mask + document * tokens + at", "mask + at"),
    ("vocabulary_max", cases.largest, "best = tl.maximum(best, z, ", "best = tl.maximum(z, z, "),
    ("vocabulary_max", cases.largest, "tl.where(tl.max((best != best).to(tl.int32), 0) > 0, float(\"nan\"), tl.max(best, 0))", "tl.max(best, 0)"),
    ("vocabulary_max", cases.largest, "kept[None, :], z, -float", "kept[None, :], z, 0.0 * float"),
    ("vocabulary_max", cases.largest, "hidden.load([document, part * TOKENS, first])", "hidden.load([document, 0, first])"),
    ("vocabulary_max", cases.largest, "weight.load([block * WORDS, first])", "weight.load([0, first])"),
    ("vocabulary_max", cases.largest, "at = part * TOKENS + tl.arange", "at = tl.arange"),
    ("vocabulary_max", cases.largest, "tl.reduce(z, 1, _larger_logit)", "tl.max(z, 1)"),
    ("vocabulary_max", cases.largest, "z == of_part[:, None]", "z >= 0"),
    ("vocabulary_max", cases.largest, "tl.where(part == 0, -float", "tl.where(part < 0, -float"),
    ("vocabulary_max", cases.largest, "(part == 0) | (of_part > before)", "of_part == of_part"),
    ("vocabulary_max", cases.largest, "best = tl.maximum(before, of_part, ", "best = tl.maximum(of_part, of_part, "),
    ("vocabulary_max", cases.largest, "(part == PARTS - 1)", "(part == 0)"),
    ("vocabulary_max", cases.largest, "found = best if bias is None", "found = best if token is None"),
    ("vocabulary_max", cases.largest, "found = tl.maximum(found, 0.0, ", "found = tl.maximum(found, found, "),
    ("vocabulary_max", cases.largest, "found < 2**-8", "found < 2**-30"),
    ("vocabulary_max", cases.largest, "found < 2**-8", "found < 2**8"),
    ("vocabulary_max", cases.largest, "at[:, None] == which[None, :]", "at[:, None] >= which[None, :]"),
    ("vocabulary_max", cases.largest, "largest > 0, gradient", "largest > -9, gradient"),
    ("vocabulary_max", cases.largest, "gradient / (1 + largest)", "gradient"),
    ("vocabulary_max", cases.largest, "positive.log1p_()", "positive"),
    ("vocabulary_max", cases.largest, "mask[own], largest[own]", "mask[: own.stop - own.start], largest[own]"),
    ("vocabulary_max", cases.largest, "gradient[own], token[own]", "gradient[own], token[: own.stop - own.start]"),
    ("vocabulary_max", cases.largest, "made.add(place, flat[place]", "made.add(place, flat[: place.stop - place.start]"),
    ("vocabulary_max", cases.largest, "of_bias = gradient.sum(0", "of_bias = gradient.abs().sum(0"),
]
# fmt: on


def page(text: str, folder: Path, number: int) -> Any:
    """A module of a text: Triton reads kernels from a file."""
    path = folder / f"page_{number}.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["row_block"] = in_blocks
    return module


def first_fault(space: Any, case: Callable[[Any], Iterator[str]]) -> str | None:
    try:
        return next(case(space), None)
    except Exception as error:  # a mutant may raise anything
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore:(overflow|divide by zero) encountered in")  # a GPU gives infinity
@pytest.mark.parametrize("name", list(PAGES))
def test_every_mistake_in_a_page_is_seen(name: str, tmp_path: Path) -> None:
    text, lost = page_text(name), list[str]()
    for number, (_, case, old, new) in enumerate(m for m in MUTANTS if m[0] == name):
        assert old in text, old
        if first_fault(page(text.replace(old, new), tmp_path, number), case) is None:
            lost.append(f"{old} becomes {new}")
    assert lost == []


def test_a_page_needs_nothing_of_this_package(tmp_path: Path) -> None:
    for number, (name, (_, case)) in enumerate(itertools.product(PAGES, CASES)):
        if hasattr(page(page_text(name), tmp_path, number), "linear_kl_div") == (case is not cases.largest):
            assert "import tracemine" not in page_text(name) and "from tracemine" not in page_text(name)
