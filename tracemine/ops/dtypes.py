"""Element types: the many names that profilers write, one canonical name each, and bytes an element."""

from __future__ import annotations

from tracemine.tables import table_beside

_TABLE = table_beside(__file__, "dtypes.toml")
ROWS: tuple[tuple[str, int, str, int, tuple[str, ...]], ...] = tuple(
    (*row[:4], tuple(row[4])) for row in _TABLE["rows"]
)
HALF = frozenset({"float16", "bfloat16"})
_BYTES = {name: size for name, size, _, _, _ in ROWS}
_RECORDED = {alias: row[0] for row in ROWS for alias in (row[0], *row[4])}
_SCALAR_TYPES = {key: row[0] for row in ROWS for key in (row[2], str(row[3]))}
_PREFIXES = ("struct ", "class ", "torch.", "c10::", "at::")


def dtype(recorded: str) -> str | None:
    """Return the canonical name of a recorded tensor type; None for scalars, lists and what is not known.

    `Int`, `Bool` and `Double` are None: in an operator's recorded inputs they are Python numbers, not tensors.

    >>> [dtype(name) for name in ("c10::BFloat16", "struct c10::Half", "__int64", "Tensor(float)", "ScalarList")]
    ['bfloat16', 'float16', 'int64', 'float32', None]
    """
    if recorded.startswith("Tensor(") and recorded.endswith(")"):  # execution traces
        recorded = recorded[len("Tensor(") : -1]
    for prefix in _PREFIXES:
        recorded = recorded.removeprefix(prefix)
    return _RECORDED.get(recorded)


def scalar_type(recorded: str) -> str | None:
    """Return canonical name for torch's own name or number of a ScalarType: collectives' `dtype`, dtype arguments.

    >>> scalar_type("BFloat16"), scalar_type("6"), scalar_type("Int"), scalar_type("99")
    ('bfloat16', 'float32', 'int32', None)
    """
    return _SCALAR_TYPES.get(recorded)


def itemsize(name: str) -> int | None:
    """Return bytes an element of a canonical name; None for a name that is not canonical.

    >>> itemsize("bfloat16"), itemsize("c10::BFloat16")
    (2, None)
    """
    return _BYTES.get(name)
