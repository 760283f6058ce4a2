"""Nsight Systems exports: SQLite databases, folders of Parquet or Arrow files, tables of `nsys stats`, and reports.

`database.Database`, `folder.Folder`, `stats.Stats` and `jsonlines.JsonLines` give the same columns of each, and
`assemble` makes a timeline of them. A `.nsys-rep` is first exported by the user's own nsys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.nsys.database import holds_ranks, read_database
    from tracemine.formats.nsys.files import files_in
    from tracemine.formats.nsys.folder import read_folder
    from tracemine.formats.nsys.jsonlines import read_json_lines
    from tracemine.formats.nsys.report import read_report
    from tracemine.formats.nsys.stats import read_stats

__all__ = ["files_in", "holds_ranks", "read_database", "read_folder", "read_json_lines", "read_report", "read_stats"]

# Who reads another format needs none of it.
__getattr__ = on_demand(
    __name__,
    {
        "files_in": f"{__name__}.files",
        "holds_ranks": f"{__name__}.database",
        "read_database": f"{__name__}.database",
        "read_folder": f"{__name__}.folder",
        "read_json_lines": f"{__name__}.jsonlines",
        "read_report": f"{__name__}.report",
        "read_stats": f"{__name__}.stats",
    },
)
