"""Fixed forms of one library call, by the finding's rule: ways that WAYS knows, and other calls, Python source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracemine.verify.fixes.record import Fixed, NoFixedForm

_CONVOLUTION = re.compile(r"aten::(_?convolution|conv[123]d|cudnn_convolution)")
_SEARCHED = ("cudnn.benchmark", "channels_last", "channels_last, cudnn.benchmark")
# For each rule whose fix makes the same call in another way: the ways that are tried, by their names in
# gpu/library_call.py. Several rights are timed, and the fastest counts.
WAYS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "channels_last": ("channels_last", "channels_last, cudnn.benchmark", "cudnn.benchmark"),
    "float32_without_tf32": ("TF32",),
    "float64_product": ("float32", "float32, TF32"),
    "grouped_convolution": _SEARCHED,
    "library_below_rate": (*_SEARCHED, "padded", "cublasLt"),
    "misaligned_product": ("padded",),
    "no_tensor_cores": _SEARCHED,
    "patch_convolution": _SEARCHED,
}
_OF_CONVOLUTIONS = frozenset(_SEARCHED)
_OF_PRODUCTS = frozenset({"padded", "cublasLt"})
_ASSUMES: Mapping[str, str] = {
    "float64_product": "nothing needs float64: results are right as float32 and TF32 round, not equal to eager's",
    "patch_convolution": "what reads the result takes it in any layout",
}


@dataclass(frozen=True, slots=True)
class _Other:
    """Another call in place of a convolution: where it fits, and its text. {names} are the call's arguments."""

    rules: frozenset[str]
    says: str
    text: str
    function: str

    def fits(self, given: Mapping[str, Any]) -> bool:
        if given.get("transposed") or not all(name in given for name in ("stride", "padding", "dilation", "groups")):
            return False
        if self.function == "patches_multiplied":
            patches = list(given["stride"]) == list(given["window"]) and not any(given["padding"])
            return patches and given["groups"] == 1 and set(given["dilation"]) == {1}
        return bool(
            1 < given["groups"] < given["channels"]
        )  # of one channel a group cuDNN has kernels, which memory limits


_OTHERS: Mapping[str, _Other] = {
    "unfold, bmm": _Other(
        frozenset({"grouped_convolution", "no_tensor_cores"}),
        "windows unfolded, and one batched product for all groups",
        "unfolded_product({input}, {weight}, {bias}, {stride}, {padding}, {dilation}, {groups})",
        "unfolded_product",
    ),
    "patches, linear": _Other(
        frozenset({"patch_convolution"}),
        "patches laid out, and one product",
        "patches_multiplied({input}, {weight}, {bias})",
        "patches_multiplied",
    ),
}


def fixed_call(
    rule: str,
    operator: str,
    given: Mapping[str, Any],
    names: Mapping[str, str],
    tensors: Sequence[tuple[str, tuple[int, ...], str, tuple[int, ...]]],
) -> Fixed:
    """Return the ways to make a call that are tried for a rule.

    given: plain arguments by the schema's names; names: what its tensors are called, by those. tensors: name, shape,
    dtype, strides. Raises NoFixedForm where no other way is known.
    """
    if "attention" in operator:
        raise NoFixedForm("other backends of a fused attention call are not tried: its call names the backend itself")
    convolves = bool(_CONVOLUTION.fullmatch(operator))
    unfit = _OF_PRODUCTS if "convolution" in operator else _OF_CONVOLUTIONS if rule == "library_below_rate" else ()
    ways = tuple(way for way in WAYS_OF[rule] if way not in unfit)
    own, source, uses = dict[str, str](), list[str](), list[str]()
    shapes = {name: shape for name, shape, *_ in tensors}
    if convolves and {"input", "weight"} <= names.keys():
        weight, x = shapes[names["weight"]], shapes[names["input"]]
        facts = {**given, "window": weight[2:], "channels": x[1]}
        texts = {"bias": "None", **{name: repr(value) for name, value in given.items()}, **names}
        for number, (name, other) in enumerate(_OTHERS.items()):
            if rule in other.rules and other.fits(facts) and len(x) == len(weight):
                call = other.text.format_map(texts)
                source.append(f"def fixed_{number}({', '.join(shapes)}):\n    return {call}")
                own[name] = f'"{other.says}", call=fixed_{number}'
                uses.append(other.function)
    assumes = (_ASSUMES[rule],) if rule in _ASSUMES else ()
    return Fixed(ways=ways, own=own, source="\n\n\n".join(source), uses=tuple(uses), assumptions=assumes)
