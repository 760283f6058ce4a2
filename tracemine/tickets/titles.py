"""Titles of tickets: what to do, where, and what it saves; no two of one scan the same before the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tracemine.documents.words import operator_name
from tracemine.findings.labels import class_of
from tracemine.report.escape import shorten

LONGEST = 80  # characters of a title
_FEWEST = 24  # of them that what to do and where have
_MARK = 8  # digits of an identity that stands in a title
_WRAPPERS = frozenset({"OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"})

# Titles of rules and of their advice, without the class of a module behind them, as something to do.
TASKS = {
    "An optimizer's step, operator by operator": "Use a fused optimizer",
    "Gradients are filled with zeros": "Set gradients to None",
    "An optimizer over lists, of a class without a fused step": "Use an optimizer with a fused step",
    "One small operator after another over a list of tensors": "Use foreach over tensors",
    "Gradients are unscaled in a pass of their own": "Unscale gradients in the optimizer",
    "Gradients are scaled although nothing is float16": "Remove GradScaler",
    "Weights are cast to half width in every step": "Keep weights in half precision",
    "Many embedding bags of one width, one after another": "Batch embedding bags",
    "A cache of keys and values grows by concatenation": "Preallocate the KV cache",
    "A constant computed anew in every step": "Compute a constant once",
    "A weight is standardised in every step": "Standardise a weight once",
    "A weight is normalised in every step": "Normalise a weight once",
    "A weight is dequantised in every step": "Dequantise a weight once",
    "A weight is converted in every step": "Convert a weight once",
    "A weight is computed anew in every step": "Compute a weight once",
    "A table of sines is built anew in every step": "Build the sine table once",
    "A mask is built anew in every step": "Build the mask once",
    "Tokens sorted by their expert: few values as 64-bit keys": "Sort experts by narrow keys",
    "Small products in a loop, which one product of all would do": "Batch small GEMMs",
    "Attention as separate products and a softmax": "Fuse attention",
    "RMSNorm run as separate operators": "Fuse RMSNorm",
    "Rotary position embedding run as separate operators": "Fuse rotary embedding",
    "Printing or logging a tensor breaks the compiled graph": "Move print or log out of the graph",
    "A result whose size depends on data breaks the compiled graph": "Avoid dynamic size in the graph",
    "A tensor's value on the host breaks the compiled graph": "Keep tensor value in the graph",
    "A compiled function is broken into several graphs": "Remove graph break",
    "A grouped convolution that runs one group after another": "Run grouped conv at once",
    "A product in half precision whose leading dimension is no multiple of 8": "Align GEMM to 8",
    "Products in float32 on vector units, where TF32 is not allowed": "Allow TF32 in GEMM",
    "Products and convolutions in float64": "Drop float64 in GEMM or conv",
    "A convolution over patches that lie side by side": "Run patch conv as GEMM",
    "A library's call in half precision on vector units": "Get a library call onto tensor cores",
    "A library's call far below what the device reaches": "Speed up a library call",
    "The host waits for the device, and the device then for the host": "Remove host-device sync",
    "The device waits while memory is allocated or freed": "Stop allocator stalls",
    "The device waits for the next batch": "Speed up data loading",
    "The device waits while code is compiled": "Compile before the loop",
    "float64 by promotion: one operand makes all that follows twice as wide": "Stop promotion to float64",
    "Layouts converted around convolutions: channels_last is not set": "Set channels_last",
    "The device waits while a kernel's module is loaded": "Load kernel modules before the loop",
    "A conversion there and back": "Remove cast there and back",
    "A permuted residual stream: every norm copies it": "Make the residual stream contiguous",
    "The device waits for CUDA graphs to be launched": "Close gaps between CUDA graphs",
    "The device waits long for the host in one place": "Move host work out of the loop",
    "A copy between the device and pageable host memory": "Pin host memory",
    "Copies between host and device that nothing hides": "Overlap host-device copies",
    "Communication between ranks that nothing hides": "Overlap communication",
    "The device waits for the host to launch the next kernel": "Close launch gaps",
    "Kernels shorter than their own launch, many in a row": "Merge tiny kernels",
    "A BatchNorm in evaluation behind a convolution or a linear layer: both are one": "Fold BatchNorm",
    "Memory-bound kernels that a graph break left to run one by one": "Fuse kernels after a graph break",
    "Memory-bound kernels that one kernel could do": "Fuse elementwise chain",
    "PyTorch's own layer norm, slower than a kernel made for its rows": "Speed up layer norm",
}


def task_of(title: str) -> tuple[str, str]:
    """Return what to do about a finding, by its title, and what stands behind the rule's own; an unknown title as is.

    >>> task_of("RMSNorm run as separate operators: LlamaRMSNorm"), task_of("A rule of your own")
    (('Fuse RMSNorm', 'LlamaRMSNorm'), ('A rule of your own', ''))
    """
    known = [name for name in TASKS if title == name or title.startswith(f"{name}: ")]
    if not known:
        return title, ""
    name = max(known, key=len)
    return TASKS[name], title.removeprefix(name).removeprefix(": ")


def ways_to_say(
    task: str, detail: str, *, module: str | None, line: str, ops: Sequence[str], mark: str, saves: str
) -> Iterator[str]:
    """Yield titles without what it saves, more telling from one to the next; the last has the finding's identity.

    detail: what a finding's title ends in. line: the user's own, or "". saves: what stands behind, and needs room.

    >>> about = dict(line="", ops=("aten::mul",), mark="0f" * 8, saves="")
    >>> list(ways_to_say("Fuse", "", module="Net_*.MLP_*", **about))
    ['Fuse in MLP', 'Fuse in Net.MLP', 'Fuse in MLP: mul', 'Fuse in MLP (0f0f0f0f)']
    """
    room = max(LONGEST - len(saves), _FEWEST)
    names = [] if module is None else [name for name in _classes(module) if name not in _WRAPPERS]
    nearest = _nearest(task, names, line)
    ways = [_listed(task, detail, room) if detail and not nearest else task + nearest]
    ways += [f"{task} in {'.'.join(names)}"] if len(names) > 1 else []
    ways += [f"{task}{nearest} at {line}"] if names and line else []
    ways += [_listed(task + nearest, ", ".join(dict.fromkeys(map(operator_name, ops))), room)] if ops else []
    yield from (shorten(text, room) for text in dict.fromkeys(ways))
    yield f"{shorten(ways[0], room - _MARK - 3)} ({mark[:_MARK]})"


def told_apart(ways: Sequence[Sequence[str]]) -> list[str]:
    """Return of each the first way that tells it from the others: those that read alike say more, until none do.

    >>> told_apart([("a", "a at 1", "a (x)"), ("a", "a at 2", "a (y)"), ("b", "b (z)")])
    ['a at 1', 'a at 2', 'b']
    """
    at = [0] * len(ways)
    while True:
        said = [each[number] for each, number in zip(ways, at, strict=True)]
        count = Counter(said)
        more = [n for n, text in enumerate(said) if count[text] > 1 and at[n] + 1 < len(ways[n])]
        if not more:
            return said
        for number in more:
            at[number] += 1


def _nearest(task: str, names: Sequence[str], line: str) -> str:
    """Return the innermost module, the outermost where the task says that one's name; else the line."""
    if names:
        return f" in {names[0] if names[-1] in task else names[-1]}"
    return f" at {line}" if line else ""


def _classes(module: str) -> list[str]:
    """Return the classes of a module's path, outermost first; of a path of names, the names."""
    parts = [part for part in module.split(".") if part.strip("*0123456789")]
    return [class_of(part) for part in parts]


def _listed(text: str, items: str, room: int) -> str:
    """Return a text with as many of the items behind it as there is room for.

    >>> _listed("Fuse chain", "copy_, native_layer_norm, add_", 40), _listed("Fuse chain", "copy_, add_", 20)
    ('Fuse chain: copy_, native_layer_norm …', 'Fuse chain: copy_ …')
    """
    whole = f"{text}: {items}"
    while len(whole) > room and ", " in whole:
        whole = f"{whole.removesuffix(' …').rpartition(', ')[0]} …"
    return whole
