"""Fixed forms of rebuilt calls: right ones pass on a CPU, spoiled ones are told, and what has none says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from tests.verdicts.test_evidence import FINDING  # noqa: E402
from tracemine.causes import CAUSES  # noqa: E402
from tracemine.codegen.graph import Graph, GraphCall, GraphInput, LiteralArg, Ref, Scalar, numbers_once  # noqa: E402
from tracemine.codegen.graph_builder import GraphBuilder  # noqa: E402
from tracemine.ops.infer import TensorSpec  # noqa: E402
from tracemine.ops.infer.tensor import contiguous  # noqa: E402
from tracemine.verify.fixes.by_rule import Maker, fix_of  # noqa: E402
from tracemine.verify.fixes.record import NOTHING_KNOWN, Around, Fixed, NoFixedForm  # noqa: E402
from tracemine.verify.fixes.reproduction import graph_reproduction  # noqa: E402
from tracemine.verify.gpu import call_checks, check, fixed_forms, library_call, linear_losses, vocabulary_max  # noqa: E402
from tracemine.verify.rebuild.memory import Lies  # noqa: E402
from tracemine.verify.rebuild.view_recovery import Layout  # noqa: E402

MARK = "0123456789abcdef"


def fixed_graph(rule: str, graph: Graph, around: Around = NOTHING_KNOWN) -> Fixed:
    """The fixed form of a rule's finding. Raises NoFixedForm with the reason."""
    maker = fix_of(rule, CAUSES)
    assert isinstance(maker, Maker)
    return maker.made(graph, around)


def tried(
    rule: str, graph: Graph, folder: Path, *, remains: bool = True, unread: Any = (), spoil: tuple[str, str] = ("", "")
) -> dict[str, Any]:
    """Faults of each way that a rule's reproduction tries, on a CPU. spoil: a text of its fixed form, and another."""
    return checked_on_cpu(fixed_graph(rule, graph, Around(unread=unread, remains=remains)), graph, folder, spoil)


