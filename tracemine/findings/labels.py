"""A match in words: operators, shapes, dtype, module and source line, the same in tomorrow's trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.calls import Call, calls_of
from tracemine.calls.call import sizes
from tracemine.findings.facts import Facts
from tracemine.findings.record import Source
from tracemine.ops.facts import base_name
from tracemine.ops.infer.tensor import Sizes
from tracemine.patterns import deferred
from tracemine.rows.table import Categories, IntArray
from tracemine.rows.user_frames import written_name
from tracemine.timeline import Timeline, producer_of

# What reduces makes a chain what it is: its module and line are the chain's own, a residual addition's are not.
_ANCHORS = frozenset({"reduction", "norm", "softmax", "loss", "scan"})
_MOVES = frozenset({"copy", "fill"})  # first and last layers differ in these


_MOST_FRAMES = 5
# Frames that say how a call was dispatched and not who made it: the framework's, the interpreter's and capture's own.
_NOT_THE_USERS = deferred(
    r"(^|[/\\])(torch|torch_npu|functorch|triton|_dynamo|_inductor|torchinductor(_[\w.-]+)?)[/\\]"
    r"|(^|[/\\])tracemine[/\\]recording[/\\]|(^|[/\\])(contextlib|functools|threading|runpy)\.py$|^<"
    r"|(^|-packages[/\\])(jax|jaxlib)[/\\]"
)


class Label(Struct, frozen=True, kw_only=True):
    """A class in words: the same in tomorrow's trace."""

    ops: tuple[str, ...]
    shapes: str | None  # for people
    all_shapes: tuple[str | None, ...]  # for telling apart
    dtype: str | None
    module: str | None  # of what reduces; where nothing does, of all
    enclosing: str | None  # of all, whatever they are
    owner: str | None  # class of that module, or of the optimizer whose step it is
    optimizer: str | None  # in whose step most of it is
    backward: bool  # some of it is
    core: tuple[str, ...]  # operators that make it what it is: those that reduce, else all that compute
    source: tuple[Source, ...]

    def facet(self, name: str) -> object:
        """Return one of the facets that rules group by."""
        if name in ("source", "line"):
            source = short(self.source[0]) if self.source else None
            # An edit above moves the line.
            return source if source is None or name == "source" else f"{source}:{self.source[0].line}"
        return {"ops": self.ops, "shapes": self.all_shapes, "dtype": self.dtype, "module": self.module}[name]


def label_of(timeline: Timeline, facts: Facts, members: IntArray) -> Label:
    heads = np.array([members[part][0] for part in by_operator(facts, members)])

    def texts(column: Categories, rows: Iterable[int] = heads) -> list[str | None]:
        return [text_at(column, row) for row in rows]

    ops = tuple(op or "" for op in texts(facts.op))
    classes = texts(facts.op_class)
    anchors = [row for row, kind in zip(heads, classes, strict=True) if kind in _ANCHORS] or list(heads)
    stack = next((int(facts.stack_row[row]) for row in (*anchors, *members) if facts.stack_row[row] >= 0), None)
    module = common_module(texts(facts.module, anchors))
    calls = calls_of(timeline)
    recorded = [call for row in heads if (call := calls.at(facts.op_row[row])) is not None]
    optimizer = _most(texts(facts.optimizer))
    return Label(
        ops=ops,
        shapes=_shapes_text(recorded),
        all_shapes=tuple(texts(facts.shapes)),
        dtype=next(filter(None, map(read_dtype, recorded)), None),
        module=module,
        enclosing=common_module(texts(facts.module)),
        owner=class_of(module) if module is not None else optimizer,
        optimizer=optimizer,
        backward=bool(facts.backward[heads].any()),
        core=_core(ops, classes),
        source=sources(timeline, stack),
    )


def _most(names: Sequence[str | None]) -> str | None:
    """Return the name that half of them are, at least.

    >>> _most(["SGD", "SGD", None]), _most(["SGD", None, None])
    ('SGD', None)
    """
    return next((name for name in names if name is not None and 2 * names.count(name) >= len(names)), None)


def class_of(module: str) -> str:
    """Return the class of the innermost module of a path; of a name that ends with a number or `*`, the name before it.

    >>> class_of("Llama_*.LlamaDecoderLayer_*.LlamaRMSNorm_*"), class_of("model.layers.*.mlp"), class_of("blocks.3")
    ('LlamaRMSNorm', 'mlp', 'blocks')
    """
    names = [name for name in module.split(".") if name.strip("*0123456789")]
    return (names[-1] if names else module).removesuffix("_*")


