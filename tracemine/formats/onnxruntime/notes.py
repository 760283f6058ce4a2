"""What is to be said of a profile of ONNX Runtime: whose times they are, and what shows in them without a saving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from tracemine.formats.onnxruntime.model import APART, IN_FLOAT, ISLAND, NARROW_PRODUCTS, WEIGHT, Graph
from tracemine.formats.onnxruntime.runs import Node, RecordedRuns
from tracemine.units import count_text, percent_text, time_text

ALL_LEVELS = "graph_optimization_level = ORT_ENABLE_ALL"
_SAVE_MODEL = 'session_options.optimized_model_filepath = "opt.onnx"'
_NO_FALLBACK = 'session_options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")'
_MOST_NAMED = 4
_MOST_EVENTS = 1_000_000  # that the profiler keeps: what comes after is not recorded
# What of a quantised model is computed in floating point.
_SAYS_QUANTISED = {
    IN_FLOAT: "Quantised products in floating point: {kinds} read dequantised operands{took}. ",
    WEIGHT: "Weights are dequantised in every run (ort_quantised_apart): {kinds}{took}.",
    APART: "Q/DQ that no operator takes in (ort_quantised_apart): {kinds}{took}.",
    ISLAND: (
        "Float islands: {kinds} computes in floating point between integers{took}. Quantise it too "
        "(quantize_static, op_types_to_quantize), or leave what is around it in floating point."
    ),
}
_TAKE_IN_ANY = (
    f"Nothing is computed in 8 bits: set {ALL_LEVELS}; CUDAExecutionProvider has no such products, "
    "TensorrtExecutionProvider does. Else run the model as it was before."
)
_TAKE_IN = (
    "On the CPU quantize_static(…, activation_type=QuantType.QUInt8) has more of them taken in than int8; else put "
    "Q/DQ on all inputs and the output of each, or leave it out (nodes_to_exclude)."
)
_CHECK = (
    "Before and after such a change compare the task's accuracy, and tensors with "
    "onnxruntime.quantization.qdq_loss_debug."
)


def notes_of(runs: RecordedRuns, graph: Graph | None, extra: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each thing that a reader must know."""
    nodes = [node for run in runs.runs for node in run.nodes]
    on_gpu = any(node.kernels for node in nodes)
    if not on_gpu:
        yield _whose_times(nodes)
        yield _shares(runs, nodes)
    yield from _fallback(runs.runs[-1].nodes)
    if graph is not None:
        yield from () if on_gpu else _structure(graph)
        yield from _quantised(graph, nodes)
    elif not extra:
        yield (
            "The profile does not say which node reads what another gives: save the optimised model in its folder, or "
            f"pass --model FILE, and chains are known: {_SAVE_MODEL}"
        )
    yield from extra
    yield from _runs(runs)


def _whose_times(nodes: Sequence[Node]) -> str:
    providers = {node.event.args.provider.removesuffix("ExecutionProvider") for node in nodes}
    if providers <= {"CPU"}:
        return "This is a profile of the CPU provider: shares, no savings. All of it is host times only."
    return (
        f"Host times only: a node on {', '.join(sorted(providers - {'CPU', ''})) or 'a GPU'} is timed while the host "
        "launches it, not while the GPU runs it, and no kernel was recorded. nsys profile --trace cuda,nvtx records "
        "kernels, rocprofv3 --sys-trace those of AMD."
    )


def _runs(runs: RecordedRuns) -> Iterator[str]:
    if runs.first_ns is not None:
        yield f"The first run, of {time_text(runs.first_ns)}, is left out: it loads and tunes."
    if runs.replays:
        yield (
            f"{count_text(runs.replays, 'run')} {'has' if runs.replays == 1 else 'have'} no nodes: a CUDA graph was "
            "replayed, or the profiler had reached its limit."
        )
    if runs.events.total() >= _MOST_EVENTS:
        yield f"The profiler stops at {_MOST_EVENTS:,} events: what ran later is not recorded."


def _spent(nodes: Sequence[Node], by: Callable[[Node], str]) -> Counter[str]:
    spent = Counter[str]()
    for node in nodes:
        spent[by(node)] += node.event.dur_ns
    return spent


def _shares(runs: RecordedRuns, nodes: Sequence[Node]) -> str:
    spent = _spent(nodes, lambda node: node.op_type)
    named = ", ".join(f"{kind} {percent_text(ns, spent.total())}" for kind, ns in spent.most_common(_MOST_NAMED))
    took = time_text(round(median(run.dur_ns for run in runs.runs)))
    count = round(median(len(run.nodes) for run in runs.runs))
    return f"A run takes the host {took}, of {count_text(count, 'node')}: {named} of their time."


def _fallback(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield which nodes the CPU computes between those of a GPU, with the copies that this takes."""
    on_gpu = [at for at, node in enumerate(nodes) if not node.on_cpu]
    between = [node for node in nodes[on_gpu[0] : on_gpu[-1]] if node.on_cpu or node.is_copy] if on_gpu else []
    kept = Counter(node.op_type for node in between if not node.is_copy)
    copies = sum(node.is_copy for node in nodes)
    if on_gpu and (kept or copies):
        yield (
            f"Fallback (ort_cpu_fallback): {_counted(kept) or 'nothing'} runs on the CPU between nodes on the GPU, "
            f"with {count_text(copies, 'copy')} between them, {time_text(sum(node.event.dur_ns for node in between))} "
            "of the host a run. See which operator, type or opset the provider lacks: "
            f"{_NO_FALLBACK}. A CUDA graph needs all of it on the GPU."
        )


def _counted(kinds: Counter[str]) -> str:
    """Return the most frequent operators, each with how often it occurs."""
    return ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in kinds.most_common(_MOST_NAMED))


def _structure(graph: Graph) -> Iterator[str]:
    parts_apart = Counter(f"{what} of {len(nodes)}" for what, nodes in graph.fused())
    if parts_apart:
        parts = ", ".join(f"{count} × {what}" for what, count in parts_apart.items())
        yield f"Set {ALL_LEVELS} (ort_optimisation_level): {parts} nodes run apart, and are one node each with it."
    if pairs := len(graph.pairs()):
        yield (
            f"Chains: {count_text(pairs, 'pair')} of nodes in a row, of "
            f"{count_text(len(graph.types), 'node')}, where one alone reads what the other gives, and one kernel could "
            "do both."
        )


def _quantised(graph: Graph, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield what of a quantised model is computed in floating point, and what to check when that is changed."""
    found = graph.quantised()
    spent = _spent(nodes, lambda node: found.get(node.name, ""))
    narrow = any(kind in NARROW_PRODUCTS for kind in graph.types.values())
    for what in (what for what in _SAYS_QUANTISED if what in found.values()):
        kinds = Counter(graph.types[name] for name, of in found.items() if of == what)
        share = f", {percent_text(spent[what], spent.total())} of the nodes' time"
        took = share if all(node.on_cpu for node in nodes) else ""
        yield (
            _SAYS_QUANTISED[what].format(kinds=_counted(kinds), took=took)
            + (_TAKE_IN if narrow else _TAKE_IN_ANY) * (what == IN_FLOAT)
        )
    if found:
        yield _CHECK
