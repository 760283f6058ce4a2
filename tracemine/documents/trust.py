"""What a report says before all else, or in place of findings: what cannot be believed, and why nothing was found."""

from __future__ import annotations

from tracemine.documents.headline import bound_headline
from tracemine.documents.step_words import is_sums, nothing_text, unestimated
from tracemine.findings import Scan
from tracemine.units import count_text, percent_text

# The way out where there is no GPU activity.
RECORD_GPU = "record on a machine with a GPU, with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_NO_ACTIVITY = {
    "xla": "The trace holds no GPU activity: record on a machine with a GPU, with jax.profiler.trace(FOLDER).",
    "nsys": "No GPU activity was recorded: profile with nsys profile --trace=cuda,nvtx.",
    "onnxruntime": "Chains and fallbacks are named below; nsys profile --trace=cuda,nvtx records what a GPU "
    "does, rocprofv3 --sys-trace what one of AMD's does.",
}
_ENGINES = frozenset({"tensorrt", "onnxruntime"})  # formats whose prices need no GPU's name
NOT_RUN = _ENGINES | {"xla"}  # formats of whose findings `verify` runs none
_CUT = "is cut off"  # in a warning of a file that ends before its content does
_NOT_READ = (
    "no GPU activity that can be read",
    "no event that torch.profiler writes",
)  # in a warning, of what is there
_HOST_TIMES = "ost times only"  # in what a recording says that times its nodes on the host alone


def cut_off(scan: Scan) -> str:
    """Return what is said before all else of a file that ends before its content does; "" of any other."""
    if scan.recorded is None or not scan.recorded.cut_off:
        return ""
    return "The file is cut off or damaged: what is missing is not known. Copy or record it again, to its end."


def trust_text(scan: Scan) -> str:
    """Return what is said before all else: that there is nothing to judge, that the file is cut off, what cannot be."""
    doubts = () if scan.recorded is None else scan.recorded.doubts
    silent = not (scan.trace.activities or doubts or cut_off(scan))
    nothing = f"There is nothing to judge: no GPU activity {'can be read' if _not_read(scan) else 'was recorded'}."
    judged = host_times(scan) or (nothing if silent else "")
    return " ".join(filter(None, (judged, cut_off(scan), *doubts)))


def _not_read(scan: Scan) -> str:
    """Return the warning that says that there are records, and none that can be read; else ""."""
    return next((one for one in scan.warnings if any(words in one for words in _NOT_READ)), "")


def host_times(scan: Scan) -> str:
    """Return the sentence that says that nothing but the host was timed; "" where a GPU was."""
    return "" if scan.trace.activities else next((one for one in scan.warnings if _HOST_TIMES in one), "")


def is_unusable(scan: Scan) -> bool:
    """Return whether no time of the recording can be believed."""
    return scan.recorded is not None and scan.recorded.unusable


def no_findings(scan: Scan) -> str:
    """Return what a scan without findings says first: none found, or, for want of a GPU's name, none looked for."""
    if is_unusable(scan):
        return "No verdict is given."
    if host_times(scan):
        return "No saving is estimated from host times."
    if cut_off(scan):
        return "Nothing was found before the cut."
    if not scan.trace.activities:
        return "Nothing was looked for."
    if scan.trace.activities and scan.trace.estimated_for is None and scan.trace.format not in _ENGINES:
        if unestimated(scan) and bound_headline(scan) and not is_sums(scan.summary):
            return "Only idle time was checked, as this GPU's rates are not known, and no finding is in it."
        if scan.trace.gpu:
            return (
                f"Savings of GPU time are not estimated: {scan.trace.gpu} is not in the device table. "
                "Say which to estimate for: --gpu NAME."
            )
        return "Savings of GPU time are not estimated: the trace names no GPU. Say which it was: --gpu NAME."
    return "No rule found a saving worth listing."


def notes(scan: Scan) -> tuple[str, ...]:
    """Return the warnings, without what the first line, or why there is no finding, says already."""
    said = host_times(scan) or (unestimated(scan) if bound_headline(scan) else "")
    why = "" if scan.reported else nothing_found(scan)
    doubts = () if scan.recorded is None else scan.recorded.doubts
    known = [one for one in scan.warnings if one != said and one not in doubts]
    return tuple(
        one for one in known if not why.startswith(one.removesuffix(".")) and not (_CUT in one and cut_off(scan))
    )


def notes_below(scan: Scan) -> tuple[str, ...]:
    """Return the notes without that on source lines, which stands in the head."""
    return tuple(one for one in notes(scan) if one != no_lines(scan))


def no_lines(scan: Scan) -> str:
    """Return the warning that says how findings would get source lines; "" where one has any, or there is none."""
    if not scan.reported or any(finding.source for finding in scan.reported):
        return ""
    return next((warning for warning in scan.warnings if "no source line" in warning), "")


def nothing_found(scan: Scan) -> str:
    """Return why a scan has no finding, in one sentence."""
    if not scan.trace.activities and cut_off(scan) and not host_times(scan):
        return "The trace holds no GPU activity before the cut."
    if is_unusable(scan):
        return "What the recording says of the GPU cannot be used."
    if not scan.trace.activities:
        return _not_read(scan) or _NO_ACTIVITY.get(scan.trace.format, f"The trace holds no GPU activity: {RECORD_GPU}.")
    matches = sum(scan.dropped.values())
    were = "was" if matches == 1 else "were"
    what = f"{count_text(matches, 'match')} of a rule {were} left out" if matches else "no rule matched"
    if scan.summary.parts is not None or nothing_text(scan):  # the first line says how busy it is, of another whole
        return f"{what[:1].upper()}{what[1:]}."
    busy = percent_text(scan.summary.gpu_busy_ns, scan.summary.gpu_busy_ns + scan.summary.gpu_idle_ns)
    return f"The GPU was busy for {busy} of the time, and {what}."
