"""A program as Python source: its Triton kernels and a function `fused` that launches them.

The source stands alone: it needs torch and triton, nothing of this package, and may be pasted into a model. Sizes
that the chain does not fix, strides and scalars are arguments; what the kernels rely on is checked at each call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracemine.verify import ir
from tracemine.verify.body import LOOPED, POINTWISE, WHOLE, Body
from tracemine.verify.chain import Chain, Unsupported
from tracemine.verify.expressions import number, sizes
from tracemine.verify.ir import Axis, Buffer, Kernel, Node, Program
from tracemine.verify.operators import table
from tracemine.verify.plan import loads, plan

LONGEST_WHOLE = 16_384  # elements of a row that is held in registers: 64 a thread of the largest block
_LONGEST_WHOLE_ACROSS = 64  # of a row whose elements do not lie side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Generated source. `masks`: how many of what `fused` gives back are what dropout kept, after the live values."""

    text: str
    kernels: tuple[str, ...]  # names
    masks: int = 0


def generate(chain: Chain, rounds: bool = False, export_masks: bool = False) -> Source:
    """Kernels in place of a chain, as source. Raises Unsupported, with the reason, where there are none.

    rounds: the build that rounds after every call as eager does, to prove that the wiring is right.
    """
    program = plan(chain, rounds, export_masks)
    masks = len(program.outputs) - len(chain.live)
    return print_program(program, rounds, masks, parameters=[i.name for i in chain.inputs])


def print_program(program: Program, exact: bool, masks: int, parameters: list[str]) -> Source:
    """A program as source."""
    stem = re.sub(r"\W+", "_", program.name.lower()).strip("_")[:40] or "chain"
    names = tuple(f"{stem}_kernel" + (f"_{k}" if len(program.kernels) > 1 else "") for k in range(len(program.kernels)))
    printed = [_Printed(program, kernel, name, exact) for kernel, name in zip(program.kernels, names, strict=True)]
    bodies = "\n\n\n".join(p.text for p in printed)
    launcher = "\n".join(_launcher(program, printed, parameters))
    parts = ["import torch\nimport triton\nimport triton.language as tl", *_helpers(bodies), bodies, _EXPECT, launcher]
    return Source(text="\n\n\n".join(part.strip("\n") for part in parts) + "\n", kernels=names, masks=masks)


def _helpers(text: str) -> list[str]:
    """The functions that a text calls, and those that they call, in an order that defines first."""
    found: dict[str, str] = {}

    def visit(body: str) -> None:
        for name, helper in table().helpers.items():
            if name not in found and re.search(rf"(?<!\w){name}\(", body):
                visit(helper.partition(":")[2])
                found[name] = helper

    visit(text)
    return list(found.values())


class _Printed:
    """A kernel's text, and what its launch needs."""

    def __init__(self, program: Program, kernel: Kernel, name: str, exact: bool) -> None:
        self.kernel, self.name, self.exact = kernel, name, exact
        self.mode = shape_of(program, kernel)
        self.across = _walks_across(program, kernel)
        self.body = Body(program, kernel, self.mode, exact)
        lines = self.body.print()
        pointers = [f"{b}_ptr" for b in self.body.pointers]
        sized = [a.name for a in self.body.sizes]
        arguments = [*pointers, *self.body.strides, *sized, *self.body.scalars, "rows", "columns"]
        constants = [f"{c}: tl.constexpr" for c in ("INDEX", "XBLOCK", "RBLOCK")]
        head = f"@triton.jit\ndef {name}(\n    {', '.join(arguments)},\n    {', '.join(constants)},\n):"
        self.text = "\n".join([head, *lines])


def shape_of(program: Program, kernel: Kernel) -> str:
    """Which of the three shapes a kernel has: see body.py. Raises Unsupported for a running sum that is too long."""
    nodes = _nodes(kernel)
    if not any(isinstance(n, ir.Reduce | ir.Scan) for n in nodes):
        return POINTWISE
    length = 1
    for axis in kernel.columns:
        length *= axis.size
    limit = _LONGEST_WHOLE_ACROSS if _walks_across(program, kernel) else LONGEST_WHOLE
    if any(isinstance(n, ir.Scan) for n in nodes):
        if length > LONGEST_WHOLE:
            raise Unsupported(f"a running sum over more than {LONGEST_WHOLE} elements")
        return WHOLE
    return WHOLE if length <= limit else LOOPED


def _nodes(kernel: Kernel) -> list[Node]:
    found: dict[Node, None] = {}
    todo = [n for s in kernel.stores for n in (s.value, *s.index)]
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo.extend(ir.children(node))
    return list(found)


def _walks_across(program: Program, kernel: Kernel) -> bool:
    """Whether the largest tensor that it loads along its columns does not have its elements side by side there."""
    if not kernel.columns or not kernel.rows:
        return False
    last = kernel.columns[-1]
    best, across = 0, False
    for load in loads(kernel):
        buffer = program.buffers[load.buffer]
        for d, place in enumerate(load.index):
            if isinstance(place, ir.At) and place.axis == last and buffer.strides:
                size = _numel(buffer)
                if size > best:
                    best, across = size, buffer.strides[d] > 1
    return across


