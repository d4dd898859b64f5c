"""Run the job that comes pickled on the standard input."""

import pickle
import sys

from aftlib.shared_state.servers.driver import Driver

if __name__ == "__main__":
    Driver(pickle.load(sys.stdin.buffer)).run()
