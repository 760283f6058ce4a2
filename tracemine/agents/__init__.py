"""What coding agents call: tools over the Model Context Protocol, for files below named folders alone.

quoted.py    text that may hold words of a trace, marked as such
folders.py   which paths are served
pages.py     long lists in short answers
reading.py   traces, read once and kept
asked.py     what tools take, and what an answer is
tables.py    where the time goes
tools.py     the tools that read
kernels.py   the tools that generate kernels, run and write them
served.py    the table of tools, and one call of one of them
server.py    the protocol; nothing else knows its SDK
"""
