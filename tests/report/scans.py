"""Scans made by hand: an ordinary one, an empty one, and one whose every string was chosen by an attacker."""

from __future__ import annotations

from typing import Any

import msgspec

from tracemine.findings.record import (
    NOTHING,
    Alike,
    Bound,
    Finding,
    Identity,
    Intensity,
    Part,
    Parts,
    PeakMemory,
    PerStep,
    Range,
    Scan,
    Share,
    Source,
    StepSummary,
    Summary,
    TraceSummary,
    Traffic,
    UnprofiledTime,
    Variant,
    Verified,
)

NORM = Finding(
    fingerprint="0123456789abcdef",
    identity=Identity("0123456789abcdef", ("89abcdef01234567",)),
    cause="rmsnorm_unfused",
    rule="rmsnorm_unfused",
    title="Unfused RMSNorm",
    evidence="adjacent",
    severity="medium",
    occurrences=34,
    activities=((12, 13, 14), (52, 53, 54)),
    ops=("aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul", "aten::mul"),
    kernels=("void elementwise_kernel<4, PowFunctor>(int)", "reduce_kernel<512, 1>", "vectorized_mul"),
    shapes="[4, 2048, 4096], [4096]",
    dtype="bfloat16",
    module="model.layers.*.input_layernorm",
    source=(
        Source(file="/opt/lib/transformers/models/llama/modeling_llama.py", line=71, function="forward", begins=True),
        Source(file="train.py", line=9, function="step"),
    ),
    measured_ns=1_020_000,
    fused_ns=Range(500_000, 608_000, 710_000),
    traffic_bytes=Traffic(before=672_000_000, after=102_000_000),
    flops=10_000_000,
    arithmetic_intensity=Intensity(before=0.0149, after=0.098),
    intermediate_bytes=67_108_864,
    gpu_saving_ns=Range(310_000, 412_000, 520_000),
    step_saving_ns=Range(0, 38_000, 80_000),
    why="The tensor is read five times. Once is enough.",
    fix="Replace the forward:\n\n    return F.rms_norm(x, (x.shape[-1],), self.weight)  # torch 2.4\n\nIt is exact.",
    assumptions=("NVIDIA H200 SXM: a copy reaches 4.3 TB/s (measured)",),
    alike=Alike(occurrences=34, measured_ns=1_020_000, gpu_saving_ns=Range(310_000, 412_000, 520_000)),
)
NORM = msgspec.structs.replace(
    NORM,
    per_step=PerStep(
        measured_ns=510_000,
        gpu_saving_ns=Range(155_000, 206_000, 260_000),
        step_saving_ns=Range(0, 19_000, 40_000),
        share_of_unprofiled=0.0038,
    ),
    variants=tuple(
        Variant(
            identity=Identity(mark, (f"old{mark[3:]}",)),
            occurrences=occurrences,
            measured_ns=30_000 * occurrences,
            shapes=shapes,
            fused_ns=NORM.fused_ns if occurrences > 2 else Range(30_000, 40_000, 50_000),
            gpu_saving_ns=Range(10_000, 20_000, 30_000) if occurrences == 2 else Range(300_000, 392_000, 490_000),
            step_saving_ns=NOTHING if occurrences == 2 else NORM.step_saving_ns,
            **{
                name: getattr(NORM, name)
                for name in (
                    *("evidence", "ops", "kernels", "module", "source", "traffic_bytes", "flops"),
                    *("arithmetic_intensity", "intermediate_bytes", "assumptions", "alike"),
                )
            },
        )
        for mark, occurrences, shapes in (
            ("00000000000000c1", 32, "[4, 2048, 4096], [4096]"),
            ("00000000000000c2", 2, "[4, 1, 4096], [4096]"),
        )
    ),
)
GAP = Finding(
    fingerprint="fedcba9876543210",
    identity=Identity("fedcba9876543210"),
    cause="launch_gap",
    rule="launch_gap",
    title="The device waits for the host",
    evidence="proven",
    severity="high",
    occurrences=1,
    activities=((),),
    ops=("aten::item",),
    kernels=(),
    shapes=None,
    dtype=None,
    module=None,
    source=(),
    measured_ns=6_000_000,
    fused_ns=None,
    traffic_bytes=None,
    flops=None,
    arithmetic_intensity=None,
    intermediate_bytes=None,
    gpu_saving_ns=NOTHING,
    step_saving_ns=Range(2_000_000, 5_100_000, 6_000_000),
    why="The host is slower than the device.",
    fix="Launch less. Or at once.",
    assumptions=(),
    per_step=PerStep(
        measured_ns=3_000_000,
        gpu_saving_ns=NOTHING,
        step_saving_ns=Range(1_000_000, 2_550_000, 3_000_000),
        share_of_unprofiled=0.51,
    ),
)
HEADLONG = msgspec.structs.replace(
    NORM,
    fingerprint="00000000000000aa",
    severity="low",
    ops=tuple(f"aten::operator_number_{n}" for n in range(40)),
    step_saving_ns=NOTHING,
    gpu_saving_ns=Range(1_000, 2_000, 3_000),
    occurrences=2,
    per_step=PerStep(
        measured_ns=510_000, gpu_saving_ns=Range(500, 1_000, 1_500), step_saving_ns=NOTHING, share_of_unprofiled=0.0
    ),
    variants=(),
)
LITTLE = msgspec.structs.replace(
    HEADLONG, fingerprint="00000000000000ee", reported=False, gpu_saving_ns=Range(0, 900, 1_000), activities=((90, 91),)
)
SCAN = Scan(
    trace=TraceSummary(
        path="runs/decoder.json.gz",
        format="kineto",
        gpu="NVIDIA H200",
        steps=2,
        activities=684,
        unattributed=3,
        estimated_for="NVIDIA H200 SXM",
    ),
    summary=Summary(
        span_ns=14_200_000,
        gpu_time_ns=2_350_000,
        gpu_busy_ns=2_300_000,
        gpu_idle_ns=11_900_000,
        per_step=StepSummary(
            span_ns=7_100_000,
            gpu_busy_ns=1_150_000,
            unprofiled_ns=UnprofiledTime(
                low=4_000_000, mid=5_000_000, high=6_000_000, source="estimated", note="guessed"
            ),
        ),
        gpu_saving_ns=Range(311_000, 414_900, 524_000),
        step_saving_ns=Range(2_000_000, 5_138_000, 6_080_000),
        bound=Bound(
            by="host",
            idle_share=0.838,
            cause="host_bound",
            cause_share=0.97,
            bare_communication_share=0.01,
            work="norm",
            work_share=0.45,
            unclassified_share=0.02,
            unprofiled_idle_share=Share(0.7125, 0.77, 0.8083),
        ),
        parts=Parts(
            ns=5_000_000,
            parts=(
                Part(name="products", ns=430_000, gpu_time_ns=430_000, least_gpu_time_ns=290_000),
                Part(name="memory_bound", ns=600_000, gpu_time_ns=655_000, least_gpu_time_ns=145_000),
                Part(name="copies", ns=100_000, gpu_time_ns=120_000),
                Part(name="communication", ns=20_000, gpu_time_ns=150_000),
                Part(name="idle", ns=3_850_000, gpu_time_ns=0),
            ),
            covered_communication_ns=130_000,
            after_ns=Range(1_960_000, 2_431_000, 4_000_000),
            gpu_time_after_ns=Range(1_092_000, 1_147_000, 1_199_000),
            least_gpu_time_ns=705_000,
            least_known_share=0.87,
        ),
        peak_memory=PeakMemory(before_bytes=24_000_000_000, after_bytes=21_500_000_000, not_found=2),
    ),
    findings=(GAP, NORM, HEADLONG, LITTLE),
    dropped={"below_threshold": 12, "claimed_by_another_rule": 1400},
    warnings=("6 activities were launched before recording began: their operators are unknown.",),
)
MEASURED = Verified(
    basis="measured",
    level="L4",
    says="slower than torch.compile",
    device="NVIDIA H200",
    state="cold",
    eager_ns=30_000,
    fused_ns=18_000,
    compiled_ns=17_000,
    saved_share=Share(0.39, 0.4, 0.41),
    predicted_ns=NORM.gpu_saving_ns,
    occurrences=34,
    assumptions=("a number is not recorded",),
    not_tested=("L2: not among these results", "L6: no step was run with it"),
    file="results/0123456789abcdef.json",
    library="F.rms_norm(x, (4096,), w, eps)",
    library_ns=19_000,
)
LOST = msgspec.structs.replace(
    MEASURED,
    basis="refuted",
    level="L3",
    says="this fusion loses",
    fused_ns=36_000,
    predicted_ns=HEADLONG.gpu_saving_ns,
    library=None,
    library_ns=None,
)
PROVED = msgspec.structs.replace(
    MEASURED,
    basis="predicted",
    level="L2",
    says="right in the interpreter, on a CPU",
    **dict.fromkeys(("device", "state", "eager_ns", "fused_ns", "compiled_ns", "saved_share", "library", "library_ns")),
    not_tested=tuple(f"{level}: this machine has no GPU" for level in ("L1", "L3", "L4", "L5")),
)
# One measured, one proved and not timed, one refuted.
VERIFIED = msgspec.structs.replace(
    SCAN,
    findings=(
        GAP,
        msgspec.structs.replace(
            NORM,
            verdict=MEASURED,
            gpu_saving_ns=Range(397_800, 408_000, 418_200),
            fused_ns=Range(601_800, 612_000, 622_200),
            variants=(msgspec.structs.replace(NORM.variants[0], verdict=MEASURED), NORM.variants[1]),
        ),
        msgspec.structs.replace(NORM, fingerprint="00000000000000bb", verdict=PROVED, variants=()),
        msgspec.structs.replace(
            HEADLONG, verdict=LOST, gpu_saving_ns=NOTHING, step_saving_ns=NOTHING, fused_ns=Range(*[1_020_000] * 3)
        ),
    ),
    evidence={"measured": 1, "refuted": 1, "predicted": 1, "repeated": 2, "other_gpu": 3, "no_finding": 40},
)
QUIET = Scan(
    trace=SCAN.trace,
    summary=Summary(
        span_ns=1_000,
        gpu_time_ns=990,
        gpu_busy_ns=990,
        gpu_idle_ns=10,
        per_step=None,
        gpu_saving_ns=NOTHING,
        step_saving_ns=NOTHING,
    ),
    findings=(),
    dropped={},
)
EMPTY = Scan(
    trace=TraceSummary(path="cpu.json", format="kineto", gpu=None, steps=0, activities=0, unattributed=0),
    summary=Summary(
        span_ns=0,
        gpu_time_ns=0,
        gpu_busy_ns=0,
        gpu_idle_ns=0,
        per_step=None,
        gpu_saving_ns=NOTHING,
        step_saving_ns=NOTHING,
    ),
    findings=(),
    dropped={},
)

