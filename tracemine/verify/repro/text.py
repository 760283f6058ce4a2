"""A finding as one file that stands alone: eager chain, fused kernel, check, benchmark, in that order.

The file needs torch and triton and nothing of this package. Of a trace it holds numbers and escaped strings; operators
and names come from the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracemine.codegen.graph import Call, Graph, Ref, Refs, Scalar, Scalars, Value, asked, reads
from tracemine.codegen.min_traffic import compulsory
from tracemine.codegen.triton.source import Source
from tracemine.validate.input_domains import POSITIVE, domains
from tracemine.verify.repro.standalone import banner, file_text

Plain = bool | int | float | str | tuple[bool | int | float, ...]
_FORMATS = {0: "torch.contiguous_format", 1: "torch.preserve_format", 2: "torch.channels_last"}
# Modules whose text every reproduction holds, by what they are about.
EMBEDDED = {
    "Whether it is right": (
        "validate/numerics.py",
        "validate/roundings.py",
        "validate/undefined_casts.py",
        "verify/gpu/correctness.py",
    ),
    "What it takes": (
        "verify/gpu/profiling.py",
        "verify/gpu/tuning.py",
        "verify/gpu/clocks.py",
        "verify/gpu/compiling.py",
        "verify/gpu/graphs.py",
        "verify/gpu/timing.py",
    ),
}


# What mains and parts of reproductions need beside them.
IMPORTS = ("import argparse", "import hashlib", "import json", "from pathlib import Path")
_TOOLS = ("import torch", "import triton", "import triton.language as tl")


def repro(
    chain: Graph,
    source: Source | None,
    *,
    fingerprint: str,
    title: str,
    ulp: float,
    recorded: Sequence[tuple[str, Sequence[int] | None]] = (),
    assumptions: Sequence[str] = (),
    draws: bool = False,
    library: str | None = None,
    positive: Collection[int] = (),
) -> str:
    """The file's text.

    recorded: name and grid of each kernel that the chain had in the trace. library: a function of that name that says
    the same by calls of PyTorch's library, timed beside the kernel; in its place, where there is no source.
    positive: inputs that hold no negative numbers, beside those of which roots and logarithms are taken.
    """
    moved = compulsory(chain)
    what = "A library's call" if source is None else "One fused kernel"
    says = [f"{title} ({fingerprint})", "", f"{what} in place of these calls, as a trace recorded them."]
    says += [f"Taken for granted: {text}." for text in assumptions]
    says += [
        "",
        "    python THIS_FILE          checks and times it, on a GPU",
        "    python THIS_FILE --json   the same for programs",
    ]
    parts = [
        banner("The chain, as eager runs it"),
        eager_text(chain),
        f"{inputs_text(chain, positive)}\n\n"
        f"# Name and grid of each kernel that the trace has for it.\nTRACE = {_recorded(recorded)}",
        *_stand_ins(source, library),
    ]
    main = _MAIN.format(
        ahead=_tuned(source, 2),
        cuts=_tuned(source, 4),
        variants=_VARIANTS[source is not None, library is not None],
        fingerprint=fingerprint,
        kernel=source is not None,
        ulp=ulp,
        nbytes=moved.both,
        read_bytes=moved.read,
        draws=draws,
    )
    return file_text("\n".join(says), parts, main, embeds=EMBEDDED, imports=IMPORTS, tools=_TOOLS)


# What stands in for eager: a kernel, a library's call, or both.
_VARIANTS = {
    (True, False): '{"fused": fused}',
    (True, True): '{"fused": fused, "library": library}',
    (False, True): '{"fused": library}',
}


def _tuned(source: Source | None, share: int) -> str:
    """How cuts are tried, as Python source. share: that part of the time at most."""
    return "{}" if source is None else f"tuned(fused, BLOCKS, INPUTS, within / {share})"


def _stand_ins(source: Source | None, library: str | None) -> list[str]:
    found: list[str] = []
    if source is not None:
        text = source.text.removeprefix("import torch\nimport triton\nimport triton.language as tl\n").strip("\n")
        found += [banner("One kernel in its place"), text]
    if library is not None:
        found += [banner("The library's own call for it"), library]
    return found


def eager_text(chain: Graph) -> str:
    """The chain as a Python function `eager` of calls through torch.ops.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("scaled")
    >>> print(eager_text(b.done(b.call("aten::mul.Tensor", b.input("x", (4,), "float32"), 0.5))))
    def eager(x, *, other=0.5):
        aten = torch.ops.aten
        t1 = aten.mul.Tensor(x, other)
        return (t1,)
    """
    names = [i.name for i in chain.inputs]
    scalars = [f"{s.name}={number_text(s.value)}" for s in chain.scalars]
    lines = [f"def eager({', '.join([*names, *(['*'] if scalars else []), *scalars])}):", "    aten = torch.ops.aten"]
    for call in chain.calls:
        outputs = [f"t{len(names) + k}" for k in range(len(call.outputs))]
        listed = bool(call.schema.outputs) and call.schema.outputs[0].endswith("[]")
        rest = iter(outputs)
        targets = [next(rest) if wanted else "_" for wanted in asked(call)]
        target = ", ".join(targets) + ("," if listed and len(outputs) == 1 else "")
        name = call.operator.removeprefix("aten::")
        text = f"aten.{name}.{call.overload or 'default'}({arguments_text(call, names)})"
        lines.append(f"    {target} = {text}" if outputs else f"    {text}")
        names += outputs
    live = ", ".join(names[v] for v in chain.live)
    lines.append(f"    return ({live}{',' if len(chain.live) == 1 else ''})")
    return "\n".join(lines)


def arguments_text(call: Call, names: Sequence[str]) -> str:
    """A call's arguments as Python source. names: of the values that it refers to."""
    schema = call.schema
    found: list[str] = []
    skipped = False
    for place, (argument, value) in enumerate(zip(schema.arguments, call.arguments, strict=True)):
        if value is None and (place >= schema.positional or not argument.is_optional):
            skipped = True
            continue
        text = _value(argument.type, value, names)
        if call.wraps_numbers and argument.is_tensor and isinstance(value, Scalar):
            text = f"torch.tensor({text})"
        found.append(f"{argument.name}={text}" if skipped or place >= schema.positional else text)
    if any(a.name == "device" for a in schema.arguments) and not reads(call):
        found.append('device="cuda"')
    return ", ".join(found)


