"""What verifying came to: its record, its levels, and verdicts read again as evidence."""
