"""Put the summary of a run into one comment on its pull request: made once, updated from then on. Nothing but Python.

The comment is found again by its first line, a hidden one, where the token's own user wrote it: anyone may write that
line. A job that may not comment, as of a fork's pull request, is warned and does not fail.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST = 60_000  # GitHub takes 65,536 characters
MOST_PAGES = 30
TIMEOUT_S = 30
NO_REPORT = "tracemine could not scan: the job's log says why.\n"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token goes to the address that it was given for, and to no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class Comments:
    """Comments on a pull request."""

    def __init__(self, environment: Mapping[str, str], number: int) -> None:
        self._base = environment["GITHUB_API_URL"].rstrip("/")
        self._path = f"/repos/{environment['GITHUB_REPOSITORY']}/issues"
        self._number = number
        self._token = environment["INPUT_TOKEN"]
        self._open = urllib.request.build_opener(NoRedirect).open

    def put(self, mark: str, text: str) -> str:
        """Update the comment that begins with the mark, or make one. Return which it was."""
        own = self._own(mark)
        if own is None:
            self._ask("POST", f"{self._path}/{self._number}/comments", {"body": f"{mark}\n{text}"})
            return "made"
        self._ask("PATCH", f"{self._path}/comments/{own}", {"body": f"{mark}\n{text}"})
        return "updated"

    def _own(self, mark: str) -> int | None:
        try:
            user = self._ask("GET", "/user")["id"]
        except urllib.error.HTTPError:  # the token of a job may not ask who it is
            user = None
        for page in range(1, MOST_PAGES + 1):
            every = self._ask("GET", f"{self._path}/{self._number}/comments?per_page=100&page={page}")
            for one in every:
                by = one.get("user") or {}
                is_own = by.get("id") == user if user is not None else by.get("type") == "Bot"
                if is_own and str(one.get("body") or "").splitlines()[:1] == [mark]:
                    return int(one["id"])
            if len(every) < 100:
                break
        return None

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._base + path, data, headers, method=method)  # noqa: S310 - GitHub's
        with self._open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


def shortened(report: str) -> str:
    """Return a report whole, or, where it is too long for a comment, without what is folded."""
    if len(report) <= LONGEST:
        return report
    kept, depth = [], 0
    for line in report.splitlines():
        depth += line.count("<details")
        kept += [line] if not depth else []
        depth -= line.count("</details>")
    return "\n".join(kept)[:LONGEST] + "\n\nThe full report is too long for a comment: it is in the artifact.\n"


def number_of(event: Mapping[str, Any]) -> int | None:
    """Return the pull request that an event is about; None: of none."""
    found = (event.get("pull_request") or {}).get("number")
    return found if isinstance(found, int) else None


def main(environment: Mapping[str, str]) -> None:
    """Comment, or warn that it cannot be done."""
    number = number_of(json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text("utf-8")))
    if number is None:
        sys.stdout.write("tracemine: this is no pull request: no comment\n")
        return
    report = Path(environment["FOLDER"]) / "report.md"
    text = report.read_text("utf-8") if report.is_file() else NO_REPORT
    mark = f"<!-- tracemine-summary: {re.sub(r'[^A-Za-z0-9._]+', '-', environment['INPUT_ARTIFACT'])} -->"
    try:
        sys.stdout.write(f"tracemine: a comment is {Comments(environment, number).put(mark, shortened(text))}\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        says = re.sub(r"\s+", " ", str(error)).replace("%", "%25")
        says = f"no comment: {says}; the job needs permissions: pull-requests: write"
        sys.stdout.write(f"::warning title=tracemine::{says}\n")


if __name__ == "__main__":
    sys.exit(main(os.environ))
