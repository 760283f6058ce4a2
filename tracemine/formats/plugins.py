"""Formats of other packages, asked where none of ours recognises a file."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tracemine.errors import InputError, Location, TracemineError
from tracemine.formats.format import Format, Progress
from tracemine.formats.source import FileSource
from tracemine.plugins import FORMATS, Plugin, plugins
from tracemine.timeline import Timeline, warned

_SHOWN = 3  # broken plug-ins in a message


def plugin_format(source: FileSource) -> tuple[Format | None, tuple[str, ...]]:
    """Return the first format of another package that recognises a file, and what is wrong with those asked before it.

    A broken one stops no other: another may read the file.
    """
    broken: list[str] = []
    try:
        found = plugins(FORMATS)
    except TracemineError as error:
        return None, (error.message,)
    for plugin in found:
        try:
            form = plugin.load()
            if not isinstance(form, Format):
                raise plugin.error("is no tracemine.formats.format.Format")
            if _recognises(plugin, form, source.head):
                return _guarded(plugin, form, tuple(broken)), tuple(broken)
        except TracemineError as error:
            broken.append(error.message)
    return None, tuple(broken)


def refused(error: InputError, broken: Sequence[str]) -> InputError:
    """Return an error that no format reads a file, with the plug-ins that could not be asked."""
    more = f" and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    message = "; ".join((error.message, *broken[:_SHOWN])) + more
    return InputError(message, where=error.where, hint=error.hint)


def _recognises(plugin: Plugin, form: Format, head: bytes) -> bool:
    try:
        return bool(form.recognises(head))
    except Exception as error:
        raise plugin.error("cannot tell what it recognises", error) from error


def _guarded(plugin: Plugin, form: Format, broken: tuple[str, ...]) -> Format:
    """Return the same format, whose every failure names its distribution; broken plug-ins are noted in the timeline."""

    def read(source: FileSource, progress: Progress | None) -> Timeline:
        where = Location(source.path)
        try:
            timeline = form.read(source, progress)
        except TracemineError:
            raise
        except Exception as error:
            failed = plugin.error("failed", error)
            raise InputError(failed.message, where=where, hint=failed.hint) from error
        if not isinstance(timeline, Timeline):
            failed = plugin.error(f"made no timeline but {type(timeline).__name__}")
            raise InputError(failed.message, where=where, hint=failed.hint)
        return replace(timeline, meta=warned(timeline.meta, broken))

    return Format(form.name, form.recognises, read)
