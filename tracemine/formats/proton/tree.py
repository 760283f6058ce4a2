"""A tree of Proton: sums of kernels by scope over a whole session. When they ran is not in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from tracemine.devices import devices
from tracemine.errors import InputError, Location
from tracemine.formats.proton.contexts import OWN_WORK, PROTON, UNNAMED, Contexts, is_own_work, own_work_text, stated
from tracemine.formats.small_tables import small_report, small_timeline
from tracemine.timeline import RecordedDevice, Timeline
from tracemine.units import count_text

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


class _Frame(Struct):
    name: str = ""


class _Node(Struct):
    frame: _Frame = field(default_factory=_Frame)
    metrics: dict[str, Any] = field(default_factory=dict)
    children: list[_Node] = field(default_factory=list)


class _KernelLeaf(Struct):
    """A kernel in a scope."""

    stack: tuple[str, ...]
    metrics: dict[str, Any]

    @property
    def ns(self) -> int:
        return _whole(self.metrics.get("time (ns)"), _MOST_NS)

    @property
    def own(self) -> bool:
        return is_own_work(self.stack, self.stack[-1])


def read_tree(content: bytes | bytearray, path: str) -> Timeline:
    """Return a timeline of one row a kernel and scope, which has no times of its own.

    Raises msgspec.DecodeError where it is damaged, InputError without a kernel.
    """
    parts = msgspec.json.decode(content, type=list[Any])
    found = _leaves(msgspec.convert(parts[0], type=_Node) if parts else _Node())
    kernels = sorted((leaf for leaf in found if not leaf.own), key=lambda leaf: -leaf.ns)
    gpu_ns, own_ns = (sum(leaf.ns for leaf in found if leaf.own is own) for own in (False, True))
    if not kernels or gpu_ns >= _MOST_NS:
        what = "is a tree of Triton's Proton, without times of kernels"
        raise InputError(what, where=Location(path), hint='record what runs on the GPU, without mode="pcsampling"')
    described = [*_devices(parts[1])] if len(parts) > 1 and isinstance(parts[1], dict) else []
    says = (_SUMS, *(text for _, text in described), own_work_text(own_ns, gpu_ns))
    contexts = Contexts()
    begins = accumulate((leaf.ns for leaf in kernels), initial=0)
    rows = [
        {
            "kind": "kernel",
            "name": leaf.stack[-1],
            "start_ns": at_ns,
            "dur_ns": leaf.ns,
            "device": _ordinal(leaf.metrics.get("device_id")),
            "unowned_reason": "no_host_events",
            "calls": max(_whole(leaf.metrics.get("count"), _MOST_CALLS), 1),
            **contexts.columns(leaf.stack[:-1]),
            **stated(leaf.metrics),
        }
        for at_ns, leaf in zip(begins, kernels, strict=False)
    ]
    return small_timeline(
        {"activities": rows, "stacks": contexts.stacks()},
        source=Path(path).name,
        devices=tuple(device for device, _ in described),
        ingest=small_report({"kernel": len(found)}, says, skipped={OWN_WORK: len(found) - len(kernels)}),
        **PROTON | {"producer": "Triton Proton, a tree"},
    )


def _leaves(root: _Node) -> list[_KernelLeaf]:
    """Return what has a time of its own: inclusive times are made by the viewer, none is in the file.

    What is stated of a scope in which one kernel alone ran is stated of that kernel.
    """
    left: list[tuple[tuple[str, ...], _Node]] = [((), root)]
    timed, stating = list[_KernelLeaf](), dict[tuple[str, ...], dict[str, Any]]()
    while left:
        above, node = left.pop()
        metrics = {_OLD_NAMES.get(name, name): value for name, value in node.metrics.items()}
        leaf = _KernelLeaf((*above, node.frame.name or UNNAMED), metrics)
        if leaf.ns:
            timed.append(leaf)
        elif any(stated(metrics).values()):
            stating[leaf.stack] = metrics
        left += [(leaf.stack, child) for child in reversed(node.children)]
    inside: dict[tuple[str, ...], list[_KernelLeaf]] = {}
    for leaf in timed if stating else ():
        for depth in range(1, len(leaf.stack)):
            inside.setdefault(leaf.stack[:depth], []).append(leaf)
    for stack, metrics in stating.items():
        if len(of_scope := inside.get(stack, [])) == 1:
            of_scope[0].metrics = metrics | of_scope[0].metrics
    return timed


def _whole(value: object, most: int) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most else 0


def _devices(recorded: dict[str, Any]) -> Iterator[tuple[RecordedDevice, str]]:
    """Yield the devices, and what is to be said of each: Proton records a GPU's measures, and not its name."""
    for kind in ("CUDA", "HIP"):
        of_kind = recorded.get(kind)
        for ordinal, facts in of_kind.items() if isinstance(of_kind, dict) else ():
            if (number := _ordinal(ordinal)) is not None and isinstance(facts, dict):
                yield _device(number, facts)


def _device(ordinal: int, facts: dict[str, Any]) -> tuple[RecordedDevice, str]:
    """Return a device by its measures: the product of this size whose memory is as fast, where that is one."""
    capability, sms = _capability(facts.get("arch")), _whole(facts.get("num_sms"), 1 << 20)
    # Two transfers a clock, in kHz, of so many bits.
    rate = 2 * _whole(facts.get("bus_width"), 1 << 20) * _whole(facts.get("memory_clock_rate"), 1 << 40) * 125
    fitting = [
        each
        for each in devices()
        if each.capability == capability
        and each.sm_count == sms
        and abs(rate - each.bandwidth_bytes_per_s) <= _NEAR * each.bandwidth_bytes_per_s
    ]
    # Of boards of one chip and one memory the one that is meant without a form factor.
    same = len({each.bandwidth_bytes_per_s for each in fitting}) == 1
    named = [each for each in fitting if each.meant_by] or fitting
    alike = len({str(each.flops_per_s) for each in named}) == 1
    name = named[0].title if same and alike else None
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
