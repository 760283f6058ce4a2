"""Reproductions: a finding, a copy or a step as one file that needs torch and triton, and nothing of this package."""
