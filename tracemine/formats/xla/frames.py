"""Python's frames, as JAX's tracer of Python records them: `$file.py:line function`, without the file's folder."""

from __future__ import annotations

import re

_FRAME = re.compile(r"\$(?P<file>.+):(?P<line>\d{1,9}) (?P<function>.+)", re.DOTALL)
# Files of JAX that stand on the way from a call of the user's to the runtime. They say how it was dispatched.
_OF_JAX = frozenset({
    "api.py", "api_util.py", "array.py", "array_methods.py", "basearray.py", "batching.py", "compiler.py", "core.py",
    "custom_derivatives.py", "deprecations.py", "dispatch.py", "dtypes.py", "einsum.py", "indexing.py",
    "interpreters.py", "lax.py", "lax_numpy.py", "linear_util.py", "literals.py", "mlir.py", "named_sharding.py",
    "nn.py", "partial_eval.py", "pjit.py", "prng.py", "profiler.py", "pxla.py", "reductions.py", "sharding.py",
    "sharding_impls.py", "slicing.py", "source_info_util.py", "special.py", "stages.py", "traceback_util.py",
    "tree_util.py", "typing.py", "ufunc_api.py", "ufuncs.py", "util.py", "xla.py", "xla_bridge.py",
})  # fmt: skip


def frame_text(name: str) -> str:
    """Return a frame as the table `stacks` has it; files of JAX in a folder of its name.

    >>> frame_text("$train.py:58 step"), frame_text("$array.py:293 __float__"), frame_text("$builtins len")
    ('train.py(58): step', 'jax/array.py(293): __float__', 'builtins len')
    """
    found = _FRAME.fullmatch(name)
    if found is None:
        return name.removeprefix("$")
    folder = "jax/" if found["file"] in _OF_JAX else ""
    return f"{folder}{found['file']}({found['line']}): {found['function']}"
