"""One installation for all walks, whichever process comes first; each walk gets a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import folder_of_run
from tests.dist import built_once
from tests.test_action import ROOT
from tests.walks.machine import Machine, installed
from tracemine.files import locked

with suppress(ImportError):  # a checkout that draws no HTML has none
    from tests.browser.conftest import browser, show  # noqa: F401 - fixtures


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the environment, and how long it took to install."""
    folder = folder_of_run(tmp_path_factory) / "walks"
    folder.mkdir(exist_ok=True)
    said = folder / "installed.txt"
    (wheel,) = built_once(tmp_path_factory).glob("*.whl")
    with locked(folder):
        if not said.exists():
            said.write_text(installed(folder, wheel))
    return folder / "temporary" / "tracemine-environment", said.read_text()


@pytest.fixture
def machine(installation: tuple[Path, str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A user's folder with recordings, on a machine where tracemine was just installed."""
    environment, line = installation
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "fixtures").symlink_to(ROOT / "fixtures")
    made = Machine(environment, folder, [line])
    yield made
    request.node.user_properties.append(("walk", (request.node.name, made.lines)))
