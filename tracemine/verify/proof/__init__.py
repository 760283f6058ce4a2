"""Whether generated kernels are right, on a CPU: in Triton's interpreter, with wrong ones beside them."""
