"""The user's source as text that LibCST parsed, and which of it a finding means. Nothing of it is imported or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider, QualifiedNameProvider

from tracemine.findings.record import Finding, Source

# By node what stands in its place: a node, several (FlattenSentinel), none, or a function of what it became.
Changes = dict[cst.CSTNode, Any]
_T = TypeVar("_T", bound=cst.CSTNode)
_PROVIDERS = (ParentNodeProvider, PositionProvider, QualifiedNameProvider)
_Children = dict[cst.CSTNode, list[cst.CSTNode]]  # in order; LibCST visits a node to tell them, which takes long
_ASSIGNS = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr)


@lru_cache(maxsize=1)  # findings lie in one file: a thousand lines take it a second
def _parsed(text: str) -> tuple[cst.Module, _Children, tuple[Mapping[cst.CSTNode, Any], ...]]:
    """Return a source's tree, which nothing changes, the nodes below each, and what each provider says of them."""
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    resolved = wrapper.resolve_many(_PROVIDERS)
    parents = resolved[ParentNodeProvider]
    below: _Children = {node: [] for node in (wrapper.module, *parents)}
    for node, parent in parents.items():
        below[parent].append(node)
    return wrapper.module, below, tuple(resolved[provider] for provider in _PROVIDERS)


class Refused(Exception):
    """Why a source is not changed."""


class Place:
    """A file, and the function or the line of it that a finding names."""

    def __init__(self, text: str, source: Source, finding: Finding) -> None:
        """Raise Refused where the file is no Python, or is not what was recorded."""
        self.source, self.finding = source, finding
        try:
            self.module, self._below, (self._parents, self._lines, self._names) = _parsed(text)
        except (cst.ParserSyntaxError, RecursionError, UnicodeError):
            raise Refused("it does not parse as Python") from None
        self.function = self._named() if source.begins and source.function != "<lambda>" else None

    def _named(self) -> cst.FunctionDef:
        for each in self.every(cst.FunctionDef):
            begins = {self.line(node) for node in (each, each.name, *each.decorators)}
            if each.name.value == self.source.function and self.source.line in begins:
                return each
        raise Refused(f"no function {self.source.function} begins at line {self.source.line}: it changed since")

    def line(self, node: cst.CSTNode) -> int:
        """Return the line that a node begins at."""
        return int(self._lines[node].start.line)

    def code(self, node: cst.CSTNode) -> str:
        """Return a node's source."""
        return str(self.module.code_for_node(node))

    def every(self, kind: type[_T], within: cst.CSTNode | None = None) -> Iterator[_T]:
        """Yield all nodes of a kind, outermost first."""
        todo: list[cst.CSTNode] = [self.module if within is None else within]
        while todo:
            node = todo.pop()
            if isinstance(node, kind):
                yield node
            todo += reversed(self._below[node])

    def scoped(self, kind: type[_T]) -> list[_T]:
        """Return nodes of a kind in the function that the finding names, or on its line."""
        if self.function is not None:
            return [n for n in self.every(kind, self.function.body) if self.function_of(n) is self.function]
        spans = ((node, self._lines[node]) for node in self.every(kind))
        return [node for node, span in spans if span.start.line <= self.source.line <= span.end.line]

    def calls(self, *names: str) -> list[cst.Call]:
        """Return calls of methods of these names, as `scoped`."""
        calls = self.scoped(cst.Call)
        return [c for c in calls if isinstance(c.func, cst.Attribute) and c.func.attr.value in names]

    def full_name(self, node: cst.CSTNode) -> str:
        """Return what a name means by the file's imports: torch.optim.AdamW of `optim.AdamW`; "" where that is open."""
        told = self._names.get(node, ())
        found = {assignment.name for assignment in (told() if callable(told) else told)}
        return found.pop() if len(found) == 1 else ""

    def imported(self, name: str) -> str:
        """Return how the file's first lines call a module. Raise Refused where they do not import it."""
        for each in self.module.body:
            for node in self.every(cst.Import, each) if isinstance(each, cst.SimpleStatementLine) else ():
                for alias in node.names:
                    if self.code(alias.name) == name:
                        return name if alias.asname is None else self.code(alias.asname.name)
        raise Refused(f"the file does not import {name}")

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the node around."""
        found: cst.CSTNode = self._parents[node]
        return found

    def around(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """Yield the nodes of these kinds around a node, innermost first."""
        while (node := self._parents.get(node)) is not None:
            if isinstance(node, kinds):
                yield node

    def function_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the innermost function or lambda around a node."""
        return next(self.around(node, cst.FunctionDef, cst.Lambda), None)

    def statement(self, node: cst.CSTNode) -> cst.SimpleStatementLine:
        """Return the line that a node is part of. Raise Refused where other statements stand on it."""
        found = next(self.around(node, cst.SimpleStatementLine, cst.BaseCompoundStatement), None)
        if not isinstance(found, cst.SimpleStatementLine) or len(found.body) != 1:
            raise Refused("other statements stand on the line")
        return found

    def one(self, found: Sequence[_T], what: str) -> _T:
        """Return the only one. Raise Refused where there is none, or where several might be meant."""
        where = f"line {self.source.line}" if self.function is None else f"{self.source.function}"
        if len(found) != 1:
            count = f"{len(found)} of them might be meant" if found else "there is none"
            raise Refused(f"{what} in {where}: {count}")
        return found[0]

    def assigned(self, target: str, at: cst.CSTNode) -> cst.Assign:
        """Return the only assignment of a name, or of an attribute of self, that a place sees. Raise Refused."""
        around = [*self.around(at, cst.FunctionDef, cst.Lambda)]
        if any(p.name.value == target for f in around for p in self.every(cst.Param, f.params)):
            raise Refused(f"{target} is given by a caller")
        assigned = [node for kind in _ASSIGNS for node in self.every(kind)]
        every = [node for node in assigned if target in map(self.code, _targets(node))]
        owners = (None, *around)
        found = [assignment for assignment in every if "." in target or self.function_of(assignment) in owners]
        if len(found) == 1 and isinstance(found[0], cst.Assign) and len(found[0].targets) == 1:
            return found[0]
        raise Refused(f"{target} is assigned {len(found)} times in this file, or not alone")

    def changed(self, changes: Mapping[cst.CSTNode, Any]) -> str:
        """Return the file with other nodes in the place of some."""
        return str(self.module.visit(_Swap({id(node): new for node, new in changes.items()})).code)


