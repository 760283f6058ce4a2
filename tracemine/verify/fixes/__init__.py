"""Fixed forms of what a finding's calls compute: functions beside the rebuilt eager calls, checked and timed on a GPU.

reproduction.py  finding → its calls, a fixed form of them, and the file that checks and times both
calls.py       of one library call
chains.py      of the calls of an occurrence, by the finding's rule
attention.py   of attention spelled out, forward and backward
folding.py     of a norm behind a convolution
sorting.py     of tokens sorted by their expert
turns.py       of small products in a loop
lanes.py       the turns of a loop
written.py     calls as lines of Python
"""
