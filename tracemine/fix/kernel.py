"""From a finding to the module of its kernel: the first of its variants that one can be generated for."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tracemine.codegen.graph import GraphError, Unsupported
from tracemine.findings.grouping import one_kernel_fixes, variants_of
from tracemine.findings.record import Finding
from tracemine.findings.verdicts import unjudged
from tracemine.fix.drop_in import drop_in, function_name
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.verify.prepare import gated, let_go
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder
from tracemine.verify.repro.facts import facts

WITH_PRODUCTS: Final = "With it   the two matrix products before it: it takes their inputs"


def kernel_module(finding: Finding, flow: Flow, groups: Groups) -> tuple[str, str]:
    """Return the name of the module's function, and its text. Raise Unsupported, with reasons."""
    rebuilder, refused = Rebuilder(flow, groups), list[str]()
    for variant in variants_of(unjudged(finding)):
        if not one_kernel_fixes(variant):
            continue
        name = function_name(variant.rule, variant.module)
        try:
            rebuilt = let_go(rebuilder.rebuild(variant.activities[0], variant.rule))
            says = [*facts(variant, variant.fingerprint), *(f"Assumes   {text}" for text in rebuilt.assumptions)]
            whole = gated(variant, rebuilder)
            with suppress(Unsupported):  # where its class did not measure faster
                if whole is not None:
                    return name, drop_in(whole.graph, title=variant.title, name=name, says=[*says, WITH_PRODUCTS])
            return name, drop_in(rebuilt.graph, title=variant.title, name=name, says=says)
        except (Unsupported, NotRebuilt, NotRecorded, GraphError, RecursionError) as why:
            refused.append(str(why))
    raise Unsupported("; ".join(dict.fromkeys(refused)) or "no kernel would fix it")
