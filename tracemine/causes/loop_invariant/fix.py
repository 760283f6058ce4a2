"""What gives the same in each step, computed once before it."""

from dataclasses import replace

from tracemine.verify.fixes.before_step import once
from tracemine.verify.fixes.by_rule import Maker

FIX = Maker(lambda graph, around: once(graph, replace(around, remains=False)))
