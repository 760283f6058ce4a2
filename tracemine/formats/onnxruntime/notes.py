"""What is to be said of a profile of ONNX Runtime: whose times they are, and what shows in them without a saving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from tracemine.formats.onnxruntime.events import MOST_EVENTS, RecordedEvents
from tracemine.formats.onnxruntime.patterns import APART, FUSED, IN_FLOAT, ISLAND, NARROW_PRODUCTS, WEIGHT, Graph
from tracemine.formats.onnxruntime.runs import CountedRuns, Node
from tracemine.units import count_text, percent_text, time_text

ALL_LEVELS = "graph_optimization_level = ORT_ENABLE_ALL"
_SAVE_MODEL = 'session_options.optimized_model_filepath = "opt.onnx"'
_NO_FALLBACK = 'session_options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")'
_MOST_NAMED = 4
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


def notes_of(recorded: RecordedEvents, runs: CountedRuns, graph: Graph | None, extra: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each thing that a reader must know."""
    nodes = [node for run in runs.runs for node in run.nodes]
    on_gpu = any(node.kernels for node in nodes)
    yield from _whose_times(nodes, on_gpu=on_gpu)
    if not on_gpu:
        yield _shares(runs)
    yield from _fallback(runs)
    if graph is not None:
        yield from _structure(graph, said=not on_gpu)
        yield from _quantised(graph, runs, shares=all(node.on_cpu for node in nodes))
    elif not extra:
        yield (
            "The profile does not say which node reads what another gives: save the optimised model in its folder, or "
            f"pass --model FILE, and chains are known: {_SAVE_MODEL}"
        )
    yield from extra
    yield from _runs(recorded, runs)


def _whose_times(nodes: Sequence[Node], *, on_gpu: bool) -> Iterator[str]:
    providers = Counter(node.event.args.provider.removesuffix("ExecutionProvider") for node in nodes)
    if on_gpu:
        return
    if set(providers) <= {"CPU"}:
        yield "This is a profile of the CPU provider: shares, no savings. All of it is host times only."
        return
    others = ", ".join(sorted(name for name in providers if name not in ("CPU", "")))
    yield (
        f"Host times only: a node on {others or 'a GPU'} is timed while the host launches it, not while the GPU runs "
        "it, and no kernel was recorded. nsys profile --trace cuda,nvtx records kernels."
    )


def _runs(recorded: RecordedEvents, runs: CountedRuns) -> Iterator[str]:
    if runs.first_ns is not None:
        yield f"The first run, of {time_text(runs.first_ns)}, is left out: it loads and tunes."
    if runs.replays:
        yield (
            f"{count_text(runs.replays, 'run')} {'has' if runs.replays == 1 else 'have'} no nodes: a CUDA graph was "
            "replayed, or the profiler had reached its limit."
        )
    if len(recorded.events) >= MOST_EVENTS:
        yield f"The profiler stops at {MOST_EVENTS:,} events: what ran later is not recorded."
    if recorded.truncated:
        yield "The file is cut off: session.end_profiling() writes its end. What came before is read."


def _shares(runs: CountedRuns) -> str:
    spent = Counter[str]()
    for run in runs.runs:
        for node in run.nodes:
            spent[node.op_type] += node.event.dur_ns
    whole = sum(spent.values())
    named = ", ".join(f"{kind} {percent_text(ns, whole)}" for kind, ns in spent.most_common(_MOST_NAMED))
    took = time_text(round(median(run.dur_ns for run in runs.runs)))
    count = round(median(len(run.nodes) for run in runs.runs))
    return f"A run takes the host {took}, of {count_text(count, 'node')}: {named} of their time."


def _fallback(runs: CountedRuns) -> Iterator[str]:
    """Yield which nodes the CPU computes between those of a GPU, with the copies that this takes."""
    nodes = runs.runs[-1].nodes
    on_gpu = [at for at, node in enumerate(nodes) if not node.on_cpu]
    between = [node for node in nodes[on_gpu[0] : on_gpu[-1]] if node.on_cpu or node.is_copy] if on_gpu else []
    kept = Counter(node.op_type for node in between if not node.is_copy)
    copies = sum(node.is_copy for node in nodes)
    if not on_gpu or not (kept or copies):
        return
    names = _counted(kept)
    spent_ns = sum(node.event.dur_ns for node in between)
    yield (
        f"Fallback (ort_cpu_fallback): {names or 'nothing'} runs on the CPU between nodes on the GPU, with "
        f"{count_text(copies, 'copy')} between them, {time_text(spent_ns)} of the host a run. See which operator, type "
        f"or opset the provider lacks: {_NO_FALLBACK}. A CUDA graph needs all of it on the GPU."
    )


def _counted(kinds: Counter[str]) -> str:
    """Return the most frequent operators, each with how often it occurs."""
    return ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in kinds.most_common(_MOST_NAMED))


def _structure(graph: Graph, *, said: bool) -> Iterator[str]:
    parts_apart = Counter(what for what, _ in graph.fused())
    sizes = {what: len(path) for what, path in FUSED}
    if parts_apart and said:
        parts = ", ".join(f"{count} × {what} of {sizes[what]}" for what, count in parts_apart.items())
        yield f"Set {ALL_LEVELS} (ort_optimisation_level): {parts} nodes run apart, and are one node each with it."
    pairs = len(graph.pairs())
    if pairs and said:
        yield (
            f"Chains: {count_text(pairs, 'pair')} of nodes in a row, of "
            f"{count_text(len(graph.types), 'node')}, where one alone reads what the other gives, and one kernel could "
            "do both."
        )


def _quantised(graph: Graph, runs: CountedRuns, *, shares: bool) -> Iterator[str]:
    """Yield what of a quantised model is computed in floating point, and what to check when that is changed."""
    found = graph.quantised()
    spent = Counter[str]()
    for node in (node for run in runs.runs for node in run.nodes):
        spent[found.get(node.name, "")] += node.event.dur_ns
    narrow = sum(kind in NARROW_PRODUCTS for kind in graph.types.values())
    for what in (what for what in _SAYS_QUANTISED if what in found.values()):
        kinds = Counter(graph.types[name] for name, of in found.items() if of == what)
        took = f", {percent_text(spent[what], sum(spent.values()))} of the nodes' time" if shares else ""
        says = _SAYS_QUANTISED[what].format(kinds=_counted(kinds), took=took)
        yield says + (_TAKE_IN if what == IN_FLOAT and narrow else _TAKE_IN_ANY if what == IN_FLOAT else "")
    if found:
        yield _CHECK
