"""Names of element types as profilers of all ages write them."""

from __future__ import annotations

import pytest

from tracemine.ops import dtype, itemsize, scalar_type
from tracemine.ops.dtypes import ROWS


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("float", "float32"),
        ("double", "float64"),
        ("c10::Half", "float16"),
        ("struct c10::Half", "float16"),
        ("c10::BFloat16", "bfloat16"),
        ("struct c10::BFloat16", "bfloat16"),
        ("at::BFloat16", "bfloat16"),
        ("long int", "int64"),
        ("long", "int64"),
        ("long long", "int64"),
        ("__int64", "int64"),
        ("int", "int32"),
        ("short int", "int16"),
        ("signed char", "int8"),
        ("unsigned char", "uint8"),
        ("unsigned __int64", "uint64"),
        ("bool", "bool"),
        ("c10::complex<float>", "complex64"),
        ("struct c10::complex<double>", "complex128"),
        ("c10::complex<c10::Half>", "complex32"),
        ("c10::Float8_e4m3fn", "float8_e4m3fn"),
        ("Float8_e4m3fn", "float8_e4m3fn"),
        ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz"),
        ("c10::Float4_e2m1fn_x2", "float4_e2m1fn_x2"),
        ("c10::quint8", "quint8"),
        ("torch.bfloat16", "bfloat16"),
        ("Tensor(float)", "float32"),
        ("Tensor(c10::BFloat16)", "bfloat16"),
    ],
)
def test_a_recorded_type_has_one_canonical_name(recorded: str, name: str) -> None:
    assert dtype(recorded) == name


@pytest.mark.parametrize(
    "recorded", ["", "Scalar", "ScalarList", "TensorList", "GenericList", "Int", "Bool", "Double", "x"]
)
def test_what_is_no_tensor_has_no_dtype(recorded: str) -> None:
    assert dtype(recorded) is None


def test_a_scalar_type_is_known_by_torchs_name_and_number() -> None:
    assert [scalar_type(x) for x in ("BFloat16", "15", "Float", "6", "Long", "4", "Int", "Double")] == [
        "bfloat16", "bfloat16", "float32", "float32", "int64", "int64", "int32", "float64",
    ]  # fmt: skip
    assert scalar_type("float") is None


def test_sizes_are_torchs_sizes_where_torch_has_the_type() -> None:
    torch = pytest.importorskip("torch")
    known = [row for row in ROWS if isinstance(getattr(torch, row[0], None), torch.dtype)]
    assert len(known) >= 20
    for name, size, *_ in known:
        assert getattr(torch, name).itemsize == size == itemsize(name), name


def test_an_unknown_dtype_has_no_size() -> None:
    assert itemsize("float13") is None
