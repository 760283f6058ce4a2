"""One spelling for a kernel's name, whoever demangled it.

PyTorch's profiler prints GNU's demangling, Nsight Compute NVIDIA's, which it shortens further by rules of its own:

    void at::native::elementwise_kernel<128, 4, …{lambda(int)#1}>(int, at::native::…)
    void elementwise_kernel<(int)128, (int)4, …[lambda(int) (instance 1)]>(int, T3)

What they agree on is kept: the identifiers without namespaces, the numbers, and which lambda it is, in their order.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, cast

from tracemine.ops.kernels import functor
from tracemine.ops.patterns import PatternRow, pattern_rows
from tracemine.patterns import deferred

_LONGEST = 100_000  # characters; a name beyond is compared by its beginning
_UNNAMED = deferred(r"(?:<unnamed>|\(anonymous namespace\)|\bunnamed>|\b_GLOBAL__N_\w*)(?:::)?")
_INSTANCE = deferred(r"\(instance (\d+)\)")
_TOKEN = deferred(r"(?:[A-Za-z_$][\w$]*\s*::\s*)*([A-Za-z_$][\w$]*|#?\d+)(?:(?<=\d)[uUlL]+\b)?")
_DROPPED = frozenset({"void", "const", "operator"})
_SAME = {"true": "1", "false": "0"}

Unit = Literal["vector", "matrix"]

_LONGEST_NAME = 4096
_ALIGNED = deferred(r"_align(\d{1,2})(?!\d)")
_CUTLASS = deferred(r"cutlass_([678]\d)_")
_WIDEST = 8  # elements of two bytes in one load of 16


@lru_cache(maxsize=65_536)
def canonical(name: str) -> str:
    """Return the spelling that both demanglers' outputs have in common.

    >>> canonical("void at::native::add<(int)4, float>(float*)") == canonical("add<4, float>(T2 *)") == "add 4 float"
    True
    >>> canonical("f<{lambda(int)#2}, true>(int)"), canonical("void f<[lambda(int) (instance 2)], (bool)1>(T1)")
    ('f lambda #2 1', 'f lambda #2 1')
    """
    text = _UNNAMED.sub("", name[:_LONGEST])
    tokens = _TOKEN.findall(_without_parentheses(_INSTANCE.sub(r"#\1", text)))
    return " ".join(_SAME.get(token, token) for token in tokens if token not in _DROPPED)


def short(name: str) -> str:
    """Return the bare function name, of a demangled or a mangled one.

    >>> short("void at::native::elementwise_kernel<128, 4>(int)"), short("_ZN2at6native18elementwise_kernelILi128EEEvi")
    ('elementwise_kernel', 'elementwise_kernel')
    """
    return _of_mangled(name) or canonical(name).partition(" ")[0]


# Copies and sets have titles, not names of functions, and so have layers of an engine and nodes of a graph.
_TITLE = deferred(r"(?:Memcpy|Memset|Reformatting CopyNode)\b|\[CUDA |[^<(]*(?: \+ |/)")
_LONGEST_SHORT = 200  # characters of a short name
# CUTLASS launches through templates of these names; what is launched is their first argument.
_LAUNCHERS = frozenset({"Kernel", "Kernel2"})


def short_name(name: str) -> str:
    """Return what tells a kernel from others in few words: its function, and the operation that its whole name shows.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)")
    'vectorized_elementwise_kernel (add)'
    >>> short_name("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x256_64x3_tn_align2>(Params)")
    'cutlass_80_tensorop_f16_s16816gemm_f16_128x256_64x3_tn_align2'
    >>> short_name("Memcpy HtoD (Pageable -> Device)")
    'Memcpy HtoD (Pageable -> Device)'
    >>> short_name("layer1.0.conv1.weight + QuantizeLinear_20 + Conv_22")
    'layer1.0.conv1.weight + QuantizeLinear_20 + Conv_22'
    """
    if _TITLE.match(name):
        return name[:_LONGEST_SHORT]
    function, operation = short(name), functor(name)
    if function in _LAUNCHERS:
        argument = canonical(name).split(" ", 2)[1:2]
        function = next((word for word in argument if word.startswith("cutlass")), function)
    return (f"{function} ({operation})" if operation else function or name)[:_LONGEST_SHORT]


def is_short(name: str) -> bool:
    """Return whether a name has the function's alone: mangled (whose arguments are not read), or without arguments.

    >>> is_short("elementwise_kernel"), is_short("_Z3fooi"), is_short("f<1>(int)")
    (True, True, False)
    """
    return bool(_of_mangled(name)) or " " not in canonical(name)


def _without_parentheses(text: str) -> str:
    """Return `text` without what stands in parentheses (parameters, casts). A lambda's brackets are no words."""
    kept, depth = [], 0
    for piece in re.split(r"([()])", text):
        if piece == "(":
            depth += 1
        elif piece == ")":
            depth = max(depth - 1, 0)
            kept.append(" ")
        elif not depth:
            kept.append(piece)
    return "".join(kept)


# <mangled-name> ::= _Z <encoding>; a nested name is N <qualifiers> (<length><identifier>)+ … E, template arguments
# follow as I … E (Itanium C++ ABI, 5.1). Substitutions (St, S0_) may replace the first qualifiers.
_MANGLED = deferred(r"_Z(?:N[rVK]*)?(?:S[a-z]|S[0-9A-Z]*_)?(?=\d)")


def _of_mangled(name: str) -> str | None:
    begin = _MANGLED.match(name)
    if begin is None:
        return None
    at, found = begin.end(), None
    nested = name.startswith("_ZN")
    while length := re.compile(r"\d{1,4}").match(name, at):
        end = length.end() + int(length[0])
        found, at = name[length.end() : end], end
        if not nested:
            break
    return found or None


def unit_rows() -> tuple[PatternRow, ...]:
    """Return every row of arithmetic.toml."""
    return pattern_rows("arithmetic.toml", "unit", "unit")


@lru_cache(maxsize=1 << 14)
def unit_of(kernel: str) -> Unit | None:
    """Return what a kernel multiplies with; None where its name does not tell.

    >>> unit_of("volta_sgemm_128x32_nt"), unit_of("nvjet_sm90_hsh_64x8_64x16_1x2_h_bz_NNT"), unit_of("mystery")
    ('vector', 'matrix', None)
    """
    name = kernel[:_LONGEST_NAME]
    return cast("Unit | None", next((row.says for row in unit_rows() if row.pattern.search(name)), None))


@lru_cache(maxsize=1 << 14)
def is_narrow(kernel: str) -> bool:
    """Return whether a kernel for half precision was built for operands that are not aligned to 16 bytes.

    Its name says so (`align1`, `align2`, `align4`), or it is one of CUTLASS's for an older GPU: libraries fall back on
    those where the newer ones ask for an alignment that the operands lack. Alone the latter proves nothing.

    >>> is_narrow("cutlass_80_tensorop_f16_s16816gemm_f16_128x256_64x3_tn_align2"), is_narrow("nvjet_sm90_hsh_64x8")
    (True, False)
    """
    name = kernel[:_LONGEST_NAME]
    found = _ALIGNED.search(name)
    return int(found[1]) < _WIDEST if found else _CUTLASS.search(name) is not None
