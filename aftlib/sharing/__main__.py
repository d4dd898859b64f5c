"""Run the job that comes pickled on the standard input: ``python -m aftlib.sharing``."""

import pickle
import sys

from aftlib.sharing.driver import Driver

if __name__ == "__main__":
    Driver(pickle.load(sys.stdin.buffer)).run()
