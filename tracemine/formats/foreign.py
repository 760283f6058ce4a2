"""Recordings of other profilers, which tracemine does not read: how each begins, what it is, and what to pass instead.

A trace of Kineto holds whatever the program calls its functions and ranges. So what only occurs somewhere in a list of
events tells a format where the file does not say that it is Kineto's (`KINETO_KEYS`).
"""

from __future__ import annotations

from tracemine.formats.look import Look, begins, has

# Each is written by Kineto alone, in front of the events or behind them.
KINETO_KEYS = frozenset({"schemaVersion", "deviceProperties", "baseTimeNanoseconds"})

RECORD_WITH_TORCH = "record the program with torch.profiler and pass what export_chrome_trace wrote"
_NSYS = "record the process with nsys profile --trace cuda,nvtx and pass what nsys export --type sqlite wrote"
_HLO = ("is an HLO module, which has no times", "pass the .xplane.pb of the run, which holds its modules")
_ROCPD = "record with rocprofv3 --sys-trace --output-format rocpd and pass the database"
_ASCEND_HINT = "tracemine knows GPUs of NVIDIA and AMD; MindStudio Insight reads it"
_CHAKRA = (
    "is an execution trace of Chakra, which has no times of the GPU",
    "pass the profiler's trace that it was made from",
)

_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# The first that fits. Binary formats.
BINARY = (
    Look(
        begins(b"ftrt", b"ptrt"),
        "is a TensorRT engine, which has no times",
        "print its layers: trtexec --loadEngine=FILE --exportLayerInfo=layers.json --exportProfile=profile.json",
    ),
    Look(
        has(rb"(?s)\A\x0a\xef\xbf\xbd.{1,24}(?:/host:|/device:|/custom:|Task Env|#Chip)"),
        "is an xplane that was stored as text; its bytes are lost",
        "copy the .xplane.pb as binary, or record once more",
    ),
    # HloProto { module = 1 { name = 1 } }
    Look(has(rb"(?s)\A\x0a" + _VARINT + rb"\x0a[\x04-\x7f](?:jit_|pjit_|pmap_|main|xla_|wrapped_)\w*"), *_HLO),
    Look(
        has(rb"(?s)\A[\x91-\x9f][\x80-\x8f](?:\xa8children|\xa5frame|\xa7metrics)"),
        "is a profile of Triton's Proton in MessagePack, which is not read",
        'write it as JSON: proton.finalize(output_format="hatchet")',
    ),
    # ModelProto { ir_version = 1, producer_name = 2 or graph = 7 { node = 1 } }
    Look(
        has(
            rb"(?s)\A\x08[\x03-\x1f](?:\x12[\x02-\x7f][ -~]{2,127}[\x1a\"(2:]|:"
            + _VARINT
            + rb"\x0a"
            + _VARINT
            + rb"\x0a)"
        ),
        "is an ONNX model, which has no times",
        "profile its session (SessionOptions.enable_profiling), pass that .json, and this with --model",
    ),
    # Trace { packet = 1 } that begins with its writer, its time, or the clocks.
    Look(
        has(
            rb"(?s)\A\x0a"
            + _VARINT
            + rb"(?:[\x18@PXh]"
            + _VARINT
            + rb"[\x18@PXhbp\x80-\xff2]|\xca\x05|\xda\x03|\xe2\x03|2"
            + _VARINT
            + rb"\x0a)"
        ),
        "is a Perfetto trace, which is not read",
        "of rocprofv3: " + _ROCPD,
    ),
    # GlobalMetadata { version = 1 }, behind its length.
    Look(has(rb"\A[\x01-\x7f]\x0a[\x03-\x10]\d{1,3}\.\d{1,3}[.\d]*"), *_CHAKRA),
)

# Tables and JSON that are no list of events: recognised by what they begin with.
TEXT = (
    Look(has(rb"\AHloModule [\w.-]"), *_HLO),
    Look(
        has(
            rb'\A(?:"Guid",)?"?(?:Kind"?,"?(?:Agent_Id|Direction|Operation)|Domain"?,"?Function|Name"?,"?Calls"?,"?TotalDuration'
            rb'|Correlation_Id"?,"?Dispatch_Id|Index"?,"?KernelName)'
        ),
        "is a table (CSV) of rocprof, which is not read",
        _ROCPD,
    ),
    Look(
        has(rb"\A[^\n{\[]*(?:Accelerator Core|Task Start Time\(us\)|Task Duration\(us\)|aicore_time\(us\))"),
        "is a table (CSV) of Ascend's profiler, which is not supported",
        _ASCEND_HINT,
    ),
    Look(
        has(rb'\A\{\s*"rocprofiler-sdk-tool"\s*:'), "is a recording of rocprofv3 in its JSON, which is not read", _ROCPD
    ),
    Look(
        has(rb"\A(?:&&&& [A-Z]+ TensorRT\.trtexec|\[\d\d/\d\d/\d{4}-[\d:]{8}\] \[[A-Z]\] )"),
        "is what trtexec prints, which is not read",
        "have it write: --exportLayerInfo=layers.json --exportProfile=profile.json --profilingVerbosity=detailed",
    ),
    Look(has(rb'\A\{\s*"calls"\s*:\s*\[(?s:.)*?"Duration \(us\)"'), "is a report of TVM, which has no timeline", _NSYS),
)

# Lists of events or nodes that say nothing of Kineto: recognised by what is in one.
EVENTS = (
    Look(has(rb'"name"\s*:\s*"/device:TPU'), "is a trace of a TPU, and tracemine knows GPUs", "xprof reads it"),
    Look(
        has(rb'"pid"\s*:\s*"KERNEL Core'),
        "is a profile of the inside of a kernel (Triton's Proton, instrumentation), in cycles",
        'record the kernels themselves: proton.start(NAME, data="trace"), without backend="instrumentation"',
    ),
    Look(
        has(
            rb'"cat"\s*:\s*"async_npu"|"name"\s*:\s*"(?:Ascend Hardware|CANN|AI Core Freq)"'
            rb'|"Task Type"\s*:\s*"(?:AI_|MIX_AI|KERNEL_AI)'
        ),
        "is a trace of Ascend's profiler (trace_view.json), which is not supported",
        _ASCEND_HINT,
    ),
    Look(
        has(rb'"name"\s*:\s*"([a-z-]+)",\s*"cat"\s*:\s*"\1"[^{]{1,200}\{[^}]{0,200}"mb_id"'),
        "is a timeline of a training job's phases (StragglerAnalysis), which has no kernels",
        "pass the torch.profiler trace of one rank",
    ),
    Look(has(rb'"cat"\s*:\s*"gpu_op"'), "is a trace of Intel's unitrace, which is not read", RECORD_WITH_TORCH),
    Look(
        has(rb'"args"\s*:\s*\{\s*"name"\s*:\s*"\d+ (?:CPU HIP API|CPU HSA API|GPU\d+)"'),
        "is a trace of rocprof before rocprofv3, which is not read",
        _ROCPD,
    ),
    Look(has(rb'"type"\s*:\s*"(?:COMP|COMM_COLL|COMM_SEND|COMM_RECV|MEM_LOAD|MEM_STORE|METADATA)_NODE"'), *_CHAKRA),
)
