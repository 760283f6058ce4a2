"""Kernels as a person calls them: the function's name and what tells it apart from others of that name."""

from __future__ import annotations

import re

_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_LENGTH = re.compile(r"\d+")
# What says which elementwise kernel it is; those that all have say nothing.
_TELLING = re.compile(r"\b(\w+?(?:Functor(?:OnSelf)?(?:_\w+)?|_kernel_cuda|_kernel_impl|_scalar_kernel|Ops))\b")
_GENERIC = frozenset({"BinaryFunctor", "UnaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "gpu_kernel_impl"})
_LONGEST = 60


def kernel_name(name: str) -> str:
    """A kernel's function, and in parentheses what it computes where its template says so.

    >>> kernel_name("void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, char>(int)")
    'vectorized_elementwise_kernel (Mul)'
    >>> kernel_name("_ZN2at6native18elementwise_kernelILi128EEEvi"), kernel_name("triton_red_fused_add_0")
    ('elementwise_kernel', 'triton_red_fused_add_0')
    """
    text = _UNNAMED.sub("", name)
    mangled = _of_mangled(text)
    if mangled:
        return mangled[:_LONGEST]
    function = re.split(r"[<(\[]", text, maxsplit=1)[0].strip().removeprefix("void ").rpartition("::")[2]
    function = function or text
    telling = [word for word in _TELLING.findall(text[len(function) :]) if word not in _GENERIC and word != function]
    what = (
        re.sub(r"^CUDA|Functor(?:OnSelf)?_?|_kernel_(?:cuda|impl)$|_scalar_kernel$|Ops$", "", telling[-1])
        if telling
        else ""
    )
    return f"{function[:_LONGEST]} ({what[:_LONGEST]})" if what else function[:_LONGEST]


def _of_mangled(name: str) -> str:
    """The last identifier of a mangled name (Itanium C++ ABI, 5.1); "" where it is not mangled."""
    if not name.startswith("_Z"):
        return ""
    at, found = 3 if name.startswith("_ZN") else 2, ""
    while (length := _LENGTH.match(name, at)) is not None and int(length[0][:6]) <= len(name):
        at = length.end() + int(length[0])
        found = name[length.end() : at]
    return found
