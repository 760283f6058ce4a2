"""Verdicts of verifying: their record, their levels, and stored ones read again as evidence."""
