"""Child processes that validate, compile and time, several at a time."""
