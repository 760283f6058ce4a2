"""What infer says of an operator is what torch itself does on meta tensors, overload by overload."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.ops.call_maker import make
from tests.ops.kineto_inputs import CPP_NAMES, recorded
from tests.ops.recorded_calls import disagreement
from tracemine.ops import dtype, lookup
from tracemine.ops.infer import TensorSpec, infer
from tracemine.ops.infer.outputs import table

EXAMPLES = 12

# Rules whose operators may be computed on the CPU with arguments made up: their kernels check what they are given.
COMPUTED_TOO = {"pointwise", "keeps", "filled", "loss", "softmax", "softmax_backward", "convolution"}

# Where GPUs are believed to do otherwise than the CPU and the meta kernel; not yet measured on one.
ON_GPUS = {
    "log_sigmoid_forward": "the buffer is empty",
    "native_group_norm_backward": "the weight's gradient has the weight's dtype",
    "_batch_norm_impl_index": "statistics are kept in float32",
    "cudnn_batch_norm": "statistics are kept in float32", "miopen_batch_norm": "statistics are kept in float32",
    "native_layer_norm_backward": "the input's gradient is row-major",
    "_fused_rms_norm_backward": "the input's gradient is row-major",
    "one_hot": "ones are scattered into zeros; its meta kernel compares, which keeps a permuted input's layout",
    "_stack": "its meta kernel for out= joins where it should stack",
    "addr": "in place, torch lets self be resized",
    "native_batch_norm_backward": "the input's gradient is laid out as the input",
    "conv3d": "cuDNN keeps channels last", "conv_transpose3d": "cuDNN keeps channels last",
    "convolution": "cuDNN keeps channels last", "_convolution": "cuDNN keeps channels last",
    "cudnn_convolution": "cuDNN keeps channels last",
    "convolution_backward": "cuDNN keeps channels last",
}  # fmt: skip


# Operators of which torch makes nothing on meta tensors: no kernel, or one that looks at values.
_LIBRARY, _ONE_DEVICE = "runs in a vendor's library only", "has a kernel on one kind of device only"
NOT_HELD = {
    **dict.fromkeys(
        [
            "fake_quantize_per_tensor_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "fake_quantize_per_channel_affine_cachemask",
        ],
        "refuses limits that do not hold its zero point, as random ones do not",
    ),
    **dict.fromkeys(
        [
            "cudnn_convolution",
            "cudnn_convolution_relu",
            "cudnn_convolution_add_relu",
            "cudnn_convolution_transpose",
            "miopen_convolution",
            "miopen_convolution_relu",
            "miopen_convolution_add_relu",
            "miopen_convolution_transpose",
            "miopen_depthwise_convolution",
            "_cudnn_attention_forward",
            "_cudnn_attention_backward",
            "mkldnn_convolution",
            "cudnn_batch_norm_backward",
            "miopen_batch_norm_backward",
        ],
        _LIBRARY,
    ),
    **dict.fromkeys(
        [
            "convolution_overrideable",
            "thnn_conv2d",
            "_slow_conv2d_forward",
            "slow_conv3d",
            "slow_conv3d_forward",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
            "_conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv_transpose3d",
            "_logcumsumexp",
        ],
        _ONE_DEVICE,
    ),
    "log_sigmoid_forward": ON_GPUS["log_sigmoid_forward"],
    "flatten_dense_tensors": "the dtype of the members is not recorded",
}


def _overloads() -> list[tuple[str, str, str]]:
    """Operator, overload and rule of each row of the table, with the in-place variants."""
    found = []
    for name, (rule, _) in table().items():
        for spelled in (name, name if name.endswith("_") else name + "_"):
            operator = lookup(f"aten::{spelled}")
            if operator is not None and hasattr(torch.ops.aten, spelled):
                found += [(spelled, overload.name, rule.__name__) for overload in operator.overloads]
    return list(dict.fromkeys(found))


OVERLOADS = _overloads()


def _spec(tensor: torch.Tensor | None) -> TensorSpec | None:
    if tensor is None:
        return None
    return TensorSpec(tuple(tensor.shape), dtype(CPP_NAMES[tensor.dtype]), tuple(tensor.stride()))


def _truth(overload: Any, made: Any) -> tuple[TensorSpec | None, ...]:
    """What torch made, lists flat; numbers left out."""
    returned = overload._schema.returns
    if not returned:
        return ()
    values = made if isinstance(made, tuple) and len(returned) != 1 else (made,)
    found: list[TensorSpec | None] = []
    for value, entry in zip(values, returned, strict=True):
        if "Tensor" in str(entry.type):
            found.extend(map(_spec, value if isinstance(value, (list, tuple)) else (value,)))
    return tuple(found)


def _check(overload: Any, rule: str, seed: int) -> bool:
    """Whether torch took the call; fails where it did and what it made is not what was inferred."""
    try:
        args, kwargs = make(overload, rule, seed)
        inputs = recorded(overload, args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = overload(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError, NotImplementedError, AttributeError):
        return False  # torch takes no such call; the next seed makes another
    inferred = infer(overload._schema.name, *inputs)
    if inferred.outputs is None:
        return False
    wrong = disagreement(inferred.outputs, _truth(overload, made))
    if wrong is not None and rule in COMPUTED_TOO:
        try:
            settled = _on_processor(overload, args, kwargs)
        except _Refused:
            return False
        truth = _truth(overload, made) if settled is None else settled
        # Of expanded operands the CPU makes casts first, and Python's meta kernels think otherwise than either device.
        wrong = disagreement(_without_strides(inferred.outputs) if _expanded(inputs) else inferred.outputs, truth)
    if wrong is not None and overload._schema.name.removeprefix("aten::").rstrip("_") in ON_GPUS:
        return False
    assert wrong is None, f"{overload} {inputs}: {wrong}"
    return True


def _expanded(inputs: Any) -> bool:
    """Whether an input repeats elements along an axis."""
    shapes, _, strides, _ = inputs
    return any(
        step == 0 and size > 1
        for shape, steps in zip(shapes, strides, strict=True)
        if shape and not isinstance(shape[0], list)
        for size, step in zip(shape, steps, strict=True)
    )


def _without_strides(outputs: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec | None, ...]:
    """Without their strides."""
    return tuple(output and replace(output, strides=None) for output in outputs)


class _Refused(Exception):
    """Torch computes no such thing, although its meta kernel did not mind."""


def _on_processor(overload: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[TensorSpec | None, ...] | None:
    """What the CPU's kernel makes of the same call; None where it has none.

    Meta kernels that are written in Python simplify the strides of permuted and expanded operands; out= likewise.
    """

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            extent = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
            memory = torch.zeros(max(extent, 0) if value.numel() else 0, dtype=value.dtype)
            return memory.as_strided(value.shape, value.stride())
        if isinstance(value, list):
            return [real(member) for member in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            named = {name: real(value) for name, value in kwargs.items()}
            named |= {argument.name: real(torch.empty(0, dtype=kwargs[argument.name].dtype, device="meta"))
                      for argument in overload._schema.arguments if argument.is_out}  # fmt: skip
            return _truth(overload, overload(*map(real, args), **named))
    except NotImplementedError as error:
        if "not implemented for" in str(error):  # that dtype
            raise _Refused from error
        return None
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise _Refused from error


@pytest.mark.parametrize("rule", sorted({rule for _, _, rule in OVERLOADS}))
def test_outputs_are_those_that_torch_makes(rule: str) -> None:
    overloads = [(name, _torch(name, overload)) for name, overload, its in OVERLOADS if its == rule]
    compared = dict.fromkeys((name for name, _ in overloads), 0)

    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(seed=st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        for name, overload in overloads:
            compared[name] += _check(overload, rule, seed)

    check()
    never = {name for name, count in compared.items() if not count}
    assert {name for name in never if not name.endswith("_")} <= NOT_HELD.keys()


def _torch(name: str, overload: str) -> Any:
    return getattr(getattr(torch.ops.aten, name), overload or "default")
