"""What one cause of slowness brings: all Python that knows it, as the engine's stages ask for it.

A cause is a folder of rules/, which says what to find, and a room here, which holds what no rule can say. Each part is
optional; most causes need none. Rows, findings and verify take causes as arguments, and import none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.findings.context import AdviceFacts, Estimator, MoreClasses
from tracemine.rows.table import Columns

if TYPE_CHECKING:
    from tracemine.verify.fixes.by_rule import Maker
    from tracemine.verify.fixes.calls import Ways


SEARCHED: Final = ("cudnn.benchmark", "channels_last", "channels_last, cudnn.benchmark")  # ways of a convolution


class Cause(Struct, frozen=True, kw_only=True, eq=False):
    """A cause, by its rule's id.

    >>> Cause(rule="layout_leak").fix is None
    True
    """

    rule: str
    folder: Path | None = None  # of a package's cause, where its rule lies; None: in rules/
    columns: Columns | None = None  # of activities, that rules may test
    estimate: Estimator | None = None  # of its rule's matches
    more: MoreClasses | None = None  # rows of findings beyond those that its rule's pattern names
    savings: Mapping[str, Estimator] = {}  # estimates by the kind of saving that any rule may name
    facts: AdviceFacts | None = None  # that advice may ask for
    part: str | None = None  # of the step that its findings are, whatever their operators' classes say
    closed_by_graph: bool = False  # its gaps are the host's launching: a step that is one CUDA graph has none
    operators_wait: bool = False  # its gaps come of its own operators, not before what was launched late
    compiled_share: float = 0.0  # of what its fix saves, what torch.compile does by a way of its own
    # Its fixed form where that is the library's call, made otherwise: fields of `verify.fixes.calls.Ways`.
    ways: Mapping[str, tuple[str, ...]] | None = None
    fix_at: str | None = None  # `module:name` of another fixed form: scanning imports neither

    @property
    def fix(self) -> Maker | Ways | None:
        """Return how its fixed form is made; None where there is none."""
        if self.fix_at is None and self.ways is None:
            return None
        try:
            found = resolve_name(self.fix_at or "tracemine.verify.fixes.calls:Ways")
            made: Maker | Ways = found if self.ways is None else found(**self.ways)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise TracemineError(f"the fixed form of {self.rule} cannot be loaded: {error}") from error
        return made
