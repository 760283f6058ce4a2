"""`tracemine calibrate`: what this GPU does with the patterns that fused kernels are made of.

`plan` says what is measured, `kernels` are the Triton kernels, `measure` runs them and returns a Calibration
(`tracemine.perfmodel`), which is written as JSON. Only here are torch and Triton imported, by `measure` and `kernels`.
"""
