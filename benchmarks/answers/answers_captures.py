"""What else was answered wrongly of the captures and pairs that answers.py knows: a row for each figure.

Read by answers_public.py. A capture is answered as its folder, or from its trace alone, without its execution trace; a
pair is compared, the second file after the first.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.answers import Answer, Finding, Public, answer, compared

US = 1_000
_LAUNCH = 30 * US  # at most, that a launch which is not made saves


def told(path: Path, after: Path | None, alone: bool) -> Answer:
    """Return what is said of a file, of a pair of them, or of a capture's trace alone."""
    if after is not None:
        return compared(path, after)
    if not alone:
        return answer(path)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "trace.json.gz")
        shutil.copyfile(path / copy.name, copy)
        return answer(copy)


def among_first(a: Answer, rule: str, places: int = 3) -> bool:
    """Return whether a finding of a rule is among the first."""
    return rule in a.rules[:places]


def large_first(a: Answer) -> bool:
    """Return whether savings of a tenth of GPU time are the first three; idle time, which the headline names, apart."""
    gpu_ns = a.scan["summary"]["gpu_time_ns"]
    behind = a.shown[a.first["rule"] == "launch_gap" :]
    large = [at for at, one in enumerate(behind) if one["gpu_saving_ns"]["mid"] >= 0.1 * gpu_ns]
    return bool(large) and (large[-1] < 3 or len(large) > 3)


def based(a: Answer) -> bool:
    """Return whether no line of the text states a cost above the step without saying that it is as recorded."""
    step_ns = a.step["unprofiled_ns"]["mid"]
    over = [one for one in a.shown if one["per_step"]["measured_ns"] > step_ns]
    costs = [line for line in a.text.splitlines() if line.strip().startswith("cost ")]
    return bool(over) and sum("as recorded" in line for line in costs) >= len(over)


def per_launch(a: Answer, ops: set[str]) -> bool:
    """Return whether findings of these operators alone save no more of a step than their launches can."""
    few = [one for one in a.scan["findings"] if set(one["ops"]) <= ops and one["per_step"]]
    return all(one["per_step"]["step_saving_ns"]["mid"] <= _most_ns(a, one) for one in few)


def _most_ns(a: Answer, one: Finding) -> float:
    launches = sum(len(once) for once in one["activities"]) / max(a.scan["trace"]["steps"], 1)
    return float(one["per_step"]["measured_ns"] + launches * _LAUNCH)


def gpu_left(a: Answer, true_us: float) -> bool:
    """Return whether what GPU time findings leave of a step may be this."""
    saved, steps, busy_ns = a.scan["summary"]["gpu_saving_ns"], a.scan["trace"]["steps"], a.step["gpu_busy_ns"]
    return bool(busy_ns - saved["high"] / steps <= true_us * US <= busy_ns - saved["low"] / steps)


def share_found(a: Answer, op: str) -> float:
    """Return the part of the findings' occurrences whose operators include one."""
    every = [one for one in a.scan["findings"] if one["rule"] != "launch_gap" and op in one["ops"]]
    return sum(one["measured_ns"] for one in every) / max(a.scan["summary"]["gpu_time_ns"], 1)


def rates_said(a: Answer) -> bool:
    """Return whether, where a library's rate was not measured, its share of the data sheet's peak is said."""
    return not a.scan["dropped"].get("rate_unknown") or "of the data sheet's" in " ".join(a.text.split())