def _value(kind: str, value: Value, names: Sequence[str]) -> str:
    if value is None:
        return "None"
    if isinstance(value, Ref):
        return names[value.value]
    if isinstance(value, Refs):
        return f"[{', '.join('None' if v is None else names[v] for v in value.values)}]"
    if isinstance(value, Scalar):
        return value.name
    if isinstance(value, Scalars):
        return f"[{', '.join(s.name for s in value.values)}]"
    return literal_text(kind.removesuffix("?"), value.value)


def literal_text(kind: str, value: Plain) -> str:
    """A value that is no tensor as Python source. kind: its type in the schema.

    >>> literal_text("ScalarType", "bfloat16"), literal_text("int[]", (1, 2)), literal_text("MemoryFormat", 0)
    ('torch.bfloat16', '[1, 2]', 'torch.contiguous_format')
    """
    if kind == "ScalarType":
        return f"torch.{value}"
    if kind == "MemoryFormat" and isinstance(value, int):
        return _FORMATS.get(value, "None")
    if isinstance(value, tuple):
        return f"[{', '.join(map(number_text, value))}]"
    return repr(value) if isinstance(value, str) else number_text(value)


def number_text(value: float | int | bool) -> str:
    """A number as Python source.

    >>> number_text(-float("inf")), number_text(1e-06), number_text(True)
    ("float('-inf')", '1e-06', 'True')
    """
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def inputs_text(chain: Graph, positive: Collection[int] = ()) -> str:
    """A chain's inputs as a Python table `INPUTS`, as `gpu/correctness.py` makes them. positive: as in `repro`."""
    holds = {**domains(chain), **dict.fromkeys(positive, POSITIVE)}
    rows = [
        f'    ("{i.name}", {i.spec.shape!r}, torch.{i.spec.dtype}, {i.spec.strides!r}, {holds.get(k, i.below)!r}),'
        for k, i in enumerate(chain.inputs)
    ]
    return "\n".join(
        ["INPUTS = [  # name, shape, dtype, strides, and for indices how many places there are", *rows, "]"]
    )


def _recorded(recorded: Sequence[tuple[str, Sequence[int] | None]]) -> str:
    rows = [f"    ({name!a}, {list(grid) if grid is not None else None!r})," for name, grid in recorded]
    return "\n".join(["[", *rows, "]"])


_MAIN = """
def compile_only(compiles=tuple(MODES), compile_s=60.0, within=float("inf")):
    # What compilers make lies in their caches then, and timing has nothing to wait for.
    end = time.monotonic() + within
    cuts = {ahead}
    variants = {variants}
    for work in variants.values():
        work(*copies(make_inputs(INPUTS)))
    for name in compiles:
        if (left := end - time.monotonic()) > 0:
            compiled_variants(eager, copies(make_inputs(INPUTS)), [name], min(compile_s, left))
    torch.cuda.synchronize()
    return {{"cuts": cuts}}


def results(compiles=tuple(MODES), compile_s=15.0, seconds=10.0, within=float("inf")):
    end = time.monotonic() + within
    cuts = {cuts}
    found = examined(
        eager, {variants}, INPUTS, TRACE,
        ulp={ulp}, nbytes={nbytes}, read_bytes={read_bytes}, draws={draws},
        compiles=compiles, compile_s=compile_s, seconds=seconds, within=end - time.monotonic(),
    )
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return {{"fingerprint": "{fingerprint}", "kernel": {kernel}, "source_sha256": own, "cuts": cuts, **found}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-tune", action="store_true", help="leave its max-autotune out")
    parser.add_argument("--compile-seconds", type=float, default=15.0, help="most that a compilation may take")
    parser.add_argument("--seconds", type=float, default=10.0, help="no block of samples is begun after this")
    parser.add_argument("--compile-only", action="store_true", help="time nothing: fill the compilers' caches")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU, and torch finds none")
    modes = () if asked.no_compile else ("compiled",) if asked.no_tune else tuple(MODES)
    if asked.compile_only:
        print(json.dumps(compile_only(modes)))
        return
    found = results(modes, asked.compile_seconds, asked.seconds)
    if asked.json:
        print(json.dumps(found))
        return
    print("the trace's own kernels:", "yes" if found["replay"]["same_names"] else "no", found["replay"]["kernels"])
    for name, cuts in found["cuts"].items():
        print(f"cuts of {{name}} into blocks (elements of a block, of a thread; ns), the first is taken: {{cuts}}")
    print("right:", "not compared" if found["right"] is None else found["right"]["faults"] or found["right"])
    for state, verdict in found.get("times", {{}}).get("judged", {{}}).items():
        samples = found["times"]["samples"][state]
        medians = {{name: statistics.median(s["sum_ns"]) / 1000 for name, s in samples.items()}}
        print(f"{{state}}:", ", ".join(f"{{name}} {{us:.2f}} us" for name, us in medians.items()))
        print(f"    eager / fused {{verdict['eager']}}, torch.compile / fused {{verdict.get('compiled')}}")


if __name__ == "__main__":
    main()
"""
