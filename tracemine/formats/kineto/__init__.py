"""torch.profiler's Chrome JSON ("Kineto"), torch 1.8 and later: scanner, repair, and assembly into a timeline."""