def _core(ops: Sequence[str], classes: Sequence[str | None]) -> tuple[str, ...]:
    """Return the distinct operators that make a chain what it is, whatever is cast or moved before and after.

    >>> _core(["aten::add_", "aten::mean", "aten::mul"], ["pointwise", "reduction", "pointwise"])
    ('mean',)
    >>> _core(["aten::_to_copy", "aten::mul_", "aten::add"], ["copy", "pointwise", "pointwise"])
    ('add', 'mul')
    """
    for chosen in (
        [op for op, kind in zip(ops, classes, strict=True) if kind in _ANCHORS],
        [op for op, kind in zip(ops, classes, strict=True) if kind not in _MOVES],
        ops,
    ):
        if chosen:
            return tuple(sorted({base_name(op) for op in chosen}))
    return ()


def by_operator(facts: Facts, members: IntArray) -> list[slice]:
    """Return slices of a match, one an operator call: neighbours with the same operator row belong to one call."""
    op_row = facts.op_row[members]
    cuts = [0, *(np.flatnonzero((op_row[1:] != op_row[:-1]) | (op_row[1:] < 0)) + 1).tolist(), len(members)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def text_at(column: Categories, row: int | np.int64) -> str | None:
    code = int(column.codes[row])
    return column.values[code] if code >= 0 else None


def common_module(patterns: Sequence[str | None]) -> str | None:
    """Return the innermost module that encloses all members for which one is known."""
    paths = [pattern.split(".") for pattern in patterns if pattern is not None]
    common = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return ".".join(common) or None


def _shapes_text(calls: Sequence[Call]) -> str | None:
    """Return each distinct shape of a first tensor input, in order; None where none was recorded."""
    firsts = dict.fromkeys(shape for call in calls if (shape := first_shape(call)) is not None)
    return ", ".join(str([*shape]) for shape in firsts) or None


# --- recorded inputs, for people --------------------------------------------------------------------------------------


def read_dtype(call: Call) -> str | None:
    """Return the dtype of the first tensor that a call reads; None where no single tensor is read.

    >>> read_dtype(Call("aten::copy_", dtypes=("float", "c10::BFloat16", "Scalar")))
    'bfloat16'
    """
    overwritten = () if call.overload is None else call.overload.overwrites
    known = (call.dtype(place) for place in range(len(call.dtypes or ())) if place not in overwritten)
    return next((name for name in known if name is not None), None)


def first_shape(call: Call) -> Sizes | None:
    """Return the first shape with axes among the inputs; of a list of tensors, its first member's.

    >>> first_shape(Call("aten::mul", ((), (2, 3)))), first_shape(Call("aten::cat", (((4,), (5,)),)))
    ((2, 3), (4,))
    """
    shapes = (sizes(given[0] if given and isinstance(given[0], tuple) else given) for given in call.shapes or ())
    return next(filter(None, shapes), None)


# --- Python lines that lead to a row ---------------------------------------------------------------------------------


def sources(timeline: Timeline, stack_row: int | None) -> tuple[Source, ...]:
    """Return frames of a call path, innermost first, without torch's own, modules and built-ins.

    A function that torch.compile broke and resumed is one frame, at the line that broke it last.
    """
    stacks = timeline.stacks
    begins = stacks["file"].null_count > 0  # built-ins are frames as well: events, not the text of older versions
    found: list[Source] = []
    row, resumes = stack_row, False
    while row is not None and len(found) < _MOST_FRAMES:
        file = stacks["file"][row].as_py()
        if file is not None and not _NOT_THE_USERS.search(file):
            line, function = stacks["line"][row].as_py(), stacks["function"][row].as_py()
            if line is not None and function is not None:
                frame = Source(file=file, line=line, function=written_name(function), begins=begins)
                frame = frame if frame.function == function else replace(frame, begins=False)  # the line that broke it
                resumed = found and resumes and (found[-1].file, found[-1].function) == (frame.file, frame.function)
                found += [] if resumed else [frame]
                resumes = frame.function != function
        caller = stacks["parent_row"][row].as_py()
        row = caller if caller is not None and 0 <= caller < row else None  # callers stand before callees
    return _lines_once(timeline, found)


def _lines_once(timeline: Timeline, found: Sequence[Source]) -> tuple[Source, ...]:
    """Return frames, of JAX those of one line once: there each call of a line is a frame."""
    by_call = producer_of(timeline.meta) == "xla"
    return tuple(frame for frame, _ in groupby(found)) if by_call else tuple(found)


def short(source: Source) -> str:
    """Return a frame without what differs between machines and edits: the file's last two names, and the function.

    >>> short(Source(file="/home/x/site-packages/models/llama.py", line=71, function="forward"))
    'models/llama.py: forward'
    """
    names = source.file.replace("\\", "/").split("/")
    return f"{'/'.join(names[-2:])}: {source.function}"
