"""Element types: the many names that profilers write, one canonical name each, and bytes an element."""

from __future__ import annotations

# Canonical name, bytes an element, torch's ScalarType name and number, and the C++ names that Kineto writes for a
# tensor of that type (gcc, clang, MSVC). float4_e2m1fn_x2 and the quint4x2 kin pack several values into a byte.
_UNSIGNED_64 = ("unsigned long", "long unsigned int", "unsigned long int", "unsigned __int64", "unsigned long long")
ROWS: tuple[tuple[str, int, str, int, tuple[str, ...]], ...] = (
    ("uint8", 1, "Byte", 0, ("unsigned char",)),
    ("int8", 1, "Char", 1, ("signed char", "char")),
    ("int16", 2, "Short", 2, ("short int", "short")),
    ("int32", 4, "Int", 3, ("int",)),
    ("int64", 8, "Long", 4, ("long int", "long", "__int64", "long long", "long long int")),
    ("float16", 2, "Half", 5, ("Half",)),
    ("float32", 4, "Float", 6, ("float",)),
    ("float64", 8, "Double", 7, ("double",)),
    ("complex32", 4, "ComplexHalf", 8, ("complex<c10::Half>", "complex<struct c10::Half>")),
    ("complex64", 8, "ComplexFloat", 9, ("complex<float>",)),
    ("complex128", 16, "ComplexDouble", 10, ("complex<double>",)),
    ("bool", 1, "Bool", 11, ("bool",)),
    ("qint8", 1, "QInt8", 12, ("qint8",)),
    ("quint8", 1, "QUInt8", 13, ("quint8",)),
    ("qint32", 4, "QInt32", 14, ("qint32",)),
    ("bfloat16", 2, "BFloat16", 15, ("BFloat16",)),
    ("quint4x2", 1, "QUInt4x2", 16, ("quint4x2",)),
    ("quint2x4", 1, "QUInt2x4", 17, ("quint2x4",)),
    ("bits8", 1, "Bits8", 21, ("bits8",)),
    ("bits16", 2, "Bits16", 22, ("bits16",)),
    ("float8_e5m2", 1, "Float8_e5m2", 23, ("Float8_e5m2",)),
    ("float8_e4m3fn", 1, "Float8_e4m3fn", 24, ("Float8_e4m3fn",)),
    ("float8_e5m2fnuz", 1, "Float8_e5m2fnuz", 25, ("Float8_e5m2fnuz",)),
    ("float8_e4m3fnuz", 1, "Float8_e4m3fnuz", 26, ("Float8_e4m3fnuz",)),
    ("uint16", 2, "UInt16", 27, ("unsigned short", "short unsigned int", "unsigned short int")),
    ("uint32", 4, "UInt32", 28, ("unsigned int", "unsigned")),
    ("uint64", 8, "UInt64", 29, _UNSIGNED_64),
    ("float8_e8m0fnu", 1, "Float8_e8m0fnu", 44, ("Float8_e8m0fnu",)),
    ("float4_e2m1fn_x2", 1, "Float4_e2m1fn_x2", 45, ("Float4_e2m1fn_x2",)),
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
