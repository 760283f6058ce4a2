"""A tree of Proton: sums of kernels by scope over a whole session. When they ran is not in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import Struct

from tracemine.devices import devices
from tracemine.errors import InputError, Location
from tracemine.formats.small_tables import Row, small_timeline
from tracemine.timeline import RecordedDevice, Timeline
from tracemine.units import count_text, percent_text

_MOST_NS = 1 << 60
_MOST_CALLS = 1 << 40
_SUMS: Final = (
    "A tree of Proton holds sums: when its kernels ran, in which order and after which gaps is not in it. Record with "
    'data="trace" for that.'
)
_NEAR: Final = 0.05  # share by which a product's bandwidth may differ from the recorded clock's
_GFX: Final = "gfx"
_OLD_NAMES: Final = {"Time (ns)": "time (ns)", "Count": "count", "DeviceId": "device_id"}  # up to Triton 3.0
_DIGITS = 5  # fewer than so many has a device's number

UNNAMED: Final = "(unnamed)"
_ROOT: Final = "ROOT"
_METADATA: Final = "__proton_launch_metadata"  # the scope in which Proton computes what a kernel says of itself
_METRIC: Final = "<metric>"  # the name of a kernel that stores such a value
_CAPTURED: Final = "<captured_at>"  # between where a CUDA graph is replayed and where its kernel was captured
# Older versions write `file:function@line`.
_FRAME: Final = re.compile(
    r"(?P<file>.+):(?:(?P<line>\d{1,9})@(?P<function>[^:@]+)|(?P<old_function>[^:@]+)@(?P<old_line>\d{1,9}))"
)
_FLOPS: Final = re.compile(r"flops(?:8|16|32|64)?")
_DEEPEST = 64  # scopes around a kernel that its module path names
_LONGEST = 4096  # characters of a name
_LARGEST = 1 << 61  # of bytes and operations
_LAST_LINE = (1 << 31) - 1
_OWN_TO_SAY = 0.01  # of all GPU time


class _Node(Struct):
    frame: dict[str, str] = {}
    metrics: dict[str, Any] = {}
    children: list[_Node] = []


def read_tree(content: bytes | bytearray, path: str) -> Timeline:
    """Return a timeline of one row a kernel and scope, which has no times of its own.

    Raises msgspec.DecodeError where it is damaged, InputError without a kernel.
    """
    root, *others = msgspec.json.decode(content, type=list[Any]) or [{}]
    found = _leaves(msgspec.convert(root, type=_Node))
    kernels = sorted((leaf for leaf in found if not leaf.own), key=lambda leaf: -leaf.dur_ns)
    if not kernels or sum(kernel.dur_ns for kernel in kernels) >= _MOST_NS:
        what = "is a tree of Triton's Proton, without times of kernels"
        raise InputError(what, where=Location(path), hint='record what runs on the GPU, without mode="pcsampling"')
    described = _devices(_object(others[:1] and others[0]))
    contexts, begins = Contexts(), accumulate((leaf.dur_ns for leaf in kernels), initial=0)
    rows = [
        leaf.row(contexts)
        | {
            "start_ns": at_ns,
            "device": _ordinal(leaf.metrics.get("device_id")),
            "unowned_reason": "no_host_events",
            "calls": max(whole(leaf.metrics.get("count"), _MOST_CALLS), 1),
        }
        for at_ns, leaf in zip(begins, kernels, strict=False)
    ]
    return proton_timeline(
        path,
        found,
        {"activities": rows, "stacks": contexts.stacks},
        producer="Triton Proton, a tree",
        devices=tuple(device for device, _ in described),
        events={"kernel": len(found)},
        says=(_SUMS, *(text for _, text in described)),
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _leaves(root: _Node) -> list[ScopedKernel]:
    """Return what has a time of its own: inclusive times are made by the viewer, none is in the file.

    What is stated of a scope in which one kernel alone ran is stated of that kernel.
    """
    left: list[tuple[tuple[str, ...], _Node]] = [((), root)]
    timed, stating = list[ScopedKernel](), list[ScopedKernel]()
    while left:
        above, node = left.pop()
        metrics = {_OLD_NAMES.get(name, name): value for name, value in node.metrics.items()}
        ns = whole(metrics.get("time (ns)"), _MOST_NS)
        leaf = ScopedKernel((*above, node.frame.get("name") or UNNAMED), ns, metrics)
        if ns or any(stated(metrics).values()):
            (timed if ns else stating).append(leaf)
        left += [(leaf.stack, child) for child in reversed(node.children)]
    inside: dict[tuple[str, ...], list[ScopedKernel]] = defaultdict(list)
    for leaf in timed if stating else ():
        for depth in range(1, len(leaf.stack)):
            inside[leaf.stack[:depth]].append(leaf)
    for scope in stating:
        if len(of_scope := inside[scope.stack]) == 1:
            of_scope[0].metrics = scope.metrics | of_scope[0].metrics
    return timed


def _devices(described: dict[str, Any]) -> list[tuple[RecordedDevice, str]]:
    """Return the devices of each kind, and what is to say of each."""
    return [
        _device(number, facts)
        for kind in ("CUDA", "HIP")
        for ordinal, facts in _object(described.get(kind)).items()
        if (number := _ordinal(ordinal)) is not None and isinstance(facts, dict)
    ]


def _device(ordinal: int, facts: dict[str, Any]) -> tuple[RecordedDevice, str]:
    """Return a device by its measures: the product of this size whose memory is as fast, where that is one."""
    capability, sms = _capability(facts.get("arch")), whole(facts.get("num_sms"), 1 << 20)
    # Two transfers a clock, in kHz, of so many bits; ROCm says half of what clocks the HBM3 of CDNA 3 and 4.
    rate = (
        (4 if capability in ("9.4", "9.5") else 2)
        * whole(facts.get("bus_width"), 1 << 20)
        * whole(facts.get("memory_clock_rate"), 1 << 40)
        * 125
    )
    fitting = [
        each
        for each in devices()
        if (each.capability, each.sm_count) == (capability, sms) and abs(rate / each.bandwidth_bytes_per_s - 1) <= _NEAR
    ]
    # Of boards of one chip and one memory the one that is meant without a form factor.
    named = [each for each in fitting if each.meant_by] or fitting
    rates = {each.bandwidth_bytes_per_s for each in fitting}, {str(each.flops_per_s) for each in named}
    name = named[0].title if all(len(each) == 1 for each in rates) else None
    says = (
        f"Proton records no name of the GPU: by {count_text(sms, 'multiprocessor')}, compute capability "
        f"{capability} and memory at {rate / 1e9:,.0f} GB/s it is taken for an {name}."
    )
    device = RecordedDevice(ordinal=ordinal, name=name, compute_capability=capability, sm_count=sms or None)
    return device, "" if name is None else says


def _ordinal(text: object) -> int | None:
    """Return a device's number.

    >>> _ordinal("1"), _ordinal(None), _ordinal("12345")
    (1, None, None)
    """
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < _DIGITS else None


def _capability(arch: object) -> str | None:
    """Return the compute capability of an architecture.

    >>> _capability("90"), _capability("gfx942"), _capability("100"), _capability(None)
    ('9.0', '9.4', '10.0', None)
    """
    text = str(arch)
    text = text.removeprefix(_GFX)[:-1] if text.startswith(_GFX) else text
    return f"{text[:-1]}.{text[-1]}" if text.isdecimal() and 2 <= len(text) <= 3 else None


class ScopedKernel(Struct):
    """A kernel in its scopes, itself the last: one run of it, or the sum of all."""

    stack: tuple[str, ...]
    dur_ns: int
    metrics: dict[str, Any]
    start_ns: int = 0
    thread: int = -1

    @property
    def own(self) -> bool:
        """Whether Proton itself launched it, to compute metrics.

        >>> [ScopedKernel(("ROOT", scope, "at::sum"), 9, {}).own for scope in ("__proton_launch_metadata:k", "k")]
        [True, False]
        """
        return self.stack[-1] == _METRIC or any(part.partition(":")[0] == _METADATA for part in self.stack)

    def row(self, contexts: Contexts) -> Row:
        """Return its row of `activities`."""
        own = {"kind": "kernel", "name": self.stack[-1], "start_ns": self.start_ns, "dur_ns": self.dur_ns}
        return own | contexts.columns(self.stack[:-1]) | stated(self.metrics)


def proton_timeline(
    path: str, found: Sequence[ScopedKernel], tables: Mapping[str, Sequence[Row]], *, says: Iterable[str], **more: Any
) -> Timeline:
    """Return a timeline that leaves out Proton's own kernels among those found, and says where they took long."""
    own_ns, gpu_ns = (sum(kernel.dur_ns for kernel in found if kernel.own is own) for own in (True, False))
    own_text = (
        f"Proton's own kernels took {percent_text(own_ns, gpu_ns + own_ns)} of the GPU's time, to compute what "
        "launch_metadata returns: they are left out, and are no part of the program. Return numbers that need no "
        "kernel."
    )
    says = [*says, own_text if own_ns > _OWN_TO_SAY * (gpu_ns + own_ns) else ""]
    skipped = {"work of Proton's own": sum(kernel.own for kernel in found)}
    return small_timeline(path, tables, says=says, skipped=skipped, format="proton", **more)


