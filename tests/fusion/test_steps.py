"""What calls are taken to compute an element."""

from __future__ import annotations

import json

from tracemine.fusion.nodes import Meaning, meaning_of

IMAGE, CHANNELS = [32, 64, 56, 56], [64]


def batch_norm(training: bool) -> Meaning:
    shapes = [IMAGE, *[CHANNELS] * 4, [], [], []]
    types = ["float", *["float"] * 4, "Scalar", "Scalar", "Scalar"]
    concrete = ["", "", "", "", "", str(training), "0.1", "1e-05"]
    return meaning_of("aten::native_batch_norm", json.dumps(shapes), json.dumps(types), None, json.dumps(concrete))


def test_a_batch_norm_reduces_in_training_and_uses_its_channel_for_each_element_always() -> None:
    training, inference = batch_norm(training=True), batch_norm(training=False)
    assert training.steps == ("welford", "channel") and training.space is not None
    assert inference.steps == ("channel",) and inference.space is None


def test_a_batch_norm_backward_needs_two_sums_of_a_channel() -> None:
    shapes = json.dumps([IMAGE, IMAGE, *[CHANNELS] * 5, [], [], []])
    types = json.dumps([*["float"] * 7, "Scalar", "Scalar", "ScalarList"])
    concrete = json.dumps([*[""] * 7, "True", "1e-05", "[True, True, True]"])
    backward = meaning_of("aten::native_batch_norm_backward", shapes, types, None, concrete)
    assert backward.steps == ("sum", "sum", "channel")
