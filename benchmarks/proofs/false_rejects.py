"""Known-good kernels judged by the rule that GPUs are judged by: how many it rejects, and how many wrong it passes.

    python -m benchmarks false_rejects [--seeds N] [--no-compile] [CHAIN …]

Good are torch.compile's kernels for a CPU (C++), and the same decomposition run step by step in float32 in ways that a
careful kernel may take: sums in another order, products and sums contracted, functions and divisions off by 2 ulp,
exponentials as powers of two.
Wrong are those with one step left out. A line a chain; then for each kind of kernel how many were judged and rejected.
Exits with 1 where more than 1 % of the good ones of a kind are rejected.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.proofs import verify_sizes
from tests.codegen.catalogue import CATALOGUE
from tests.codegen.summation import summed
from tracemine.codegen import Graph
from tracemine.codegen.lowering.driver import lower
from tracemine.validate.input_domains import domains
from tracemine.verify.gpu.compiling import compiled_variants
from tracemine.verify.gpu.correctness import copies, make_inputs, right
from tracemine.verify.repro.eager import eager_text

aten = torch.ops.aten
NARROW = (torch.bfloat16, torch.float16)
LANES = 32
ULP = 2.0**-23
LOG2_E = 1.4426950408889634  # of Triton's exp: a power of two of a product, which is rounded
FUNCTIONS = ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos")
DIVISIONS = ("div", "reciprocal", "rsqrt", "sqrt", "addcdiv")
FUSED = ("addcmul", "addcdiv", "lerp")  # of lists
MOVES = ("clone", "copy_", "alias", "view", "permute", "expand")  # nothing is computed
SUMS = ("sum", "mean", "var", "var_mean", "linalg_vector_norm")
# Kinds of good kernels: what they do otherwise than a CPU's operators in float32.
GOOD = {
    "float32": (),
    "order": ("order",),
    "contracted": ("contracted",),
    "functions": ("functions",),
    "divisions": ("divisions",),
    "exponentials": ("exponentials",),
    "all": ("order", "contracted", "functions", "divisions", "exponentials"),
}


class Kernel(fx.Interpreter):
    """One kernel in the place of a decomposed chain: float32 from loads to stores.

    ways: of GOOD. without: a step that is left out.
    """

    def __init__(self, graph: fx.GraphModule, ways: Sequence[str] = (), without: fx.Node | None = None) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.given: dict[fx.Node, torch.Tensor] = {}
        self.ways, self.without = ways, without
        self.generator = torch.Generator().manual_seed(1)

    def run_node(self, node: fx.Node) -> Any:
        """One step."""
        if node.op == "placeholder":
            self.given[node] = super().run_node(node)
            return _wide(self.given[node])
        if node.op != "call_function":
            found = super().run_node(node)
            if node.op == "output":
                found = [_as(t, n) for t, n in zip(found, node.args[0], strict=True)]
            return found
        args, named = self.fetch_args_kwargs_from_env(node)
        args = tuple(torch.float32 if isinstance(a, torch.dtype) and a in NARROW else a for a in args)
        named = {k: torch.float32 if isinstance(v, torch.dtype) and v in NARROW else v for k, v in named.items()}
        if node is self.without:
            return args[0]  # a list where that is one
        name = node.target.__name__.partition(".")[0]
        if node.target is aten.copy_.default:
            return self.given[node.args[0]].copy_(args[1])
        if name in SUMS and "order" in self.ways and args[0].dtype == torch.float32:
            return _reduced(name, args, named)
        if name == "add" and "contracted" in self.ways and not named and (product := self._product(node)) is not None:
            return product
        name = name.removeprefix("_foreach_")
        if name in FUSED and "contracted" in self.ways and isinstance(args[0], list):
            return _once(node.target, args, named)
        if name == "exp" and "exponentials" in self.ways and isinstance(args[0], torch.Tensor):
            found = torch.exp2(args[0] * LOG2_E)
        else:
            found = node.target(*args, **named)
        inexact = (name in FUNCTIONS and "functions" in self.ways) or (name in DIVISIONS and "divisions" in self.ways)
        if isinstance(found, list):
            return [self._off(t) for t in found] if inexact else found
        return self._off(found) if inexact else _wide(found)

    def _off(self, found: torch.Tensor) -> torch.Tensor:
        """By up to 2 ulp; 0 and 1, which functions end at, are exact."""
        if found.dtype != torch.float32:
            return found
        off = found * (1 + 2 * ULP * (2 * torch.rand(found.shape, generator=self.generator) - 1))
        return torch.where(found.abs() == 1, found, off)

    def _product(self, node: fx.Node) -> torch.Tensor | None:
        """a · b + c, rounded once, where one of the summands is a product."""
        for at in (0, 1):
            made = node.args[at]
            if isinstance(made, fx.Node) and made.target is aten.mul.Tensor and self.env[made].dtype == torch.float32:
                a, b = (self.env[x] if isinstance(x, fx.Node) else x for x in made.args)
                c = node.args[1 - at]
                c = self.env[c] if isinstance(c, fx.Node) else c
                a, b, c = (x.double() if isinstance(x, torch.Tensor) else float(x) for x in (a, b, c))
                return (a * b + c).float()
        return None


def _once(function: Callable[..., Any], args: Sequence[Any], named: Any) -> Any:
    """A call that is rounded to float32 once."""
    found = function(*([t.double() for t in a] if isinstance(a, list) else a for a in args), **named)
    return [t.float() for t in found]


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value


def _as(value: Any, node: Any) -> Any:
    """As it is stored."""
    return value.to(node.meta["val"].dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _reduced(name: str, args: Sequence[Any], named: Any) -> Any:
    """A reduction in another order."""
    x = args[0]
    at = 2 if name == "linalg_vector_norm" else 1
    dims = args[at] if len(args) > at else named.get("dim")
    dims = list(range(x.dim())) if dims is None or dims == [] else [d % x.dim() for d in dims]
    keep = bool(named.get("keepdim", args[at + 1] if len(args) > at + 1 else False))
    kept = [d for d in range(x.dim()) if d not in dims]
    rows = x.permute(*kept, *dims).reshape(*(x.shape[d] for d in kept), -1)
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keep else [x.shape[d] for d in kept]
    count = rows.shape[-1]
    if name == "sum":
        return summed(rows, LANES).reshape(shape)
    if name == "mean":
        return (summed(rows, LANES) / count).reshape(shape)
    if name == "linalg_vector_norm":
        if len(args) > 1 and args[1] != 2:
            return aten.linalg_vector_norm(*args, **named)
        return summed(rows * rows, LANES).sqrt().reshape(shape)
    mean = summed(rows, LANES) / count
    gaps = rows - mean[..., None]
    variance = (summed(gaps * gaps, LANES) / (count - (named.get("correction", 1) or 0))).reshape(shape)
    return variance if name == "var" else (variance, mean.reshape(shape))


def eager_of(chain: Graph) -> Callable[..., Any]:
    """The chain as a function, as reproductions hold it, for this machine's processor."""
    named: dict[str, Any] = {"torch": torch}
    exec(eager_text(chain).replace('device="cuda"', 'device="cpu"'), named)  # noqa: S102 - our own text
    found: Callable[..., Any] = named["eager"]
    return found


