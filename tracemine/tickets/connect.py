"""Make the client of a ticket service, where what speaks HTTP is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from tracemine.extras import install
from tracemine.tickets.access import Patience, Secret
from tracemine.tickets.record import NoClientError

if TYPE_CHECKING:
    from tracemine.tickets.http import Client


def client_of(base: str, authorization: Secret, headers: Mapping[str, str], patience: Patience | None) -> Client:
    """Return a client of a service. Raises NoClientError where httpx is not installed."""
    try:
        http = import_module("tracemine.tickets.http")
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise NoClientError("httpx is not installed", hint=install("tickets")) from None
    client: Client = http.Client(base, authorization, headers, patience)
    return client
