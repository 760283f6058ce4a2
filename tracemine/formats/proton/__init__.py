"""Triton's Proton: trees of sums (`.hatchet`), and traces (`.chrome_trace`).

contexts.py  call stacks: scopes as modules, Python's lines as stacks, and what is Proton's own work
trace.py     kernels with their times, their launches, and the scopes around these
tree.py      sums of kernels by scope, without times
read.py      which of them a file is
"""
