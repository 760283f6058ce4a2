"""What tools take, and what an answer is. Answers are short: each word costs an agent.

A tool takes its keyword arguments: their types say what is allowed, as the schema that an agent is shown says it.
An answer is what becomes JSON. Texts that may hold words of a trace stand below `untrusted`; all others are tracemine's
own, or one word. Figures that a person reads are texts with their unit; counts are of a step where `per` says so.
Null is not known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from tracemine.top import By

Short = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(min_length=1, max_length=4096)]
TracePath = Annotated[Place, Meta(description="A trace, capture folder, timeline or findings file that is served.")]
FindingId = Annotated[
    str,
    Meta(
        description="A finding's id, four of its first digits, or its number.", pattern="^([0-9]{1,3}|[0-9a-f]{4,16})$"
    ),
]
GPU = Annotated[Short | None, Meta(description="Estimate for it where the trace names none: h100, mi300x.")]
Limit = Annotated[int, Meta(description="Rows.", ge=1, le=25)]
Lines = Annotated[int, Meta(description="Lines.", ge=1, le=400)]
Cursor = Annotated[Short | None, Meta(description="next_cursor of the answer before.")]
Output = Annotated[Place | None, Meta(description="Write files into this folder; needs --allow-write.")]
Operator = Annotated[Short | None, Meta(description="List pairs with this operator: mul, aten::mm.")]
OneRule = Annotated[Short | None, Meta(description="Only findings of this rule.")]
MinSaving = Annotated[Short | None, Meta(description='Only what saves so much: "50us", "1%"; "0ns" is all.')]
Details = Annotated[bool, Meta(description="Kernels, variants, assumptions, what the rule says.")]
Seconds = Annotated[int, Meta(description="CPU time of one validation.", ge=1, le=600)]
Table = By | Literal["host", "host_tree", "waits"]
Status = Literal["new", "worse", "fixed", "improved", "moved", "unknown", "same"]

Answer = dict[str, Any]


def known(**fields: Any) -> Answer:
    """Return the part of an answer that leaves out what is not known, and lists without an entry.

    >>> known(verdict=None, operators=(), shapes="8×8", emit=False)
    {'shapes': '8×8', 'emit': False}
    """
    return {name: value for name, value in fields.items() if value is not None and value != ()}
