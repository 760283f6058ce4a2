"""Fixed forms of what a finding's calls compute: functions next to the rebuilt eager calls, checked and timed on a GPU.

reproduction.py  finding → its calls, a fixed form of them, and the file that checks and times both
calls.py       of one library call
by_rule.py     of the calls of an occurrence, by the finding's rule
lists.py       of loops over tensors
removed.py     of work that leaves the step
copies.py      of copies around other calls
tables.py      of caches and embedding tables
attention.py   of unfused attention, forward and backward
folding.py     of a norm behind a convolution
sorting.py     of tokens sorted by their expert
turns.py       of small products in a loop
lanes.py       the iterations of a loop
written.py     calls as lines of Python
"""
