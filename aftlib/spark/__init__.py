"""Access to Spark that all packages share; each package has its own pipelines.

`session` starts the one session of the process, on the Java that `java` finds, with the archive of
classes that `archive` makes and the Python processes that `workers` starts. `sweep` distributes
numbered work over tasks; `streams` runs a streaming query on planned micro-batches until its input
has ended, and reads its progress from Spark's checkpoint. `faults` kills a process at a named point
of its work, once.
"""