def checked_on_cpu(fixed: Fixed, graph: Graph, folder: Path, spoil: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Faults of each way that a graph's reproduction tries, on a CPU. spoil: as in `tried`."""
    rebuilt: Any = SimpleNamespace(graph=graph, assumptions=())
    text = graph_reproduction(FINDING, rebuilt, fixed, [("kernel", [1, 1, 1])], MARK)
    head, mark, tail = text.partition("TRACE = [")
    assert spoil[0] in tail
    path = folder / "chain.py"
    path.write_text(head + mark + tail.replace(*spoil, 1) if spoil[0] else text, "utf-8")
    harness = ModuleType("tracemine_repro")
    for module in (library_call, fixed_forms, linear_losses, vocabulary_max, check, call_checks):
        vars(harness).update({name: each for name, each in vars(module).items() if not name.startswith("__")})
    sys.modules["tracemine_repro"], sys.modules["chain"] = harness, (own := ModuleType("chain"))
    space = vars(own)  # a module by its name: what is compiled asks for it
    space["__file__"] = str(path)
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
        reproduction: Any = space["CHECK"]
        return {name: each["faults"] for name, each in reproduction.without_gpu()["ways"].items()}
    finally:
        del sys.modules["tracemine_repro"], sys.modules["chain"]


def average(other: float = 0.01) -> Graph:
    b = GraphBuilder("average")
    shapes = ((6, 5), (7,), (3, 4))
    pairs = [[b.input(f"{name}_{k}", shape, "float32") for name in "xy"] for k, shape in enumerate(shapes)]
    for k, (x, y) in enumerate(pairs):
        b.call("aten::mul_.Tensor", x, 0.99)
        b.call("aten::add_.Tensor", x, y, alpha=0.01 if k else other)
    return b.done()


def casts() -> Graph:
    b = GraphBuilder("casts")
    given = [b.input(f"w_{k}", shape, "float32") for k, shape in enumerate(((6, 5), (7,)))]
    return b.done(*(b.call("aten::_to_copy", w, dtype="bfloat16") for w in given))


def zeros(number: float = 0) -> Graph:
    b = GraphBuilder("zeros")
    for x in [b.input(f"x_{k}", shape, "float32") for k, shape in enumerate(((6, 5), (7,)))]:
        b.call("aten::fill_.Scalar", x, number)
    return b.done()


def zeros_and_gradients(*, twice: bool = False, alpha: float = 1, turned: bool = False) -> Graph:
    """As a backward pass after `zero_grad(set_to_none=False)`: the last of three has no gradient here."""
    b = GraphBuilder("zeros")
    shapes = ((6, 5), (7,), (3, 4))
    given = [b.input(f"x_{k}", shape, "float32") for k, shape in enumerate(shapes)]
    strides = [(1, 6) if turned else (5, 1), (1,)]
    new = [b.input(f"y_{k}", shapes[k], "float32", strides=strides[k]) for k in range(2)]
    b.call("aten::_foreach_zero_", given)
    for x, y in zip(given, new, strict=False):
        b.call("aten::add_.Tensor", x, y, alpha=alpha)
    if twice:
        b.call("aten::add_.Tensor", given[1], new[1])
    return b.done()


def there_and_back() -> Graph:
    b = GraphBuilder("pair")
    x = b.input("x", (2, 4, 3, 3), "float16", strides=(36, 1, 12, 4))
    plain = b.call("aten::clone", x, memory_format=0)
    return b.done(b.call("aten::clone", b.call("aten::silu", plain), memory_format=2))


def joined() -> Graph:
    b = GraphBuilder("cache")
    shapes = ((2, 3, 7, 4), (2, 3, 1, 4))
    pairs = [[b.input(f"{n}_{k}", shape, "float16") for n, shape in zip("xy", shapes, strict=True)] for k in range(2)]
    return b.done(*(b.call("aten::cat", pair, 2) for pair in pairs))


def bags(mode: int = 0, counted: tuple[int, ...] = ()) -> Graph:
    """Bags of two tables: what they give is not inferred. counted: by how much offsets rise that are made beside."""
    if counted:
        return bags_counted(mode, counted)
    inputs, calls = list[GraphInput](), list[GraphCall]()
    for k, rows in enumerate((9, 5)):
        kinds = (("weight", (rows, 4), "float32"), ("indices", (12,), "int64"), ("offsets", (6 + k,), "int64"))
        inputs += [GraphInput(f"{n}_{k}", TensorSpec(shape, kind, contiguous(shape))) for n, shape, kind in kinds]
        given = [Ref(3 * k + n) for n in range(3)]
        flags = (LiteralArg(False), LiteralArg(mode), LiteralArg(False), None, LiteralArg(False), LiteralArg(-1))
        made = TensorSpec((6 + k, 4), "float32", (4, 1))
        calls.append(GraphCall("aten::_embedding_bag", "", (*given, *flags), (made,)))
    return Graph("bags", tuple(inputs), tuple(calls), (6, 7))


def bags_counted(mode: int, steps: tuple[int, ...]) -> Graph:
    inputs, calls, live = list[GraphInput](), list[GraphCall](), list[int]()
    for k, rows in enumerate((9, 5)):
        kinds = (("weight", (rows, 4), "float32"), ("indices", (12,), "int64"))
        inputs += [GraphInput(f"{n}_{k}", TensorSpec(shape, kind, contiguous(shape))) for n, shape, kind in kinds]
    for k, step in enumerate(steps):
        start = 4 + 2 * k
        numbers = tuple(LiteralArg(n) for n in (0, 12, step))
        offsets = TensorSpec((12 // step,), "int64", (1,))
        calls.append(
            GraphCall("aten::arange", "start_step", (*numbers, LiteralArg("int64"), None, None, None), (offsets,))
        )
        flags = (LiteralArg(False), LiteralArg(mode), LiteralArg(False), None, LiteralArg(False), LiteralArg(-1))
        made = TensorSpec((12 // step, 4), "float32", (4, 1))
        calls.append(GraphCall("aten::_embedding_bag", "", (Ref(2 * k), Ref(2 * k + 1), Ref(start), *flags), (made,)))
        live.append(start + 1)
    return Graph("bags", tuple(inputs), tuple(calls), tuple(live))


def normed(kind: str = "float32", *, biased: str = "", training: bool = False, read: bool = False) -> Graph:
    """A convolution in two groups, a norm by its statistics, an activation. biased: how the convolution has a bias."""
    b = GraphBuilder("normed")
    x, weight = b.input("x", (2, 4, 7, 6), kind), b.input("weight", (6, 2, 3, 3), kind)
    bias = b.input("bias", (1, 6, 1, 1) if biased == "between" else (6,), kind) if biased else None
    scale, shift, mean, var = (b.input(name, (6,), kind) for name in ("scale", "shift", "mean", "var"))
    own = bias if biased == "own" else None
    made = b.call("aten::convolution", x, weight, own, [2, 1], [1, 0], [1, 1], False, [0, 0], 2)
    if biased == "between":
        b.call("aten::add_.Tensor", made, bias)
    out, *_ = b.call("aten::native_batch_norm", made, scale, shift, mean, var, training, 0.1, 1e-3)
    active = b.call("aten::relu", out)
    return b.done(active, made) if read else b.done(active)


def routed(*, experts: int = 5, chosen: str = "aten::max.dim", twice: bool = False, falling: bool = False) -> Graph:
    """The order of tokens by the expert that was chosen for each; twice: the place of each in that order."""
    b = GraphBuilder("routed")
    scores = b.input("scores", (96, experts), "float32")
    if chosen == "given":
        expert = b.input("expert", (96,), "int64", below=experts)
    else:
        expert = b.call(chosen, scores, -1, False)[1]
    values, order = b.call("aten::sort.stable", expert, True, -1, falling)
    if twice:
        values, order = b.call("aten::sort.stable", order, False, -1, False)
    return b.done(expert, values, order)


def recurrent() -> Graph:
    b = GraphBuilder("recurrent")
    state, weight = b.input("state", (4, 6), "float32"), b.input("weight", (6, 6), "float32")
    for _ in range(3):
        state = b.call("aten::tanh", b.call("aten::mm", state, weight))
    return b.done(state)


def repeated_casts() -> Graph:
    """As two passes of a step under autocast make them."""
    b = GraphBuilder("casts")
    given = [b.input(f"w_{k}", shape, "float32") for k, shape in enumerate(((6, 5), (7,)))]
    made = [b.call("aten::_to_copy", w, dtype="bfloat16") for _ in range(2) for w in given]
    return b.done(*reversed(made))


def turns(differs: str, *, sizes: tuple[int, ...] = (5, 5, 5)) -> Graph:
    """Two layers with an activation between, three times. differs: what each turn has of its own."""
    b = GraphBuilder("turns")
    own = {name: name in differs.split() for name in ("x", "w", "b")}
    shapes: dict[str, Callable[[int], tuple[int, ...]]] = {
        "x": lambda n: (n, 8),
        "w": lambda _: (8, 6),
        "b": lambda _: (6,),
    }
    inputs: dict[str, list[Any]] = {}
    for name, shape in shapes.items():
        strides = (1, 8) if name == "w" else None
        made = [
            b.input(f"{name}_{k}", shape(n), "float32", strides=strides)
            for k, n in enumerate(sizes)
            if own[name] or not k
        ]
        inputs[name] = made if own[name] else made * len(sizes)
    down = b.input("down", (6, 6), "float32")
    results = []
    for x, w, bias in zip(*inputs.values(), strict=True):
        inner = b.call("aten::gelu", b.call("aten::addmm", bias, x, w), approximate="none")
        results.append(b.call("aten::mm", inner, down))
    return b.done(*results)


def scaled(number: float = 0.0) -> Graph:
    """What a scaler does to gradients: the scale's inverse, and whether one is infinite, which begins with a number."""
    b = GraphBuilder("scaled")
    scale = b.input("scale", (), "float32")
    gradients = [b.input(f"x_{k}", shape, "float32") for k, shape in enumerate(((6, 5), (7,)))]
    wide = b.call("aten::reciprocal", b.call("aten::_to_copy", scale, dtype="float64"))
    inverse = b.call("aten::_to_copy", wide, dtype="float32")
    infinite = b.call("aten::full", [], number, dtype="float32")
    b.call("aten::_amp_foreach_non_finite_check_and_unscale_", gradients, infinite, inverse)
    return b.done(infinite)


CASES: list[tuple[str, Callable[[], Graph], bool, tuple[str, str]]] = [
    ("parameter_loop", average, True, ("[x_0, x_1, x_2]", "[x_0, x_1, x_1]")),
    ("parameter_loop", zeros, True, ("_foreach_zero_", "_foreach_neg_")),
    ("weight_cast", casts, False, ("return made", "return [2 * m for m in made]")),
    ("weight_cast", casts, True, ("given[count:])", "[0 * g for g in given[count:]])")),
    ("gradient_zeroing", zeros, True, ("return [0.5 *", "return [0.6 *")),
    ("gradient_zeroing", zeros_and_gradients, True, ("inputs[new].clone()", "0.9 * inputs[new]")),
    ("gradient_zeroing", zeros_and_gradients, True, ("(1, 4)", "(1, None)")),
    ("embedding_bags_apart", lambda: bags(0, (3, 3)), True, ("numel(), 3,", "numel(), 4,")),
    ("embedding_bags_apart", lambda: bags(1, (4, 4)), True, (" + rows)", ")")),
    ("batch_norm_evaluated", normed, True, ("rsqrt", "sqrt")),
    ("batch_norm_evaluated", lambda: normed(biased="own"), True, (".reshape(-1) - ", ".reshape(-1) + ")),
    (
        "batch_norm_evaluated",
        lambda: normed("float16", biased="between"),
        True,
        ("inputs[2].float()", "0 * inputs[2].float()"),
    ),
    ("batch_norm_evaluated", lambda: normed("bfloat16"), True, ("return (t", "return (1.02 * t")),
    ("scaler_needless", scaled, True, ("inputs[k].clone()", "1.1 * inputs[k]")),
    ("weight_cast", repeated_casts, True, ("TAKEN = [0, 1, 0, 1]", "TAKEN = [0, 1, 0, 0]")),
    ("small_products_apart", lambda: turns("x"), True, ("torch.cat([x_0, x_1", "torch.cat([x_0, x_0")),
    ("small_products_apart", lambda: turns("w b"), True, ("inputs[2].mT, inputs[3].mT", "inputs[3].mT, inputs[2].mT")),
    ("small_products_apart", lambda: turns("w"), True, ("b_0.repeat(3)", "0 * b_0.repeat(3)")),
    ("small_products_apart", lambda: turns("x w b"), True, ("[:, None]", "[:1, None]")),
    ("small_products_apart", lambda: turns("x b"), True, ("expand(3, -1, -1)", "expand(3, -1, -1).flip(1)")),
    ("conversion_pair", there_and_back, True, ("aten.silu", "aten.relu")),
    ("cache_grown", joined, True, ("index_copy_(axis, place,", "index_copy_(axis, place - 1,")),
]


@pytest.mark.parametrize(
    ("rule", "graph", "remains", "spoil"), CASES, ids=[f"{r} {k}" for k, (r, *_) in enumerate(CASES)]
)
def test_a_fixed_form_is_right_and_a_spoiled_one_is_told(
    rule: str, graph: Any, remains: bool, spoil: tuple[str, str], tmp_path: Path
) -> None:
    found = tried(rule, graph(), tmp_path, remains=remains)
    assert found
    assert not any(found.values()), found
    spoiled = tried(rule, graph(), tmp_path, remains=remains, spoil=spoil)
    assert all(faults for name, faults in spoiled.items() if name != "one pass")  # which has calls of its own


def attention(backward: bool, masked: bool = False, kind: str = "float32", scale: float = 0.4) -> Graph:
    """As eager PyTorch runs it, of two sequences and three heads that lie beside each other."""
    b = GraphBuilder("attention")
    strides = (105, 5, 15, 1)
    q, v, g = (b.input(name, (2, 3, 7, 5), kind, strides=strides) for name in "qvg")
    k = b.input("k", (2, 3, 5, 7), kind, strides=(105, 5, 1, 15))
    hidden = b.input("hidden", (7, 7), "bool")

    def laid(x: Any, *shape: int) -> Any:
        return b.call("aten::view", b.call("aten::clone", x, memory_format=0), list(shape))

    query, key, value = laid(q, 6, 7, 5), laid(k, 6, 5, 7), laid(v, 6, 7, 5)
    scores = b.call("aten::view", b.call("aten::bmm", query, key), [2, 3, 7, 7])
    scores = b.call("aten::mul.Tensor", scores, scale)
    if masked:
        scores = b.call("aten::masked_fill.Scalar", scores, hidden, -1e9)
    weights = b.call("aten::_softmax", scores, -1, False)
    flat = b.call("aten::view", weights, [6, 7, 7])
    out = b.call("aten::bmm", flat, value)
    if not backward:
        return b.done(b.call("aten::view", out, [2, 3, 7, 5]))
    gradient = laid(g, 6, 7, 5)
    of_values = b.call("aten::bmm", b.call("aten::permute", flat, [0, 2, 1]), gradient)
    of_weights = b.call("aten::bmm", gradient, b.call("aten::permute", value, [0, 2, 1]))
    of_weights = b.call("aten::view", of_weights, [2, 3, 7, 7])
    of_scores = b.call("aten::_softmax_backward_data", of_weights, weights, -1, kind)
    of_scores = b.call("aten::mul.Tensor", of_scores, scale)
    flat = b.call("aten::view", of_scores, [6, 7, 7])
    of_query = b.call("aten::bmm", flat, b.call("aten::permute", key, [0, 2, 1]))
    of_key = b.call("aten::bmm", b.call("aten::permute", query, [0, 2, 1]), flat)
    return b.done(out, of_values, of_query, of_key)


def not_recorded(graph: Graph) -> Graph:
    """The chain, none of whose numbers the trace told."""

    def unknown(value: Any) -> Any:
        return Scalar(value.name, 0.5, recorded=False) if isinstance(value, Scalar) else value

    calls = (msgspec.structs.replace(c, arguments=tuple(map(unknown, c.arguments))) for c in graph.calls)
    return msgspec.structs.replace(graph, calls=tuple(calls))


def test_a_scale_that_is_not_recorded_is_that_of_the_heads_width() -> None:
    graph = not_recorded(attention(backward=True))
    fixed = fixed_graph("attention_unfused", graph)
    assert fixed.numbers == pytest.approx(dict.fromkeys(("other", "other_1"), 5**-0.5))
    assert any("width" in text for text in fixed.assumptions)
    assert f"other={5**-0.5!r}" in fixed.source
    assert fixed_graph("attention_unfused", attention(backward=True)).numbers == {}  # as recorded


def test_the_gradient_of_the_fused_operator_may_round_as_fused_kernels_do(tmp_path: Path) -> None:
    graph = attention(backward=True, kind="bfloat16", scale=2.0)  # peaked: nearly one place a row
    assert fixed_graph("attention_unfused", graph).rounds == "delta_form"
    assert tried("attention_unfused", graph, tmp_path)["flash"] == []
    plain = ("rounds=delta_form,", "")
    assert any("output 2: element" in f for f in tried("attention_unfused", graph, tmp_path, spoil=plain)["flash"])
    for spoil in (("delta = (", "delta = 2 * ("), (" - delta)", " + delta)")):
        faults = tried("attention_unfused", graph, tmp_path, spoil=spoil)["flash"]
        assert any("another function" in fault for fault in faults)
    assert fixed_graph("attention_unfused", attention(backward=False)).rounds is None


@pytest.mark.parametrize("backward", [False, True])
def test_attention_is_the_fused_operator_without_copies_of_what_it_reads(backward: bool, tmp_path: Path) -> None:
    graph = attention(backward)
    source = fixed_graph("attention_unfused", graph).source
    assert "clone" not in source.partition("def delta_form")[0]
    assert tried("attention_unfused", graph, tmp_path)["math"] == []
    assert tried("attention_unfused", graph, tmp_path, spoil=("scale=other", "scale=1.3 * other"))["math"]
    if backward:
        assert tried("attention_unfused", graph, tmp_path, spoil=("grads[2]", "grads[0]"))["math"]
        assert tried("attention_unfused", graph, tmp_path, spoil=("grads[1]", "2 * grads[1]"))["math"]


def test_a_mask_that_is_filled_in_is_given_as_what_may_be_seen(tmp_path: Path) -> None:
    graph = attention(backward=False, masked=True)
    assert tried("attention_unfused", graph, tmp_path)["math"] == []
    assert tried("attention_unfused", graph, tmp_path, spoil=(".logical_not()", ""))["math"]
    fixed = fixed_graph("attention_unfused", graph)
    assert "logical_not" in fixed.source.partition("def fixed(")[0]  # made before, and not for each layer
    assert any("mask is made once" in text for text in fixed.assumptions)


def test_a_moving_average_is_one_pass_where_its_numbers_are_one_together(tmp_path: Path) -> None:
    assert tried("parameter_loop", average(), tmp_path) == {"one list": [], "one pass": []}
    faults = tried("parameter_loop", average(), tmp_path, spoil=("_foreach_lerp_(", "_foreach_add_("))
    assert faults["one pass"] and not faults["one list"]
    unknown = fixed_graph("parameter_loop", not_recorded(average()))
    assert set(unknown.own) == {"one list", "one pass"} and any("1 together" in text for text in unknown.assumptions)
    other = GraphBuilder("other")
    for x, y in [[other.input(f"{name}_{k}", (6, 5), "float32") for name in "xy"] for k in range(2)]:
        other.call("aten::mul_.Tensor", x, 0.9)
        other.call("aten::add_.Tensor", x, y, alpha=0.2)
    assert set(fixed_graph("parameter_loop", other.done()).own) == {"one list"}


def test_attention_whose_probabilities_are_read_elsewhere_has_no_fixed_form() -> None:
    b = GraphBuilder("read")
    q, k, v = (b.input(n, s, "float32") for n, s in (("q", (6, 7, 5)), ("k", (6, 5, 7)), ("v", (6, 7, 5))))
    weights = b.call("aten::_softmax", b.call("aten::view", b.call("aten::bmm", q, k), [2, 3, 7, 7]), -1, False)
    out = b.call("aten::bmm", b.call("aten::view", weights, [6, 7, 7]), v)
    with pytest.raises(NoFixedForm, match="wanted elsewhere"):
        fixed_graph("attention_unfused", b.done(out, weights))


def test_one_table_takes_the_place_of_many(tmp_path: Path) -> None:
    assert tried("embedding_bags_apart", bags(), tmp_path)["one table"] == []
    assert tried("embedding_bags_apart", bags(1), tmp_path)["one table"] == []
    for spoil in ((" + rows)", ")"), (" + before]", "]"), ("False, 0)", "False, 1)")):
        assert tried("embedding_bags_apart", bags(), tmp_path, spoil=spoil)["one table"]


WRONG_ORDERS = [
    ("narrow", "argsort(stable=True)", "argsort(stable=True).flip(0)"),
    ("narrow", "narrow(t2, torch.uint8)", "narrow(t2.clamp_min(1), torch.uint8)"),
    ("counted", "(among + (", "(counts[expert] - 1 - among + ("),  # equal ones turned round
    ("counted", "lambda: place", "lambda: place.flip(0)"),
    ("narrow", "torch.arange(order.numel()", "1 + torch.arange(order.numel()"),
]


@pytest.mark.parametrize("twice", [False, True])
def test_experts_are_put_in_order_by_narrow_keys_and_by_counting(twice: bool, tmp_path: Path) -> None:
    for experts in (5, 300):
        found = tried("expert_sort", routed(experts=experts, twice=twice), tmp_path)
        assert found == {"narrow": [], "counted": []}
    for way, text, other in WRONG_ORDERS[: 5 if twice else 3]:
        found = tried("expert_sort", routed(twice=twice), tmp_path, spoil=(text, other))
        assert found[way]


def test_left_factors_that_are_slices_of_one_tensor_are_not_joined_in_the_step() -> None:
    def lies(*offsets: int) -> list[Lies | None]:
        return [Lies(("buffer", 0), Layout(offset, (5, 8), (8, 1)), "float32") for offset in offsets]

    def joined(places: list[Lies | None]) -> str:
        source = fixed_graph("small_products_apart", turns("x"), Around(lies=places)).source
        return "before" if "inputs[0], inputs[1]" in source else "within" if "[x_0, x_1" in source else "nowhere"

    assert joined(lies(0, 40, 80)) == "before"
    for places in (lies(0, 40, 79), lies(80, 40, 0), [*lies(0, 40), None], lies(0, 40), lies(0, 0, 0)):
        assert joined(places) == "within"


def test_equal_numbers_that_are_recorded_have_one_name() -> None:
    graph = numbers_once(average())
    assert [(s.name, s.value) for s in graph.scalars] == [("other", 0.99), ("alpha", 0.01)]
    assert numbers_once(average(0.5)).scalars[1:] != graph.scalars[1:]
    unknown = not_recorded(attention(backward=True))
    assert numbers_once(unknown) == unknown


def dependent() -> Graph:
    b = GraphBuilder("chain")
    x, y, z = (b.input(n, (6,), "float32") for n in "xyz")
    b.call("aten::add_.Tensor", x, y)
    b.call("aten::add_.Tensor", z, y)
    b.call("aten::add_.Tensor", x, z)
    return b.done()


def one_after_another() -> Graph:
    b = GraphBuilder("chain")
    x, y, z = (b.input(n, (6,), "float32") for n in "xyz")
    b.call("aten::add_.Tensor", x, y)
    b.call("aten::add_.Tensor", z, x)
    return b.done()


REFUSED = [
    ("parameter_loop", dependent, "depends on another"),
    ("parameter_loop", one_after_another, "no loop"),
    ("parameter_loop", lambda: average(0.5), "does not do the same"),
    ("parameter_loop", lambda: zeros(1.0), "no operator over lists"),
    ("gradient_zeroing", lambda: zeros(1.0), "other numbers than zero"),
    ("gradient_zeroing", average, "more than fill"),
    ("gradient_zeroing", lambda: zeros_and_gradients(twice=True), "more than one gradient"),
    ("gradient_zeroing", lambda: zeros_and_gradients(alpha=0.5), "no gradient of its own"),
    ("gradient_zeroing", lambda: zeros_and_gradients(turned=True), "lies otherwise"),
    ("embedding_bags_apart", lambda: bags(0, (3, 4)), "not all given, or all as far apart"),
    ("expert_sort", lambda: routed(chosen="given"), "how many experts"),
    ("expert_sort", lambda: routed(experts=40_000), "how many experts"),
    ("expert_sort", lambda: routed(falling=True), "rising"),
    ("small_products_apart", lambda: turns("x", sizes=(5, 4, 5)), "several shapes"),
    ("small_products_apart", average, "products"),
    ("small_products_apart", casts, "not matrices"),
    ("small_products_apart", recurrent, "no loop"),
    ("scaler_needless", average, "more than take a scale off"),
    ("weight_cast", average, "writes in place"),
    ("cache_grown", casts, "more than join"),
    ("embedding_bags_apart", casts, "more than embedding bags"),
    ("conversion_pair", average, "only converts"),
    ("layout_leak", casts, "contiguous already"),
    ("batch_norm_evaluated", casts, "not one norm"),
    ("batch_norm_evaluated", lambda: normed(training=True), "not one norm that takes"),
    ("batch_norm_evaluated", lambda: normed(read=True), "is read elsewhere"),
]


@pytest.mark.parametrize(("rule", "graph", "why"), REFUSED, ids=[f"{r} {k}" for k, (r, *_) in enumerate(REFUSED)])
def test_what_has_no_fixed_form_says_why(rule: str, graph: Any, why: str) -> None:
    with pytest.raises(NoFixedForm, match=why):
        fixed_graph(rule, graph())
