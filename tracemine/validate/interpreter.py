# mypy: ignore-errors
"""Triton's interpreter, made exact and made to watch: import this before a generated kernel, under TRITON_INTERPRET=1.

As it ships (3.6 to 3.9) the interpreter truncates where a GPU rounds to nearest even, for bfloat16 and fp8, and lets
out-of-bounds accesses and races pass. Here casts go through torch, and every load and store is checked.

It patches the interpreter's internals, which no type checker follows.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

from tracemine.validate import interpreter_cache

_NARROW = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
_WIDE = {tl.float16: torch.float16, tl.float32: torch.float32, tl.float64: torch.float64}
_SIZES = ("rows", "columns", "XBLOCK", "RBLOCK")
_stock_convert = interpreter._convert_float
stock_patch_tensor = interpreter._patch_lang_tensor


def _convert(values, from_type, to_type, rounding):
    """Cast between float types, to nearest even, by torch."""
    source, target = getattr(from_type, "scalar", from_type), getattr(to_type, "scalar", to_type)
    values = np.ascontiguousarray(values)
    if source in _WIDE and target in _NARROW and rounding != interpreter._ir.ROUNDING_MODE.RTZ:
        bits, plain = (torch.uint8, np.uint8) if target.primitive_bitwidth == 8 else (torch.int16, np.uint16)
        return torch.from_numpy(values).to(_NARROW[target]).view(bits).numpy().view(plain)
    if source in _NARROW and target in _WIDE:
        bits = values.view(np.uint8) if source.primitive_bitwidth == 8 else values.view(np.int16)
        return torch.from_numpy(bits).view(_NARROW[source]).to(_WIDE[target]).numpy()
    return _stock_convert(values, from_type, to_type, rounding)


class Watched:
    """Memory that kernels may touch, and who touched it during the launch at hand. Elements count from `begin`."""

    def __init__(self, begin, end, item):
        self.begin, self.end, self.item = begin, end, item
        count = (end - begin) // item
        self.writer, self.reader = (np.full(count, -1, np.int64) for _ in range(2))
        self.covered = np.zeros(count, np.bool_)


class Watch:
    """Bounds, races, double writes and bytes of all launches since it was made."""

    def __init__(self):
        self.ranges: list[Watched] = []
        self.faults: dict[str, int] = {}
        self.bytes_read = self.bytes_written = 0
        self.launches: list[dict] = []
        self.contracts = False  # products with sums, as a GPU does
        self.far = False  # every place must be counted in 64 bits

    def allow(self, tensor):
        """Allow access to a tensor, from its first element to its last; gaps between them count as its own."""
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        if tensor.numel():
            begin = tensor.data_ptr()
            self.ranges.append(Watched(begin, begin + reach * tensor.element_size(), tensor.element_size()))

    def written(self, tensor):
        """Return whether every element of a tensor was written."""
        if not tensor.numel():
            return True
        home = self._home(tensor)
        steps = [np.arange(n) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
        places = steps[0] if steps else np.zeros(1, np.int64)
        for step in steps[1:]:
            places = np.add.outer(places, step)
        return bool(home.covered[places.ravel()].all())

    def touched(self, tensor):
        """Return whether any element of a tensor was written, be it with what it held."""
        return bool(tensor.numel()) and bool(self._home(tensor).covered.any())

    def _home(self, tensor):
        return next(r for r in self.ranges if r.begin == tensor.data_ptr())

    def launch(self, arguments):
        """Begin a launch: what earlier ones did is done."""
        self.launches.append(arguments)
        for r in self.ranges:
            r.writer.fill(-1)
            r.reader.fill(-1)

    def note(self, fault, count):
        self.faults[fault] = self.faults.get(fault, 0) + int(count)

    def touch(self, stores, pointers, mask, program):
        places = pointers.data[mask.data].astype(np.int64).ravel()
        if not places.size:
            return
        item = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        self.bytes_written += places.size * item * stores
        self.bytes_read += places.size * item * (not stores)
        first, last = places.min(), places.max() + item
        home = next((r for r in self.ranges if r.begin <= first and last <= r.end), None)
        if home is None:  # they are not all of one tensor
            within = [(places >= r.begin) & (places + item <= r.end) for r in self.ranges]
            inside = max(within, key=np.sum, default=np.zeros(places.shape, np.bool_))
            home = next((r for r, of in zip(self.ranges, within, strict=True) if of is inside), None)
            self.note("writes out of bounds" if stores else "reads out of bounds", (~inside).sum())
            places = places[inside]
        if home is not None and item == home.item:
            self._who(home, (places - home.begin) // item, stores, program)

    def places(self, offset):
        """Note what is added to an address: 32 bits end at 2³¹ elements."""
        is_block = offset.data.ndim > 1 or offset.data.size > 1  # a program's number alone is few
        counts = is_block and _ONE not in offset.attr
        if self.far and counts and offset.data.dtype.itemsize < 8:
            self.note("offsets counted in 32 bits", offset.data.size)

    def _who(self, home, elements, stores, program):
        others = home.writer[elements]
        clash = (others >= 0) & (others != program)
        if stores:
            readers = home.reader[elements]
            if not (elements[1:] > elements[:-1]).all():
                ordered = np.sort(elements)  # np.unique hashes, which takes ten times as long
                if twice := int((ordered[1:] == ordered[:-1]).sum()):
                    self.note("elements written twice by one program", twice)
            if clash.any():
                self.note("elements written by two programs", clash.sum())
            if ((readers != -1) & (readers != program)).any():
                self.note("elements written that another program reads", 1)
            home.writer[elements] = program
            home.covered[elements] = True
            return
        if clash.any():
            self.note("elements read that another program writes", clash.sum())
        before = home.reader[elements]
        home.reader[elements] = np.where((before == -1) | (before == program), program, -2)


_watch: list[Watch] = []


def _program(builder):
    x, y, z = builder.grid_idx
    return x + (y << 21) + (z << 42)


_stock_load = interpreter.InterpreterBuilder.create_masked_load
_stock_store = interpreter.InterpreterBuilder.create_masked_store
_ONE = "one number for all"
_stock_splat = interpreter.InterpreterBuilder.create_splat
_FACTORS = "the factors of a product"
_stock_multiply = interpreter.InterpreterBuilder.create_fmul
_stock_places = interpreter.InterpreterBuilder.create_addptr
_stock_launch = interpreter.GridExecutor.__call__
_stock_reduce = interpreter.ReduceOps.apply_impl
_stock_number = interpreter._implicit_cvt


def _load(self, pointers, mask, *rest, **named):
    if _watch:
        _watch[-1].touch(False, pointers, mask, _program(self))
    return _safe(_stock_load, self, pointers, mask, *rest, **named)


def _store(self, pointers, value, mask, *rest, **named):
    if _watch:
        _watch[-1].touch(True, pointers, mask, _program(self))
    return _safe(_stock_store, self, pointers, value, mask, *rest, **named)


def _splat(self, ret_ty, arg):
    if arg.data.dtype == np.bool_:  # a comparison's handle has the type of what was compared
        arg = interpreter.TensorHandle(arg.data, tl.int1)
    found = _stock_splat(self, ret_ty, arg)
    found.attr[_ONE] = True
    return found


def _places(self, pointers, offset):
    if _watch:
        _watch[-1].places(offset)
    return _stock_places(self, pointers, offset)


def _safe(access, self, pointers, *rest, **named):
    """Carry out an access, but none outside: it is known by now, and would take the process with it."""
    if _watch and any("out of bounds" in fault for fault in _watch[-1].faults):
        raise OutOfBounds
    return access(self, pointers, *rest, **named)


def _launch(self, *args, **named):
    if _watch:
        given = dict(zip(inspect.getfullargspec(self.fn).args, args, strict=False))
        sizes = {k: int(v) for k, v in given.items() if k.startswith(_SIZES) and isinstance(v, int)}
        _watch[-1].launch({"kernel": self.fn.__name__, **sizes})
    return _stock_launch(self, *args, **named)


def _number(arg):
    """Make a Python float a float32, as on a GPU."""
    if type(arg) is float:
        with np.errstate(over="ignore"):
            return tl.tensor(interpreter.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)
    return _stock_number(arg)


def _fma(self, x, y, z):
    """Round once: in float64 the product is exact."""
    wide = x.data.astype(np.float64) * y.data + z.data
    return interpreter.TensorHandle(wide.astype(z.data.dtype), z.dtype.scalar)


def _multiply(self, lhs, rhs):
    """Keep a product's factors, for a sum that is contracted with it."""
    found = _stock_multiply(self, lhs, rhs)
    if _watch and _watch[-1].contracts and found.data.dtype == np.float32:
        found.attr[_FACTORS] = (lhs.data, rhs.data)
    return found


