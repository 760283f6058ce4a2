"""From ATen calls to tensor-level IR: one rule a kind of operator, and the operator table for what is an expression."""
