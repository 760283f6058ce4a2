"""tracemine: from a profiler trace to the kernels worth fusing and the launch gaps worth closing."""

__version__ = "0.1.0"
