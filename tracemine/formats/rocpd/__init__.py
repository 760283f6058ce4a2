"""Databases of rocprofv3 (rocpd), AMD's profiler of a whole process: kernels, copies, calls of HIP and roctx ranges.

schema.py    the tables and columns that are read
database.py  a database as the tables that `formats/nsys/assemble.py` makes a timeline of
timeline.py  its timeline
read.py      how a file begins
"""
