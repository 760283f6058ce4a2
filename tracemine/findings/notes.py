"""Notes on a trace besides its findings: its GPU and devices, what recording did, what is not
explained, and what a fix is to be tried with.

That a flag of XLA is among the strings of a plug-in proves nothing: `xla_gpu_enable_split_k_autotuning` still is among
0.11.2's, which does not take it. So a process was started with each of `TAKEN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.columns import sorted_unique
from tracemine.devices import (
    UNESTIMATED,
    Device,
    guess_text,
    guessed_device,
    is_partition,
    recorded_device,
    unknown_device_text,
)
from tracemine.findings.accounting import Accounts
from tracemine.findings.context import ScanContext
from tracemine.findings.environment import oldest_generation
from tracemine.findings.held_in import UNEXPLAINED, held_longest
from tracemine.findings.payback import AS_GRAPH, COMPILE, GRAPH_MODE
from tracemine.findings.record import Finding
from tracemine.findings.summary import DeviceTime
from tracemine.patterns import deferred
from tracemine.perfmodel import Curves, Slowdown
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.compiled import compilations
from tracemine.rows.table import IntArray, Rows, category, number
from tracemine.timeline import RecordedDevice, Timeline, producer_of
from tracemine.units import count_text, percent_text, ratio_text, time_text

# Taken by all of jaxlib 0.4.30, 0.5.0, 0.6.2, 0.7.2, 0.8.2, 0.9.0, 0.10.0, 0.10.2, 0.11.0, 0.11.2, 0.12.0 and 0.12.0.1.
TAKEN: Final = frozenset(
    {
        *("xla_gpu_enable_triton_gemm", "xla_gpu_triton_gemm_any", "xla_gpu_enable_while_loop_double_buffering"),
        *("xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_all_reduce_combine_threshold_bytes"),
    }
)
_FIRST, _LAST = (0, 4), (0, 12)  # of the versions that were tried
_FLAG: Final = deferred(r"--(xla_\w+)=[^\s\"`]*")
_VERSION: Final = deferred(r"(\d+)\.(\d+)")

_HOLDS = frozenset({"works", "little"})

LIGHT = "Idle time is measured by the light window"  # which is no caveat
SLOWED = "slows the host"
_SLOWS = 1.1  # times: less than that is noise
_MANY_FRAMES = 100  # of Python in a step: JAX writes one for each call
_SHARE_TO_NAME = 0.1  # of the GPU's time, whose kernels are named where their class is not known
_KERNELS_NAMED = 3
_OWN_PRICES = frozenset({"tensorrt", "onnxruntime"})  # whose findings are priced by their own layers and kernels
_LONGEST_NAME = 80
_UNCLASSIFIED = "other"
_LAUNCHED_BEFORE = (
    "what ran next had been launched long before and waited for an event or another rank, or by a call that is not "
    "recorded"
)
_VOLTA = 7  # of its compute capability
_LOADING_NS = 1_000_000  # a gap before a kernel's first run that may have loaded or compiled it
_SHARE_TO_EXPLAIN = 0.1  # of the span: idle time without a recorded cause that is worth a word


def device_of(timeline: Timeline) -> Device | None:
    """Return the device table's row for a timeline's GPU, or what is guessed of it; None of neither, or several."""
    found = [
        recorded_device(d.name, d.sm_count, d.memory_bytes)
        or guessed_device(d.name, d.sm_count, d.memory_bytes, d.compute_capability)
        for d in _active(timeline)
    ]
    return found[0] if found and all(device is found[0] for device in found) else None


def gpu_name(timeline: Timeline) -> str | None:
    return next((d.name for d in _active(timeline) if d.name), "Intel XPU" if _is_xpu(timeline) else None)


def _is_xpu(timeline: Timeline) -> bool:
    return any(category.casefold().startswith("xpu_") for category in timeline.meta.ingest.events)


def _is_rocm(timeline: Timeline) -> bool:
    name = (gpu_name(timeline) or "").casefold()
    return name.startswith("amd ") or any("hip" in each.casefold() for each in timeline.meta.versions)


def sm_count(timeline: Timeline) -> int | None:
    return next((d.sm_count for d in _active(timeline) if d.name), None)


def warnings_of(
    timeline: Timeline,
    gaps: Rows,
    accounts: Accounts,
    curves: Curves | None,
    slowdown: Slowdown | None,
    *,
    captured: int,
    within_ns: IntArray,
) -> tuple[str, ...]:
    """Return a sentence each: the ingest's own, then what the findings rest on.

    captured: graphs, in this recording. within_ns: of each gap what of it lies in steps; all where none are known.
    """
    ingest = timeline.meta.ingest
    texts = [*ingest.doubts, *ingest.warnings]
    if captured:
        texts.insert(
            0,
            f"This recording shows CUDA graphs being captured ({count_text(captured, 'time')}): launches go into the "
            "graph, nothing is meant to run, and there is no step to improve. It goes with the recording of the "
            "replays: tracemine scan REPLAYS --graph-capture THIS names their operators.",
        )
    texts += _gpu_texts(timeline, curves)
    return (*texts, *_idle_texts(timeline, gaps, accounts, within_ns), *_recording_texts(timeline, slowdown))


def _idle_texts(timeline: Timeline, gaps: Rows, accounts: Accounts, within_ns: IntArray) -> Iterator[str]:
    """Yield what is said of idle time that no finding explains."""
    missing_ns, missing = _idle_ns(gaps, "graph_not_recorded")
    if missing:
        yield (
            f"Kernels of CUDA graphs are missing in this trace: for {time_text(missing_ns)} that look idle a graph may "
            "have been running, so nothing is claimed for them."
        )
    unexplained_ns = int(within_ns[category(gaps, "cause").among(*UNEXPLAINED)].sum())
    if unexplained_ns > _SHARE_TO_EXPLAIN * accounts.devices * accounts.judged_ns:
        why = _LAUNCHED_BEFORE if timeline.api.num_rows else _without_launches(timeline, gaps, within_ns)
        yield f"The device was idle for {time_text(unexplained_ns)} without a recorded cause: {why}."
        yield from _held_texts(timeline, gaps)


def _without_launches(timeline: Timeline, gaps: Rows, within_ns: IntArray) -> str:
    """Return why idle time has no cause without any launch, and how much of it first launches may have taken."""
    names = categories(timeline.activities["name"]).codes
    first = np.zeros(len(names), np.bool_)
    first[np.unique(names, return_index=True)[1]] = True
    first_ns = int(within_ns[first[number(gaps, "next_row")] & (within_ns >= _LOADING_NS)].sum())
    before = f"; {time_text(first_ns)} of it before kernels that run for the first time, loaded or compiled then"
    return f"no launches were recorded{before if first_ns else ''}"


def _recording_texts(timeline: Timeline, slowdown: Slowdown | None) -> Iterator[str]:
    """Yield what recording did to the program: compilations that it shows, a host that it slows."""
    begin, end = compilations(timeline)
    if len(begin):
        times = "once" if len(begin) == 1 else f"{len(begin)} times"
        yield (
            f"torch.compile compiled {times} while this was recorded, for {time_text(int((end - begin).sum()))}: what "
            "waited for it is not how the program runs later. Record a later step."
        )
    if not timeline.activities.num_rows:
        return
    if timeline.light.num_rows and slowdown is not None:
        slows = slowdown.host or slowdown.usual
        how = f"slows the host {ratio_text(slows)} times" if slows >= _SLOWS else "does not slow the host"
        yield f"{LIGHT}: recording it {how}. Savings are what the step gains without the profiler."
    elif slowdown is not None:
        times = ratio_text(slowdown.usual)
        what = slowdown.what[0].upper() + slowdown.what[1:]
        yield f"{what} {SLOWED} {times} times; savings of gaps are scaled down for it."
    if timeline.meta.ingest.events.get("Python frames", 0) >= _MANY_FRAMES * max(timeline.steps.num_rows, 1):
        yield (
            "JAX's tracer of Python was on, and slows the host. Without it times are nearer to those of production: "
            "options = jax.profiler.ProfileOptions(); options.python_tracer_level = 0; "
            "jax.profiler.trace(DIR, profiler_options=options)."
        )
    if timeline.meta.format == "nsys" and timeline.ops.num_rows:
        yield (
            "Nsight Systems and NVTX ranges slow the host. By how much was not measured: gaps count as they were "
            "recorded, and in production they are shorter."
        )


def _gpu_texts(timeline: Timeline, curves: Curves | None) -> Iterator[str]:
    """Yield what is not known of the GPU, what is guessed of it, and whether it is a part of one."""
    device = device_of(timeline)
    if curves is None and timeline.activities.num_rows and producer_of(timeline.meta) not in _OWN_PRICES:
        yield _unknown_text(timeline)
    if curves is not None and device is not None and device.guessed_from and curves.guess_spread[0] < 1:
        yield f"{guess_text(device)}."
    if oldest_generation(timeline) < _VOLTA and producer_of(timeline.meta) == "torch":
        yield (
            "torch.compile makes no kernels for this GPU: Triton takes compute capability 7.0 and newer. What is left "
            'of it is torch.compile(backend="cudagraphs"), which takes launches away.'
        )
    if device is not None and is_partition(device):
        yield f"The GPU is a partition (MIG, CPX): {device.title}. Rates are scaled to that part."


def _held_texts(timeline: Timeline, gaps: Rows) -> tuple[str, ...]:
    """Return in which one call the host was in the longest gap without a recorded cause, where that is most of it."""
    found = held_longest(timeline, gaps)
    if found is None:
        return ()
    gap_ns, held = found
    before = "; one step alone: perhaps of a batch before it, so record several" if timeline.steps.num_rows <= 1 else ""
    return (f"For {time_text(gap_ns)} of that the host waited in one call, {held.text}{before}.",)


def _unknown_text(timeline: Timeline) -> str:
    """Return why savings of GPU time are not estimated."""
    name = gpu_name(timeline)
    if _is_xpu(timeline):
        return f"the GPU is an XPU ({name}), of which no rates are known: {UNESTIMATED}"
    return unknown_device_text(name, "mi300x" if _is_rocm(timeline) else "h100", sm_count(timeline))


def unclassified_text(activities: Rows, accounts: Accounts) -> str:
    """Name the kernels of which it is not known what they do, most first; "" where they take little."""
    kind, name = category(activities, "op_class"), category(activities, "name")
    rows = np.flatnonzero(kind.among(_UNCLASSIFIED))
    spent = accounts.exclusive_ns[rows]
    if spent.sum() <= _SHARE_TO_NAME * max(accounts.gpu_busy_ns, 1):
        return ""
    by_name = np.bincount(name.codes[rows] + 1, weights=spent, minlength=len(name.values) + 1)[1:]
    most = [code for code in np.argsort(-by_name, kind="stable")[:_KERNELS_NAMED].tolist() if by_name[code]]
    named = ", ".join(
        f"{name.values[code][:_LONGEST_NAME]} ({percent_text(int(by_name[code]), accounts.gpu_busy_ns)})"
        for code in most
    )
    share = percent_text(int(spent.sum()), accounts.gpu_busy_ns)
    return f"What these kernels do is not known, for {share} of GPU time: {named}."


def _idle_ns(gaps: Rows, cause: str) -> tuple[int, int]:
    """Return the length of all gaps of one cause together, and their number."""
    chosen = category(gaps, "cause").among(cause)
    return int(number(gaps, "dur_ns")[chosen].sum()), int(chosen.sum())


def _active(timeline: Timeline) -> list[RecordedDevice]:
    """Return the recorded devices that activities ran on; all of them where activities do not say."""
    ordinals = set(rows_of(timeline.activities["device"]).tolist())
    return [d for d in timeline.meta.devices if d.ordinal in ordinals or ordinals <= {-1}]


def device_times(context: ScanContext) -> tuple[DeviceTime, ...]:
    """Return how long each device was at work; nothing where only one was.

    A step's time is the mean of those steps in which the device ran anything: processes of their own have their own.
    """
    accounts, step = context.accounts, context.accounts.per_step
    if accounts.devices < 2:
        return ()
    device = rows_of(context.timeline.activities["device"])
    counts = np.ones(len(device), np.bool_) if step is None else accounts.in_step
    whole_ns = accounts.span_ns if step is None else step.span_ns
    found = []
    for ordinal in sorted_unique(device).tolist():
        own = counts & (device == ordinal)
        steps = 1 if step is None else max(len(sorted_unique(accounts.step_of[own])), 1)
        busy_ns = int(accounts.exclusive_ns[own].sum()) // steps
        idle = 1 - busy_ns / max(whole_ns, busy_ns, 1)
        found.append(DeviceTime(ordinal=ordinal, busy_ns=busy_ns, idle_share=round(idle, 4)))
    return tuple(found)


def with_graph_mode(context: ScanContext, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, those that torch.compile does with what keeps the host from holding up what is left of a step:
    a CUDA graph, where one can hold the step and the host was timed alone.
    """
    host_ns, step_ns = context.timeline.meta.host_step_ns, context.unprofiled.mid_ns
    compiling = [finding for finding in findings if finding.reported and finding.per_step and _compiles(finding)]
    left_ns = step_ns - sum(finding.per_step.step_saving_ns.mid for finding in compiling if finding.per_step)
    if not compiling or not host_ns or not left_ns < host_ns < step_ns or context.environment.compiled:
        return list(findings)
    graph = context.would_graph
    if graph.kind not in _HOLDS or graph.held < 1:
        return list(findings)
    chosen = {finding.fingerprint for finding in compiling}
    said = f"The host needs {time_text(host_ns)} for a step, and a CUDA graph can hold it: {AS_GRAPH}."
    return [
        replace(finding, fix=f"{finding.fix}\n\n{said}") if finding.fingerprint in chosen else finding
        for finding in findings
    ]