def _contracted(stock, operation):
    """Contract a product with its sum or difference, rounded once, as a GPU's compiler does where it may."""

    def found(self, lhs, rhs):
        product = next((h for h in (lhs, rhs) if _FACTORS in h.attr), None)
        if product is None or lhs.data.dtype != rhs.data.dtype:
            return stock(self, lhs, rhs)
        x, y = product.attr[_FACTORS]
        whole = x.astype(np.float64) * y
        wide = operation(whole, rhs.data) if product is lhs else operation(lhs.data, whole)
        return interpreter.TensorHandle(wide.astype(lhs.data.dtype), lhs.dtype.scalar)

    return found


def _difference(x, y):
    """Subtract without contraction."""
    one, other = (tl.tensor(interpreter.TensorHandle(t.handle.data, t.handle.dtype), t.type) for t in (x, y))
    return one - other


def _cumsum(self, arg):
    """Sum along an axis as a GPU does, as many stages deep as the logarithm of its length; numpy adds in a row."""
    found, step = arg.handle.data.copy(), 1
    along = np.moveaxis(found, self.axis, -1)
    while step < along.shape[-1]:
        along[..., step:] = along[..., step:] + along[..., :-step]
        step *= 2
    return [self.to_tensor(found, dtype=arg.dtype)]


