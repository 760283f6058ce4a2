"""Tickets: each finding a ticket of GitHub or Jira, found again, updated, closed and reopened; never two for one.

sync(scan, service, project)    say what to do, or do it: a list of Action
settle(found, service)          the same of drafts that are made already, of a fleet's say
GitHub, Jira                    services; they need `pip install httpx keyring`
write_tickets(drafts, folder)   the texts as files
write_fixed(fixed, folder)      what to close with, as files

    from tracemine import pipeline, tickets

    with tickets.GitHub("you/model") as service:
        for action in tickets.sync(pipeline.scan("trace.json.gz"), service, "decoder"):
            print(action.kind, action.title, action.why)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.tickets.access import Patience
    from tracemine.tickets.github import GitHub
    from tracemine.tickets.jira import Jira
    from tracemine.tickets.of_job import tickets_of_job
    from tracemine.tickets.owners import CodeOwners, read_owners
    from tracemine.tickets.plan import TicketsAsked
    from tracemine.tickets.record import (
        Action,
        Figures,
        Filing,
        Issue,
        NoClientError,
        NoTokenError,
        TicketDraft,
        UnseenError,
    )
    from tracemine.tickets.run import UnfinishedError, findings_of, settle, sync, unseen
    from tracemine.tickets.written import text_of, write_fixed, write_tickets

__all__ = [
    "Action",
    "CodeOwners",
    "Figures",
    "Filing",
    "GitHub",
    "Issue",
    "Jira",
    "NoClientError",
    "NoTokenError",
    "Patience",
    "TicketDraft",
    "TicketsAsked",
    "UnfinishedError",
    "UnseenError",
    "findings_of",
    "read_owners",
    "settle",
    "sync",
    "text_of",
    "tickets_of_job",
    "unseen",
    "write_fixed",
    "write_tickets",
]

# Imported on first use.
_PUBLIC = {
    "access": ("Patience",),
    "github": ("GitHub",),
    "jira": ("Jira",),
    "of_job": ("tickets_of_job",),
    "owners": ("CodeOwners", "read_owners"),
    "plan": ("TicketsAsked",),
    "record": (
        *("Action", "Figures", "Filing", "Issue", "TicketDraft"),
        *("NoClientError", "NoTokenError", "UnseenError"),
    ),
    "run": ("UnfinishedError", "findings_of", "settle", "sync", "unseen"),
    "written": ("text_of", "write_fixed", "write_tickets"),
}


__getattr__ = on_demand(__name__, {name: f"{__name__}.{module}" for module, names in _PUBLIC.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)
