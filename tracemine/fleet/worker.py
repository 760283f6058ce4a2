"""The process that does tasks: one a line from standard input, what became of each to standard output."""

from __future__ import annotations

import msgspec

from tracemine.fleet.task import Task, scan_into
from tracemine.processes import serve

if __name__ == "__main__":
    decoder = msgspec.json.Decoder(Task)
    serve(lambda line: msgspec.json.encode(scan_into(decoder.decode(line))))
