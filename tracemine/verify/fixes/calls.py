"""Fixed forms of one library call: ways that gpu/library_call.py knows, and other calls, Python source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracemine.verify.fixes.record import Fixed, NoFixedForm

_CONVOLUTION = re.compile(r"aten::(_?convolution|conv[123]d|cudnn_convolution)")
_OF_PRODUCTS = frozenset({"padded", "cublasLt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Other ways to make the library call of a cause's findings. Several right ones are timed, and the fastest counts.

    ways: by their names in gpu/library_call.py; of_convolutions: of a convolution in their place. others: names of
    OTHERS that may replace a convolution. assumes: what holds where any of them is right.
    """

    ways: tuple[str, ...]
    of_convolutions: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()

    def of(self, operator: str) -> tuple[str, ...]:
        """Return the ways that are tried for an operator."""
        if "convolution" not in operator:
            return self.ways
        ways = self.ways if self.of_convolutions is None else self.of_convolutions
        return tuple(way for way in ways if way not in _OF_PRODUCTS)


# Other calls in place of a convolution, and what they do. {names} are the call's arguments.
OTHERS: Final[Mapping[str, tuple[str, str]]] = {
    "unfold, bmm": (
        "unfolded_product({input}, {weight}, {bias}, {stride}, {padding}, {dilation}, {groups})",
        "windows unfolded, and one batched product for all groups",
    ),
    "patches, linear": ("patches_multiplied({input}, {weight}, {bias})", "patches laid out, and one product"),
}


def _fits(name: str, given: Mapping[str, Any]) -> bool:
    """Return whether one of OTHERS fits a convolution."""
    if given.get("transposed") or not all(name in given for name in ("stride", "padding", "dilation", "groups")):
        return False
    if name == "patches, linear":
        patches = list(given["stride"]) == list(given["window"]) and not any(given["padding"])
        return patches and given["groups"] == 1 and set(given["dilation"]) == {1}
    return bool(1 < given["groups"] < given["channels"])  # else cuDNN has kernels, which memory limits


def fixed_call(
    ways: Ways,
    operator: str,
    given: Mapping[str, Any],
    names: Mapping[str, str],
    tensors: Sequence[tuple[str, tuple[int, ...], str, tuple[int, ...]]],
) -> Fixed:
    """Return the ways to make a call that are tried.

    given: plain arguments by the schema's names; names: what its tensors are called, by those. tensors: name, shape,
    dtype, strides. Raises NoFixedForm where no other way is known.
    """
    if "attention" in operator:
        raise NoFixedForm("other backends of a fused attention call are not tried: its call names the backend itself")
    convolves = bool(_CONVOLUTION.fullmatch(operator))
    own, source, uses = dict[str, str](), list[str](), list[str]()
    shapes = {name: shape for name, shape, *_ in tensors}
    if convolves and {"input", "weight"} <= names.keys():
        weight, x = shapes[names["weight"]], shapes[names["input"]]
        facts = {**given, "window": weight[2:], "channels": x[1]}
        texts = {"bias": "None", **{name: repr(value) for name, value in given.items()}, **names}
        for number, (name, (text, says)) in enumerate(OTHERS.items()):
            if name in ways.others and _fits(name, facts) and len(x) == len(weight):
                source.append(f"def fixed_{number}({', '.join(shapes)}):\n    return {text.format_map(texts)}")
                own[name] = f'"{says}", call=fixed_{number}'
                uses.append(text.partition("(")[0])
    return Fixed(
        ways=ways.of(operator), own=own, source="\n\n\n".join(source), uses=tuple(uses), assumptions=ways.assumes
    )
