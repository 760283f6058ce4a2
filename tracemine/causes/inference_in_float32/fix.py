"""The same call in bfloat16."""

from tracemine.verify.fixes.calls import Ways

FIX = Ways(ways=("bfloat16",), assumes=("results are right as bfloat16 rounds, not equal to eager's",))
