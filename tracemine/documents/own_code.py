"""Which frame of a stack is the user's own: a library is not edited on Monday morning."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracemine.findings.record import Source

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.timeline import Timeline

# Packages whose files profilers record without the folder that they are installed in.
_LIBRARIES = frozenset({
    "absl", "accelerate", "aiohttp", "aiter", "anyio", "apex", "apex_C", "bitsandbytes", "click", "colossalai",
    "composer", "cupy", "cv2", "dask", "datasets", "deepspeed", "detectron2", "dgl", "diffusers", "einops",
    "evaluate", "fairscale", "fairseq", "fastai", "fastapi", "fbgemm_gpu", "flash_attn", "flashinfer", "flax",
    "functorch", "fvcore", "gradio", "huggingface_hub", "hydra", "ignite", "jax", "jaxlib", "keras", "kornia",
    "liger_kernel", "lightning", "lightning_fabric", "lightning_utilities", "megatron", "mmcv", "mmdet", "mmengine",
    "monai", "mosaicml", "nemo", "numba", "numpy", "nvidia", "omegaconf", "onnxruntime", "optax", "optimum", "orbax",
    "pandas", "peft", "PIL", "pydantic", "pytorch3d", "pytorch_lightning", "ray", "requests", "safetensors", "scipy",
    "sentence_transformers", "sglang", "skimage", "sklearn", "starlette", "tensorflow", "tensorrt", "timm",
    "tokenizers", "torch", "torch_geometric", "torch_npu", "torch_scatter", "torch_sparse", "torch_xla", "torchao",
    "torchaudio", "torchdata", "torchinductor", "torchmetrics", "torchrec", "torchtext", "torchtitan", "torchtune",
    "torchvision", "tqdm", "transformer_engine", "transformers", "triton", "trl", "typer", "ultralytics", "unsloth",
    "uvicorn", "uvloop", "vllm", "wandb", "xformers",
})  # fmt: skip
_INSTALLED = re.compile(
    r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3[\d.]*[/\\]|[/\\](torchinductor_|\.cache[/\\])|^/tmp/[^/]+\.py$"
    r"|(^|[/\\])tracemine[/\\]recording(\.py$|[/\\])|^<",
    re.IGNORECASE,
)
_MOST_FRAMES = 400  # of a stack


def is_own(file: str) -> bool:
    """Return whether a file is neither a library's, nor Python's, nor generated.

    >>> is_own("train.py"), is_own("/home/me/model/llama.py"), is_own("transformers/models/llama/modeling_llama.py")
    (True, True, False)
    >>> is_own("/x/lib/python3.12/site-packages/mine.py"), is_own("threading.py"), is_own("<string>")
    (False, False, False)
    """
    if not file or _INSTALLED.search(file):
        return False
    parts = re.split(r"[/\\]", file)
    if parts[0] in ("", ".", "..") or ":" in parts[0]:  # a path from the root, or from where the program ran
        return True
    name = parts[0].removesuffix(".py")
    return name not in _LIBRARIES and name not in sys.stdlib_module_names


def own_frame(finding: Finding) -> Source | None:
    """Return the innermost frame of a finding that is the user's own; None: none of those that were kept."""
    return next((source for source in finding.source if is_own(source.file)), None)


def deeper_frames(scan: Scan, timeline: Timeline) -> dict[str, Source]:
    """Return, of findings whose kept frames are all a library's, the user's own further out; by fingerprint."""
    found = {}
    for finding in scan.reported:
        if finding.source and own_frame(finding) is None:
            source = next(_own_callers(finding, timeline), None)
            if source is not None:
                found[finding.fingerprint] = source
    return found


def _own_callers(finding: Finding, timeline: Timeline) -> Iterator[Source]:
    """Yield the user's own frames above the calls of a finding's activities."""
    ops, rows_of_stacks = timeline.activities["op_row"], timeline.ops["stack_row"]
    names = ("file", "line", "function", "parent_row")
    files, lines, functions, callers = (timeline.stacks[name] for name in names)
    begins = files.null_count > 0
    for row in (row for rows in finding.activities[:1] for row in rows):
        op = ops[row].as_py()
        at = None if op is None else rows_of_stacks[op].as_py()
        for _ in range(_MOST_FRAMES):
            if at is None:
                break
            file, line, function = (column[at].as_py() for column in (files, lines, functions))
            if file and line is not None and function and is_own(file):
                yield Source(file=file, line=line, function=function, begins=begins)
            caller = callers[at].as_py()
            at = caller if caller is not None and caller < at else None
