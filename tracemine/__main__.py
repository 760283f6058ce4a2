"""`python -m tracemine`, and the console script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from tracemine.collector import ending_process
from tracemine.version import __version__

__all__ = ["main"]

# Commands that read any number of traces, or run programs.
_LONG = (["capture"], ["fleet"], ["mcp"], ["verify"], ["calibrate"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, `sys.argv` by default, and return its exit code. The version needs no command.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    tracemine ...
    0
    """
    given = sys.argv[1:] if arguments is None else arguments
    if list(given) == ["--version"] and sys.stdout is not None:
        with suppress(OSError):  # is said as any command says it
            print(f"tracemine {__version__}", flush=True)  # noqa: T201
            return 0
    if arguments is not None or given[:1] in _LONG:
        return _run(arguments)
    with ending_process():
        return _run(None)


def _run(arguments: Sequence[str] | None) -> int:
    from tracemine import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
