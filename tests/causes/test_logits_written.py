"""Logits that only a loss reads, or of which few rows are read; and those of which nobody knows who reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.causes.logits import (
    AMAX,
    ARGMAX,
    DRAW,
    GATHER,
    LOG1P,
    LOG_SOFTMAX,
    MM,
    MUL,
    NLL,
    RELU,
    ROWS,
    SOFTMAX,
    SUB,
    SUM,
    TANH,
    WIDTH,
    WORDS,
    Steps,
)
from tests.flow.programs import T
from tracemine.causes.logits_written import Work, fewer_rows, in_strips
from tracemine.perfmodel import Curves
from tracemine.perfmodel.calibration import calibration_of
from tracemine.rows.table import number


def curves() -> Curves:
    calibration = calibration_of("NVIDIA H200 SXM")
    assert calibration is not None
    return Curves(calibration)


CURVES = curves()
Step = Callable[[Steps], None]


def trained(steps: Steps) -> None:
    steps.loss(steps.head())


def trained_and_returned(steps: Steps) -> None:
    steps.loss(steps.head(kept=True))


def trained_with_accuracy(steps: Steps) -> None:
    logits = steps.head()
    steps.call(ARGMAX, [logits], "best", steps.rows)
    steps.loss(logits)


def evaluated(steps: Steps) -> None:
    log = steps.wide(LOG_SOFTMAX, [steps.head()], "log")
    steps.call(NLL, [log, steps.tensor("labels", steps.rows)], "loss", steps.rows)


def chosen_words(steps: Steps) -> None:
    log = steps.wide(LOG_SOFTMAX, [steps.wide(TANH, [steps.head()], "capped")], "log")
    steps.call(GATHER, [log, steps.tensor("words", steps.rows, 1)], "chosen", steps.rows, 1)


def distilled(steps: Steps) -> None:
    student = steps.wide(LOG_SOFTMAX, [steps.head("of student")], "log of student")
    teacher = steps.wide(LOG_SOFTMAX, [steps.head("of teacher")], "log of teacher")
    apart = steps.wide(SUB, [teacher, student], "apart")
    steps.call(SUM, [steps.wide(MUL, [apart, teacher], "weighted")], "loss")


def last_of_each(steps: Steps) -> None:
    logits = steps.head()
    steps.call(TANH, [T(logits.storage, (8, steps.words), (512 * steps.words, 1), 511 * steps.words)], "next", 8, 32000)


def sparse(steps: Steps) -> None:
    """The head of a sparse encoder, and its gradient: what spreads it over tokens is of the logits too."""
    relu = steps.wide(RELU, [steps.head()], "relu")
    scores = steps.wide(LOG1P, [relu], "scores")
    most = steps.call(
        AMAX, [steps.wide(MUL, [scores, steps.tensor("mask", steps.rows, 1)], "seen")], "most", 8, steps.words
    )
    of_most = steps.call(TANH, [most], "of most", 8, steps.words)
    wide = (steps.rows, steps.words)
    spread = steps.backward(MUL, [of_most, steps.tensor("mask", steps.rows, 1)], "spread", *wide)
    of_relu = steps.backward(MUL, [spread, scores], "of relu", *wide)
    of_logits = steps.backward(MUL, [of_relu, relu], "of logits", *wide)
    steps.backward(MM, [of_logits, steps.tensor("weight'", steps.words, WIDTH)], "of hidden", steps.rows, WIDTH)


def largest_of_positive(steps: Steps) -> None:
    steps.call(AMAX, [steps.wide(RELU, [steps.head()], "relu")], "most", 8, steps.words)


@pytest.mark.parametrize(
    ("step", "use", "count"),
    [
        (trained, "loss", 7),
        (trained_and_returned, "loss", 7),
        (trained_with_accuracy, "loss", 8),
        (evaluated, "loss", 3),
        (chosen_words, "log probabilities", 4),
        (distilled, "divergence", 7),
        (last_of_each, "last rows", 1),
        (sparse, "maximum", 9),
    ],
)
def test_all_that_works_on_logits_is_told_and_what_they_are_for(step: Step, use: str, count: int) -> None:
    found = Steps(step).uses
    assert [each for each in found if each] == [use] * count
    assert {*found} <= {use, None}


@pytest.mark.parametrize(("begins", "percent"), [((ROWS - 128,), 4), ((0, ROWS - 128), 7), ((), 100)])
def test_of_what_is_picked_of_log_probabilities_few_may_be_read(begins: tuple[int, ...], percent: int) -> None:
    def scored(steps: Steps) -> None:
        log = steps.wide(LOG_SOFTMAX, [steps.head()], "log")
        chosen = steps.call(GATHER, [log, steps.tensor("words", steps.rows, 1)], "chosen", steps.rows, 1)
        for begin in begins:  # none: it is kept
            steps.call(TANH, [T(chosen.storage, (128, 1), (1, 1), begin)], f"scores of {begin}", 128, 1)

    assert {int(each) for each in number(Steps(scored).activities, "logits_read_percent") if each > 0} == {percent}


def drawn_from(steps: Steps) -> None:
    steps.call(DRAW, [steps.wide(SOFTMAX, [steps.head()], "share")], "words", steps.rows, 1)


def returned(steps: Steps) -> None:
    steps.wide(LOG_SOFTMAX, [steps.head(kept=True)], "log")
    evaluated(steps)


def drafts_verified(steps: Steps) -> None:
    share = steps.wide(SOFTMAX, [steps.head()], "share")
    steps.call(GATHER, [share, steps.tensor("words", steps.rows, 1)], "chosen", steps.rows, 1)
    steps.call(ARGMAX, [share], "best", steps.rows)


def heads_contrasted(steps: Steps) -> None:
    apart = steps.wide(SUB, [steps.head("of expert"), steps.head("of amateur")], "apart")
    steps.call(ARGMAX, [apart], "best", steps.rows)


def log_returned(steps: Steps) -> None:
    log = steps.wide(LOG_SOFTMAX, [steps.head()], "log", kept=True)
    steps.call(GATHER, [log, steps.tensor("words", steps.rows, 1)], "chosen", steps.rows, 1)


def read_by_nothing(steps: Steps) -> None:
    steps.head()


def largest_alone(steps: Steps) -> None:
    steps.call(AMAX, [steps.wide(TANH, [steps.head()], "capped")], "most", 8, steps.words)


def attention(steps: Steps) -> None:
    share = steps.wide(SOFTMAX, [steps.head("scores")], "share")
    steps.call(MM, [share, steps.tensor("values", steps.words, 64)], "mixed", steps.rows, 64)


def half_of_the_rows(steps: Steps) -> None:
    logits = steps.head()
    part = T(logits.storage, (steps.rows // 2, steps.words), (steps.words, 1))
    steps.call(DRAW, [part], "words", steps.rows // 2, 1)


@pytest.mark.parametrize(
    "step",
    [
        drawn_from,
        drafts_verified,
        heads_contrasted,
        log_returned,
        read_by_nothing,
        largest_alone,
        largest_of_positive,
        attention,
        half_of_the_rows,
    ],
)
def test_where_something_else_may_read_them_nothing_is_said(step: Step) -> None:
    assert not any(Steps(step).uses)


def test_logits_that_are_kept_without_a_gradient_may_be_read() -> None:
    found = [each for each in Steps(returned).uses if each]
    assert len(found) == 3


@pytest.mark.parametrize(("rows", "words"), [(4096, 4096), (256, 32_000)])
def test_few_words_or_few_rows_stay_in_the_cache(rows: int, words: int) -> None:
    assert any(Steps(trained).uses)
    assert not any(Steps(trained, rows, words).uses)


@pytest.mark.parametrize(("step", "tensors"), [(trained, 3), (evaluated, 2), (chosen_words, 2), (sparse, 4)])
def test_what_is_needed_at_once_lasts_until_its_last_reader(step: Step, tensors: int) -> None:
    peaks = {int(each) for each in number(Steps(step).activities, "logits_peak_bytes") if each > 0}
    assert peaks == {tensors * 4 * ROWS * WORDS}


# --- what it saves ----------------------------------------------------------------------------------------------------

# Recorded: 4,096 rows of 50,304 words on an H200, in bfloat16.
RECORDED = Work(products_ns=1_470_000, others_ns=2_740_000, nbytes=2 * 4096 * 50_304, trained=True, labelled=True)


def test_what_was_measured_lies_within() -> None:
    """Of 4.25 ms the labelled quarter saves 3.05, and torch.compile, which leaves head and products, 2.17."""
    after = in_strips(RECORDED, CURVES).after_ns
    assert after.low < 4_254_000 - 3_046_000 < after.mid
    assert after.mid < 4_254_000 - 2_175_000 < after.high * 1.1


def test_without_labels_no_row_is_left_out() -> None:
    known = in_strips(RECORDED, CURVES).after_ns
    divergence = in_strips(
        Work(products_ns=1_470_000, others_ns=2_740_000, nbytes=RECORDED.nbytes, trained=True, labelled=False), CURVES
    )
    assert divergence.after_ns.mid == known.mid
    assert divergence.after_ns.low > 1_470_000 > known.low


def test_fewer_rows_still_read_the_weight() -> None:
    work = Work(
        products_ns=389_000, others_ns=390_000, nbytes=2 * 1536 * 64_000, trained=False, labelled=False,
        weight_bytes=2 * 1536 * 64_000, read_percent=1,
    )  # fmt: skip
    after = fewer_rows(work, CURVES).after_ns
    assert 30_000 < after.low < after.mid < 80_000


def test_memory_that_goes_away_is_said_where_it_is_more_than_a_strip() -> None:
    said = in_strips(replace(RECORDED, peak_bytes=3 * 4 * 4096 * 50_304), CURVES).assumptions
    assert any("about 2.2 GB less is needed at once" in text for text in said)
    assert len(in_strips(replace(RECORDED, peak_bytes=300 << 20), CURVES).assumptions) == len(said) - 1
