"""infer: held to execution traces of the same runs, to torch's own counter of flops, and to hostile records."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tests.ops.kineto_inputs import recorded
from tests.ops.recorded_calls import ROOT, disagreement, events, pairs, recorded_calls
from tests.screens import Reading
from tracemine.ops import lookup, operator_names
from tracemine.ops.infer import TensorSpec, infer
from tracemine.ops.infer.outputs import table

aten = torch.ops.aten


# --- against recordings ----------------------------------------------------------------------------------------------


def test_inferred_outputs_are_those_in_the_execution_trace_of_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    unclaimed: Counter[str] = Counter()
    for kineto, trace in pairs():
        for call in recorded_calls(kineto, trace):
            found = infer(call.operator, *call.inputs)
            fault = found.reason if found.outputs is None else disagreement(found.outputs, call.outputs)
            verdicts["right" if fault is None else "wrong"] += 1
            if fault is not None:
                wrong[f"{call.operator}: {fault}"] += 1
            elif any(o is None or o.dtype is None or o.strides is None for o in found.outputs or ()):
                unclaimed[call.operator] += 1
    total = verdicts.total()
    with capsys.disabled():
        print(
            f"\n{verdicts['right']} of {total} calls agree; in part not told: {dict(unclaimed)}; wrong: {dict(wrong)}"
        )
    assert total > 1000
    assert verdicts["right"] >= 0.99 * total
    assert unclaimed.total() <= 0.05 * total


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _outputs_known(name: str, texts: tuple[Any, ...]) -> str | None:
    """None where the outputs are known, else why not."""
    shapes, types, strides, concrete = (_decoded(text) for text in texts)
    found = infer(name, shapes, types, strides, concrete)
    return None if found.outputs is not None else found.reason


def _coverage(paths: list[Path], reading: Callable[[Path], Reading]) -> tuple[float, Counter[str]]:
    """Share by GPU time of operators of torch that recorded their inputs and whose outputs are known; the rest."""
    known, rest = 0, Counter[str]()
    for path in paths:
        for (name, inputs), duration in reading(path).owned.items():
            if inputs is None or not name.startswith("aten::"):
                continue  # nothing was recorded; collectives, generated kernels and others' operators
            reason = _outputs_known(name, inputs)
            if reason is None:
                known += duration
            else:
                rest[f"{name}: {reason}"] += duration
    return known / max(known + rest.total(), 1), rest


def test_outputs_are_known_for_nearly_all_gpu_time_of_the_fixtures(
    capsys: pytest.CaptureFixture[str], reading: Callable[[Path], Reading]
) -> None:
    paths = sorted((ROOT / "fixtures" / "kineto").glob("*.json.gz"))
    share, rest = _coverage(paths, reading)
    with capsys.disabled():
        print(f"\nfixtures: outputs known for {share:.2%} of the GPU time; not: {dict(rest)}")
    assert share >= 0.97


def test_outputs_are_known_for_nearly_all_gpu_time_of_public_traces(
    capsys: pytest.CaptureFixture[str], reading: Callable[[Path], Reading]
) -> None:
    folder = os.environ.get("TRACEMINE_COMPAT_TRACES")
    if not folder:
        pytest.skip("TRACEMINE_COMPAT_TRACES is not set")
    shares = {}
    for group in ("tracelens_*", "h200", "dist", "*"):
        pattern = f"{group}/**/*.json.gz" if group in ("h200", "dist") else f"kineto/{group}.json*"
        paths = [p for p in sorted(Path(folder).glob(pattern)) if "et.json" not in p.name and "_et_" not in p.name]
        share, rest = _coverage(paths, reading)
        shares[group] = share
        with capsys.disabled():
            print(f"\n{group}: outputs known for {share:.2%} of the GPU time with inputs; not: {rest.most_common(8)}")
    assert shares["tracelens_*"] >= 0.97
    assert shares["h200"] >= 0.97
    assert shares["dist"] >= 0.97


def test_the_tests_write_calls_down_as_kineto_does(tmp_path: Path) -> None:
    x, y = torch.randn(4, 6).t(), torch.randn(4).half()
    image, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (aten.mul.Tensor, (x, y), {}),
        (aten.mul.Tensor, (x, 2.0), {}),
        (aten.add.Tensor, (x, 3), {"alpha": 2}),
        (aten.sum.dim_IntList, (x, [0, -1], True), {"dtype": torch.float64}),
        (aten.cat.default, ([x, x], 1), {}),
        (aten.pow.Tensor_Scalar, (x, 2), {}),
        (aten.clamp.default, (x, None, 1.5), {}),
        (aten.gelu.default, (x,), {"approximate": "tanh"}),
        (aten.transpose.int, (x, 0, 1), {}),
        (aten.slice.Tensor, (x, 0, 1, None, 2), {}),
        (aten.convolution.default, (image, kernel, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1), {}),
        (aten.native_layer_norm.default, (x, [4], None, None, 1e-5), {}),
        (aten.index.Tensor, (x, [None, torch.tensor([0, 1])]), {}),
        (aten.empty.memory_format, ([2, 3, 4, 5],), {"dtype": torch.bfloat16, "memory_format": torch.channels_last}),
    ]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for overload, args, kwargs in calls:
            overload(*args, **kwargs)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    seen = {(name, repr(list(inputs))) for name, inputs, _ in events(tmp_path / "trace.json")}
    for overload, args, kwargs in calls:
        assert (overload._schema.name, repr(list(recorded(overload, args, kwargs)))) in seen, overload


@pytest.mark.parametrize("lengths", [[], [0, 0], [0, -1], [-1, 0, 0, -1], [0, 1], [-1, 1]])
def test_padding_that_adds_nothing_keeps_the_layout(lengths: list[int]) -> None:
    x = torch.zeros(3, 4, 5).permute(2, 0, 1)
    (found,) = _infer(aten.constant_pad_nd.default, x, lengths, 0).outputs
    truth = aten.constant_pad_nd.default(x, lengths, 0)
    assert (found.shape, found.strides) == (tuple(truth.shape), truth.stride())


# --- traffic and flops -----------------------------------------------------------------------------------------------


def _infer(overload: Any, *args: Any, **kwargs: Any) -> Any:
    if overload._schema.arguments[-1].is_out:
        kwargs = {"out": _empty(0, dtype=torch.int64)}
    return infer(overload._schema.name, *recorded(overload, args, kwargs))


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("dim", range(5))
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_stack_of_channels_last_images_keeps_their_layout_between_its_axes(
    dim: int, layout: torch.memory_format
) -> None:
    images = [torch.zeros(6, 5, 4, 3).to(memory_format=layout)] * 2
    outputs = infer("aten::stack", *recorded(aten.stack.default, [images, dim], {})).outputs
    assert outputs is not None
    (found,) = outputs
    assert found is not None
    made = torch.stack(images, dim)
    assert (found.shape, found.strides) == (tuple(made.shape), made.stride())


@pytest.mark.parametrize(
    ("call", "read", "written"),
    [
        ((aten.mul.Tensor, _empty(4, 8), _empty(8)), 80, 64),
        ((aten.mul.Tensor, _empty(4, 8), 2.0), 64, 64),  # a Python number is no traffic
        ((aten.mul.Tensor, _empty(4, 8), _empty(1, 8).expand(4, 8)), 80, 64),  # broadcast elements count once
        ((aten.mul_.Tensor, _empty(4, 8), _empty(8)), 80, 64),
        ((aten.copy_.default, _empty(4, 8), _empty(4, 8, dtype=torch.float32)), 128, 64),  # overwritten, not read
        ((aten.fill_.Scalar, _empty(4, 8), 1.0), 0, 64),
        ((aten.transpose.int, _empty(4, 8), 0, 1), 0, 0),
        ((aten.reshape.default, _empty(4, 8), [32]), 0, 0),
        ((aten.reshape.default, _empty(4, 8).t(), [32]), 64, 64),  # must copy
        ((aten.contiguous.default, _empty(4, 8)), 0, 0),
        ((aten.embedding.default, _empty(1000, 8), _empty(4, dtype=torch.int64)), 96, 64),  # rows read, not the table
        ((aten.gather.default, _empty(1000, 8), 0, _empty(2, 8, dtype=torch.int64)), 160, 32),
        ((aten.sum.dim_IntList, _empty(4, 8), [1]), 64, 8),
        ((aten.native_layer_norm.default, _empty(4, 8), [8], _empty(8), None, 1e-5), 80, 64 + 32),
        ((aten.native_dropout.default, _empty(4, 8), 0.1, True), 64, 64 + 32),
        ((aten.mm.default, _empty(4, 8), _empty(8, 2)), 96, 16),
        (
            (
                aten.max_pool2d_with_indices_backward.default,
                _empty(1, 1, 2, 2),
                _empty(1, 1, 4, 4),
                [2, 2],
                [2, 2],
                [0, 0],
                [1, 1],
                False,
                _empty(1, 1, 2, 2, dtype=torch.int64),
            ),
            40,
            32,
        ),
        ((aten.scatter_add_.default, _empty(100, 8), 0, _empty(2, 8, dtype=torch.int64), _empty(2, 8)), 192, 32),
        ((aten.index.Tensor, _empty(4, 8), [_empty(2, dtype=torch.int64)]), None, None),  # indices are not recorded
        ((aten.cat.default, [_empty(4, 8), _empty(4, 8)]), None, None),  # nor is the dtype of a list's members
        ((aten.nonzero.default, _empty(4)), None, None),
        ((aten.arange.start_out, 0, 559, 1), 0, 559 * 8),  # an empty out= takes the result's size
    ],
)
def test_traffic_counts_each_element_that_must_move_once(call: Any, read: int | None, written: int | None) -> None:
    found = _infer(*call)
    assert (found.bytes_read, found.bytes_written) == (read, written)


def test_a_dtype_told_for_lists_completes_cat() -> None:
    shapes, types = [[[4, 8], [4, 8]], []], ["TensorList", "Scalar"]
    found = infer("aten::cat", shapes, types, None, ["", "0"], list_dtype="bfloat16")
    assert found.outputs == (TensorSpec((8, 8), "bfloat16", (8, 1)),)
    assert (found.bytes_read, found.bytes_written, found.flops) == (128, 128, 0)


_FLOPS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.mm.default, (_empty(3, 4), _empty(4, 5)), {}),
    (aten.addmm.default, (_empty(5), _empty(3, 4), _empty(4, 5)), {}),
    (aten.bmm.default, (_empty(2, 3, 4), _empty(2, 4, 5)), {}),
    (aten.baddbmm.default, (_empty(2, 3, 5), _empty(2, 3, 4), _empty(2, 4, 5)), {}),
    (
        aten.convolution.default,
        (_empty(2, 4, 9, 9), _empty(6, 2, 3, 3), None, [2, 1], [1, 1], [1, 2], False, [0, 0], 2),
        {},
    ),
    (
        aten.convolution.default,
        (_empty(2, 4, 9, 9), _empty(4, 3, 3, 3), None, [2, 1], [1, 1], [1, 1], True, [0, 0], 2),
        {},
    ),
    (
        aten.convolution_backward.default,
        (
            _empty(2, 6, 9, 9),
            _empty(2, 4, 9, 9),
            _empty(6, 4, 3, 3),
            None,
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
            [True, True, False],
        ),
        {},
    ),
    (
        aten._scaled_dot_product_flash_attention.default,
        (_empty(2, 3, 4, 8), _empty(2, 3, 6, 8), _empty(2, 3, 6, 8)),
        {},
    ),
    (
        aten._scaled_dot_product_efficient_attention.default,
        (_empty(2, 3, 4, 8), _empty(2, 3, 6, 8), _empty(2, 3, 6, 8), None, True),
        {},
    ),
    (
        aten._scaled_dot_product_cudnn_attention.default,
        (_empty(2, 3, 4, 8), _empty(2, 3, 6, 8), _empty(2, 3, 6, 8), None, True),
        {},
    ),
    (aten.linear.default, (_empty(3, 4), _empty(5, 4), _empty(5)), {}),
    (
        aten.convolution_backward.default,
        (
            *(_empty(2, 6, 8, 8), _empty(2, 4, 9, 9), _empty(6, 2, 3, 3), None),
            *([1, 1], [1, 1], [1, 1], False, [0, 0], 2, [True, False, False]),
        ),
        {},
    ),
    (
        aten.convolution_backward.default,
        (
            *(_empty(2, 6, 18, 18), _empty(2, 4, 9, 9), _empty(4, 6, 2, 2), None),
            *([2, 2], [0, 0], [1, 1], True, [0, 0], 1, [True, False, False]),
        ),
        {},
    ),
    (
        aten._scaled_dot_product_flash_attention_backward.default,
        (
            *(_empty(2, 3, 4, 8), _empty(2, 3, 4, 8), _empty(2, 3, 6, 8), _empty(2, 3, 6, 8), _empty(2, 3, 4, 8)),
            *(_empty(2, 3, 4, dtype=torch.float32), None, None, 4, 6, 0.0, False),
            *(_empty(2, dtype=torch.int64), _empty(1, dtype=torch.int64)),
        ),
        {},
    ),
]


@pytest.mark.parametrize(("overload", "args", "kwargs"), _FLOPS, ids=lambda part: str(part)[:60])
def test_flops_are_those_that_torch_counts(overload: Any, args: Any, kwargs: Any) -> None:
    with FlopCounterMode(display=False) as counter:
        overload(*args, **kwargs)
    assert counter.get_total_flops() > 0
    assert _infer(overload, *args, **kwargs).flops == counter.get_total_flops()


def test_a_grouped_weight_s_gradient_counts_the_channels_of_its_group() -> None:
    """torch's counter takes every group's gradient over all channels, which is so many times too much."""
    groups, shapes = 2, (_empty(2, 6, 8, 8), _empty(2, 4, 9, 9), _empty(6, 2, 3, 3))
    overload = aten.convolution_backward.default
    call = (*shapes, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, [False, True, False])
    with FlopCounterMode(display=False) as counter:
        overload(*call)
    assert _infer(overload, *call).flops * groups == counter.get_total_flops()


def test_causal_attention_counts_half() -> None:
    q = _empty(2, 3, 4, 8)
    flash = aten._scaled_dot_product_flash_attention.default
    assert _infer(flash, q, q, q, 0.0, True).flops * 2 == _infer(flash, q, q, q, 0.0, False).flops


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ((aten.add.Tensor, _empty(4, 8), _empty(8)), 32),
        ((aten.addcmul.default, _empty(4, 8), _empty(8), _empty(8)), 96),
        ((aten.sum.dim_IntList, _empty(4, 8), [1]), 32),
        ((aten._softmax.default, _empty(4, 8), 1, False), 160),
        ((aten.transpose.int, _empty(4, 8), 0, 1), 0),
        ((aten.copy_.default, _empty(4), _empty(4)), 0),
        ((aten.sort.default, _empty(4)), None),
    ],
)
def test_flops_of_other_classes_follow_the_table(call: Any, count: int | None) -> None:
    assert _infer(*call).flops == count


# --- what cannot be known, and hostile records -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "inputs", "reason"),
    [
        ("aten::nonzero", ([[4]], ["bool"], [[1]], [""]), "the operator has no output rule"),
        ("mine::kernel", ([[4]], ["float"], [[1]], [""]), "the operator is not known"),
        (
            "aten::sum",
            ([[4], [], [], []], ["float", "ScalarList", "Scalar", ""], None, None),
            "the values of arguments were not recorded",
        ),
        ("aten::sum", ([[4]], ["float", "Scalar"], None, None), "the recorded shapes and types do not pair"),
        ("aten::mul", ([[4], [5]], ["float", "float"], None, None), "the inputs do not fit the operator"),
        ("aten::relu", ([[-1]], ["float"], None, None), "a recorded shape is damaged"),
        ("aten::relu", ([[1 << 70]], ["float"], None, None), "a recorded shape is damaged"),
        ("aten::relu", ([["4"]], ["float"], None, None), "a recorded shape is damaged"),
        (
            "aten::view",
            ([[4], []], ["float", "ScalarList"], [[1], []], ["", "[3]"]),
            "the inputs do not fit the operator",
        ),
        (
            "aten::_foreach_add",
            ([[], []], ["TensorList", "Scalar"], [[], []], ["", "1"]),
            "the members of the lists were not recorded",
        ),
    ],
)
def test_what_is_not_known_comes_with_the_reason(operator: str, inputs: Any, reason: str) -> None:
    found = infer(operator, *inputs)
    assert found.outputs is None
    assert found.reason == reason


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from([1 << 47, 1 << 64, -1, 0.5, "x", ""]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)
_TYPES = st.sampled_from(
    ["float", "c10::Half", "long int", "bool", "double", "Scalar", "ScalarList", "TensorList", "", "x"]
)
_TEXTS = st.sampled_from(["", "0", "-1", "[1, 2]", "[]", "[-9, 9]", "True", "1.5", "nan", "[", "1" * 400, "inf"])
_SHAPES = st.one_of(_JUNK, st.lists(st.integers(0, 9), max_size=4))
_NAMES = sorted(f"aten::{name}" for name in table())


@settings(max_examples=500, database=None, derandomize=True)
@given(data=st.data())
def test_no_record_however_damaged_raises(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(_NAMES))
    operator = lookup(name)
    counts = sorted({len(o.arguments) for o in operator.overloads}) if operator else [2]
    count = data.draw(st.sampled_from(counts or [2]))
    shapes, types = data.draw(st.lists(_SHAPES, min_size=count, max_size=count)), []
    for place in range(count):
        argument = (
            operator.overloads[0].arguments[place]
            if operator and place < len(operator.overloads[0].arguments)
            else None
        )
        fitting = "float" if argument is not None and argument.is_tensor and not argument.is_list else "Scalar"
        types.append(data.draw(st.one_of(st.just(fitting), _TYPES)))
    strides = data.draw(st.none() | st.lists(_SHAPES, min_size=count, max_size=count))
    concrete = data.draw(st.none() | st.lists(_TEXTS, min_size=count, max_size=count))
    found = infer(name, shapes, types, strides, concrete)
    for output in found.outputs or ():
        assert output is None or all(isinstance(size, int) and size >= 0 for size in output.shape)


def test_every_operator_with_a_rule_is_one_that_torch_has_or_had() -> None:
    known = {name.partition("::")[2] for name in operator_names()}
    assert table().keys() - known == set()


def test_an_inference_takes_microseconds_not_milliseconds() -> None:
    calls = {}
    for path in sorted((ROOT / "fixtures" / "kineto").glob("*.json.gz")):
        for name, inputs, _ in events(path):
            if name.startswith("aten::"):
                calls[repr((name, inputs))] = (name, inputs)
    for name, inputs in calls.values():  # tables are read, overloads picked
        infer(name, *inputs)
    best = min(_seconds(calls) for _ in range(5)) / len(calls)
    print(f"{best * 1e6:.1f} µs a distinct call, {len(calls)} calls")
    assert best < 500e-6  # 30 to 50 on an idle machine: what is slow by an order of magnitude shows on a busy one too


def _seconds(calls: dict[str, Any]) -> float:
    start = time.process_time()
    for name, inputs in calls.values():
        infer(name, *inputs)
    return time.process_time() - start


@pytest.mark.parametrize("module", ["", ".arguments", ".promotion", ".tensor", ".outputs"])
def test_examples_in_the_documentation_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"tracemine.ops.infer{module}"))
    assert found.failed == 0
