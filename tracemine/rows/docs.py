"""Document each column that a rule may test: docs.toml."""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.ops import CLASSES
from tracemine.rows.idle_causes import CAUSES
from tracemine.rows.library import CAUSES as LIBRARY_CAUSES
from tracemine.rows.library import LEAST_PERCENT
from tracemine.rows.table import ColumnDoc
from tracemine.tables import table_beside


def _in_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_LISTS = {"causes": _in_code(CAUSES), "classes": _in_code(CLASSES), "library_causes": _in_code(LIBRARY_CAUSES)}
_TABLE = table_beside(__file__, "docs.toml")
ROW_DOCS: dict[str, tuple[ColumnDoc, ...]] = {
    rows: tuple(
        ColumnDoc(*(text.format(**_LISTS, least_percent=LEAST_PERCENT) for text in doc)) for doc in _TABLE[rows]
    )
    for rows in ("activities", "gaps")
}
