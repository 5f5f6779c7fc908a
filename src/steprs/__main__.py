"""`python -m steprs` is the command `steprs`."""

from steprs.cli import main

if __name__ == "__main__":
    main()