def _from_whole(stock):
    """Convert an integer to a float of 16 bits; stock keeps its bits."""

    def found(self, src, dst_type):
        kind = _NARROW.get(dst_type.scalar)
        if kind is not torch.bfloat16:
            return stock(self, src, dst_type)
        bits = torch.from_numpy(np.ascontiguousarray(src.data)).to(kind).view(torch.int16)
        return interpreter.TensorHandle(bits.numpy().view(np.uint16), dst_type.scalar)

    return found


def _dot(stock):
    """Multiply what operands hold, in float32; stock multiplies the bits of bfloat16.

    Where TF32 is asked for, operands keep 10 bits. Integers are stock's.
    """

    def found(self, a, b, d, input_precision, most_imprecise):
        if not (a.dtype.is_floating() and b.dtype.is_floating()):
            return stock(self, a, b, d, input_precision, most_imprecise)
        held = (_convert(h.data, h.dtype, tl.float32, None) if h.dtype in _NARROW else h.data for h in (a, b))
        left, right = (np.ascontiguousarray(values, np.float32) for values in held)
        if input_precision == interpreter._ir.INPUT_PRECISION.TF32 and a.dtype == tl.float32:
            left, right = _ten_bits(left), _ten_bits(right)
        total = np.matmul(left, right) + d.data
        return interpreter.TensorHandle(total.astype(d.data.dtype), d.dtype.scalar)

    return found


def _ten_bits(values):
    """Round to nearest as TF32 does: 10 bits behind the first."""
    bits = values.view(np.uint32)
    rounded = ((bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


class OutOfBounds(Exception):
    """A kernel touched memory that is none of its tensors'."""


@contextmanager
def watching():
    """Watch all launches inside."""
    _watch.append(Watch())
    try:
        yield _watch[-1]
    finally:
        _watch.pop()


def _reduce(self, arg):
    """Reduce a maximum that propagates NaN by numpy; other functions are asked element by element."""
    if getattr(self.combine_fn, "__name__", "").startswith("_larger"):
        return self.to_tensor(np.max(arg[0].handle.data, axis=self.axis, keepdims=self.keep_dims), arg[0].dtype)
    return _stock_reduce(self, arg)


# Functions of CUDA's own library that have torch's names.
_LIBRARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan"),
    *("erfc", "erfinv", "hypot", "lgamma"),
)


def _of_library(name):
    """Return a stand-in for a GPU's library function of float32, rounded once."""

    def call(*arguments):
        numbers = [a.handle.data if isinstance(a, tl.tensor) else a for a in arguments]
        wide = [torch.from_numpy(np.ascontiguousarray(each, np.float64)) for each in numbers]
        found = getattr(torch, name)(*wide).numpy().astype(np.float32)
        whole = tl.block_type(tl.float32, list(found.shape))
        kind = whole if any(isinstance(a, tl.tensor) and a.type.is_block() for a in arguments) else tl.float32
        return tl.tensor(interpreter.TensorHandle(found, tl.float32), kind)

    return call


def _patch_tensor(tensor, *rest):
    """Let a tensor of one element bound a loop: Triton before 3.7 asks numpy for it in a way that 2.5 refuses."""
    stock_patch_tensor(tensor, *rest)
    tensor.__index__ = lambda self: int(self.handle.data.item())


def install():
    """Patch the interpreter of this process, once."""
    interpreter_cache.install()
    interpreter._convert_float = _convert
    interpreter.InterpreterBuilder.create_masked_load = _load
    interpreter.InterpreterBuilder.create_masked_store = _store
    interpreter.InterpreterBuilder.create_addptr = _places
    interpreter.InterpreterBuilder.create_splat = _splat
    builder = interpreter.InterpreterBuilder
    builder.create_fmul = _multiply
    builder.create_dot = _dot(builder.create_dot)
    builder.create_si_to_fp = _from_whole(builder.create_si_to_fp)
    builder.create_ui_to_fp = _from_whole(builder.create_ui_to_fp)
    builder.create_fadd = _contracted(builder.create_fadd, np.add)
    builder.create_fsub = _contracted(builder.create_fsub, np.subtract)
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)  # before 3.7 NaN went through
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)
    interpreter.GridExecutor.__call__ = _launch
    interpreter._implicit_cvt = _number
    interpreter.InterpreterBuilder.create_fma = _fma
    interpreter.ReduceOps.apply_impl = _reduce
    interpreter.ScanOps.cumsum = _cumsum
    interpreter._patch_lang_tensor = _patch_tensor
    libdevice.fast_dividef = lambda x, y: x / y
    libdevice.sub_rn = _difference
    for name in _LIBRARY:
        setattr(libdevice, name, _of_library(name))
    libdevice.fast_logf = lambda x: tl.log(x)  # none of the GPU's own functions is here; tl.log is patched at a launch
