"""Who owns a file by CODEOWNERS: GitHub's patterns, the last that matches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.errors import InputError, UsageError
from tracemine.files.reading import path_in
from tracemine.tickets.owners import matcher, owner_rules, read_owners

# A pattern, what it matches, and what it does not, as GitHub's documentation and gitignore's say.
PATTERNS = (
    ("*", "a a/b .x/y", ""),
    ("/*", "a b.py", "a/b"),
    ("*.js", "a.js src/a.js a.js/b", "a.jsx src/js"),
    ("/build/logs/", "build/logs/a build/logs/a/b", "build/logs src/build/logs/a"),
    ("docs/*", "docs/a.md", "docs docs/b/a.md src/docs/a.md"),
    ("apps/", "apps/a src/apps/a src/apps/b/c", "apps xapps/a"),
    ("/docs/", "docs/a docs/b/c", "src/docs/a docs"),
    ("/scripts", "scripts scripts/a scripts/a/b", "scripts2 src/scripts"),
    ("**/logs", "logs logs/a build/logs/a a/b/logs", "blogs logs2"),
    ("src/**/test", "src/test src/a/test src/a/b/test/c", "test a/src/test"),
    ("src/**", "src/a src/a/b", "src a/src/b"),
    ("src/**/", "src/a/b src/a", "src"),
    ("src/*/a", "src/b/a src/b/a/c", "src/a src/b/c/a"),
    ("f?o", "foo f.o a/foo foo/x", "fo fooo f/o"),
    ("f\\*o", "f*o", "foo"),
    ("/f*/", "foo/a foo/a/b", "foo a/foo/b"),
    ("/*/", "a/b a/b/c", "a"),
    ("a.b", "a.b", "axb"),
)


@pytest.mark.parametrize(("pattern", "owned", "others"), PATTERNS)
def test_a_pattern_means_what_github_says(pattern: str, owned: str, others: str) -> None:
    found = matcher(pattern)
    assert found is not None
    assert [path for path in owned.split() if not found.fullmatch(path)] == []
    assert [path for path in others.split() if found.fullmatch(path)] == []


@pytest.mark.parametrize("pattern", ["", "/", "!a", "[ab].py", "***", "*a" * 17, "a" * 1_001])
def test_what_github_knows_no_pattern_for_owns_nothing(pattern: str) -> None:
    assert matcher(pattern) is None


NAMES = st.text(st.sampled_from("ab.*?\\+("), min_size=1, max_size=6)
PATHS = st.lists(st.text(st.sampled_from("ab.+("), min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.text(st.sampled_from("ab.+("), min_size=1, max_size=3), min_size=1, max_size=3), PATHS)
def test_a_path_without_wildcards_owns_itself_and_all_below_and_nothing_else(parts: list[str], path: str) -> None:
    name = "/".join(parts)
    rooted, folder = matcher(f"/{name}"), matcher(f"/{name}/")
    assert rooted is not None and folder is not None
    below = path.startswith(f"{name}/")
    assert bool(rooted.fullmatch(path)) == (below or path == name)
    assert bool(folder.fullmatch(path)) == below


@given(NAMES, PATHS)
def test_one_segment_owns_wherever_it_stands(name: str, path: str) -> None:
    loose, rooted = matcher(name), matcher(f"/{name}")
    if loose is None or rooted is None or set(name) == {"*"}:
        return
    parts = path.split("/")
    assert bool(loose.fullmatch(path)) == any(rooted.fullmatch("/".join(parts[n:])) for n in range(len(parts)))


@given(NAMES, PATHS)
def test_any_text_is_a_pattern_or_none_and_matches_without_error(name: str, path: str) -> None:
    found = matcher(name)
    assert found is None or found.fullmatch(path) is None or found.fullmatch(path)


def test_the_last_line_that_matches_counts_and_lines_that_are_wrong_are_passed_over() -> None:
    text = "* @ann\n\n# a comment @bob\n/src/ @org/gpu ann@you.example # both\n/src/gen/\n*.py nobody\n[ab] @bob\n"
    rules = list(owner_rules(f"{text}d\\ e @d\n"))
    paths = ("a.py", "src/a.py", "src/gen/a.py", "d e")
    owners = [next((whom for found, whom in reversed(rules) if found.fullmatch(path)), None) for path in paths]
    assert owners == [("@ann",), ("@org/gpu", "ann@you.example"), (), ("@d",)]


def test_a_repository_has_its_file_in_one_of_three_places(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has none of"):
        read_owners(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").touch()
    for place in ("docs/CODEOWNERS", "CODEOWNERS", ".github/CODEOWNERS"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"model.py @{place[0].strip('.') or 'g'}\n")
        for given_path in (tmp_path, tmp_path / place):
            owners = read_owners(given_path)
            assert owners.root == tmp_path
            assert owners.of("/home/ann/work/src/model.py") == (f"@{place[0].strip('.') or 'g'}",)
    assert owners.of("/home/ann/other.py") == owners.of("../src/model.py") == ()
    (tmp_path / "CODEOWNERS").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no text"):
        read_owners(tmp_path / "CODEOWNERS")


@pytest.mark.parametrize(
    ("recorded", "path"),
    [
        ("/home/ann/repo/src/a.py", "src/a.py"),
        ("C:\\work\\src\\a.py", "src/a.py"),
        ("src/a.py", "src/a.py"),
        ("./a.py", "a.py"),
        ("a.py", "a.py"),
        ("/x/src", None),
        ("b.py", None),
        ("../a.py", None),
        ("src/../a.py", None),
        ("a.py\0", None),
        ("", None),
        ("/" * 5_000 + "a.py", None),
    ],
)
def test_a_recorded_file_is_the_longest_end_of_its_path_that_is_there(
    tmp_path: Path, recorded: str, path: str | None
) -> None:
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").touch()
    (root / "a.py").touch()
    assert path_in(root, recorded) == path
