"""Reproductions: a finding or a copy as a short file with a harness, a step as one file; nothing of this package."""
