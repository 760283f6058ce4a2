"""The function that a model calls, and the plan that it keeps of its launches.

A launch costs the host more than an ATen call does where every argument is inspected each time. So `fused` inspects its
tensors once, works out everything that follows from their layouts, and keeps it: the next call with such tensors
allocates and launches, and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tracemine.codegen.loop_ir import Axis, KernelBuffer, LoopProgram
from tracemine.codegen.passes.collapse_axes import AxisRun
from tracemine.codegen.triton.expressions import Names, SizeNames, number, sizes
from tracemine.codegen.triton.foreach import HELPER as _MEMBERS
from tracemine.codegen.triton.launch import KernelLaunch
from tracemine.codegen.triton.tiling import STEP, cutting, split_lines
from tracemine.tables import table_beside

_NAME = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
_WIDTH = 114  # characters of a line, behind its indent
_NAMES = 4  # of numbers that were not recorded; an optimizer has one for each parameter

_TEXTS = table_beside(__file__, "texts.toml")
_EXPECT: str = _TEXTS["expect"]
_INDEX_TYPE = '''
def _index_type(*tensors):
    """Return int64 where offsets into a tensor do not fit into 32 bits, else int32."""
    reach = max(sum((n - 1) * abs(s) for n, s in zip(t.shape, t.stride())) + t.numel() for t in tensors)
    return tl.int64 if reach >= 2**31 - 65536 else tl.int32
'''
_SPLITS = '''
def _num_splits(rows, columns, rblock, xblock):
    """Return how many parts a row is split into: enough for 1024 programs, or one a block."""
{smaller}    length = triton.cdiv(columns, rblock * {programs})
    return max(1, triton.cdiv(columns, rblock * max(1, length)))
'''
_WARPS = """
def _warps(elements, elements_per_thread, max_warps=16):
    return max(1, min(max_warps, elements // (32 * elements_per_thread)))
"""
_STRIDES = """
def _strides(*tensors):
    return [stride for tensor in tensors for stride in tensor.stride()]
"""
KIND: str = _TEXTS["kind"]
LAUNCH: str = _TEXTS["launch"]
_DESCRIBED: str = _TEXTS["described"]
_PLANNED: str = _TEXTS["planned"]
_MADE = """
def _allocate(new, device):
    if device.type == "cuda" and device.index == torch._C._cuda_getDevice():  # as code of torch.compile does: sooner
        return [torch._C._dynamo.guards._empty_strided_cuda(*each) for each in new]
    return [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in new]
"""
# Stands between the functions above and what a source has for itself alone.
PLANS = """
PLANS = {}  # launches, by all that they depend on: layouts of tensors, and whether they are aligned to 16 bytes
"""


def calling(program: LoopProgram, found: Sequence[KernelLaunch], parameters: Sequence[str]) -> str:
    """Return the functions `_plan` and `fused`."""
    made = [b for b in program.buffers.values() if b.role != "input"]
    names = ["launch"] if len(found) == 1 else [f"launch_{k}" for k in range(len(found))]
    return "\n".join([*_plan(program, found, names, made), "", "", *_fused(program, found, names, parameters, made)])


def launching(short_steps: bool = False) -> tuple[str, ...]:
    """Return the functions that every launcher may have. short_steps: rows are split in two, of short blocks."""
    programs = "2" if short_steps else "triton.cdiv(1024, triton.cdiv(max(rows, 1), xblock))"
    parts = _SPLITS.format(programs=programs, smaller=f"    rblock = min(rblock, {STEP})\n" * short_steps)
    tiles = (parts, _WARPS, *cutting(short_steps))
    return (_EXPECT, _INDEX_TYPE, *tiles, _MEMBERS, _STRIDES, KIND, LAUNCH, _DESCRIBED, _PLANNED, _MADE)


def called(text: str, short_steps: bool) -> list[str]:
    """Return the functions that these call, of those that every source may have."""
    texts = [each.strip("\n") for each in launching(short_steps)]
    for each in reversed(texts):  # one that calls another stands behind it
        if _calls(text, each):
            text += each.partition(":")[2]
    return [each for each in texts if _calls(text, each)]


def _calls(text: str, function: str) -> bool:
    return any(re.search(rf"(?<!\w){name}\(", text) for name in _NAME.findall(function)[:1])


def _plan(
    program: LoopProgram, found: Sequence[KernelLaunch], names: Sequence[str], made: Sequence[KernelBuffer]
) -> list[str]:
    inputs = [b for b in program.buffers.values() if b.role == "input"]
    sized = SizeNames()
    lines = [text for launch in found for part in launch.parts for text in split_lines(part, launch.tile_config, sized)]
    lines += _empty_lines(made, sized)
    lines.append(f"index = _index_type({', '.join(b.name for b in (*inputs, *made))})")
    told: dict[tuple[Axis, ...], AxisRun] = {}  # how axes are looped over, as it was said last
    for name, launch in zip(names, found, strict=True):
        for run in launch.merged:
            sized.used.update(axis.name for axis in run.axes)
            lines += [run.line] * (told.get(run.axes) != run)
            told[run.axes] = run
        lines += launch.lines(name, sized)
    named = sized.used | _twice(inputs)
    lines = [*_size_lines(program, inputs, named), *_expected(inputs, named), *lines]
    new = "".join(f"{b.name}, " for b in made).rstrip()
    return [
        f"def _plan({', '.join(b.name for b in inputs)}):",
        '    """Return the new tensors, without memory, and the launches, for inputs of these layouts."""',
        *(f"    {line}" for line in lines),
        f"    return {', '.join([f'({new})', *names])}",
    ]


def _twice(inputs: Sequence[KernelBuffer]) -> set[str]:
    """Return sizes that inputs have in common, or with others in one dimension: by name."""
    alone = [dim[0].name for b in inputs for dim in b.dims if len(dim) == 1]
    every = [axis.name for b in inputs for dim in b.dims for axis in dim]
    return {name for name in every if every.count(name) > 1 or name not in alone}


def _expected(inputs: Sequence[KernelBuffer], known: Collection[str]) -> list[str]:
    """Return checks of inputs, one line for equal layouts. known: sizes that are, or must be, those of others."""
    alike: dict[str, list[str]] = {}
    for b in inputs:
        free = [len(dim) == 1 and not dim[0].pinned and dim[0].name not in known for dim in b.dims]
        texts = ["None" if any_size else sizes(dim) for any_size, dim in zip(free, b.dims, strict=True)]
        alike.setdefault(f"({_tuple(texts)}), torch.{b.dtype}", []).append(f"{b.name}={b.name}")
    return [f"_expect({looks}, {', '.join(given)})" for looks, given in alike.items()]


def _empty_lines(made: Sequence[KernelBuffer], names: Names) -> list[str]:
    """Return new tensors without memory, results of one layout in one line."""
    alike: dict[str, list[str]] = {}
    for b in made:
        own = "" if b.role == "output" else b.name  # partial results have a line each
        alike.setdefault(f"{own}:{_empty(b, names)}", []).append(b.name)
    return [f"{' = '.join(names)} = {looks.partition(':')[2]}" for looks, names in alike.items()]


def _tuple(names: Sequence[str]) -> str:
    """Return the text of a tuple without its brackets.

    >>> _tuple(["x"]), _tuple(["x", "y"])
    ('x,', 'x, y')
    """
    return f"{', '.join(names)}{',' if len(names) == 1 else ''}"


def _fused(
    program: LoopProgram,
    found: Sequence[KernelLaunch],
    names: Sequence[str],
    parameters: Sequence[str],
    made: Sequence[KernelBuffer],
) -> list[str]:
    scalars = [f"{name}={number(value)}" for name, value in program.scalars]
    calls = dict.fromkeys(program.origins.values())
    inputs = [b.name for b in program.buffers.values() if b.role == "input"]
    lines = [f'"""In place of {", ".join(calls) or "copies"}."""', *_unknown(program.unknown)]
    device = f"{inputs[0]}.device" if inputs else "device"
    lines += [] if inputs else ['device = torch.empty(0, device="cuda").device']
    asked = ", ".join(_plan_key(found, device))
    lines.append(f"{', '.join(['new', *names])} = _cached_plan(PLANS, _plan, ({asked}), ({_tuple(inputs)}))")
    target = ", ".join(b.name for b in made)
    lines += [f"{f'({target},)' if len(made) == 1 else target} = _allocate(new, {device})"] * bool(made)
    for name, launch in zip(names, found, strict=True):
        lines.append(f"{name}({', '.join(launch.given)})")
    if program.outputs:
        lines.append(f"return {_tuple(program.outputs)}")
    signature = ", ".join([*parameters, *(["*"] if scalars else []), *scalars])
    return [f"def fused({signature}):", *(f"    {line}" for line in lines)]


def _plan_key(found: Sequence[KernelLaunch], device: str) -> list[str]:
    """Return what a plan is kept by, besides how its tensors lie."""
    kinds = dict.fromkeys(text for launch in found for text in launch.scalars)
    return [*(launch.tile_config for launch in found), device, *(f"_kind({name})" for name in kinds)]


def _unknown(names: Sequence[str]) -> list[str]:
    """Return what whoever pastes the function has to know of numbers that were not recorded."""
    if not names:
        return []
    said = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
    return [f"# Not recorded, so the default is not the model's value: pass {said}."]


def _size_lines(program: LoopProgram, inputs: Sequence[KernelBuffer], told: Collection[str]) -> list[str]:
    """Return where each size that is not part of the kernels is read, of those that are named."""
    lines: dict[str, str] = {}
    for buffer in inputs:
        for d, dim in enumerate(buffer.dims):
            free = [a for a in dim if not a.pinned]
            if len(free) == 1 and free[0].name not in lines and free[0].name in told:
                rest = sizes([a for a in dim if a.pinned])
                lines[free[0].name] = f"{buffer.name}.shape[{d}]" + (f" // {rest}" if len(dim) > 1 else "")
    return [f"{', '.join(names)} = {', '.join(lines[name] for name in names)}" for names in _fitting(lines)]


def _fitting(lines: Mapping[str, str]) -> list[list[str]]:
    """Return names that are assigned in one line, as many as fit with what they are."""
    found: list[list[str]] = []
    room = 0
    for name, text in lines.items():
        takes = len(name) + len(text) + 2 * len(", ")
        if not found or takes > room:
            found.append([])
            room = _WIDTH
        found[-1].append(name)
        room -= takes
    return found


def _empty(buffer: KernelBuffer, names: Names) -> str:
    """Return a tensor without memory, in the layout that the graph's own has: its order of dimensions, without gaps."""
    order = sorted(range(len(buffer.dims)), key=lambda d: (-buffer.strides[d], d))
    shape = _tuple([sizes(buffer.dims[d], names) for d in order])
    text = f'torch.empty(({shape}), dtype=torch.{buffer.dtype}, device="meta")'
    if order == list(range(len(order))):
        return text
    back = [order.index(d) for d in range(len(order))]
    return f"{text}.permute({', '.join(map(str, back))})"
