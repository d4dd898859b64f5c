"""`python -m aftlib` is the command `aft`."""

from aftlib.reports.entry import main

if __name__ == "__main__":
    main()
