"""The edge to Spark that all rooms share; their own pipelines are in the rooms.

`session` starts the one session of the process: on the Java that `java` finds, with the classes
that `archive` keeps, its workers started by `workers`. `samples` lets its tasks write a seeded
log, `sweep` applies a function to many points, `drain` runs a stream until its input has ended.
`faults` kills or stops a process at a named point of its work, once.
"""
