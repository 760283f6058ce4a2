"""From a finding to a graph: what each recorded call took and gave, and where in memory."""
