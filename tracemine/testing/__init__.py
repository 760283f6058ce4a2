"""Limits of a step in a test suite: `@pytest.mark.tracemine(step_ms=12)`, and the fixture `tracemine_step`.

`plugin` is what pytest loads wherever tracemine is installed, and imports nothing; `limits` says what a step may take,
`measure` runs and records it, `message` says what exceeds the limits. These are loaded once a test uses them.
"""
