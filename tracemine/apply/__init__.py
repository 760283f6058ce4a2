"""Try fixes in the user's own step: besides `capture` the one place where tracemine runs the user's code.

Each variant has a process of its own (`child`), in which the user's `build()` makes a step anew; what it computes and
takes is compared here with the unchanged step's.
"""