MORE = (
    Public(
        ("own_llm_decode/run",),
        "a cost of 41.0 ms a step under a step of 5.56",
        "a cost above the step is said to be as recorded",
        based,
    ),
    Public(
        ("own_llm_decode/run",),
        "a cache that grows, 24 % of GPU time, at place 6 with nothing of the step",
        "in the first three, with what the step gains",
        lambda a: among_first(a, "cache_grown") and 0.5 < a.saving("cache_grown") <= 0.97,
    ),
    Public(
        ("own_llm_decode/run",),
        "16 concatenations over eight layers were one occurrence",
        "16 a step",
        lambda a: sum(len(a.of("cache_grown")[at]["activities"]) for at in range(len(a.of("cache_grown")))) == 32,
    ),
    Public(
        ("segformer_infer/run",),
        "what saves most of GPU time stood behind smaller ones",
        "savings of a tenth of GPU time are the first three behind the idle time",
        large_first,
    ),
    Public(
        ("segformer_infer/run",),
        "float32 attention and products, a third of GPU time, named by half",
        "products told TF32; what attention could fall to is in the limit, or found",
        lambda a: "float32_without_tf32" in a.rules and "products by" in " ".join(a.text.split()),
    ),
    Public(
        ("deberta_infer/run",),
        "a cost of 75.9 ms a step under a step of 15.0",
        "a cost above the step is said to be as recorded",
        based,
    ),
    Public(
        ("deberta_infer/run",),
        "two copies of 161 µs were to save 1.28 ms of the step",
        "what they take, and at most 30 µs a launch",
        lambda a: per_launch(a, {"aten::copy_"}),
    ),
    Public(
        ("deberta_infer/run",),
        "attention with terms of relative places, at place 6, was told SDPA",
        "in the first three, told flex_attention",
        lambda a: among_first(a, "attention_unfused") and "flex_attention" in a.of("attention_unfused")[0]["fix"],
    ),
    Public(
        ("deberta_infer/run",),
        "gathers of positions and what follows, 29 % of GPU time, were in no finding",
        "a finding holds them",
        lambda a: share_found(a, "aten::gather") > 0.29,
    ),
    Public(
        ("deberta_infer/run",),
        "without its execution trace 12 of 76 groups ran through what is no member",
        "nothing reported as one kernel runs through a product",
        lambda a: all("bmm" not in one["ops"][1:-1] for one in a.of("memory_bound_chain")),
        alone=True,
    ),
    Public(
        ("gemma2_prefill/run",),
        "a cost of 73.0 ms a step under a step of 18.9",
        "a cost above the step is said to be as recorded",
        based,
    ),
    Public(
        ("gemma2_prefill/run",),
        "a norm that multiplies by 1 + weight, behind another, was told rms_norm(…, weight) of a sum",
        "1 + weight is printed, in the order that was found",
        lambda a: "1 + weight" in a.of("rmsnorm_unfused")[0]["fix"] and "norm_add_norm" in a.fixes,
    ),
    Public(
        ("gemma2_prefill/run",),
        "the norms of decoder and model were two findings",
        "one",
        lambda a: len(a.of("rmsnorm_unfused")) == 1,
    ),
    Public(
        ("gat_infer/run",),
        "a step that waits for nonzero was told to be captured as one graph",
        "no advice to capture it",
        lambda a: "reduce-overhead" not in a.of("launch_gap")[0]["fix"].split("… all of it")[0],
    ),
    Public(
        ("gat_infer/run",),
        "two small kernels of 6.2 µs were to save 555 µs of the step",
        "what they take, and at most 30 µs a launch",
        lambda a: per_launch(a, {"aten::arange", "aten::copy_"}),
    ),
    Public(
        ("gat_infer/run",),
        "206 µs of GPU time were to be left, where torch.compile leaves 418",
        "418 lies within what is said",
        lambda a: gpu_left(a, 418),
    ),
    Public(
        ("kineto_resnet50_nw0_a.json.gz",),
        "−6.7 % by mean of a pair of recordings; 27 ms less, where 0.46 to 2.14 were predicted",
        "by medians, −30 %; what is measured beyond what was predicted is said",
        lambda a: "(−30.5%)" in a.text and "more than predicted" in " ".join(a.text.split()),
        after="kineto_resnet50_nw4_b.json.gz",
    ),
    Public(
        ("k2a_loader_workers0.json.gz",),
        "−22.8 % by mean: one last step of 174 ms hid half of it; nothing predicted",
        "medians 133 and 88.8 ms, −33 %; the loader's finding is fixed",
        lambda a: "133 → 88.8 ms" in a.text and "(−33.4%)" in a.text and "data_loading" in a.text,
        after="k2b_loader_workers4.json.gz",
    ),
    *(
        Public(
            (name,),
            "10 to 84 matches of a library whose rate is not known",
            "how much of the data sheet's peak its calls reach is said",
            rates_said,
        )
        for name in (
            "tracelens_mi300_qwen1.5-0.5b.json.gz",
            "tracelens_mi300_resnet-actckpt.json.gz",
            "tracelens_xdit_flux1_sage.json.gz",
        )
    ),
)
