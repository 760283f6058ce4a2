"""Level L6: a recorded step as a program, run as it was and with fused kernels in place.

calls.py (which recorded calls are replayed) → program.py (those calls, and the memory they read and write) → placing.py
(findings in place, and where a fused kernel may stand) → text.py (a file that stands alone) → replay.py (what
that file measures) → compared.py (predicted and measured).
"""
