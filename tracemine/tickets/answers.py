"""What services answer, as far as it is used: each answer is decoded into one of these, here alone.

Fields as the services' documents have them (tests/tickets/contract). What people can put into an issue may hold
anything; what the service itself says has its shape, and another is no answer of it.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from tracemine.report.escape import line

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Digits = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}$")]
Answered = TypeVar("Answered")


class HalfAnswer(Exception):
    """An answer that is not whole."""


class OtherAnswer(Exception):
    """An answer that is whole, and of another shape than is used of it."""


def decoded(content: bytes, kind: type[Answered]) -> Answered:
    """Return an answer as what it should be. Raises HalfAnswer, OtherAnswer.

    >>> decoded(b'{"id": 7, "login": "ann"}', Person)
    Person(id=7, type='')
    """
    if not content.strip():
        raise OtherAnswer("nothing")
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise OtherAnswer(line(str(error), 160)) from None
    except msgspec.DecodeError:
        raise HalfAnswer("half an answer") from None
    except UnicodeDecodeError:
        raise OtherAnswer("text that is no UTF-8") from None
    except RecursionError:
        raise OtherAnswer("JSON that is nested too deeply") from None


class Refusal(msgspec.Struct, frozen=True):
    """What either says of a request that it does not take."""

    message: Any = None
    errorMessages: Any = None
    errors: Any = None

    def __str__(self) -> str:
        """Return the texts of it."""
        several = self.errorMessages if isinstance(self.errorMessages, list) else []
        each = self.errors.values() if isinstance(self.errors, dict) else []
        return "; ".join(one for one in (self.message, *several, *each) if isinstance(one, str))


# GitHub


class Person(msgspec.Struct, frozen=True):
    """A user."""

    id: Count
    type: str = ""


class IssueLabel(msgspec.Struct, frozen=True):
    """A label."""

    name: str | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What someone wrote."""

    body: str | None = None
    user: Person | None = None
    author_association: str = "NONE"


class GitHubIssue(Written, frozen=True, kw_only=True):
    """An issue, or a pull request, which is listed too."""

    number: Count
    state: str
    title: str = ""
    state_reason: str | None = None
    html_url: str = ""
    labels: list[IssueLabel | str] = []
    pull_request: Any = msgspec.UNSET

    @property
    def label_names(self) -> set[str | None]:
        """Return the names of its labels."""
        return {one if isinstance(one, str) else one.name for one in self.labels}


class GitHubComment(Written, frozen=True, kw_only=True):
    """A comment."""

    id: Count


class Milestone(msgspec.Struct, frozen=True):
    """A milestone."""

    number: Count
    title: str = ""


# Jira


class Named(msgspec.Struct, frozen=True):
    """A resolution, or a kind of statuses."""

    name: str = ""
    key: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """A status."""

    status_category: Named | None = None


class Account(msgspec.Struct, frozen=True, rename="camel"):
    """A user: of the site, an app, or a customer of a service desk."""

    account_type: str = ""
    account_id: str = ""
    email_address: str | None = None
    display_name: str = ""


class Fields(msgspec.Struct, frozen=True):
    """The fields of an issue that are asked for."""

    summary: str | None = None
    status: Status | None = None
    resolution: Named | None = None
    created: str = ""
    creator: Account | None = None


class JiraIssue(msgspec.Struct, frozen=True):
    """An issue. properties: what anyone who may edit it put there."""

    key: str
    fields: Fields = Fields()
    properties: dict[str, Any] = {}


class AllowedValues(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a transition, and what may be chosen for it."""

    allowed_values: list[Named] = []


class Screen(msgspec.Struct, frozen=True):
    """The fields of a transition."""

    resolution: AllowedValues | None = None


class Transition(msgspec.Struct, frozen=True):
    """A way to another status."""

    id: str
    name: str = ""
    to: Status | None = None
    fields: Screen = Screen()


class DocumentNode(msgspec.Struct, frozen=True):
    """A node of a document."""

    type: str = ""
    text: str = ""
    content: list[DocumentNode] = []

    @property
    def last_text(self) -> str:
        """Return the last text in it; none where there is none."""
        left = [self]
        while left:
            node = left.pop()
            if node.type == "text":
                return node.text
            left += node.content
        return ""


class JiraComment(msgspec.Struct, frozen=True):
    """A comment."""

    id: Digits
    body: DocumentNode | None = None
    author: Account | None = None


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of what was asked for: issues found or fetched, comments, or transitions that are offered."""

    issues: list[JiraIssue] = []
    comments: list[JiraComment] = []
    transitions: list[Transition] = []
    next_page_token: str | None = None