def _targets(assign: Any) -> list[cst.CSTNode]:
    return [t.target for t in assign.targets] if isinstance(assign, cst.Assign) else [assign.target]


class _Swap(cst.CSTTransformer):  # type: ignore[misc]  # LibCST may have no types here
    def __init__(self, new: Mapping[int, Any]) -> None:
        super().__init__()
        self._new = new

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        new = self._new.get(id(original_node), updated_node)
        return new(updated_node) if callable(new) else new


def followed(text: str) -> Callable[[Any], Any]:
    """Return what puts a line behind a statement."""
    return lambda line: cst.FlattenSentinel([line, cst.parse_statement(f"{text}\n")])


def positional(call: cst.Call) -> list[cst.Arg]:
    """Return the arguments without a name. Raise Refused where stars hide some."""
    if any(arg.star for arg in call.args):
        raise Refused("its arguments are not all in the text")
    return [arg for arg in call.args if arg.keyword is None]


def named(call: cst.Call) -> dict[str, cst.Arg]:
    """Return the arguments with a name."""
    positional(call)
    return {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}


def with_arguments(call: cst.Call, without: Sequence[str] = (), **given: str) -> cst.Call:
    """Return a call with other arguments of these names; what it had stays as it is written."""
    args = [arg for arg in call.args if arg.keyword is None or arg.keyword.value not in without]
    last = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    for name, text in given.items():
        value = cst.parse_expression(text)
        at = next((k for k, arg in enumerate(args) if arg.keyword is not None and arg.keyword.value == name), None)
        if at is not None:
            args[at] = args[at].with_changes(value=value)
            continue
        if args:
            between = args[-2].comma if len(args) > 1 and isinstance(args[-2].comma, cst.Comma) else None
            comma = between or cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            args[-1] = args[-1].with_changes(comma=comma)
        plain = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        args.append(cst.Arg(value, keyword=cst.Name(name), equal=plain))
    if args:
        args[-1] = args[-1].with_changes(comma=last)
    return call.with_changes(args=args)
