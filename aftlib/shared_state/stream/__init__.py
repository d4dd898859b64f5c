"""Streams of tuples: drawn (`tuples`), kept as a log of text (`tuplelog`), read on from any offset.

`parsing` makes tuples of lines, `sums` adds them up by slice and key, both in compiled `loops`. An
`intake` does both for a task, and notes what it has read.
"""
