"""What tickets use of GitHub's and Jira's APIs, held to what the services publish: their OpenAPI documents.

contract/*.json lists the paths and fields that are used, with their source; the server of these tests takes no others.
With --long that list is held to the whole documents, which are downloaded, or read from where TRACEMINE_OPENAPI_GITHUB
and TRACEMINE_OPENAPI_JIRA say.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.report.scans import GAP
from tests.tickets.build import PART, SERVICES, comparison, scan_of, with_saving
from tests.tickets.server import CONTRACTS, OWN, World, running
from tracemine.errors import ServiceError
from tracemine.tickets import Filing, sync

# A document of three lines in the form of the real ones, on which the check itself is tried.
SMALL = {
    "paths": {
        "/x/{id}": {
            "parameters": [{"name": "id", "in": "path"}],
            "post": {
                "parameters": [{"$ref": "#/components/parameters/page"}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}},
                "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}}},
            },
        }
    },
    "components": {
        "parameters": {"page": {"name": "page", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {
            "X": {
                "required": ["title"],
                "properties": {
                    "title": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                    "state": {"type": ["string", "null"], "enum": ["open", "closed"]},
                },
            }
        },
    },
}
ROW = {
    "method": "POST",
    "path": "/x/{id}",
    "parameters": {"page": "integer"},
    "request": {"title": "string", "state": ["open", "closed"]},
    "required": ["title"],
    "status": 201,
    "answer": ["title", "state"],
}


def resolved(document: Any, node: Any) -> Any:
    """A node, or what it refers to."""
    while isinstance(node, dict) and "$ref" in node:
        found = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        node = found
    return node


def branches(document: Any, schema: Any) -> list[Any]:
    """A schema and its alternatives."""
    schema = resolved(document, schema) or {}
    inner = [one for name in ("oneOf", "anyOf", "allOf") for one in schema.get(name, [])]
    return [schema, *(branch for one in inner for branch in branches(document, one))]


def types_of(document: Any, schema: Any) -> set[str]:
    """The types that a schema allows; a schema that says none allows any."""
    every = [branch.get("type") for branch in branches(document, schema)]
    found = {kind for one in every if one for kind in (one if isinstance(one, list) else [one])}
    return found or {"string", "integer", "array", "object"}


def fields(document: Any, schema: Any) -> dict[str, Any]:
    """The fields that an object, or the objects of a list, may have."""
    found: dict[str, Any] = {}
    for branch in branches(document, schema):
        found |= branch.get("properties", {})
        if "items" in branch:
            found |= fields(document, branch["items"])
    return found


def differences(document: Any, rows: list[dict[str, Any]]) -> list[str]:
    """Where rows of a contract say other than the document."""
    found = []
    for row in rows:
        name = f"{row['method']} {row['path']}"
        plain = {re.sub(r"\{\w+\}", "{}", path): value for path, value in document["paths"].items()}
        path = plain.get(re.sub(r"\{\w+\}", "{}", row["path"]), {})
        operation = path.get(row["method"].lower())
        if operation is None:
            found.append(f"{name}: there is none")
            continue
        known = {one["name"]: one for one in (resolved(document, o) for o in operation.get("parameters", []))}
        found += [
            f"{name}: parameter {parameter}"
            for parameter, kind in row.get("parameters", {}).items()
            if parameter not in known or not _allows(document, known[parameter].get("schema", {}), kind)
        ]
        body = resolved(document, operation.get("requestBody", {})).get("content", {}).get("application/json", {})
        sent = fields(document, body.get("schema", {}))
        found += [
            f"{name}: field {field}"
            for field, kind in row.get("request", {}).items()
            if field not in sent or not _allows(document, sent[field], kind)
        ]
        needed = {one for branch in branches(document, body.get("schema", {})) for one in branch.get("required", [])}
        if not needed <= set(row.get("required", [])):
            found.append(f"{name}: requires {sorted(needed)}")
        answer = resolved(document, operation["responses"].get(str(row["status"])))
        if answer is None:
            found.append(f"{name}: answers {sorted(operation['responses'])}")
            continue
        said = fields(document, answer.get("content", {}).get("application/json", {}).get("schema", {}))
        found += [f"{name}: answer {field}" for field in row["answer"] if field not in said]
    return found


def _allows(document: Any, schema: Any, kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in types_of(document, schema)
    values = {value for branch in branches(document, schema) for value in branch.get("enum", [])}
    return not values or {value for value in kind if value is not None} <= values


def test_a_contract_that_says_other_than_the_document_is_found_out() -> None:
    assert differences(SMALL, [ROW]) == []
    wrong: tuple[dict[str, Any], ...] = (
        {"path": "/y/{id}"},
        {"method": "PUT"},
        {"parameters": {"pages": "integer"}},
        {"parameters": {"page": "array"}},
        {"request": {"name": "string"}},
        {"request": {"state": ["open", "ended"]}},
        {"required": []},
        {"status": 200},
        {"answer": ["number"]},
    )
    for change in wrong:
        assert len(differences(SMALL, [ROW | change])) == 1, change


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_the_services_publish_what_is_used_of_them(name: str, request: pytest.FixtureRequest) -> None:
    contract = json.loads(CONTRACTS[name].read_text(encoding="utf-8"))
    given = os.environ.get(contract["environment"])
    if not given and not request.config.getoption("--long"):
        pytest.skip(f"--long downloads the document; or name it in {contract['environment']}")
    if given:
        text = Path(given).read_text(encoding="utf-8")
    else:
        try:
            text = httpx.get(contract["url"], timeout=60.0, follow_redirects=True).raise_for_status().text
        except httpx.HTTPError as error:
            pytest.skip(f"it cannot be downloaded here: {type(error).__name__}")
    assert differences(json.loads(text), contract["operations"]) == []


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_operation_of_a_contract_is_used(name: str, tmp_path: Path) -> None:
    with running() as world, SERVICES[name](world) as service:

        def run(saving_ns: int = 2_550_000, **how: Any) -> None:
            scan = scan_of(with_saving(GAP, saving_ns))
            service.taken(Filing(assignees=("ann",), milestone="v1" if name == "github" else None))
            sync(scan, service, "decoder", apply=True, locks=tmp_path, **how)

        run()
        run(9_000_000)
        change: dict[str, object] = {"status": "fixed", "before": [PART]}
        sync(scan_of(), service, "decoder", apply=True, locks=tmp_path, after=comparison(change))
        run()
        world.issues.append(copy.deepcopy(world.issues[0]) | {"number": 2, "by": OWN | {"association": "NONE"}})
        run()
        (issue,) = service.issues()
        service.uncomment(issue, service.comments(issue)[0])
        rows = [row for row in world.rows if ("/rest/" in row.path) == (name == "jira")]
        used = {(m, row.path) for m, path, _ in world.requests for row in rows if row.pattern.fullmatch(path)}
    assert {(row.method, row.path) for row in rows} <= used
    assert not world.violations


def test_the_server_refuses_what_the_contract_does_not_have() -> None:
    with running(World()) as world, SERVICES["github"](world) as service:
        with pytest.raises(ServiceError, match="no field nonsense"):
            service._client.send("POST", "/repos/you/model/issues", {"title": "x", "nonsense": 1})
        with pytest.raises(ServiceError, match="no parameter q"):
            service._client.get("/repos/you/model/issues", list[Any], {"q": "x"})
        with pytest.raises(ServiceError, match="Not Found"):
            service._client.get("/search/issues", list[Any])
    assert len(world.violations) == 3
