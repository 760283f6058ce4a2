"""Attacks on every reader and writer that takes a path, and what must hold of each, whatever the attack is.

    pytest tests/attack                      some hundred attacks of each kind, in about a minute
    pytest tests/attack --long               the same tables, and many times as many random ones
    python -m tests.attack                   the first, and the table of what was tried
    python -m tests.attack timeline 17       one random attack again, by its kind and seed; its folder is kept

An attack is a folder with an input made by a random change, or by hand, and a command line. `harness.py` runs it in a
process of its own and judges it (`judge`): it ends in time, with an exit code that fits, without a traceback; an error
is a line; no character that a terminal acts on is printed; nothing is written but what was named; nothing is executed.
"""
