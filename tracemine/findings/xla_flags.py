"""Flags of XLA that advice names: a version that does not know one ends the program as it starts.

That a flag's name is among the strings of a plug-in proves nothing: `xla_gpu_enable_split_k_autotuning` still is among
0.11.2's, which does not take it. So a process was started with each.
"""

from __future__ import annotations

from typing import Final

from tracemine.patterns import deferred

# Taken by all of jaxlib 0.4.30, 0.5.0, 0.6.2, 0.7.2, 0.8.2, 0.9.0, 0.10.0, 0.10.2, 0.11.0, 0.11.2, 0.12.0 and 0.12.0.1.
TAKEN: Final = frozenset(
    {
        *("xla_gpu_enable_triton_gemm", "xla_gpu_triton_gemm_any", "xla_gpu_enable_while_loop_double_buffering"),
        *("xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_all_reduce_combine_threshold_bytes"),
    }
)
_FIRST, _LAST = (0, 4), (0, 12)  # of the versions that were tried
_FLAG: Final = deferred(r"--(xla_\w+)=[^\s\"`]*")
_VERSION: Final = deferred(r"(\d+)\.(\d+)")


def with_trial(fix: str, jax: str | None) -> str:
    """Return advice with how to try its flags, where the recorded version of JAX (None: not recorded) may not know one.

    >>> with_trial("XLA_FLAGS=--xla_gpu_triton_gemm_any=true", "0.11.2"), with_trial("jax.jit", None)
    ('XLA_FLAGS=--xla_gpu_triton_gemm_any=true', 'jax.jit')
    >>> print(with_trial("XLA_FLAGS=--xla_gpu_triton_gemm_any=true", None).splitlines()[-1])
        XLA_FLAGS="--xla_gpu_triton_gemm_any=true" JAX_PLATFORMS=cpu python -c "import jax; jax.devices()"
    """
    version = _VERSION.match(jax or "")
    tried = version is not None and _FIRST <= (int(version[1]), int(version[2])) <= _LAST
    flags = [found[0] for found in _FLAG.finditer(fix) if not tried or found[1] not in TAKEN]
    if not flags:
        return fix
    which = f"JAX {jax}, which was recorded," if jax else "the JAX that was recorded, which does not say its version,"
    return (
        f"{fix}\n\nA version of XLA that does not know a flag stops as it starts (`Unknown flag in XLA_FLAGS`), and it "
        f"is not known whether {which} knows this one. Try it first:\n\n"
        f'    XLA_FLAGS="{" ".join(flags)}" JAX_PLATFORMS=cpu python -c "import jax; jax.devices()"'
    )
