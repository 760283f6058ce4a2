"""Programs of the second part that was held back: optimal."""
