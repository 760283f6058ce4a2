"""Titles of tickets: what to do, where, and what it saves; no two of one scan the same before the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tracemine.documents.words import operator_name
from tracemine.findings.labels import class_of
from tracemine.matching.rule import Rule
from tracemine.report.escape import shorten

LONGEST = 80  # characters of a title
_FEWEST = 24  # of them that what to do and where have
_MARK = 8  # digits of an identity that stands in a title
_WRAPPERS = frozenset({"OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"})


def task_of(title: str, rule: Rule | None) -> tuple[str, str]:
    """Return what to do about a finding, as its rule says it of this title, and what stands behind the title.

    A title of which no rule says it is returned as it is.

    >>> from tracemine.causes import load_rules
    >>> rules = {rule.id: rule for rule in load_rules()}
    >>> task_of("Unfused RMSNorm: LlamaRMSNorm", rules["rmsnorm_unfused"]), task_of("A rule of your own", None)
    (('Fuse RMSNorm', 'LlamaRMSNorm'), ('A rule of your own', ''))
    """
    said = () if rule is None else ((rule.title, rule.task), *((one.title, one.task) for one in rule.advice))
    known = {name: task for name, task in said if name and task and (title == name or title.startswith(f"{name}: "))}
    if not known:
        return title, ""
    name = max(known, key=len)
    return known[name], title.removeprefix(name).removeprefix(": ")


def ways_to_say(
    task: str, detail: str, *, module: str | None, line: str, ops: Sequence[str], mark: str, saves: str
) -> Iterator[str]:
    """Yield titles without what it saves, more telling from one to the next; the last has the finding's identity.

    detail: what a finding's title ends in. line: the user's own, or "". saves: what stands behind, and needs room.

    >>> about = dict(line="", ops=("aten::mul",), mark="0f" * 8, saves="")
    >>> list(ways_to_say("Fuse", "", module="Net_*.MLP_*", **about))
    ['Fuse in MLP', 'Fuse in Net.MLP', 'Fuse in MLP: mul', 'Fuse in MLP (0f0f0f0f)']
    """
    room = max(LONGEST - len(saves), _FEWEST)
    names = [] if module is None else [name for name in _classes(module) if name not in _WRAPPERS]
    nearest = _nearest(task, names, line)
    ways = [_listed(task, detail, room) if detail and not nearest else task + nearest]
    ways += [f"{task} in {'.'.join(names)}"] if len(names) > 1 else []
    ways += [f"{task}{nearest} at {line}"] if names and line else []
    ways += [_listed(task + nearest, ", ".join(dict.fromkeys(map(operator_name, ops))), room)] if ops else []
    yield from (shorten(text, room) for text in dict.fromkeys(ways))
    yield f"{shorten(ways[0], room - _MARK - 3)} ({mark[:_MARK]})"


def distinct_titles(ways: Sequence[Sequence[str]]) -> list[str]:
    """Return of each the first way that tells it from the others: those that read the same say more, until none do.

    >>> distinct_titles([("a", "a at 1", "a (x)"), ("a", "a at 2", "a (y)"), ("b", "b (z)")])
    ['a at 1', 'a at 2', 'b']
    """
    at = [0] * len(ways)
    while True:
        said = [each[number] for each, number in zip(ways, at, strict=True)]
        count = Counter(said)
        more = [n for n, text in enumerate(said) if count[text] > 1 and at[n] + 1 < len(ways[n])]
        if not more:
            return said
        for number in more:
            at[number] += 1


def _nearest(task: str, names: Sequence[str], line: str) -> str:
    """Return the innermost module, the outermost where the task says that one's name; else the line."""
    if names:
        return f" in {names[0] if names[-1] in task else names[-1]}"
    return f" at {line}" if line else ""


def _classes(module: str) -> list[str]:
    """Return the classes of a module's path, outermost first; of a path of names, the names."""
    parts = [part for part in module.split(".") if part.strip("*0123456789")]
    return [class_of(part) for part in parts]


def _listed(text: str, items: str, room: int) -> str:
    """Return a text with as many of the items behind it as there is room for.

    >>> _listed("Fuse chain", "copy_, native_layer_norm, add_", 40), _listed("Fuse chain", "copy_, add_", 20)
    ('Fuse chain: copy_, native_layer_norm …', 'Fuse chain: copy_ …')
    """
    whole = f"{text}: {items}"
    while len(whole) > room and ", " in whole:
        whole = f"{whole.removesuffix(' …').rpartition(', ')[0]} …"
    return whole
