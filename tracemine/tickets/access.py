"""What it takes to reach a ticket service: an address, a token and patience."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tracemine.errors import UsageError

_SHORTEST = 8  # characters of a secret that are taken out of a text
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long to try. Tests have less."""

    attempts: int = 6
    timeout_s: float = 30.0
    backoff_s: float = 1.0  # doubled with each attempt, and a random part of it waited
    longest_wait_s: float = 120.0  # what a service asks for beyond is an error
    deadline_s: float = 120.0  # of one answer, however slowly it drips
    settle_s: float = 1.0  # between two looks for what was just created
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str], None] | None = None  # gets a line before each wait


@dataclass(frozen=True, slots=True)
class Secret:
    """A header's value that is never printed."""

    value: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.value or not self.value.isascii() or not self.value.isprintable():
            raise UsageError("a token is empty, or holds what no token has")

    def out_of(self, text: str) -> str:
        """Return a text without the secret, nor any part of it of eight characters or more.

        >>> Secret("Bearer ghp_0123456789").out_of("of ghp_0123456789, cut: 234567890, short: ghp_0")
        'of ***, cut: ***0, short: ghp_0'
        """
        size = min(_SHORTEST, *map(len, self._forms()))
        parts = {form[k : k + size] for form in self._forms() for k in range(len(form) - size + 1)}
        hidden = [False] * len(text)
        for start in range(len(text) - size + 1):
            if text[start : start + size] in parts:
                hidden[start : start + size] = [True] * size
        kept, was_hidden = [], False
        for letter, is_hidden in zip(text, hidden, strict=True):
            kept += [] if is_hidden and was_hidden else ["***" if is_hidden else letter]
            was_hidden = is_hidden
        return "".join(kept)

    def _forms(self) -> Iterator[str]:
        """Yield the secret as it is sent, and as it is before that: Basic packs a user and a password."""
        kind, _, own = self.value.rpartition(" ")
        yield own
        if kind == "Basic":
            with contextlib.suppress(ValueError):
                yield from filter(None, base64.b64decode(own).decode().partition(":")[2:])


def origin_of(url: str, option: str) -> str:
    """Return a service's address as given, without a slash at its end.

    Raises UsageError for what is not https, but to this machine, and for a user, a query or a fragment in it.

    >>> origin_of("https://github.example.com/api/v3/", "--github-url"), origin_of("http://127.0.0.1:8000", "--jira")
    ('https://github.example.com/api/v3', 'http://127.0.0.1:8000')
    """
    hint = "give one as https://github.example.com/api/v3"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"{option}: is no address", hint=hint) from None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{option}: is no address", hint=hint)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            f"{option}: an address has no user, query or fragment", hint="tokens come from the environment"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOCAL):
        raise UsageError(f"{option}: only https is spoken, and http to this machine", hint=hint)
    return url.rstrip("/")
