"""Requests to a ticket service: bounded, retried where that is safe, and to one origin alone.

A request that may be repeated (a GET, a PUT or PATCH that says how things shall be, a DELETE) is repeated after a
time-out, a broken connection, half an answer, or a 5xx. One that may not (a POST that creates) is repeated only where
it surely took no effect: the connection was never made, or the service refused it for its rate. Else `Unanswered` says
that is unknown, and the caller looks.

The token goes to the origin that it was given for: what redirects elsewhere is an error. It stands in no message.
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx
import msgspec

from tracemine.errors import ServiceError
from tracemine.report.escape import line
from tracemine.tickets.access import Patience, Secret
from tracemine.tickets.answers import Answered, HalfAnswer, OtherAnswer, Refusal, decoded
from tracemine.tickets.record import RefusedError, Unanswered
from tracemine.version import __version__

_LARGEST_BYTES = 64 << 20
_LONGEST_SAID = 2_000  # characters of a refusal that are looked at
_MOST_REDIRECTS = 3
_REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REDIRECTS = frozenset({301, 302, 307, 308})
_OTHER_API = "is this the API's address, and of such a service?"
_NO_API = "is this the API's address (of GitHub Enterprise https://HOST/api/v3)?"
_NOT_THERE = "does it exist, and may the token read and write issues there?"
_HINTS = {401: "the token is not taken: has it ended?", 403: _NOT_THERE, 404: _NOT_THERE}
_PROBLEMS = ((HalfAnswer, "{}"), (httpx.TimeoutException, "no answer in time"), (httpx.ConnectError, "no connection"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of a service that says yes."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Client:
    """A service at one origin, with the headers that it wants; `authorization` is sent nowhere else."""

    def __init__(
        self, base: str, authorization: Secret, headers: Mapping[str, str], patience: Patience | None = None
    ) -> None:
        self.base = base
        self._origin = httpx.URL(base)
        self._authorization = authorization
        self._patience = patience or Patience()
        https = self._origin.scheme == "https"
        self._http = httpx.Client(
            headers={
                **headers,
                "User-Agent": f"tracemine/{__version__}",
                "Authorization": authorization.value,
                "Accept-Encoding": "identity",  # what is inflated has no bound before it is there
            },
            timeout=self._patience.timeout_s,
            follow_redirects=False,
            verify=https,  # to this machine alone there is plain http, and no certificate to read
            trust_env=https,  # proxies; none stands between this machine and itself
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def pause(self) -> None:
        """Wait before looking again for what was just created."""
        self._patience.sleep(self._patience.settle_s * (0.5 + random.random()))  # noqa: S311 - spreads requests

    def get(
        self, path: str, kind: type[Answered], parameters: Mapping[str, str | int] | None = None
    ) -> tuple[Answered, Mapping[str, str]]:
        """Return what lies at a path, or at an address of this service that an earlier answer named, and its headers.

        Raises ServiceError, also where it is of another shape than `kind`.
        """
        answer = self._ask("GET", self._address(path, parameters), None, repeatable=True)
        return self._as(kind, answer.content, f"GET {path.partition('?')[0]}"), answer.headers

    def send(self, method: str, path: str, content: object) -> None:
        """Send JSON, and let the answer be. Errors as of `ask`."""
        self._ask(method, self._address(path, None), content, repeatable=method in _REPEATABLE)

    def ask(
        self, method: str, path: str, kind: type[Answered], content: object, *, repeatable: bool | None = None
    ) -> Answered:
        """Return the answer to a request with JSON. repeatable: by its method, where nothing else is said.

        Raises Unanswered where it is unknown what became of it; ServiceError where it is refused, never answered, or
        answered with what is of another shape than `kind`.
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        answer = self._ask(method, self._address(path, None), content, repeatable=again)
        return self._as(kind, answer.content, f"{method} {path}")

    def delete(self, path: str) -> None:
        """Delete what lies at a path. That it is gone already is what was wanted, as after a lost answer."""
        self._ask("DELETE", self._address(path, None), None, repeatable=True, fine=HTTPStatus.NOT_FOUND)

    def _as(self, kind: type[Answered], content: bytes, what: str) -> Answered:
        """Return an answer as what it should be. Raises HalfAnswer where a Raw one is cut off; else ServiceError."""
        try:
            return decoded(content, kind)
        except (OtherAnswer, HalfAnswer) as error:
            says, hint = f"something else: {self._line(str(error), 200)}", _OTHER_API
            if isinstance(error, HalfAnswer) and kind is msgspec.Raw:
                if content.lstrip()[:1] != b"<":
                    raise
                says, hint = "a web page, as logins do", _NO_API
        raise ServiceError(f"{self._origin.host}: {self._line(what, 160)}: answered with {says}", hint=hint)

    def _address(self, path: str, parameters: Mapping[str, str | int] | None) -> httpx.URL:
        url = self._checked(path if "://" in path else self.base + path, self._origin)
        return url.copy_merge_params(dict(parameters)) if parameters else url

    def _checked(self, url: str, there: httpx.URL) -> httpx.URL:
        """Return an address that stands on a page, as the client that asks reads it.

        Raises ServiceError where it is of another origin.
        """
        try:
            there = there.join(url)
        except httpx.InvalidURL:
            raise ServiceError(f"{self._origin.host} leads to what is no address") from None
        if _of(there) != _of(self._origin) or there.userinfo:
            raise ServiceError(
                f"{self._origin.host} leads to another place, {self._line(there.host or '?', 80)}: not followed",
                hint="a token goes to the service that it was given for, and to no other",
            )
        return there

    def _ask(
        self, method: str, url: httpx.URL, content: object | None, *, repeatable: bool, fine: int | None = None
    ) -> Answer:
        what = f"{method} {line(url.path, 120)}"
        problem = "it was not asked"
        for attempt in range(self._patience.attempts):
            wait_s: float | None = None
            try:
                answer = self._once(method, url, content)
            except (httpx.TransportError, HalfAnswer) as error:
                problem = _problem(error)
                if _is_unknown_host(error):
                    hint = "is the address right, and is this machine on the network?"
                    raise ServiceError(f"{self._origin.host}: no such host is known", hint=hint) from None
                if not repeatable and not isinstance(error, _NOT_SENT):
                    raise Unanswered(f"{what}: {problem}") from None
            else:
                if answer.status < HTTPStatus.MULTIPLE_CHOICES or answer.status == fine:
                    return answer
                problem = f"answered {answer.status}{self._says(answer)}"
                limited = _is_limited(answer)
                if not limited and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise RefusedError(f"{self._origin.host}: {what}: {problem}", hint=_HINTS.get(answer.status))
                if not (limited or repeatable):
                    raise Unanswered(f"{what}: {problem}")
                wait_s = _asked_wait_s(answer)
            if attempt + 1 < self._patience.attempts:
                self._wait(attempt, wait_s, what, problem)
        raise ServiceError(
            f"{self._origin.host}: {what}: {problem}; tried {self._patience.attempts} times",
            hint="run it again later: what was done is found again",
        )

    def _once(self, method: str, url: httpx.URL, content: object | None) -> Answer:
        """Return one answer, read whole, after redirects within this origin."""
        body = None if content is None else msgspec.json.encode(content)
        headers = {} if body is None else {"Content-Type": "application/json"}
        for _ in range(_MOST_REDIRECTS):
            with self._http.stream(method, url, content=body, headers=headers) as response:
                content_ = self._read(response)
                answer = Answer(response.status_code, dict(response.headers), content_)
            if answer.status not in _REDIRECTS or (method != "GET" and answer.status in (301, 302)):
                break
            url = self._checked(answer.headers.get("location", ""), url)
        if answer.status < HTTPStatus.MULTIPLE_CHOICES and answer.content:
            self._as(msgspec.Raw, answer.content, f"{method} {line(url.path, 120)}")
        return answer

    def _read(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise ServiceError(
                f"{self._origin.host}: an answer is packed ({self._line(encoding, 40)}), and none may be"
            )
        content, until = bytearray(), time.monotonic() + self._patience.deadline_s
        for part in response.iter_raw():
            content += part
            if len(content) > _LARGEST_BYTES:
                raise ServiceError(f"{self._origin.host}: an answer is larger than {_LARGEST_BYTES >> 20} MB")
            if time.monotonic() > until:
                raise HalfAnswer("half an answer, and the rest too slowly")
        return bytes(content)

    def _wait(self, attempt: int, asked_s: float | None, what: str, problem: str) -> None:
        patience = self._patience
        if asked_s is not None and asked_s > patience.longest_wait_s:
            raise ServiceError(
                f"{self._origin.host}: {what}: its rate limit is reached, for {asked_s:,.0f} s",
                hint="run it again then: what was done is found again",
            )
        backoff_s = patience.backoff_s * 2**attempt * (0.5 + random.random())  # noqa: S311 - spreads requests
        wait_s = max(asked_s or 0.0, min(backoff_s, patience.longest_wait_s))
        if patience.tell is not None:
            tries = f"{attempt + 2} of {patience.attempts}"
            patience.tell(f"{self._origin.host}: {what}: {problem}; in {wait_s:,.0f} s it is tried again ({tries})")
        patience.sleep(wait_s)

    def _says(self, answer: Answer) -> str:
        """Return what the service says of a refusal, in a line and without the token, should it repeat it."""
        try:
            text = str(decoded(answer.content, Refusal))
        except (OtherAnswer, HalfAnswer):
            return ""
        return f" ({self._line(text, 200)})" if text else ""

    def _line(self, text: str, longest: int) -> str:
        """Return what a service says, in a line and without the token or a part of it."""
        return line(self._authorization.out_of(text[:_LONGEST_SAID]), longest)


def _of(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"https": 443, "http": 80}.get(url.scheme)


def _problem(error: Exception) -> str:
    return next((says for kind, says in _PROBLEMS if isinstance(error, kind)), "the connection broke").format(error)


def _is_unknown_host(error: BaseException | None) -> bool:
    """Return whether a name has no address: what is asked a moment later has none either."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return error.errno != socket.EAI_AGAIN
        error = error.__cause__ or error.__context__
    return False


def _is_limited(answer: Answer) -> bool:
    """Return whether it is a rate limit: 429, or 403 with GitHub's signs of primary and secondary limits."""
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if answer.status != HTTPStatus.FORBIDDEN:
        return False
    signs = "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
    return signs or re.search(rb"(?i)secondary rate limit|abuse detection", answer.content[:4096]) is not None


def _asked_wait_s(answer: Answer) -> float | None:
    """Return how long the service asks to wait: Retry-After in seconds or as a date, else until the limit is reset."""
    after = answer.headers.get("retry-after", "")
    if after.isdecimal():
        return float(after[:9])
    if after:
        try:
            return max(parsedate_to_datetime(after).timestamp() - time.time(), 0.0)
        except ValueError:
            return None
    reset = answer.headers.get("x-ratelimit-reset", "")
    if answer.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(float(reset[:12]) - time.time(), 0.0) + 1.0
    return None
