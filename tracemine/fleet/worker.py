"""The process that does tasks: one a line from standard input, what became of each to standard output."""

from __future__ import annotations

from tracemine.fleet.job import do_task
from tracemine.fleet.task import Task, packed, unpacked
from tracemine.processes import serve


def main() -> None:
    """Answer until there are no more lines."""
    serve(lambda line: packed(do_task(unpacked(line, Task))))


if __name__ == "__main__":
    main()