def _compiles(finding: Finding) -> bool:
    return COMPILE in finding.fix and GRAPH_MODE not in finding.fix


def with_trial(fix: str, jax: str | None) -> str:
    """Return advice with how to try its flags, where the recorded version of JAX (None: not recorded) may not know one.

    >>> with_trial("XLA_FLAGS=--xla_gpu_triton_gemm_any=true", "0.11.2"), with_trial("jax.jit", None)
    ('XLA_FLAGS=--xla_gpu_triton_gemm_any=true', 'jax.jit')
    >>> print(with_trial("XLA_FLAGS=--xla_gpu_triton_gemm_any=true", None).splitlines()[-1])
        XLA_FLAGS="--xla_gpu_triton_gemm_any=true" JAX_PLATFORMS=cpu python -c "import jax; jax.devices()"
    """
    version = _VERSION.match(jax or "")
    tried = version is not None and _FIRST <= (int(version[1]), int(version[2])) <= _LAST
    flags = [found[0] for found in _FLAG.finditer(fix) if not tried or found[1] not in TAKEN]
    if not flags:
        return fix
    which = f"JAX {jax}, which was recorded," if jax else "the JAX that was recorded, which does not say its version,"
    return (
        f"{fix}\n\nA version of XLA that does not know a flag stops as it starts (`Unknown flag in XLA_FLAGS`), and it "
        f"is not known whether {which} knows this one. Try it first:\n\n"
        f'    XLA_FLAGS="{" ".join(flags)}" JAX_PLATFORMS=cpu python -c "import jax; jax.devices()"'
    )
