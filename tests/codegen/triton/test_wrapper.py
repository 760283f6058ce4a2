"""`fused` works out a launch once for each way that its tensors look, and for no other."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.graph import Graph
from tracemine.codegen.triton.wrapper import KIND, LAUNCH, launching

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


class Kernel:
    """Stands for a kernel and for what Triton compiled of it; notes what either was launched with."""

    module = "loaded"

    def __init__(self) -> None:
        self.looked_at: list[tuple[Any, ...]] = []
        self.again: list[tuple[Any, ...]] = []
        self.compiles = True

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*given: Any, **options: Any) -> Any:
            assert set(options) <= {"num_warps", "enable_fp_fusion"}
            self.looked_at.append((grid, *given))
            return Compiled(self) if self.compiles else None

        return launch


class Compiled:
    function, packed_metadata = 5, (4, 1)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.module = kernel, "loaded"

    def run(self, x: int, y: int, z: int, stream: str, function: int, packed: Any, *given: Any) -> None:
        """Stands for Triton's launcher; behind these it is given what hooks get, and two hooks."""
        assert (stream, function, packed) == ("stream of device 3", self.function, self.packed_metadata)
        assert given[:3] == (None, None, None)
        self.kernel.again.append(((x, y, z), *given[3:]))


DRIVER = SimpleNamespace(get_current_device=lambda: 3, get_current_stream="stream of device {}".format)


def chain(dtype: str = "float32", number: float = 0.5) -> Graph:
    b = GraphBuilder("scaled")
    x, y = b.input("x", (4, 32), dtype), b.input("y", (4, 32), dtype)
    return b.done(b.call("aten::mul.Tensor", b.call("aten::add.Tensor", x, y, alpha=number), 0.25))


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """A generated source, the kernel of which only notes its launches."""
    path = tmp_path / "source.py"
    path.write_text(generate(chain()).text, "utf-8")
    spec = importlib.util.spec_from_file_location("source", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.kernel = module.scaled_kernel = Kernel()
    runtime = SimpleNamespace(driver=SimpleNamespace(active=DRIVER))
    module.triton = SimpleNamespace(**{**vars(module.triton), "runtime": runtime})
    return module


def pair(*shape: int, offset: int = 0) -> list[Any]:
    return [torch.zeros(offset + 64 * 64)[offset:][: shape[0] * shape[1]].view(shape) for _ in range(2)]


def plain(launch: tuple[Any, ...]) -> list[Any]:
    """What a launch was given, but for its three tensors, or their addresses, which come first."""
    return [launch[0], *launch[4:]]


def test_the_second_call_launches_what_the_first_compiled_with_the_same_arguments(source: Any) -> None:
    tensors = pair(4, 32)
    for _ in range(3):
        source.fused(*tensors)
    assert len(source.kernel.looked_at) == 1
    assert len(source.kernel.again) == 2
    assert all(plain(launch) == plain(source.kernel.looked_at[0]) for launch in source.kernel.again)


def test_every_call_gives_new_tensors_and_launches_with_its_own(source: Any) -> None:
    found = [source.fused(*(pair(4, 32)))[0] for _ in range(3)]
    assert len({t.data_ptr() for t in found}) == 3
    for t, launch in zip(found[1:], source.kernel.again, strict=True):
        assert t.data_ptr() in launch[1:4]
        assert not [each for each in launch if isinstance(each, torch.Tensor)]  # whose address the driver is asked for


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pair(8, 32), id="other sizes"),
        pytest.param(pair(4, 32, offset=1), id="not at a multiple of 16 bytes"),
        pytest.param([pair(4, 32)[0], pair(4, 32, offset=2)[0]], id="one of them not"),
        pytest.param([torch.zeros(32, 4).t(), torch.zeros(4, 32)], id="other strides"),
        pytest.param([torch.zeros(4, 64)[:, ::2], torch.zeros(4, 32)], id="gaps"),
    ],
)
def test_tensors_that_look_otherwise_are_looked_at_anew(source: Any, other: list[Any]) -> None:
    for tensors in (pair(4, 32), other, other, pair(4, 32)):
        source.fused(*tensors)
    assert len(source.kernel.looked_at) == 2
    assert [plain(launch) for launch in source.kernel.again] == [plain(source.kernel.looked_at[k]) for k in (1, 0)]


def test_numbers_are_given_anew_and_floats_are_all_alike_to_a_plan(source: Any) -> None:
    tensors = pair(4, 32)
    for alpha in (0.5, 1.0, -3.25):
        source.fused(*tensors, alpha=alpha)
    assert len(source.PLANS) == 1
    first, *again = map(plain, (*source.kernel.looked_at, *source.kernel.again))
    place = first.index(0.5)
    assert [launch[place] for launch in again] == [1.0, -3.25]
    source.fused(*tensors, alpha=2)
    assert len(source.PLANS) == 2


def test_another_cut_is_another_plan(source: Any) -> None:
    tensors = pair(4, 32)
    source.fused(*tensors)
    source.BLOCKS["scaled_kernel"][:] = [(64, 1)]
    source.fused(*tensors)
    assert len(source.kernel.looked_at) == 2
    assert plain(source.kernel.looked_at[0]) != plain(source.kernel.looked_at[1])


