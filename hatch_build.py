"""Build step: compile what reads events into columns. Without a compiler, or with TRACEMINE_PURE=1, leave it out.

One build for the limited API of CPython 3.11 serves every later version. Nothing but speed depends on it: what it
reads, Python reads too.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

SOURCES = ("tracemine/formats/kineto/_event_columns.c", "tracemine/formats/xla/_event_cells.c")
FLAGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-g0", "-std=c11"]  # no debug facts: they name the folder


def compiled(root: Path, folder: Path, source: str) -> Path:
    """Compile one of the sources into `folder`; return the file. Raises what setuptools raises."""
    name = source.removesuffix(".c").replace("/", ".")
    digest = hashlib.sha256((root / source).read_bytes()).hexdigest()
    extension = Extension(
        name,
        [str(root / source)],
        py_limited_api=True,
        define_macros=[("SOURCE_SHA256", f'"{digest}"')],
        extra_compile_args=FLAGS,
    )
    command = build_ext(Distribution({"name": "tracemine", "ext_modules": [extension]}))
    command.build_lib = command.build_temp = str(folder)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(name))


def platform_tag() -> str:
    """Return the platform of this interpreter, as a wheel names it that was built here for here."""
    tags = (tag.platform for tag in sys_tags())
    return next(tag for tag in tags if not tag.startswith(("manylinux", "musllinux")))


def forget(root: Path) -> None:
    """Remove builds of before: one of another source is worse than none."""
    for source in SOURCES:
        for old in (root / source).parent.glob(Path(source).stem + ".*"):
            if old.suffix in (".so", ".pyd"):
                old.unlink()


def _placed(root: Path, built: Path, source: str) -> Path:
    """Put a build beside its source, and return it there."""
    place = (root / source).with_name(built.name)
    fresh = place.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(built.read_bytes())
    fresh.chmod(0o755)
    return fresh.replace(place)  # whoever has the old one loaded keeps it


class CompiledReader(BuildHookInterface[Any]):
    """Puts the compiled reader beside its source, from where wheels and editable installs take it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say so in the wheel's tag; `version`: standard or editable."""
        root = Path(self.root)
        if os.environ.get("TRACEMINE_PURE") == "1":
            forget(root)
            return
        try:
            with TemporaryDirectory() as folder:
                places = [_placed(root, compiled(root, Path(folder), source), source) for source in SOURCES]
        except Exception as error:  # whatever a compiler does, an installation goes on
            forget(root)
            self.app.display_warning(f"no compiled reader, large traces are read more slowly: {error}")
            return
        build_data["artifacts"].extend(f"/{place.relative_to(root).as_posix()}" for place in places)
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform_tag()}"
