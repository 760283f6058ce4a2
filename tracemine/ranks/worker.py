"""The process that reads ranks: a file a line from standard input, the ranks that it holds to standard output."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from tracemine.errors import TracemineError
from tracemine.processes import serve
from tracemine.ranks.reading import SummaryAnswer, packed
from tracemine.ranks.recognise import summaries_of


def answer(line: bytes) -> bytes:
    """Return what a file holds, or what is wrong with it. line: its path."""
    try:
        return packed(SummaryAnswer(summaries_of(Path(os.fsdecode(base64.b64decode(line))))))
    except TracemineError as error:
        return packed(SummaryAnswer(error=error.message))


def main() -> None:
    """Answer until there are no more lines."""
    serve(answer)


if __name__ == "__main__":
    main()