def _numel(buffer: Buffer) -> int:
    found = 1
    for size in buffer.shape:
        found *= size
    return found


_EXPECT = '''
def _expect(name, tensor, shape, dtype):
    """The kernels were generated for such tensors and no others."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, the kernel takes {dtype} {shape}")


def _index_type(*tensors):
    """int64 where a tensor reaches so far that its places do not fit into 32 bits."""
    reach = max(sum((n - 1) * abs(s) for n, s in zip(t.shape, t.stride())) + t.numel() for t in tensors)
    return tl.int64 if reach >= 2**31 - 65536 else tl.int32


def _warps(elements):
    return max(1, min(16, elements // 256))
'''


def _launcher(program: Program, printed: list[_Printed], parameters: list[str]) -> list[str]:
    scalars = [f"{name}={number(value)}" for name, value in program.scalars]
    signature = ", ".join([*parameters, *(["*"] if scalars else []), *scalars])
    calls = dict.fromkeys(program.origins.values())
    lines = [f"def fused({signature}):", f'    """In place of {", ".join(calls) or "copies"}."""']
    inputs = [b for b in program.buffers.values() if b.role == "input"]
    lines += [f"    {text}" for text in _size_lines(program, inputs)]
    for b in inputs:
        lines.append(f'    _expect("{b.name}", {b.name}, {_shape(b.dims)}, torch.{b.dtype})')
    made = [b for b in program.buffers.values() if b.role != "input"]
    device = f"{inputs[0].name}.device" if inputs else '"cuda"'
    lines += [f"    {b.name} = {_empty(b, device)}" for b in made]
    tensors = ", ".join(b.name for b in (*inputs, *made))
    lines.append(f"    index = _index_type({tensors})")
    for p in printed:
        lines += [f"    {text}" for text in _launch(p)]
    if program.outputs:
        lines.append(f"    return {', '.join(program.outputs)}" + ("," if len(program.outputs) == 1 else ""))
    return lines


def _size_lines(program: Program, inputs: list[Buffer]) -> list[str]:
    """Where each size that is not part of the kernels is read."""
    lines: dict[str, str] = {}
    for buffer in inputs:
        for d, dim in enumerate(buffer.dims):
            free = [a for a in dim if not a.pinned]
            if len(free) == 1 and free[0].name not in lines:
                rest = sizes([a for a in dim if a.pinned])
                text = f"{buffer.name}.shape[{d}]" + (f" // {rest}" if len(dim) > 1 else "")
                lines[free[0].name] = f"{free[0].name} = {text}"
    return list(lines.values())


def _shape(dims: tuple[tuple[Axis, ...], ...]) -> str:
    texts = [sizes(dim) for dim in dims]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _empty(buffer: Buffer, device: str) -> str:
    """A new tensor in the layout that the chain's own has: its order of dimensions, without gaps."""
    order = sorted(range(len(buffer.dims)), key=lambda d: (-buffer.strides[d], d))
    shape = _shape(tuple(buffer.dims[d] for d in order))
    text = f"torch.empty({shape}, dtype=torch.{buffer.dtype}, device={device})"
    if order == list(range(len(order))):
        return text
    back = [order.index(d) for d in range(len(order))]
    return f"{text}.permute({', '.join(map(str, back))})"


def _launch(p: _Printed) -> list[str]:
    """The lines that launch one kernel."""
    kernel, body = p.kernel, p.body
    lines = [f"rows, columns = {sizes(kernel.rows)}, {sizes(kernel.columns)}"]
    if p.mode == POINTWISE:
        if p.across:
            lines.append("rblock, xblock = 32, 32")
        else:
            lines.append("rblock = min(triton.next_power_of_2(columns), 1024)")
            lines.append("xblock = 1024 // rblock")
        grid = "triton.cdiv(rows, xblock) * triton.cdiv(columns, rblock)"
    elif p.mode == WHOLE:
        lines.append(f"if columns > {LONGEST_WHOLE}:")
        lines.append(
            f'    raise ValueError(f"rows of {{columns}} elements: this kernel holds {LONGEST_WHOLE} at most")'
        )
        lines.append("rblock = triton.next_power_of_2(max(columns, 1))")
        wide = 4096 if p.across else 1024
        lines.append(f"xblock = {'min(64, ' if p.across else ''}max(1, {wide} // rblock){')' if p.across else ''}")
        grid = "triton.cdiv(rows, xblock)"
    else:
        lines.append("rblock, xblock = 16, 64" if p.across else "rblock, xblock = 2048, 1")
        grid = "triton.cdiv(rows, xblock)"
    if not kernel.rows:
        lines.append("xblock = 1")
    arguments: list[str] = list(body.pointers)
    arguments += [f"{s.rpartition('_s')[0]}.stride({s.rpartition('_s')[2]})" for s in body.strides]
    arguments += [a.name for a in body.sizes]
    arguments += [*body.scalars, "rows", "columns", "index", "xblock", "rblock"]
    contract = ", enable_fp_fusion=False" if p.exact else ""
    lines.append(f"grid = {grid}")
    lines.append("if grid > 0:")
    lines.append(f"    {p.name}[(grid,)](")
    lines.append(f"        {', '.join(arguments)}, num_warps=_warps(xblock * rblock){contract}")
    lines.append("    )")
    return lines
