"""Places of this machine and of object stores, and how they are named without what lets one in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from pyarrow import fs

from tracemine.errors import Location, UsageError
from tracemine.extras import install
from tracemine.files import path_text
from tracemine.patterns import deferred

_SCHEME = deferred(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_CONTAINER_AT_ACCOUNT = ("abfs", "abfss")  # what stands before @ is no secret, what follows its colon is
_ARROW = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
_PLAIN = ("endpoint_override", "scheme", "region", "allow_bucket_creation", "allow_bucket_deletion")  # no secrets
_DELAYED = "allow_delayed_open"
_SHORTEST = 3  # of a secret that is looked for in a message


def scheme_of(place: str) -> str | None:
    """Return the scheme of a URI; of a path of this machine None."""
    found = _SCHEME.match(place)
    return None if found is None else found[1]


def shown(place: str) -> str:
    """Return a place as it is stored and printed: of a URI without user, password and what follows `?`.

    >>> shown("s3://key:secret@perf/fleet?endpoint_override=http%3A%2F%2Flocalhost"), shown("traces/a?b.json")
    ('s3://perf/fleet', 'traces/a?b.json')
    >>> shown("abfs://traces:secret@account.dfs.core.windows.net/a"), shown("s3://key:sec/ret@perf/fleet")
    ('abfs://traces@account.dfs.core.windows.net/a', 's3://perf/fleet')
    """
    scheme = scheme_of(place)
    if scheme is None:
        return place
    user, rest = _parted(place)
    kept = user.partition(":")[0] if scheme in _CONTAINER_AT_ACCOUNT else ""
    return f"{scheme}://{kept}{'@' * bool(kept)}{rest.partition('?')[0]}"


def without_secrets(text: str, *places: str) -> str:
    """Return what an error says, without what lets one into places that it may name.

    >>> without_secrets("cannot parse s3://key:a%2Fb@perf/x?token=open, a/b", "s3://key:a%2Fb@perf/x?token=open")
    'cannot parse s3://perf/x, …'
    """
    for place in places:
        text = text.replace(place, shown(place))
        for secret in sorted(_secrets(place), key=len, reverse=True):
            text = text.replace(secret, "…")
    return text


def filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. Raises UsageError for one that cannot be reached."""
    if path_text(uri) != uri:  # Arrow takes none
        raise UsageError("is no place that can be reached: its name is no text", where=Location(path_text(uri)))
    scheme = scheme_of(uri)
    if scheme is None:
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    try:
        if scheme not in _ARROW:
            return _by_fsspec(uri)
        return _by_arrow(uri)
    except (ValueError, NotImplementedError) as error:
        says = f"is no place that can be reached: {without_secrets(str(error), uri)}"
        raise UsageError(says, where=Location(shown(uri))) from None
    except ImportError as error:
        says = f"{scheme}:// needs another package: {without_secrets(str(error), uri)}"
        raise UsageError(says, where=Location(shown(uri)), hint=install("fleet")) from None
    except OSError as error:
        says = f"cannot be reached: {without_secrets(str(error), uri)}"
        raise UsageError(says, where=Location(shown(uri))) from None


def _by_arrow(uri: str) -> tuple[fs.FileSystem, str]:
    """Return a file system of Arrow: of S3 one that writes a small file in one request, not as an upload in parts."""
    found: tuple[fs.FileSystem, str]
    if scheme_of(uri) == "s3" and f"{_DELAYED}=" not in uri:
        with contextlib.suppress(ValueError):  # Arrow 18 does not know it; what else is wrong is said below
            found = fs.FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}{_DELAYED}=true")
            return found
    found = fs.FileSystem.from_uri(uri)
    return found


def _by_fsspec(uri: str) -> tuple[fs.FileSystem, str]:
    from fsspec.core import url_to_fs

    try:
        found, path = url_to_fs(uri)
    except (ImportError, OSError):
        raise
    except Exception as error:  # of whichever of its packages speaks that scheme
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path


def _parted(uri: str) -> tuple[str, str]:
    """Return what stands before a URI's @, and the rest behind its scheme.

    A password may hold a slash that should have been written %2F.
    """
    rest = uri[uri.index("://") + 3 :]
    host = rest.partition("?")[0].partition("/")[0]
    if "@" not in host and ":" in host and not host.rpartition(":")[2].isdecimal():
        host = rest.partition("?")[0]
    user, mark, _ = host.rpartition("@")
    return user, rest[len(user) + len(mark) :]


def _secrets(uri: str) -> Iterator[str]:
    if scheme_of(uri) is None:
        return
    user, rest = _parted(uri)
    name, _, password = user.partition(":")
    query = rest.partition("?")[2]
    found = [user, password, query]
    found += [] if scheme_of(uri) in _CONTAINER_AT_ACCOUNT else [name]
    found += [value for name, value in parse_qsl(query) if name not in _PLAIN]
    for one in found:
        yield from (text for text in (one, unquote(one)) if len(text) >= _SHORTEST)
