"""What PyTorch's own kernel of a norm takes, and where one made for the rows is clearly faster."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.known import known_calibration
from tracemine.fusion import FusedKernel, steps_of
from tracemine.perfmodel import Abstained, Curves, Estimate, norm_of_its_own, rms_norm_loses
from tracemine.perfmodel.library_call import rms_norm_ns

H100, H200 = (Curves(known_calibration(name)) for name in ("NVIDIA H100 SXM", "NVIDIA H200 SXM"))


def norm(rows: int, length: int, item_bytes: int) -> FusedKernel:
    nbytes = rows * length * item_bytes
    steps = ("simple", "sum", "simple", "divide", "scale", "scale")
    return FusedKernel(
        reads=(nbytes, length * item_bytes),
        writes=(nbytes,),
        rows=rows,
        length=length,
        item_bytes=item_bytes,
        steps=steps,
    )


# Recorded (torch 2.11): F.rms_norm, and whether torch.compile's kernel for the same rows took 1.3 times less.
RECORDED = [
    (H100, norm(262_144, 128, 2), 0.0, 170_980, True),
    (H100, norm(65_536, 64, 4), 0.0, 51_617, True),
    (H100, norm(65_536, 256, 2), 0.0, 48_897, True),
    (H100, norm(8_192, 8_192, 2), 0.0, 129_315, True),
    (H100, norm(65_536, 128, 2), 1.0, 41_800, True),  # the heads' norms of a Qwen3
    (H200, norm(65_536, 128, 2), 1.0, 41_700, True),
    (H100, norm(4_096, 768, 2), 0.0, 6_465, False),
    (H100, norm(16_384, 1_024, 2), 0.0, 24_065, False),
    (H100, norm(4_096, 4_096, 2), 0.0, 22_368, False),
    (H100, norm(32_768, 512, 4), 0.0, 48_000, False),
    (H200, norm(3_072, 2_048, 4), 0.0, 14_600, False),
]


@pytest.mark.parametrize(("curves", "kernel", "warm", "took_ns", "loses"), RECORDED)
def test_the_librarys_norm_takes_what_was_recorded_and_loses_where_it_lost(
    curves: Curves, kernel: FusedKernel, warm: float, took_ns: int, loses: bool
) -> None:
    assert rms_norm_ns(curves, kernel, warm) == pytest.approx(took_ns, rel=0.25)
    assert rms_norm_loses(curves, kernel) is loses


def test_what_reduces_no_rows_is_no_norm() -> None:
    assert not rms_norm_loses(H100, norm(1 << 24, 1, 2))


# Recorded (torch 2.11): F.layer_norm, and torch.compile's kernel for the same rows. None: as fast, or nearly.
LAYER_NORMS = [
    (H100, norm(1_024, 128, 2), 3_456, 2_112),
    (H100, norm(16_384, 128, 2), 20_449, 4_064),
    (H100, norm(65_536, 64, 4), 101_409, 11_233),
    (H100, norm(4_096, 768, 2), 11_008, 5_600),
    (H100, norm(16_384, 1_024, 2), 41_408, 23_776),
    (H200, norm(512, 1_024, 2), 4_000, 2_240),
    (H200, norm(64, 32_000, 2), 51_328, 9_280),
    (H200, norm(8_192, 4_096, 4), 93_536, 62_687),
    (H100, norm(4_096, 4_096, 2), 29_409, None),
    (H100, norm(2_048, 32_000, 2), 138_660, None),
    (H200, norm(4_096, 4_096, 2), 28_224, None),
    (H200, norm(16_384, 5_120, 2), 127_233, None),
]


@pytest.mark.parametrize(("curves", "kernel", "took_ns", "compiled_ns"), LAYER_NORMS)
def test_a_layer_norm_is_told_where_a_kernel_made_for_its_rows_was_faster(
    curves: Curves, kernel: FusedKernel, took_ns: int, compiled_ns: int | None
) -> None:
    kernel = replace(kernel, steps=steps_of("aten::native_layer_norm"))
    told = norm_of_its_own(kernel, took_ns, curves, in_model=False)
    if compiled_ns is None:
        assert told == Abstained("nothing_to_win")
    else:
        assert isinstance(told, Estimate)
        assert told.after_ns.low <= compiled_ns <= told.after_ns.high


def test_of_an_unknown_device_nothing_is_said() -> None:
    assert norm_of_its_own(norm(1_024, 128, 2), 3_456, None) == Abstained("device_unknown")
