"""Write profiles of XLA as JAX does: planes, lines, events and their values, in protobuf's wire format."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROFILE_START_NS = 1_795_000_000_000_000_000
H100 = {
    "device_vendor": "Nvidia",
    "gpu_device_name": "NVIDIA H100 80GB HBM3",
    "clock_rate": 1_980_000,
    "core_count": 132,
    "memory_bandwidth": 3_352_320_000_000,
    "memory_size": 85_017_493_504,
    "compute_cap_major": 9,
    "compute_cap_minor": 0,
}


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def number(of: int, value: int) -> bytes:
    return varint(of << 3) + varint(value)


def message(of: int, body: bytes | str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return varint(of << 3 | 2) + varint(len(body)) + body


def double(of: int, value: float) -> bytes:
    return varint(of << 3 | 1) + struct.pack("<d", value)


class Ref(str):
    """A text that is written as the name of another stat, as JAX writes nearly all."""


@dataclass
class Event:
    name: str
    start_ns: float  # from the beginning of the profile
    dur_ns: float
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass
class Line:
    name: str
    events: list[Event]
    number: int = 1
    start_ns: int = 0


@dataclass
class Plane:
    name: str
    lines: list[Line] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    modules: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # by program id: name, HloProto
    number: int = 0


class _Names(dict[str, int]):
    def __missing__(self, name: str) -> int:
        self[name] = len(self) + 1
        return self[name]


def _stat(name: str, value: Any, names: _Names) -> bytes:
    begin = number(1, names[name])
    if isinstance(value, Ref):
        return begin + number(7, names[value])
    if isinstance(value, str):
        return begin + message(5, value)
    if isinstance(value, bytes):
        return begin + message(6, value)
    if isinstance(value, float):
        return begin + double(2, value)
    return begin + number(3 if value >= 0 else 4, value)


def _event(event: Event, line: Line, events: _Names, names: _Names) -> bytes:
    body = number(1, events[event.name]) + number(2, round((event.start_ns - line.start_ns) * 1000))
    body += number(3, round(event.dur_ns * 1000))
    return body + b"".join(message(4, _stat(name, value, names)) for name, value in event.stats.items())


def plane_bytes(plane: Plane) -> bytes:
    events, names = _Names(), _Names()
    body = (number(1, plane.number) if plane.number else b"") + message(2, plane.name)
    for line in plane.lines:
        text = number(1, line.number) + message(2, line.name) + number(3, line.start_ns)
        body += message(3, text + b"".join(message(4, _event(event, line, events, names)) for event in line.events))
    modules = b""
    for place, (program, (name, proto)) in enumerate(plane.modules.items(), 1):
        own = number(1, place) + message(2, f"{name}({program})")
        own += message(5, _stat("Hlo Proto", proto, names)) + message(5, _stat("program_id", program, names))
        modules += message(4, number(1, place) + message(2, own))
    for name, place in events.items():
        modules += message(4, number(1, place) + message(2, number(1, place) + message(2, name)))
    stats = b"".join(message(6, _stat(name, value, names)) for name, value in plane.stats.items())
    texts = b"".join(message(5, number(1, at) + message(2, number(1, at) + message(2, n))) for n, at in names.items())
    return body + modules + texts + stats


def space_bytes(planes: list[Plane]) -> bytes:
    return b"".join(message(1, plane_bytes(plane)) for plane in planes) + message(4, "host")


def around(modules: dict[int, tuple[str, bytes]] | None = None) -> list[Plane]:
    """The planes that JAX writes in front of and behind those of GPUs and host."""
    versions = {"jax_version": "0.11.2", "jaxlib_version": "0.11.2", "cuda_driver_version": "13000", "process_id": 77}
    return [
        Plane("/host:metadata", stats=versions, modules=modules or {}),
        Plane("Task Environment", stats={"profile_start_time": PROFILE_START_NS}),
    ]


def kernel(name: str, start_ns: float, dur_ns: float, correlation: int, **stats: Any) -> Event:
    details = Ref("regs:24 static_shared:16 dynamic_shared:64 grid:128,2,1 block:96,1,1 occ_pct:50")
    known = {"correlation_id": correlation, "kernel_details": details, "theoretical_occupancy_pct": 50.0}
    return Event(name, start_ns, dur_ns, {**known, **stats})


def launch(name: str, start_ns: float, correlation: int, device: int = 0, dur_ns: float = 5_000, **stats: Any) -> Event:
    return Event(name, start_ns, dur_ns, {"device_id": device, "correlation_id": correlation, **stats})


def of_module(module: str, program: int, op: str, **stats: Any) -> dict[str, Any]:
    return {"hlo_module": Ref(module), "program_id": program, "hlo_op": Ref(op), "tf_op": Ref("XlaModule:"), **stats}


def small_steps(steps: int = 3, step_ns: int = 2_000_000, device: int = 0) -> tuple[list[Event], list[Event]]:
    """Kernels and host events of steps that each run two modules, copy a scalar to the host and wait for it."""
    gpu, host = [], []
    for step in range(steps):
        at, first = 1_000_000 + step * step_ns, 1 + 3 * step
        host.append(Event("train", at, step_ns - 100_000, {"_r": 1, "step_num": step}))
        host.append(Event("$train.py:40 step", at + 10, step_ns - 200_000))
        for place, (module, op) in enumerate((("jit_f", "gemm_fusion_dot"), ("jit_sum", "input_reduce_fusion.1"))):
            begin, correlation = at + 100_000 + 200_000 * place, first + place
            host.append(Event(f"PjitFunction({module[4:]})", begin, 150_000))
            host.append(Event("[0] GpuExecutable::ExecuteThunks", begin + 20_000, 90_000, {"module_name": module}))
            name = op.replace(".", "_")
            host.append(launch(name, begin + 40_000, correlation, device))
            gpu.append(kernel(name, begin + 60_000, 30_000, correlation, **of_module(module, 10 + place, op)))
        wait = at + 600_000
        host.append(Event("$array.py:293 __float__", wait - 100, 300_000))
        host.append(Event("np.asarray(jax.Array)", wait, 200_000))
        host.append(launch("MemcpyD2H", wait + 20_000, first + 2, device))
        copied = {"memcpy_details": Ref("kind_src:device kind_dst:pinned size:4 dest:0 async:1")}
        gpu.append(Event("MemcpyD2H", wait + 60_000, 2_000, {"correlation_id": first + 2, **copied}))
        host.append(Event("$api.py:2757 block_until_ready", at + step_ns - 400_000, 50_000))
        host.append(Event("$api.py:2768 block_until_ready", at + step_ns - 399_000, 40_000))
    return gpu, host


def small_planes(devices: int = 1, **steps: Any) -> list[Plane]:
    gpus, lines = [], []
    for device in range(devices):
        gpu, host = small_steps(device=device, **steps)
        copies = [event for event in gpu if event.name.startswith("Memcpy")]
        streams = [
            Line("Stream #14(Compute)", [event for event in gpu if event not in copies], 14, 500_000),
            Line("Stream #17(MemcpyD2H)", copies, 17, 500_000),
        ]
        gpus.append(Plane(f"/device:GPU:{device}", streams, H100, number=device))
        lines.append(Line("python3" if not device else f"py_xla_execute/{device}", host, 2**40 + device, 400_000))
    metadata, task = around()
    return [metadata, *gpus, Plane("/device:GPU:9", stats={"device_vendor": "Nvidia"}), Plane("/host:CPU", lines), task]


def write_xplane(path: Path, planes: list[Plane], packed: bool = False) -> Path:
    data = space_bytes(planes)
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def write_json(path: Path, planes: list[Plane]) -> Path:
    """The same as the trace.json.gz that JAX writes beside it: times in µs, all values texts, `{}` at the end."""
    events: list[dict[str, Any]] = []
    for plane in planes:
        if not plane.name.startswith(("/device:GPU", "/host:CPU")) or not plane.lines:
            continue
        pid = 701 if plane.name == "/host:CPU" else 1 + int(plane.name.rpartition(":")[2])
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": plane.name}})
        for line in plane.lines:
            own = {"ph": "M", "pid": pid, "tid": line.number & 0xFFFFFFFF}
            events.append({**own, "name": "thread_name", "args": {"name": line.name}})
            for event in line.events:
                args = {key: str(value) for key, value in event.stats.items() if key not in ("program_id", "_r")}
                times = {"ts": event.start_ns / 1000, "dur": event.dur_ns / 1000}
                more = {"args": args} if args else {}
                events.append({**own, "ph": "X", **times, "name": event.name, **more})
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode()))
    return path
