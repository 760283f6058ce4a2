"""From loop-level IR to Triton source: kernels, the functions that launch them, and what ptxas says of them."""
