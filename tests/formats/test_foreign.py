"""A file of another profiler is told by its content, named, and refused in one line with the way out.

Each file here is made by hand: the least that its format's writer puts at the front.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from time import process_time

import pytest

from tests.formats.test_scanner import document, kernel, written
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.sniff import is_trace_json

_ROCPD = "record with rocprofv3 --sys-trace --output-format rocpd and pass the database"
_TORCH = "record the program with torch.profiler and pass what export_chrome_trace wrote"
_TRTEXEC = "print its layers: trtexec --loadEngine=FILE --exportLayerInfo=layers.json --exportProfile=profile.json"
_NSYS = "record the process with nsys profile --trace cuda,nvtx and pass what nsys export --type sqlite wrote"
_EXPORT = "have it write: --exportLayerInfo=layers.json --exportProfile=profile.json --profilingVerbosity=detailed"
_SESSION = "profile its session (SessionOptions.enable_profiling), pass that .json, and this with --model"
_ASCEND = "tracemine knows GPUs of NVIDIA and AMD; MindStudio Insight reads it"
_XPROF = "xprof reads it"
_ON_A_GPU = "record where jax.devices() names a GPU: with jax.profiler.trace(DIR): step()"
_AS_TEXT = "an xplane that was stored as text; its bytes are lost"
_AS_BINARY = "copy the .xplane.pb as binary, or record once more"
_MODULES = "pass the .xplane.pb of the run, which holds its modules"
_MADE_FROM = "pass the profiler's trace that it was made from"


def _plane(name: str) -> bytes:
    """Return an XSpace of one plane, as protobuf."""
    plane = b"\x08\x01\x12" + bytes([len(name)]) + name.encode()
    return b"\x0a" + bytes([len(plane)]) + plane


def _named(*names: str) -> bytes:
    """Return a trace whose processes have these names."""
    events = [{"ph": "M", "pid": i, "name": "process_name", "args": {"name": name}} for i, name in enumerate(names)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()


_HATCHET = b'[{"frame": {"name": "ROOT", "type": "function"}, "metrics": {"time (ns)": 0}, "children": []}, {}]'
_ROCPROF = '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name"\n'
_ASCEND_FLOW = {"ph": "s", "name": "torch_to_npu", "id": 1, "pid": 2, "tid": 3, "ts": "1.5", "cat": "async_npu"}
_ASCEND_TASK = {"ph": "X", "name": "MatMul", "pid": 1, "tid": 2, "ts": "1", "dur": 2, "args": {"Task Type": "AI_CORE"}}
_PHASE = {"name": "forward-compute", "cat": "forward-compute", "pid": 0, "tid": 1, "ts": 1.0, "dur": 2.0, "ph": "X"}
_TRTEXEC = "print its layers: trtexec --loadEngine=FILE --exportLayerInfo=layers.json --exportProfile=profile.json"
_RUN = 'record what runs on the GPU, without mode="pcsampling"'
_HATCHET_AGAIN = 'write it as JSON: proton.finalize(output_format="hatchet")'


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("xplane of a CPU", _plane("/host:CPU"), "a JAX profile of a CPU", _ON_A_GPU),
        ("xplane of a TPU", _plane("/device:TPU:0"), "a profile of a TPU, and tracemine knows GPUs", _XPROF),
        ("xplane of a host with TPUs", _plane("/host:CPU") + _plane("/device:TPU:0"), "a profile of a TPU", _XPROF),
        ("xplane as text", b"\x0a\xef\xbf\xbd\x06\x08\x02\x12\x0d/device:GPU:0", _AS_TEXT, _AS_BINARY),
        ("long xplane as text", b"\x0a" + b"\xef\xbf\xbd" * 3 + b"\x06\x12\x09/host:CPU", _AS_TEXT, _AS_BINARY),
        ("HLO", b"\x0a\x80\x07\x0a\x08jit_step\x12\x04main", "an HLO module, which has no times", _MODULES),
        ("HLO as text", b"HloModule jit_step, is_scheduled=true", "an HLO module, which has no times", _MODULES),
        ("JAX on a CPU", _named("/host:CPU"), "a JAX profile of a CPU", _ON_A_GPU),
        ("JAX for Perfetto", _named("/host:CPU").replace(b": ", b":"), "a JAX profile of a CPU", _ON_A_GPU),
        ("JAX on a TPU", _named("/device:TPU:0", "/host:CPU"), "a trace of a TPU", _XPROF),
        ("Proton tree", _HATCHET, "a tree of Triton's Proton", _RUN),
        (
            "Proton tree, children first",
            json.dumps([{"children": [{"children": [], "frame": {"name": "k"}, "metrics": {}}]}], indent=4).encode(),
            "a tree of Triton's Proton",
            _RUN,
        ),
        (
            "Proton msgpack",
            b"\x92\x83\xa8children\x90\xa5frame\x80",
            "a profile of Triton's Proton in MessagePack",
            _HATCHET_AGAIN,
        ),
        ("Proton trace", _named("GPU Stream 7"), "a trace of Triton's Proton", "record what runs on the GPU"),
        (
            "Proton inside a kernel",
            b'{"traceEvents": [{"ph": "X", "pid": "KERNEL Core7 CTA3", "tid": "warp 0", "name": "load"}]}',
            "a profile of the inside of a kernel (Triton's Proton, instrumentation)",
            'record the kernels themselves: proton.start(NAME, data="trace"), without backend="instrumentation"',
        ),
        ("rocprofv3", b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "a recording of rocprofv3 in its JSON", _ROCPD),
        ("rocprofv3 kernels", _ROCPROF.encode(), "a table (CSV) of rocprof", _ROCPD),
        ("rocprofv3 kernels of rocpd", b'"Guid",' + _ROCPROF.encode(), "a table (CSV) of rocprof", _ROCPD),
        (
            "rocprofv3 calls",
            b'"Domain","Function","Process_Id","Thread_Id","Correlation_Id"\n',
            "a table (CSV) of rocprof",
            _ROCPD,
        ),
        ("rocprof sums", b'"Name","Calls","TotalDurationNs","AverageNs"\n', "a table (CSV) of rocprof", _ROCPD),
        ("Ascend flow", json.dumps([_ASCEND_FLOW]).encode(), "a trace of Ascend's profiler", _ASCEND),
        ("Ascend task", json.dumps([_ASCEND_TASK]).encode(), "a trace of Ascend's profiler", _ASCEND),
        ("Ascend process", _named("Ascend Hardware"), "a trace of Ascend's profiler", _ASCEND),
        (
            "Ascend kernels",
            b"Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us)\n",
            "a table (CSV) of Ascend's profiler",
            _ASCEND,
        ),
        (
            "Ascend operators",
            b"Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n",
            "a table (CSV) of Ascend's profiler",
            _ASCEND,
        ),
        ("Chakra", b"\x07\x0a\x050.0.4\x20\x08\x01\x12\x04node", "an execution trace of Chakra", _MADE_FROM),
        (
            "Chakra as JSON",
            b'{"id": "1", "name": "aten::mm", "type": "COMP_NODE", "duration_micros": "5"}',
            "an execution trace of Chakra",
            _MADE_FROM,
        ),
        (
            "StragglerAnalysis",
            json.dumps([_PHASE | {"args": {"step": 1, "model_chunk": None, "mb_id": 0}}]).encode(),
            "a timeline of a training job's phases (StragglerAnalysis)",
            "pass the torch.profiler trace of one rank",
        ),
        (
            "unitrace",
            b'{"traceEvents": [{"ph": "X", "name": "gemm", "cat": "gpu_op"}]}',
            "a trace of Intel's unitrace",
            _TORCH,
        ),
        ("rocprof", _named("2 CPU HIP API", "6 GPU0"), "a trace of rocprof before rocprofv3", _ROCPD),
        ("trtexec's output", b"&&&& RUNNING TensorRT.trtexec [TensorRT v101400] #", "what trtexec prints", _EXPORT),
        ("trtexec's log", b"[11/30/2026-14:00:00] [I] === Profile ===\n", "what trtexec prints", _EXPORT),
        ("ONNX with a producer", b"\x08\x0a\x12\x07pytorch\x1a\x032.9:\x02\x0a\0", "an ONNX model", _SESSION),
        ("ONNX of a session", b"\x08\x08:\xec\x13\x0a\x4c\x0a\x01x\x12\x05", "an ONNX model", _SESSION),
        ("Perfetto", b"\x0a\x0f\x18\xe8\x07P\x01\xe2\x03\x05main", "a Perfetto trace", f"of rocprofv3: {_ROCPD}"),
        ("Perfetto's clocks", b"\x0a\x6a\x32\x5c\x0a\x0a\x08\x06", "a Perfetto trace", f"of rocprofv3: {_ROCPD}"),
        ("TensorRT", b"ftrt\0\0\0\0", "a TensorRT engine", _TRTEXEC),
        ("TVM", b'{"calls": [{"Duration (us)": {"microseconds": 1}}]}', "a report of TVM", _NSYS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_of_another_profiler_is_named_at_once_with_the_way_out(
    tmp_path: Path, name: str, content: bytes, what: str, hint: str
) -> None:
    del name
    path = written(tmp_path / "trace.json", content)
    began = process_time()
    with pytest.raises(InputError) as refused:
        open_trace(path)
    assert process_time() - began < 1
    assert f"{refused.value.message},".startswith((f"is {what},", f"is {what} (", f"is {what} of"))
    assert refused.value.hint == hint
    assert refused.value.exit_code == 2


def test_a_file_of_another_profiler_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """One object of 60 MB: what it is stands in its first line."""
    path = written(tmp_path / "out.json", b'{"rocprofiler-sdk-tool": [{"buffer_records": [' + b"{}," * 20_000_000)
    began = process_time()
    with pytest.raises(InputError, match="is a recording of rocprofv3"):
        open_trace(path)
    assert process_time() - began < 1


def test_a_database_of_rocprofv3_without_a_recording_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch (id INTEGER)")
    timeline = open_trace(path)
    assert timeline.meta.format == "rocpd"
    assert any("No GPU activity was recorded" in each for each in timeline.meta.ingest.warnings)


@pytest.mark.parametrize(
    "name", ["/host:CPU", "GPU Stream 7", "Ascend Hardware", "forward-compute", "CANN", "/device:TPU:0", "COMP_NODE"]
)
def test_a_kineto_trace_whose_program_uses_such_names_is_read(tmp_path: Path, name: str) -> None:
    """Near miss: names are the program's; what the header says counts."""
    text = document([kernel(1, name=json.dumps(name)), kernel(2)])
    assert '"schemaVersion"' in text
    timeline = open_trace(written(tmp_path / "t.json", text))
    assert timeline.activities.num_rows == 2


@pytest.mark.parametrize("process", ["/usr/bin/python", "/home/user/host/run.py", "python"])
def test_a_trace_without_a_header_is_read(process: str) -> None:
    """Near miss: a trace of Kineto that a tool wrote again, with a path for its process' name."""
    assert is_trace_json(_named(process))
    assert is_trace_json(json.dumps([json.loads(kernel(1))]).encode())
