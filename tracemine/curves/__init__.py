"""The time of one fused kernel, from what a device was measured to do with its access pattern.

    calibration = calibration_of("NVIDIA H200 SXM")         # or read_calibration(path)
    Curves(calibration).predict(FusedKernel(...), warm=0)   # low, mid and high nanoseconds

`record` is the calibration file, `predict` the model, `steps` what an operator computes an element.
"""

from tracemine.curves.predict import Curves, FusedKernel, Prediction
from tracemine.curves.record import Calibration, calibration_of, parse_calibration, read_calibration
from tracemine.curves.steps import online_softmax, steps_of

__all__ = [
    "Calibration",
    "Curves",
    "FusedKernel",
    "Prediction",
    "calibration_of",
    "online_softmax",
    "parse_calibration",
    "read_calibration",
    "steps_of",
]
