"""Run the stage that comes pickled on the standard input."""

import pickle
import sys

from aftlib.shared_state.servers.supervisor import Supervisor

if __name__ == "__main__":
    Supervisor(pickle.load(sys.stdin.buffer)).run()