def described(chain: Graph) -> list[tuple[Any, ...]]:
    holds = domains(chain)
    return [
        (i.name, i.spec.shape, getattr(torch, str(i.spec.dtype)), i.spec.strides, holds.get(k, i.below))
        for k, i in enumerate(chain.inputs)
    ]


def left_out(graph: fx.GraphModule) -> list[fx.Node]:
    """Steps that may be left out: of tensors of some shape and dtype they make others alike."""
    found = []
    for node in graph.graph.nodes:
        if (
            node.op == "call_function"
            and node.users
            and node.args
            and node.target.__name__.partition(".")[0] not in MOVES
        ):
            made, first = (t if isinstance(t, list) else [t] for t in (node.meta.get("val"), node.args[0]))
            if len(made) == len(first) and all(map(_alike, made, first)):
                found.append(node)
    return found


def _alike(made: Any, first: Any) -> bool:
    taken = first.meta.get("val") if isinstance(first, fx.Node) else None
    if not isinstance(made, torch.Tensor) or not isinstance(taken, torch.Tensor):
        return False
    return (made.shape, made.dtype) == (taken.shape, taken.dtype) and made.is_floating_point()


def chains(wanted: Sequence[str]) -> list[tuple[str, Graph]]:
    """The catalogue's, and those of production in both dtypes at the size of a decoding step."""
    found = [(name, make()) for name, make in CATALOGUE.items()]
    found += [(f"{name} {dtype}", chain) for name, _, dtype, chain in verify_sizes.sized((), ("small",))]
    found = [(name, chain) for name, chain in found if not wanted or name.partition(" ")[0] in wanted]
    return [(name, chain) for name, chain in found if not lower(chain).drawn]