def test_other_tensors_than_it_takes_are_refused_at_each_call(source: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"y is torch\.float32"):
            source.fused(torch.zeros(4, 32), torch.zeros(4, 16))
    with pytest.raises(ValueError, match=r"x is torch\.float64"):
        source.fused(torch.zeros(4, 32, dtype=torch.float64), torch.zeros(4, 32))
    assert not source.PLANS


def test_a_size_that_nothing_else_has_is_any_and_rank_and_type_are_not() -> None:
    space: dict[str, Any] = {}
    exec(next(text for text in launching() if "def _expect(" in text), space)  # noqa: S102 - our own text
    expect = space["_expect"]
    for rows in (0, 1, 7):
        expect((None, 3), torch.float32, x=torch.zeros(rows, 3))
    for other in (torch.zeros(7, 4), torch.zeros(7), torch.zeros(7, 3, 1), torch.zeros(7, 3, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"x is torch\.float"):
            expect((None, 3), torch.float32, x=other)


def test_a_size_that_two_inputs_have_is_asked_of_both(source: Any) -> None:
    for tensors in ([torch.zeros(4, 32), torch.zeros(5, 32)], [torch.zeros(4, 32), torch.zeros(4, 16)]):
        with pytest.raises(ValueError, match=r"y is torch\.float32"):
            source.fused(*tensors)


def test_nothing_is_launched_for_no_elements(source: Any) -> None:
    for _ in range(2):
        (found,) = source.fused(torch.zeros(0, 32), torch.zeros(0, 32))
        assert found.shape == (0, 32)
    assert not source.kernel.looked_at


def test_what_compiles_nothing_is_launched_as_the_first_time(source: Any) -> None:
    source.kernel.compiles = False
    for _ in range(3):
        source.fused(*pair(4, 32))
    assert len(source.kernel.looked_at) == 3


def test_plans_do_not_pile_up(source: Any) -> None:
    shared = [torch.zeros(32), torch.zeros(32)]
    for rows in range(1, 1100):
        source.fused(*(t.expand(rows, 32) for t in shared))
    assert len(source.PLANS) < 1100
    source.fused(*(t.expand(1, 32) for t in shared))
    assert len(source.kernel.looked_at) in (1099, 1100)


_SPECIAL = st.sampled_from([0, 1, 2, 15, 16, 32, 2**31 - 16, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 16, -1, -16])
_NUMBERS = st.one_of(_SPECIAL, st.integers(-(2**63), 2**64 - 1), st.floats(), st.booleans())


@given(_NUMBERS, _NUMBERS)
def test_numbers_of_one_kind_are_compiled_for_alike(one: float, other: float) -> None:
    specialised = pytest.importorskip("triton._C.libtriton").native_specialize_impl
    from triton.backends.nvidia.compiler import CUDABackend

    space: dict[str, Any] = {}
    exec(KIND, space)  # noqa: S102
    same = space["_kind"](one) == space["_kind"](other)
    first, second = (specialised(CUDABackend, each, False, True, True) for each in (one, other))
    assert not same or first == second or (one == other == 1)


class Flat:
    """A launcher as Triton's: it looks for memory that a kernel may need, and passes on what it is given."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.launch: Any = lambda *given: self.seen.append(given)

    def __call__(self, *given: Any) -> None:
        self.launch(*given[:5], False, None, *given[5:])


class Nested(Flat):
    def __call__(self, *given: Any) -> None:
        self.launch(*given[:5], False, None, *given[5:9], given[9:])


class Single(Flat):
    """One that no copy of it can stand for."""

    def __init__(self) -> None:
        super().__init__()
        self.own = self

    def __call__(self, *given: Any) -> None:
        if self.own is not self:
            raise RuntimeError("a copy")
        super().__call__(*given)


class Needing(Flat):
    global_scratch_size = 16


@pytest.mark.parametrize(("kind", "direct"), [(Flat, True), (Nested, False), (Needing, False), (Single, False)])
def test_a_launch_passes_on_what_triton_does_and_goes_past_it_where_that_is_all(kind: Any, direct: bool) -> None:
    run = kind()
    compiled = SimpleNamespace(module=1, function=77, packed_metadata=(1, 2), run=run)
    kernel = defaultdict[Any, Any](lambda: lambda *given, **named: compiled)
    driver = SimpleNamespace(get_current_stream=lambda device: 5, get_current_device=lambda: 0)
    active = SimpleNamespace(runtime=SimpleNamespace(driver=SimpleNamespace(active=driver)))
    names: dict[str, Any] = {"torch": torch, "triton": active}
    exec(LAUNCH, names)  # noqa: S102
    launch, tensor = names["_Launch"](kernel, 8, (3, 4), num_warps=4), torch.ones(4)
    for number in (0.5, 0.5, 2.5):
        launch(tensor, number)
    arguments = [(tensor.data_ptr(), number, 3, 4) for number in (0.5, 2.5)]
    run(8, 1, 1, 5, 77, (1, 2), None, None, None, *arguments[1])
    assert run.seen[-2] == run.seen[-1]
    assert [given[4:][-4:] if kind is not Nested else given[-1] for given in run.seen[:2]] == arguments
    assert (launch.launcher is run.launch) == direct