def whole(value: object, most: int = _LARGEST) -> int:
    """Return a recorded number; 0 of what is none, or cannot be.

    >>> whole(2.5), whole(True), whole(-1), whole("9")
    (2, 0, 0, 0)
    """
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most else 0


def stated(metrics: dict[str, Any]) -> dict[str, int | None]:
    """Return what a program stated of a kernel: bytes, and operations of all widths.

    >>> stated({"bytes": 64, "flops16": 8.0, "flops8": 8, "name": "x"})
    {'stated_bytes': 64, 'stated_flops': 16}
    """
    flops = sum(whole(value) for name, value in metrics.items() if _FLOPS.fullmatch(name))
    return {"stated_bytes": whole(metrics.get("bytes")) or None, "stated_flops": min(flops, _LARGEST) or None}


class Contexts:
    """Distinct places of kernels: the module path of each, and the row of `stacks` of its innermost line.

    >>> contexts = Contexts()
    >>> contexts.columns(("ROOT", "step", "mlp")), contexts.columns(("ROOT", "model.py:7@forward"))
    ({'module': 'step.mlp', 'stack_row': None}, {'module': None, 'stack_row': 0})
    >>> contexts.columns(("model.py:forward@7",)), [row["frame"] for row in contexts.stacks]
    ({'module': None, 'stack_row': 1}, ['model.py(7): forward', 'model.py(7): forward'])
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Row] = {}
        self._rows: dict[tuple[int | None, str], int] = {}
        self.stacks: list[Row] = []  # of all lines that were asked for

    def columns(self, stack: Sequence[str]) -> Row:
        """Return module path and row of `stacks` of a call stack without its kernel."""
        key = tuple(part[:_LONGEST] for part in stack if part not in (_ROOT, _CAPTURED, ""))
        if key not in self._found:
            row, scopes = None, list[str]()
            for part in key:
                if (frame := _FRAME.fullmatch(part)) is None:
                    scopes.append(part)
                    continue
                if (row, part) not in self._rows:
                    self._rows[row, part] = len(self.stacks)
                    self.stacks.append({"parent_row": row, **_columns_of(frame)})
                row = self._rows[row, part]
            self._found[key] = {"module": ".".join(scopes[:_DEEPEST]) or None, "stack_row": row}
        return self._found[key]


def _columns_of(frame: re.Match[str]) -> Row:
    file, line, function = frame["file"], frame["line"] or frame["old_line"], frame["function"] or frame["old_function"]
    at = min(int(line), _LAST_LINE)
    return {"frame": f"{file}({line}): {function}", "file": file, "line": at, "function": function}
