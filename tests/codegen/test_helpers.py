"""The functions that generated kernels call: what they say they compute is what they compute, also at the edges."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch

from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.operators import table
from tracemine.codegen.options import CodegenOptions

# Warnings are numpy's, from inside the interpreter.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("interpreted")]

_HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
_EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, -3e38, 448.0, 2.0**-126, 2.0**126]


def _module(folder: Path, text: str, name: str = "helpers") -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _ordered() -> str:
    """All functions, those that others call first."""
    helpers, done = dict(table().helpers), ""
    while helpers:
        name = next(n for n, text in helpers.items() if not any(f"{other}(" in text for other in helpers if other != n))
        done += helpers.pop(name) + "\n"
    return done


Floats = npt.NDArray[np.float32]
Run = Callable[..., Floats]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs an expression over columns x and y, row by row of y."""
    folder = tmp_path_factory.mktemp("helpers")

    def call(expression: str, x: npt.ArrayLike, y: npt.ArrayLike = 1.0) -> Floats:
        kernel = (
            "@triton.jit\ndef kernel(a, b, out, COUNT: tl.constexpr):\n    place = tl.arange(0, COUNT)\n"
            f"    x, y = tl.load(a + place), tl.load(b + place)\n    tl.store(out + place, {expression})\n"
        )
        module = _module(folder, _HEAD + _ordered() + kernel, f"helpers_{abs(hash(expression))}")
        a, b = np.broadcast_arrays(np.asarray(x, np.float32), np.asarray(y, np.float32))
        count = 1 << (a.size - 1).bit_length()
        a, b = (torch.from_numpy(np.resize(t, count).copy()) for t in (a, b))
        out = torch.empty(count)
        module.kernel[(1,)](a, b, out, COUNT=count)
        found: Floats = out.numpy()[: np.broadcast(x, y).size]
        return found

    return call


