"""Profiles that others have published, with figures counted before any rule was written, by a reader of another kind.

Needs TRACEMINE_COMPAT_TRACES, the folder in which `xplane/NAME/host.xplane.pb` lie: of AMD-AGI/TraceLens (MIT)
`te` tests/test_data_jax_te_fused_attn_categorization/934987a2fc2f.xplane.pb, `conv_08` and `conv_legacy`
tests/traces/mi300/jax_conv_minimal_{08,legacy}/*.xplane.pb, at 171dd747; `elementwise` and `attention`
tests/traces/mi300/jax08_{elementwise,attention}/tw003.xplane.pb at 042a7522. And of openxla/xprof (Apache-2.0):
`tf_v100` demo/plugins/profile/GPU-multi-worker/34.83.195.179_6003.xplane.pb at d6853e0c, `tpu_bad`
xprof/convert/test_xplanes/tpu_inference_2.xplane.pb at a27d00aa, `tpu_whole` an older blob of it, 2cc1243f.
"""

from __future__ import annotations

import math
import os
from bisect import bisect
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.causes.xla_recordings import classes_us
from tests.formats.xla.test_compat import figures
from tracemine.errors import InputError
from tracemine.findings import Finding
from tracemine.formats import open_trace
from tracemine.pipeline import Analysis, analyse, mined

FOLDER = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "")) / "xplane"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="TRACEMINE_COMPAT_TRACES has no xplane/")


@cache
def read(name: str) -> Analysis:
    return analyse(FOLDER / name / "host.xplane.pb")


@cache
def found(name: str) -> dict[str, Finding]:
    return {finding.rule: finding for finding in mined(read(name)).findings}


def test_x1_figures_of_a_step_with_fused_attention() -> None:
    analysis = read("te")
    count, _, busy, idle = figures(analysis.timeline)
    assert count == 150
    assert busy == pytest.approx([12.133], abs=0.001)
    assert idle == pytest.approx([6.4], abs=0.06)
    assert {name: round(us, 1) for name, us in classes_us(analysis).items() if us} == {
        "attention": 6741.6,
        "product": 4212.5,
        "reduction": 1137.8,
        "movement": 41.7,
    }
    assert analysis.timeline.instructions.num_rows == 100
    edges = analysis.dataflow.edges
    assert (len(edges.read), set(analysis.dataflow.reads.evidence[edges.read])) == (165, {2})
    step = mined(analysis).summary.per_step
    assert step is not None
    assert [kind.name.partition(",")[0] for kind in step.kinds] == ["30 kernels"]
    assert step.count + len(step.apart) == 5  # the first one is longer


def test_x2_what_xla_leaves_in_it() -> None:
    sums = found("te")["xla_split_k_partials"]
    assert sums.occurrences == 25
    assert sums.measured_ns == pytest.approx(858_600, rel=0.01)
    boundary = found("te")["xla_fusion_boundary"]
    assert boundary.occurrences == 5
    assert boundary.measured_ns == pytest.approx(234_600, rel=0.01)
    timeline = read("te").timeline
    converts = [row["op_row"] for row in timeline.activities.to_pylist() if row["name"] == "wrapped_convert"]
    name_of = {row["op_row"]: row["name"] for row in timeline.instructions.to_pylist()}
    assert Counter(name_of[row] for row in converts) == {"wrapped_convert": 5, "wrapped_convert.1": 5}


def test_x3_copies_around_convolutions_of_eight_gpus() -> None:
    activities = read("conv_08").timeline.activities.to_pylist()
    own = [row for row in activities if row["name"] == "input_transpose_fusion" and row["op_row"] is not None]
    spent = [sum(row["dur_ns"] for row in own if row["device"] == gpu) for gpu in range(8)]
    assert len(own) == 8 * 5
    assert all(1_711_000 <= each <= 1_853_000 for each in spent)
    assert sum(spent) <= found("conv_08")["xla_layout_copy"].measured_ns <= 1.04 * sum(spent)
    (given,) = [
        row["shape"]
        for row in read("conv_08").timeline.tensors.to_pylist()
        if row["op_row"] == own[0]["op_row"] and not row["is_output"]
    ]
    assert 2 * math.prod(given) == pytest.approx(572.03e6, rel=1e-4)
    assert not {"library_below_rate", "no_tensor_cores"} & found("conv_08").keys()


@pytest.mark.parametrize(("name", "few", "all_of_them"), [("elementwise", 55, 55), ("attention", 72, 75)])
def test_x4_operation_by_operation(name: str, few: int, all_of_them: int) -> None:
    assert "jax.jit" in found(name)["xla_op_by_op"].fix
    timeline = read(name).timeline
    runs = sorted(
        (row["start_ns"], row["start_ns"] + row["dur_ns"])
        for row in timeline.ops.to_pylist()
        if row["name"].startswith("XLA module ")
    )[1::2]  # each is recorded twice, one in the other
    begin = timeline.api["start_ns"].to_pylist()
    launched = [begin[row] for row in timeline.activities["launch_row"].to_pylist() if row is not None]
    run = [bisect(runs, (moment, math.inf)) - 1 for moment in launched]
    sizes = Counter(at for at, moment in zip(run, launched, strict=True) if at >= 0 and moment <= runs[at][1])
    assert (sum(size <= 2 for size in sizes.values()), len(sizes)) == (few, all_of_them)


def test_x4_partial_sums_of_attention() -> None:
    sums = found("attention")["xla_split_k_partials"]
    assert sums.occurrences == 3
    assert sums.measured_ns == pytest.approx(205_000, rel=0.01)


@pytest.mark.parametrize("name", ["te", "conv_08"])
def test_x5_what_is_jitted_is_not_told_to_be(name: str) -> None:
    assert "xla_op_by_op" not in found(name)
    assert not [finding.rule for finding in found(name).values() if "step = jax.jit" in finding.fix]


def test_x6_ids_of_32_bits() -> None:
    timeline = read("conv_legacy").timeline
    assert [device.ordinal for device in timeline.meta.devices] == [0, 7]  # of eight, those that did anything
    first = [row for row in timeline.activities.to_pylist() if row["device"] == 0]
    assert (len(first), {row["kind"] for row in first}) == (53, {"memcpy"})
    assert not timeline.meta.ingest.truncated


def test_x7_a_profile_of_tensorflow_in_the_old_spelling() -> None:
    timeline = read("tf_v100").timeline
    kernels = [row for row in timeline.activities.to_pylist() if row["kind"] == "kernel"]
    assert Counter(row["device"] for row in kernels) == {4: 665, 6: 665}
    for field in ("registers_per_thread", "shared_memory_bytes", "grid", "block"):
        assert all(row[field] is not None for row in kernels), field


@pytest.mark.parametrize(
    ("name", "why"), [("tpu_bad", "is an xplane that was stored as text"), ("tpu_whole", "is a profile of a TPU")]
)
def test_x8_what_is_no_profile_of_a_gpu_is_refused(name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        open_trace(FOLDER / name / "host.xplane.pb")


@pytest.mark.parametrize("name", ["te", "conv_08", "conv_legacy", "elementwise", "attention", "tf_v100"])
def test_n9_no_fix_speaks_of_torch(name: str) -> None:
    for finding in found(name).values():
        assert "torch" not in finding.fix, finding.rule
