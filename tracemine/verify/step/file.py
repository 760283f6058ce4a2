"""A step as one file that stands alone: needs torch and triton, and nothing of this package.

It holds the step call by call, the same with fused kernels in place, the kernels, checks and timing. Of a trace it
holds numbers, and kernel names as escaped strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.triton.source import SourceText
from tracemine.ops import itemsize
from tracemine.verify.repro.eager import eager_text
from tracemine.verify.repro.standalone import banner, file_text
from tracemine.verify.repro.text import inputs_text
from tracemine.verify.step.placing import Placed
from tracemine.verify.step.program import Program, TensorRef
from tracemine.verify.step.text import Writer, items_of

_LONGEST_NAME = 2000
_LARGEST_FILTER = 11


def step_file(placed: Placed, counts: Sequence[dict[str, int]], recorded: Sequence[str], expected: bytes) -> str:
    """Return the file's text.

    counts: of each kernel, how often it replaces which finding. recorded: the name of each kernel, copy and set of
    the replayed calls. expected: JSON, as is.
    """
    writer = Writer(placed.program)
    eager = writer.function("eager_step", list(placed.program.calls))
    fused = writer.function("fused_step", items_of(placed))
    program = placed.program
    says = [
        f"One recorded step, replayed call by call: {program.replayed_launches} of {program.launches} launches,",
        f"{program.share:.1%} of its GPU time; again with kernels in place of {len(placed.placed)} subgraphs.",
        *(f"Assumed: {text}." for text in program.assumptions),
        "",
        "    python THIS_FILE          checks and times it, on a GPU",
        "    python THIS_FILE --json   the same for programs",
        "    python THIS_FILE --meta   runs it without a GPU and without data, to see that its calls fit each other",
    ]
    parts = [
        'DEVICE = "cuda"',
        banner("The operators"),
        writer.header(),
        banner("The step, as recorded: t are tensors from outside"),
        eager,
        banner("The step with kernels k in place of subgraphs"),
        fused,
        banner("What both take"),
        _inputs(program, writer),
        banner("The subgraphs, as eager runs them, and a kernel in the place of each"),
        _kernels(placed),
        f"ABOUT = json.loads({_json(_about(placed, counts, recorded))})\nEXPECTED = json.loads({_json(expected)})",
    ]
    return file_text("\n".join(says), parts, _MAIN, embeds=EMBEDDED, imports=_IMPORTS)


EMBEDDED = {
    "Whether it is right, and what it takes": (
        *("validate/numerics.py", "validate/roundings.py", "validate/rounding_noise.py", "validate/undefined_casts.py"),
        *("verify/gpu/correctness.py", "verify/gpu/profiling.py", "verify/gpu/graphs.py", "verify/step/replay.py"),
    )
}
_IMPORTS = (
    "import argparse",
    "import importlib.util",
    "import json",
    "import sys",
    "import tempfile",
    "from pathlib import Path",
)


def _about(placed: Placed, counts: Sequence[dict[str, int]], recorded: Sequence[str]) -> bytes:
    return msgspec.json.encode(
        {
            "ulps": [source.ulp for _, source in placed.kernels],
            "draws": [source.draws for _, source in placed.kernels],
            "findings": counts,
            "recorded": [name[:_LONGEST_NAME] for name in recorded],
        }
    )


def _json(text: bytes) -> str:
    return ascii(text.decode())


def _inputs(program: Program, writer: Writer) -> str:
    numbers: dict[int, int] = {}
    largest: dict[int, TensorRef] = {}
    for place in writer.inputs:
        numbers.setdefault(place.buffer, len(numbers))
        known = largest.get(place.buffer)
        if known is None or _elements(place) > _elements(known):
            largest[place.buffer] = place
    written = {place.buffer for call in program.calls for place in call.writes}
    buffers = []
    for number in numbers:
        buffer, place = program.buffers[number], largest[number]
        nbytes = max(buffer.elements * buffer.itemsize, itemsize(place.dtype) or 1)
        buffers.append(
            f"    ({buffer.on_host}, {nbytes}, torch.{place.dtype}, {buffer.below}, {buffer.positive}, {_fan(place)}, "
            f"{number in written}),"
        )
    views = [
        f"    ({numbers[p.buffer]}, torch.{p.dtype}, {p.shape!r}, {p.strides!r}, {p.offset})," for p in writer.inputs
    ]
    live = [f"    (torch.{p.dtype}, {p.shape!r})," for p in program.live]
    return "\n".join(
        [
            "# Memory: on the host, bytes, dtype, places that indices point to, without a sign, fan, written by it.",
            "BUFFERS = [",
            *buffers,
            "]",
            "# Tensors in it: buffer, dtype, shape, strides, offset.",
            "VIEWS = [",
            *views,
            "]",
            "# What is left at the end: state that was written, and what no call reads.",
            "LIVE = [",
            *live,
            "]",
        ]
    )


def _fan(place: TensorRef) -> int:
    """Return how many values are summed where it is a weight: a product's last axis, a convolution's but the first."""
    if len(place.shape) < 2:
        return 1
    is_filter = len(place.shape) > 2 and max(place.shape[2:]) <= _LARGEST_FILTER
    return max(prod(place.shape[1:]) if is_filter else place.shape[-1], 1)


def _elements(place: TensorRef) -> int:
    begin, end = place.layout.reach
    return end - begin


def _kernels(placed: Placed) -> str:
    used = {placed.fused[group].kernel for group in placed.placed}
    texts = [_quoted(module_text(*kernel)) if k in used else '""' for k, kernel in enumerate(placed.kernels)]
    return "SOURCES = [\n" + "".join(f"{text},\n" for text in texts) + "]"


def module_text(graph: Graph, source: SourceText) -> str:
    """Return one subgraph and its kernel as a module of its own."""
    return "\n\n\n".join([source.text.strip("\n"), eager_text(graph), f"{inputs_text(graph)}\n"])


def _quoted(text: str) -> str:
    """Return source as a string that shows it as it is, where it can."""
    return f"r'''\n{text}'''" if "'''" not in text and not text.endswith(("'", "\\")) else ascii(text)


_MAIN = '''
def modules(folder):
    """The kernels, each a module of its own in a folder. Triton reads their source again: the files must stay."""
    found = []
    for number, text in enumerate(SOURCES):
        path = Path(folder) / f"kernel_{number}.py"
        text = text or "eager = fused = None\\nINPUTS = []\\n"
        path.write_text(text.replace('device="cuda"', f'device="{DEVICE}"'), "utf-8")
        spec = importlib.util.spec_from_file_location(f"kernel_{number}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.inputs = lambda described=module.INPUTS: make_inputs(described)
        found.append(module)
    return found


def meta_convolution(x, weight, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32):
    """torch has none for cuDNN's own."""
    return torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, [0], groups)


