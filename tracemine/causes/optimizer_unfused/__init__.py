"""An optimizer that updates tensor by tensor."""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="optimizer_unfused", part="optimizer")
