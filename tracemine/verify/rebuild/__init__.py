"""From a finding to a chain: what each recorded call took and gave, and where in memory."""
