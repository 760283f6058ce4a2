"""A convolution whose windows do not overlap."""

from tracemine.causes.cause import SEARCHED, Cause

CAUSE = Cause(
    rule="patch_convolution",
    ways={
        "ways": SEARCHED,
        "others": ("patches, linear",),
        "assumes": ("what reads the result takes it in any layout",),
    },
)
