"""How to record a program with everything that a scan uses, to paste."""

from __future__ import annotations

from tracemine.doctor.record import Recipe

_CAPTURE = """\
with tracemine.capture("run/", steps=3) as recording:
    for batch in recording.steps(loader):
        train_step(batch)"""
_TORCH = """\
from torch.profiler import ProfilerActivity as A, profile, schedule
with profile(activities=[A.CPU, A.CUDA], schedule=schedule(wait=5, warmup=2, active=3),
             record_shapes=True, with_stack=True,
             on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
    for batch in loader: train_step(batch); prof.step()"""
_NSYS = """\
nsys profile --trace=cuda,nvtx --pytorch=autograd-shapes-nvtx --cuda-graph-trace=node \\
    -o run python train.py
nsys export --type sqlite run.nsys-rep"""
_TRTEXEC = """\
trtexec --loadEngine=model.engine --profilingVerbosity=detailed \\
    --separateProfileRun --useSpinWait \\
    --exportLayerInfo=layers.json --exportProfile=profile.json --exportTimes=times.json"""
_ORT = """\
options = onnxruntime.SessionOptions()
options.enable_profiling = True
options.optimized_model_filepath = "opt.onnx"  # joins nodes: into the profile's folder
session = onnxruntime.InferenceSession("model.onnx", options, providers=providers)
for n in range(4): session.run(None, inputs)
session.end_profiling()"""
_JAX = """\
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0  # 1: with lines of the program, which slows the host
with jax.profiler.trace("run", profiler_options=options):
    for n in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=n):
            jax.block_until_ready(train_step(batch))"""
_PROTON = """\
import triton.profiler as proton
train_step(batch)  # compiles and loads, before anything is recorded
proton.start("run", data="trace", hook="triton")
for n in range(3):
    with proton.scope(f"step_{n}"):
        train_step(batch)
proton.finalize()"""
_ROCPROF = """\
rocprofv3 --sys-trace --output-format rocpd -- python train.py
    # in train.py, of a PyTorch program, for operators and shapes:
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        for n in range(3):
            with torch.cuda.nvtx.range(f"step {n}"):  # ROCm's builds write ranges of roctx
                train_step(batch)"""
# Of what is not recorded by PyTorch's profiler.
_OTHERS = {"tensorrt": _TRTEXEC, "onnxruntime": _ORT, "xla": _JAX, "proton": _PROTON, "rocpd": _ROCPROF}
COMMAND = "tracemine capture -o run -- python train.py"


def recipe_for(trace_format: str) -> Recipe:
    """Return how to record what a trace of this format is of.

    >>> recipe_for("kineto").command
    'tracemine capture -o run -- python train.py'
    """
    if trace_format in _OTHERS:
        return Recipe(code=_OTHERS[trace_format], capture=None, command="")
    if trace_format == "nsys":
        return Recipe(code=_NSYS, capture=_CAPTURE, command=COMMAND)
    return Recipe(code=_TORCH, capture=_CAPTURE, command=COMMAND)