def _same(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
    return same


def _numbers(count: int, low: int, high: int, seed: int = 0) -> Floats:
    """Of any sign, with exponents from `low` to `high`."""
    made = np.random.default_rng(seed)
    scale = 2.0 ** made.integers(low, high, count)
    return (made.choice([-1, 1], count) * made.uniform(1, 2, count) * scale).astype("f4")


def test_a_quotient_is_rounded_correctly(run: Run) -> None:
    x, y = _numbers(65536, -60, 60), _numbers(65536, -60, 60, seed=1)
    assert _same(run("_quotient(x, y)", x, y), x / y).all()


def test_quotients_of_small_and_large_numbers_are_too(run: Run) -> None:
    x, y = _numbers(4096, -126, -90), _numbers(4096, -126, -100, seed=1)
    assert _same(run("_quotient(x, y)", x, y), x / y).all()
    x, y = _numbers(4096, 100, 127), _numbers(4096, 101, 127, seed=1)
    assert _same(run("_quotient(x, y)", x, y), x / y).all()


@pytest.mark.parametrize(("low", "high"), [(-60, 60), (-126, -100), (100, 119)])
def test_a_share_of_a_rows_largest_is_rounded_correctly(run: Run, low: int, high: int) -> None:
    y = _numbers(65536, low, high)
    x = y * _numbers(65536, -20, 6, seed=1)
    assert _same(run("_bounded_quotient(x, y, tl.abs(y) * 127.0)", x, y), x / y).all()


@pytest.mark.parametrize(
    ("top", "y"),
    [("0", "0"), ("1e30", "0"), ("3", "-0.0"), ("3", "inf"), ("inf", "inf"), ("nan", "nan"), ("3e38", "1e-38")],
)
def test_rows_without_finite_shares_are_as_division_has_them(run: Run, top: str, y: str) -> None:
    x = np.array([float(top), -float(top), min(float(top), 1.0), 0.0], np.float32)
    with np.errstate(all="ignore"):
        right = x / np.float32(y)
    found = run(
        f"_bounded_quotient(x, y, x * 0 + float('{top}'))" if top != "inf" else "_bounded_quotient(x, y, y)",
        x,
        float(y),
    )
    assert np.allclose(found, right, rtol=3e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["_quotient", "_ratio"])
def test_quotients_at_the_edges_are_numbers_where_division_gives_one(run: Run, name: str) -> None:
    x, y = (t.ravel() for t in np.meshgrid(*[np.array(_EDGES, np.float32)] * 2))
    with np.errstate(all="ignore"):
        right = x / y
    found = run(f"{name}(x, y)", x, y)
    normal = (np.abs(y) >= 2.0**-126) | (y == 0) | np.isnan(y)
    off = np.isnan(found) != np.isnan(right)
    assert not (off & normal).any(), [*zip(x[off], y[off], found[off], right[off], strict=True)]
    assert (np.isinf(found) == np.isinf(right))[normal].all()
    finite = np.isfinite(right) & (np.abs(right) > 2.0**-100) & normal
    assert np.allclose(found[finite], right[finite], rtol=3e-7, atol=0)


def test_rounding_is_to_nearest_even_and_keeps_the_sign_of_zero(run: Run) -> None:
    halves = np.arange(-4096, 4096, dtype="f4") / 2
    x = np.concatenate([np.array(_EDGES, np.float32), halves, _numbers(4096, -3, 50)])
    assert _same(run("_round(x)", x), np.rint(x)).all()


def test_a_clamp_keeps_nan_and_its_upper_bound_wins(run: Run) -> None:
    x = np.array([*_EDGES, 5.0, -5.0], np.float32)
    assert np.array_equal(run("_clip(x, -2.0, 3.0)", x), torch.from_numpy(x).clamp(-2, 3).numpy(), equal_nan=True)
    assert np.array_equal(run("_clip(x, 3.0, -2.0)", x), torch.from_numpy(x).clamp(3, -2).numpy(), equal_nan=True)


@pytest.mark.parametrize("name", ["softplus", "mish"])
def test_functions_without_logarithms_err_as_little_as_torch(run: Run, name: str) -> None:
    x = np.concatenate([np.linspace(-80, 19.9, 4096), np.array([0.0, 1e-30, -1e-30], np.float32)]).astype("f4")
    double = torch.from_numpy(x.astype("f8"))
    right = getattr(torch.nn.functional, name)(double).numpy()
    assert (np.abs(run(f"_{name}(x)", x) - right) <= 3e-7 * np.abs(right) + 1e-5 * np.abs(right) * (x < -1)).all()


def _dropped(folder: Path, cut: str, width: int, name: str) -> list[torch.Tensor]:
    """The masks of two dropouts, one behind the other."""
    b = GraphBuilder("dropped")
    x = b.input("x", (64, width), "float32")
    for _ in range(2):
        x, _mask = b.call("aten::native_dropout", x, 0.25, True)
    text = generate(b.done(x), CodegenOptions(export_masks=True)).text
    module = _module(folder, text.replace("(1024, 8)", cut), name)
    return list(module.fused(torch.ones(64, width), seed=7))


@pytest.mark.parametrize("width", [1, 2, 3, 7, 64, 200])
def test_masks_do_not_depend_on_how_a_kernel_is_cut(tmp_path: Path, width: int) -> None:
    one, other = (_dropped(tmp_path, cut, width, f"cut_{k}_{width}") for k, cut in enumerate(("(1024, 8)", "(256, 4)")))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_two_dropouts_drop_others_and_both_their_share(tmp_path: Path) -> None:
    _, first, second = _dropped(tmp_path, "(1024, 8)", 200, "streams")
    kept = first & second
    assert abs(float(first.float().mean()) - 0.75) < 0.02
    assert abs(float(second.float().mean()) - 0.75) < 0.02
    assert abs(float(kept.float().mean()) - 0.75**2) < 0.02
    places = first.float().reshape(-1, 4)
    assert max(abs(float(places[:, k].mean()) - 0.75) for k in range(4)) < 0.04
    assert float(np.abs(np.corrcoef(places.numpy().T) - np.eye(4)).max()) < 0.06
