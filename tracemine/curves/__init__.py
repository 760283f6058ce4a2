"""The time of one fused kernel, from what a device was measured to do with its access pattern.

    calibration = calibration_of("NVIDIA H200 SXM")         # or read_calibration(path)
    Curves(calibration).predict(FusedKernel(...), warm=0)   # low, mid and high nanoseconds

`record` is the calibration file, `lines` reads it between its points, `predict` is the model, `intervals` how far off
it is, `scaled` makes a calibration for a device that nobody measured.
"""

from tracemine.curves.intervals import Prediction
from tracemine.curves.predict import Curves
from tracemine.curves.record import Calibration, calibration_of, parse_calibration, read_calibration

__all__ = [
    "Calibration",
    "Curves",
    "Prediction",
    "calibration_of",
    "parse_calibration",
    "read_calibration",
]
