"""The performance model: what a change would save, always as a range, or the reason why that cannot be said.

one_kernel(…)    one kernel in place of a fusion group
fused_run(…)     one kernel in place of adjacent kernels whose reads are not recorded
hidden_by_workers(…)  waiting for data that workers can take over
closed_gaps(…)   idle time of the device that can be won back
removed(…)       work that is not done any more, but for a share of it
at_its_rate(…)   a library's call once the cause of its slowness is gone
rates_of(…)      what products, convolutions and attention take on a device, from their FLOPs and bytes
norm_of_its_own(…)  a kernel made for a norm's rows in place of PyTorch's own, where that is clearly slower
rms_norm_loses(…)  whether PyTorch's own kernel for a norm takes clearly longer than one made for its rows

The time of one fused kernel is read off what a device was measured to do with its access pattern:

    calibration = calibration_of("NVIDIA H200 SXM")         # or read_calibration(path)
    Curves(calibration).predict(FusedKernel(...), warm=0)   # low, mid and high nanoseconds

`calibration` is the file of one device, `user_calibrations` finds those that a user measured, `interpolation` and
`curves` read one between its points, `fused_time` is the model, also for devices that were not measured,
`ranges` its error.
"""

from tracemine.fusion.kernel import Unfused
from tracemine.perfmodel.calibration import Calibration, calibration_of, parse_calibration, read_calibration
from tracemine.perfmodel.data_loading import LOADING_PACE, hidden_by_workers, removed
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.gaps import (
    COMPILED_CALL_NS,
    JAX_EVENT_NS,
    KERNEL_NS,
    REPLAY_FLOOR_NS,
    SLOWDOWNS,
    TRAINED_CALL_NS,
    Slowdown,
    closed_gaps,
    fitted_slowdown,
)
from tracemine.perfmodel.group import Neighbour, Pass, fused_run, one_kernel, one_pass, share_of, without_zeros
from tracemine.perfmodel.library_call import at_its_rate, norm_of_its_own, rms_norm_loses
from tracemine.perfmodel.library_rates import Rate, Rates, rates_of
from tracemine.perfmodel.ranges import NOTHING, Abstained, Estimate, Prediction, Range, Traffic
from tracemine.perfmodel.unprofiled import Unprofiled
from tracemine.perfmodel.user_calibrations import GPU, UserCalibration, chosen, data_folder, of_this_user, read_measured

__all__ = [
    "COMPILED_CALL_NS",
    "GPU",
    "JAX_EVENT_NS",
    "KERNEL_NS",
    "LOADING_PACE",
    "NOTHING",
    "REPLAY_FLOOR_NS",
    "SLOWDOWNS",
    "TRAINED_CALL_NS",
    "Abstained",
    "Calibration",
    "Curves",
    "Estimate",
    "Neighbour",
    "Pass",
    "Prediction",
    "Range",
    "Rate",
    "Rates",
    "Slowdown",
    "Traffic",
    "Unfused",
    "Unprofiled",
    "UserCalibration",
    "at_its_rate",
    "calibration_of",
    "chosen",
    "closed_gaps",
    "data_folder",
    "fitted_slowdown",
    "fused_run",
    "hidden_by_workers",
    "norm_of_its_own",
    "of_this_user",
    "one_kernel",
    "one_pass",
    "parse_calibration",
    "rates_of",
    "read_calibration",
    "read_measured",
    "removed",
    "rms_norm_loses",
    "share_of",
    "without_zeros",
]  # fmt: skip
