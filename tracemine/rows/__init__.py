"""Row sets: columns derived from a timeline, on which rules are matched."""
