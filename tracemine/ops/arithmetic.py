"""What a library kernel computes with, and how narrow its loads are, by its name. The table: arithmetic.toml."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, cast

from tracemine.ops.patterns import PatternRow, pattern_rows
from tracemine.patterns import deferred

Unit = Literal["vector", "matrix"]

_LONGEST_NAME = 4096
_ALIGNED = deferred(r"_align(\d{1,2})(?!\d)")
_CUTLASS = deferred(r"cutlass_([678]\d)_")
_WIDEST = 8  # elements of two bytes in one load of 16


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
