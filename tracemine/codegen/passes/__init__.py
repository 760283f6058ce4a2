"""Rewrites of the IR between lowering and printing: each a module, and each optional for correctness."""