def on_meta(folder):
    """Runs both without data: shapes of what is left at the end, as recorded or not."""
    global DEVICE
    DEVICE = "meta"
    torch.library.impl("aten::cudnn_convolution", "Meta")(meta_convolution)
    inputs = Inputs(BUFFERS, VIEWS, DEVICE)
    found = {}
    with torch.no_grad():
        for name, step in (("eager", eager_step), ("fused", fused_step)):
            try:
                left = step(inputs.tensors, [m.eager for m in modules(folder)])
                wrong = [k for k, (t, (d, s)) in enumerate(zip(left, LIVE)) if t.dtype != d or tuple(t.shape) != s]
                found[name] = f"{len(wrong)} of {len(left)} tensors are not as recorded" if wrong else "fits"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
    return found


def claimed(key, found):
    """What is predicted for the kernels in place."""
    total = {"low": 0, "mid": 0, "high": 0}
    for one, of in zip(found.get("kernels", ()), ABOUT["findings"]):
        for mark, count in of.items() if one["kept"] else ():
            for end in total:
                total[end] += count * EXPECTED.get(key, {}).get(mark, {}).get(end, 0)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0, help="that timing may take, if rounds do not end before")
    parser.add_argument("--keep", help="findings whose kernels are put in place; else those that are faster")
    parser.add_argument("--meta", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        done(parser.parse_args(), folder)


def done(asked, folder):
    if asked.meta:
        print(json.dumps(on_meta(folder)))
        return
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU, and torch finds none; --meta needs none")
    kept = None if asked.keep is None else asked.keep.split(",")
    inputs = Inputs(BUFFERS, VIEWS, DEVICE)
    found = step_results(
        eager_step, fused_step, inputs, modules(folder), ABOUT, kept, rounds=asked.rounds, seconds=asked.seconds
    )
    if asked.json:
        print(json.dumps({**found, "expected": EXPECTED}))
        return
    print("the trace's own kernels:", f"{found['replay']['same_names']:.1%} of {found['replay']['recorded']} launches")
    for name, samples in found.get("times", {}).items():
        step, host = (statistics.median(samples[k]) / 1000 for k in ("step_ns", "host_ns"))
        print(f"{name:12} {step:10.1f} us a step, the host {host:.1f} us")
    claims = {"graph": EXPECTED.get("graph"), "fused": claimed("step_ns", found)}
    claims["fused_graph"] = claimed("gpu_ns", found)
    for name, one in found.get("savings", {}).items():
        print(f"{name:16} {one} predicted {claims.get(name)}")
    print(found.get("says", ""))


if __name__ == "__main__":
    main()
'''