def judge(name: str, chain: Graph, seeds: Sequence[int], compiles: bool, counts: Counter[tuple[str, str]]) -> str:
    """Counts what is judged and what is rejected; what was in words."""
    eager, inputs = eager_of(chain), described(chain)
    ulp = lower(chain).ulp
    tensors = make_inputs(inputs, device="cpu")
    eager(*copies(tensors))
    decomposed = torch.func.functionalize(lambda *t: tuple(eager(*t) or ()), remove="mutations_and_views")
    graph = make_fx(decomposed, decomposition_table=select_decomp_table())(*copies(tensors))
    variants: dict[str, Any] = {kind: Kernel(graph, ways).run for kind, ways in GOOD.items()}
    if compiles:
        variants |= compiled_variants(eager, copies(tensors), ("compiled",), 120.0)[0]
    wrong = {f"without {n.name}": Kernel(graph, (), n).run for n in left_out(graph)}
    wrong = {name: work for name, work in wrong.items() if _runs(work, tensors)}
    judged = right(eager, {**variants, **wrong}, inputs, ulp, "cpu", seeds)
    says = []
    for variant, found in judged.items():
        kind = "a step left out" if variant in wrong else variant
        counts[kind, "judged"] += 1
        counts[kind, "rejected"] += bool(found["faults"])
        if bool(found["faults"]) != (variant in wrong):
            says.append(f"    {variant}: {found['faults'][0] if found['faults'] else 'passed'}")
    return "\n".join([f"{name:44} {len(judged) - len(wrong)} good, {len(wrong)} wrong", *says])


def _runs(work: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Some compute places outside their tensor without a step."""
    try:
        work(*copies(tensors))
    except (IndexError, RuntimeError):
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chains", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out: it takes seconds a chain")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[tuple[str, str]] = Counter()
    for name, chain in chains(asked.chains):
        try:
            print(judge(name, chain, range(asked.seeds), not asked.no_compile, counts), flush=True)
        except (NotImplementedError, RuntimeError) as reason:  # operators, or dtypes of theirs, that only a GPU has
            counts["not on a CPU", "judged"] += 1
            print(f"{name:44} not judged: {str(reason).splitlines()[0][:60]}", flush=True)
        torch._dynamo.reset()
    print(f"\n{'kernels':16} {'judged':>7} {'rejected':>8}")
    for kind in (*GOOD, "compiled", "a step left out"):
        print(f"{kind:16} {counts[kind, 'judged']:7} {counts[kind, 'rejected']:8}")
    print(f"{counts['not on a CPU', 'judged']} chains have operators that only a GPU has")
    return int(any(counts[k, "rejected"] > 0.01 * counts[k, "judged"] for k in (*GOOD, "compiled")))


if __name__ == "__main__":
    sys.exit(main())
