"""Scripts behind the figures that this project states, by subject; `python -m benchmarks` lists them."""
