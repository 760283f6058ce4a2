"""What it takes to reach a ticket service: an address, a token and patience."""

from __future__ import annotations

import base64
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from urllib.parse import urlsplit

from tracemine.errors import UsageError
from tracemine.tickets.record import NoTokenError

_SHORTEST = 8  # characters of a secret that are taken out of a text
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

GITHUB = "https://api.github.com"
_KEYRING = "tracemine"


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


def github_token(url: str, environment: Mapping[str, str] | None = None) -> Secret:
    """Return the header's value for GitHub at `url`. Raises UsageError where there is no token."""
    known = os.environ if environment is None else environment
    host = urlsplit(url).hostname or ""
    # GITHUB_API_URL is set by Actions, with the GITHUB_TOKEN of that server.
    public = host == "api.github.com" or host.endswith(".ghe.com") or url == known.get("GITHUB_API_URL", "").rstrip("/")
    names = ("GH_TOKEN", "GITHUB_TOKEN") if public else ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    token = next((known[name] for name in names if known.get(name)), None) or _kept(host)
    if token is None:
        raise NoTokenError(
            f"there is no token for {host}", hint=f"set {names[0]} or {names[1]}, or: keyring set {_KEYRING} {host}"
        )
    return Secret(f"Bearer {token.strip()}")


def jira_token(url: str, environment: Mapping[str, str] | None = None) -> Secret:
    """Return the header's value for Jira at `url`: e-mail address and API token. Raises UsageError without both."""
    known = os.environ if environment is None else environment
    host = urlsplit(url).hostname or ""
    email = known.get("JIRA_EMAIL")
    token = known.get("JIRA_API_TOKEN") or _kept(host)
    if not email or not token:
        raise NoTokenError(
            f"there is no token for {host}",
            hint=f"set JIRA_EMAIL and JIRA_API_TOKEN (or for the latter: keyring set {_KEYRING} {host})",
        )
    return Secret(f"Basic {base64.b64encode(f'{email.strip()}:{token.strip()}'.encode()).decode()}")


def _kept(host: str) -> str | None:
    """Return what the keyring has for a host, where there is one; one that is locked or broken has nothing."""
    with suppress(Exception):
        found = import_module("keyring").get_password(_KEYRING, host)
        return found if isinstance(found, str) else None
    return None
