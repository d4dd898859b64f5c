"""The state machine: no task writes into a table once it is complete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.shared_state.server import CheckpointCycle, State


def test_the_document_s_course():
    cycle = CheckpointCycle(1)
    cycle.join("a")
    cycle.join("b")
    assert (cycle.meet("a"), cycle.meet("b"), cycle.state) == (1, 1, State.OPEN)
    cycle.raise_barrier()
    assert cycle.state is State.OPEN
    assert (cycle.meet("a"), cycle.state) == (2, State.CHECKPOINTING)
    assert (cycle.meet("a"), cycle.state) == (2, State.CHECKPOINTING)
    assert (cycle.meet("b"), cycle.state) == (2, State.COMPLETE)
    assert cycle.finish() == 1
    assert (cycle.epoch, cycle.state) == (2, State.OPEN)
    assert cycle.meet("a") == 2


def test_a_dead_task_holds_nobody_up_and_its_substitute_begins_in_the_newest_table():
    cycle = CheckpointCycle(5)
    cycle.join("a")
    cycle.join("b")
    cycle.raise_barrier()
    cycle.meet("a")
    cycle.leave("b")
    assert cycle.state is State.COMPLETE
    cycle.join("b again")
    assert cycle.meet("b again") == 6
    assert cycle.state is State.COMPLETE


def test_a_barrier_without_tasks_is_complete_at_once():
    cycle = CheckpointCycle(0)
    cycle.raise_barrier()
    assert cycle.state is State.COMPLETE


def test_misuse_is_refused():
    cycle = CheckpointCycle(0)
    with pytest.raises(KeyError, match=r"task 'a' is not one of \[\]: join first"):
        cycle.meet("a")
    cycle.join("a")
    cycle.raise_barrier()
    with pytest.raises(RuntimeError, match=r"table 0 is open, not complete: .*wait for \['a'\]"):
        cycle.finish()


@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "meet", "barrier"]), st.integers(0, 3)))
)
def test_complete_tables_are_never_written(steps):
    cycle, done, tasks = CheckpointCycle(0), -1, set()
    for verb, task in steps:
        if verb == "join":
            cycle.join(str(task))
            tasks.add(task)
        elif verb == "leave":
            cycle.leave(str(task))
            tasks.discard(task)
        elif verb == "barrier":
            cycle.raise_barrier()
        elif task in tasks:
            assert done < cycle.meet(str(task)) <= done + 2
        if cycle.state is State.COMPLETE:
            assert cycle.finish() == done + 1
            done += 1
