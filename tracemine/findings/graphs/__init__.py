"""Would a graph work: what capturing a step, a module or a function as a CUDA graph meets, and what torch.compile does.

record.py      the record: spans, what each way of launching less comes to, and what is in its way
kinds.py       what can be in the way, what each way does then, and the words for it
obstacles.py   where in the program that is
blockers.py    the same of the model and beside it, in words for advice
spans.py       functions and modules with enough launches, and their calls
changes.py     operators and sizes that differ from call to call
savings.py     what each way saves
judge.py       the verdicts, and the stretches of a step between what cannot be captured
answers.py     the answer in words, and what to write
"""

from tracemine.findings.graphs.answers import KINDS_OF_ANSWER, GraphAnswer, answer, obstacle_text
from tracemine.findings.graphs.judge import graphs_of
from tracemine.findings.graphs.record import Graphs, Obstacle, Span, SpanPart, WayOutcome
from tracemine.findings.graphs.savings import Unrecorded, fused_of

__all__ = [
    "KINDS_OF_ANSWER",
    "GraphAnswer",
    "Graphs",
    "Obstacle",
    "Span",
    "SpanPart",
    "Unrecorded",
    "WayOutcome",
    "answer",
    "fused_of",
    "graphs_of",
    "obstacle_text",
]
