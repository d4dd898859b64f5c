"""D3: state shared through a database instead of a shuffle.

`stream` draws tuples and keeps them as a log of lines ``timestamp,key,value``, one file a
partition; it parses and sums them by slice and key in one compiled pass. Malformed lines are kept
by their offsets, and too many stop the run; tuples behind the watermark are left out and counted.
`aggregates` says how sums merge: exactly, or with an error where they leave 64 bits.

`strategies` are Spark's three ways: shuffle first (upfront), sums merged by the driver (late
local), or by the tasks into a table that all of them share (late global).
`servers` is the document's own: tasks merge into their server's table, of `stores`; rows and the
offsets they stand for are one transaction. A barrier switches tables and flushes; the complete one
is handed over to a global store, once. A dead task's substitute goes on where the table says, a
dead server where it last flushed; nobody else notices.
`experiments` run and time all this, `scaling` models more tasks; then `figures`, `claims`.
"""
