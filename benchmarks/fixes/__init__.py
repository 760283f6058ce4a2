"""What a drop-in module must survive in a user's program, checked on emitted modules."""
