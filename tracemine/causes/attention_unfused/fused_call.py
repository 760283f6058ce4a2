"""Time of `F.scaled_dot_product_attention` in place of eager attention, and which of its backends runs.

    call = Attention(batch=8, heads=16, queries=512, keys=512, width=64, dtype="bfloat16")
    backend_of(call, (9, 0))         → ("cudnn", why those before it do not)
    attention_ns(call, rates, (9, 0))  → Range, or the reason why there is none
    call.score_bytes                 what one tensor of scores takes, which no fused backend writes

Time is that of library_rates.py, of FLOPs that tiles really do: short rows fill none. Masks and dropout come on top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from tracemine.ops.dtypes import HALF, itemsize
from tracemine.perfmodel.library_rates import ASSUMED, Rate, Rates
from tracemine.perfmodel.ranges import Abstained, Range, combined, outwards

Name = Literal["cudnn", "flash", "efficient", "math"]
Capability = tuple[int, int]

# Recorded on an H100 and an H200 (torch 2.11, cuDNN's kernels, 106 distinct calls): a forward kernel does whole tiles
# of queries and keys, and heads narrower than 64 half of what is missing; backward ones showed no such steps.
_TILE_QUERIES, _TILE_KEYS, _TILE_WIDTH = 128, 64, 64
_MASKED: Final = 1.2  # 1.2 times as long with a mask whose rows are aligned (one shape),
_MASKED_UNALIGNED: Final = 3.0  # and 2.2 to 4.2 times where they are not (four shapes)
_DROPOUT: Final = {False: 2.4, True: 1.25}  # forward, backward (one model)
_INTERVAL: Final = {
    False: (0.6, 1.5),
    True: (0.75, 1.35),
}  # measured ÷ predicted of these calls, 5th and 95th percentile
_MASK_ALIGNED: Final = 8  # elements


class Attention(Struct, frozen=True, kw_only=True):
    """One call. `key_heads`: fewer than `heads` where they are shared (GQA); None: as many."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int  # of a head, of queries and keys
    dtype: str
    value_width: int | None = None
    key_heads: int | None = None
    causal: bool = False
    mask: bool = False  # one is given, of whatever type
    dropout: bool = False
    backward: bool = False

    @property
    def scores(self) -> int:
        """Elements of the matrix of scores."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def score_bytes(self) -> int:
        """Bytes of one tensor of scores, or of probabilities: what a fused backend neither writes nor reads."""
        return self.scores * (itemsize(self.dtype) or 0)

    @property
    def flops(self) -> int:
        """As ops/infer/flops.py counts them: two products forward, five backward, half of them where causal."""
        return _flops(self.scores, self.width, self._wide, self.backward) // (2 if self.causal else 1)

    @property
    def nbytes(self) -> int:
        """Least traffic: queries, keys, values, the result, the mask's rows; backward their gradients as well."""
        heads = self.heads if self.key_heads is None else self.key_heads
        queries = self.batch * self.heads * self.queries * (self.width + self._wide)
        keys = self.batch * heads * self.keys * (self.width + self._wide)
        mask = self.queries * self.keys if self.mask else 0
        return (queries + keys) * (itemsize(self.dtype) or 0) * (2 if self.backward else 1) + mask

    @property
    def _wide(self) -> int:
        return self.width if self.value_width is None else self.value_width


def _flops(scores: float, width: float, wide: float, backward: bool) -> int:
    return round(2 * scores * (3 * width + 2 * wide if backward else width + wide))


# --- backends --------------------------------------------------------------------------------------------------------


_FLASH_WIDEST, _CUDNN_WIDEST, _LOAD = 256, 128, 8
_AMPERE, _OLDEST = (8, 0), (5, 0)
_CUDNN_FIRST: Final = ((9, 0), (10, 0))  # where cuDNN goes before flash
_CUDNN_FIRST_SINCE: Final = (2, 11)  # of torch: recorded there; older ones on an H100 took flash

