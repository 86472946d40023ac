"""``python -m tilewright``: the command line, where its script is not on the path."""

from tilewright.cli import main

if __name__ == "__main__":
    main()
