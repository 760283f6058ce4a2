"""From a chain to the source of the kernels that do the same: calls, recipes, nodes, text."""