_Test = Callable[[Attention, Capability], bool]
# Conditions of each backend that a call can fail, in words: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp
# (torch 2.11 to 2.14) as documented for torch.nn.attention.SDPBackend.
_REFUSES: Final[dict[Name, tuple[tuple[str, _Test], ...]]] = {
    "cudnn": (
        ("it takes float16 and bfloat16 alone", lambda a, c: a.dtype not in HALF),
        ("it needs an sm_80 or newer", lambda a, c: c < _AMPERE),
        ("heads wider than 128 are not its", lambda a, c: max(a.width, a._wide) > _CUDNN_WIDEST),
        ("heads' width is no multiple of 8", lambda a, c: bool(a.width % _LOAD or a._wide % _LOAD)),
    ),
    "flash": (
        ("it takes float16 and bfloat16 alone", lambda a, c: a.dtype not in HALF),
        ("it needs an sm_80 or newer", lambda a, c: c < _AMPERE),
        ("it takes no mask", lambda a, c: a.mask),
        ("heads wider than 256 are not its", lambda a, c: a.width > _FLASH_WIDEST),
        ("values are as wide as keys", lambda a, c: a.width != a._wide),
    ),
    "efficient": (
        ("it takes no float64", lambda a, c: a.dtype not in HALF | {"float32"}),
        ("it needs an sm_50 or newer", lambda a, c: c < _OLDEST),
        ("bfloat16 needs an sm_80 or newer", lambda a, c: a.dtype == "bfloat16" and c < _AMPERE),
    ),
}


def backend_of(
    call: Attention, capability: Capability, torch: tuple[int, int] | None = None
) -> tuple[Name, tuple[str, ...]]:
    """Return the backend that takes a call on an NVIDIA GPU of this compute capability; `torch` None: a new one.

    And why those that would go before it do not: a sentence each.

    >>> call = Attention(batch=8, heads=12, queries=512, keys=512, width=64, dtype="float16")
    >>> backend_of(call, (9, 0))[0], backend_of(call, (9, 0), (2, 5))[0], backend_of(call, (7, 0))[0]
    ('cudnn', 'flash', 'efficient')
    """
    cudnn = capability in _CUDNN_FIRST and (torch is None or torch >= _CUDNN_FIRST_SINCE)
    order: tuple[Name, ...] = ("cudnn", "flash", "efficient") if cudnn else ("flash", "efficient")
    passed_over: list[str] = []
    for name in order:
        why = next((text for text, fails in _REFUSES[name] if fails(call, capability)), None)
        if why is None:
            return name, tuple(passed_over)
        passed_over.append(f"{name}: {why}")
    return "math", tuple(passed_over)


# --- time ------------------------------------------------------------------------------------------------------------


def attention_ns(
    call: Attention, rates: Rates, capability: Capability, torch: tuple[int, int] | None = None
) -> Range | Abstained:
    """Return the time of all kernels of one call; none where the math backend takes it, or no rate is known.

    >>> from tracemine.devices import find_device
    >>> from tracemine.perfmodel.library_rates import rates_of
    >>> rates = rates_of(find_device("NVIDIA H200"))
    >>> gpt2 = Attention(batch=8, heads=12, queries=512, keys=512, width=64, dtype="float16", causal=True)
    >>> attention_ns(gpt2, rates, (9, 0)).mid  # recorded: 19,000
    18643
    """
    if backend_of(call, capability, torch)[0] == "math":
        return Abstained("no_fused_attention")
    rate = rates.of("attention_backward" if call.backward else "attention", "half" if call.dtype in HALF else "fp32")
    if rate is None:
        return Abstained("rate_unknown")
    work = _done_flops(call) / rate.flops_per_s, call.nbytes / rates.device.achieved_bytes_per_s
    mid = rate.launch_ns + max(work) * 1e9 * _beside(call)
    low, high = _interval(call, rate)
    return outwards(low * mid, mid, high * mid)


def _done_flops(call: Attention) -> float:
    """Return the FLOPs that tiles compute: whole ones, and all of the last."""
    if call.backward:
        return call.flops
    queries, keys = (-(-size // tile) * tile for size, tile in ((call.queries, _TILE_QUERIES), (call.keys, _TILE_KEYS)))
    width, wide = (max(one, (one + _TILE_WIDTH) / 2) for one in (call.width, call._wide))
    return _flops(call.batch * call.heads * queries * keys, width, wide, False) / (2 if call.causal else 1)


def _beside(call: Attention) -> float:
    """Return how many times as long a mask and dropout make it."""
    aligned = call.keys % _MASK_ALIGNED == 0
    masked = (_MASKED if aligned else _MASKED_UNALIGNED) if call.mask else 1.0
    return masked * (_DROPOUT[call.backward] if call.dropout else 1.0)


def _interval(call: Attention, rate: Rate) -> tuple[float, float]:
    """Return the interval: wider where no call of this device was measured, and for a mask and dropout."""
    low, high = _INTERVAL[call.backward]
    if not rate.points:
        low, high = combined(low, ASSUMED[0]), combined(high, ASSUMED[1])
    if call.mask or call.dropout:
        low, high = combined(low, ASSUMED[0]), combined(high, ASSUMED[1])
    return low, high
