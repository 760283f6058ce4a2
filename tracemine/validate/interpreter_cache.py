# mypy: ignore-errors
"""Cache what Triton's interpreter works out anew for each operation of each program.

Blocks of a few thousand elements take numpy some microseconds; types, shapes and patches around them took a third of a
millisecond. Nothing here changes what an operation gives.
"""

from __future__ import annotations

import inspect
from functools import cache

import triton.language as tl
from triton.language import core, semantic
from triton.runtime import interpreter

_dtypes: dict[str, object] = {}  # of numpy, by the name of Triton's
_blocks: dict[tuple, dict] = {}  # attributes of a block's type, by its elements' and its shape
_tensors: dict[str, dict] = {}  # a tensor's attributes but its values, by the name of its type
_numbers: dict[tuple, object] = {}  # numbers as operands, by the type of the other operand and the operation's kind
_MOST_NUMBERS = 4096
_as_they_are: set[tuple] = set()  # pairs of types, and kinds of operations, that compute in these types
_patched: set[int] = set()  # modules of the language, by identity
_stock_dtype = interpreter._get_np_dtype
_stock_block = core.block_type.__init__
_stock_tensor = core.tensor.__init__
_stock_broadcast = semantic.TritonSemantic.broadcast_impl_value
_stock_checked = semantic.TritonSemantic.binary_op_type_checking_impl
_stock_patch = interpreter._patch_lang
_stock_unwrap = core._unwrap_if_constexpr
_stock_where = semantic.TritonSemantic.where


def _dtype(kind):
    found = _dtypes.get(kind.name)
    return _dtypes.setdefault(kind.name, _stock_dtype(kind)) if found is None else found


def _block(self, element_ty, shape):
    sizes = tuple([n.value if isinstance(n, tl.constexpr) else n for n in shape])
    found = _blocks.get((element_ty.name, sizes))
    if found is None:
        _stock_block(self, element_ty, shape)
        found = _blocks[element_ty.name, sizes] = {**self.__dict__, "sizes": sizes}
    self.__dict__.update(found)


def _tensor(self, handle, kind):
    found = _tensors.get(kind.name)
    if found is None:
        _stock_tensor(self, handle, kind)
        found = _tensors[kind.name] = {n: v for n, v in self.__dict__.items() if n != "handle"}
    self.__dict__.update(found)
    self.handle = handle


def _broadcast(self, lhs, rhs):
    a, b = lhs.type, rhs.type
    if a.is_block():
        if not b.is_block():
            return lhs, _splat(self, rhs, a)
        return (lhs, rhs) if a.sizes == b.sizes else _stock_broadcast(self, lhs, rhs)
    return (_splat(self, lhs, b), rhs) if b.is_block() else (lhs, rhs)


def _splat(self, scalar, like):
    kind = core.block_type(scalar.dtype, like.shape)
    return core.tensor(self.builder.create_splat(kind, scalar.handle), kind)


def _alike(lhs, rhs):
    """Return whether two tensors have one type of elements, and one shape."""
    if not (isinstance(lhs, core.tensor) and isinstance(rhs, core.tensor)) or lhs.dtype.name != rhs.dtype.name:
        return False
    a, b = lhs.type, rhs.type
    return a.sizes == b.sizes if a.is_block() and b.is_block() else not (a.is_block() or b.is_block())


def _checked(self, lhs, rhs, *rest, **named):
    if type(lhs) is core.tensor and type(rhs) is core.tensor:
        key = (lhs.dtype.name, rhs.dtype.name, rest, *named.items())
        if key in _as_they_are:
            return self.broadcast_impl_value(lhs, rhs)
        left, right = _stock_checked(self, lhs, rhs, *rest, **named)
        if (left.dtype.name, right.dtype.name) == key[:2]:
            _as_they_are.add(key)
        return left, right
    if type(rhs) not in (int, float) or type(lhs) is not core.tensor:
        return _stock_checked(self, lhs, rhs, *rest, **named)
    key = (lhs.type.name, repr(rhs), rest, *named.items())  # in text 0.0 is not -0.0, and 1 not 1.0
    if (found := _numbers.get(key)) is not None:
        return lhs, found
    left, found = _stock_checked(self, lhs, rhs, *rest, **named)
    if left is lhs:
        if len(_numbers) == _MOST_NUMBERS:
            _numbers.clear()
        _numbers[key] = found
    return left, found


def _where(self, condition, x, y):
    """Choose between two scalars or pointers: a program of a list's kernel chooses its tensors so, one by one."""
    alone = isinstance(condition, core.tensor) and not condition.type.is_block() and condition.dtype.name == "int1"
    if alone and _alike(x, y) and not x.type.is_block():
        return x if condition.handle.data.item() else y
    return _stock_where(self, condition, x, y)


def _helper(self, *given, **named):
    """Call a helper of a kernel."""
    _patch(self.fn)
    function = self.rewrite()
    try:
        return function(*given, **named)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def _patch(function):
    """Patch the modules of the language that a function uses, for good: nothing here needs them as they were.

    Stock patches them for each launch, and lets each go; to do so took longer than many a launch.
    """
    modules = {id(each) for each in (tl, core) if each in _modules(function)}
    if not modules <= _patched:
        _stock_patch(function)
        _patched.update(modules)
    if not hasattr(function, "__signature__"):  # each launch asks for it three times
        function.__signature__ = inspect.signature(function)
    return interpreter._LangPatchScope()


def _patch_member(package, name, member, builder, scope):
    """Let a function of the language have the interpreter's semantics; that it is given some is checked no more."""
    inner, given = getattr(member, "__wrapped__", member), interpreter.interpreter_semantic

    def call(*args, **named):
        named["_semantic"] = given
        return inner(*args, **named)

    scope.set_attr(package, name, call)


def _unwrap(value):
    return value if type(value) is core.tensor else _stock_unwrap(value)


@cache
def _modules(function):
    return [value for value in function.__globals__.values() if inspect.ismodule(value)]


def install():
    """Patch the interpreter of this process, once."""
    interpreter._get_np_dtype = _dtype
    core.block_type.__init__ = _block
    core.tensor.__init__ = _tensor
    semantic.TritonSemantic.broadcast_impl_value = _broadcast
    semantic.TritonSemantic.binary_op_type_checking_impl = _checked
    semantic.TritonSemantic.where = _where
    # Sums of integers are made again in 64 bits, for a check that a mode of debugging alone carries out.
    semantic.TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None
    interpreter.InterpretedFunction.__call__ = _helper
    interpreter._patch_lang = _patch
    interpreter._patch_attr = _patch_member
    core._unwrap_if_constexpr = _unwrap
