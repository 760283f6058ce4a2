"""Scores of all words written for their largest over tokens, as sparse encoders do.

Columns and estimate are those of logits_written: they follow what logits go through.
"""

from tracemine.causes.cause import Cause
from tracemine.causes.logits_written import estimate

CAUSE = Cause(rule="vocabulary_maximum", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
