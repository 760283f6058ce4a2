"""Tokens of ticket services: from the environment, else from the machine's keyring. Nothing prints them.

GitHub's own name for what is a token of github.com is kept apart from that of an Enterprise server, as `gh` keeps it:
a token of one is never sent to the other.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from urllib.parse import urlsplit

from tracemine.tickets.access import Secret
from tracemine.tickets.record import NoTokenError

GITHUB = "https://api.github.com"
_KEYRING = "tracemine"


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