HOSTILE_STRINGS = (
    "\x1b[2J\x1b]0;owned\x07\x9b31mred\x1b[0m",
    "[bold red]markup[/bold red] [link=https://evil.example]x[/link] :smile:",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "@everyone #1 GH-2 https://evil.example www.evil.example mailto:a@evil.example",
    "` `` ``` ```` a`b",
    "| a | b |\n|---|---|\n# heading\n\n- item\n1. item\n---\n> quote",
    "[click](javascript:alert(1)) ![x](http://evil.example/y.png) <https://evil.example>",
    "back\\slash \\| \\` **bold** _em_ ~~gone~~ $x$ &lt; &amp;",
    "\u202eright to left\u202c \u200bzero\u200d width \u2028line\u2029paragraph \x00null \x7fdelete",
    "```\n</details>\n$(rm -rf ~) `rm -rf ~` ; rm -rf ~ #",
    "'; rm -rf ~; echo '",
    "x" * 10_000,
    "",
    " ",
)


def hostile(text: str) -> Scan:
    """A scan with `text` wherever a trace, its names or a rule of somebody's could have put it."""

    def poisoned(value: Any) -> Any:
        if isinstance(value, str):
            return text
        if isinstance(value, msgspec.Struct):
            fields = {name: poisoned(getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(*fields.values()) if isinstance(value, Range) else type(value)(**fields)
        if isinstance(value, tuple):
            return tuple(poisoned(one) for one in value)
        if isinstance(value, dict):
            return dict.fromkeys([text], sum(value.values()))
        return value

    scan: Scan = poisoned(SCAN)
    return scan


def hostile_verdicts(text: str) -> Scan:
    """As `hostile`, with verdicts: of these `basis` alone is our own word."""
    scan = hostile(text)
    poisoned = {"level": text, "says": text, "device": text, "state": text, "file": text, "library": text, "by": text}
    texts = {"assumptions": (text,), "not_tested": (text, f"L6: {text}")}
    findings = [
        msgspec.structs.replace(
            finding, verdict=None if known is None else msgspec.structs.replace(known, **poisoned, **texts)
        )
        for finding, known in zip(
            (scan.findings[0], *(scan.findings[i] for i in (2, 2, 2, 1))),
            (None, MEASURED, PROVED, LOST, None),
            strict=True,
        )
    ]
    return msgspec.structs.replace(scan, findings=tuple(findings), evidence={"measured": 1, "no_finding": 2})
