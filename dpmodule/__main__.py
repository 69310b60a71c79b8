"""Entry of ``python -m dpmodule`` and of the ``dpmodule`` command."""

import sys

from . import program


def main() -> int:
    """Run the program or the subcommand of `sys.argv`; returns the exit code."""
    words = sys.argv[1:]
    if program.has_program(words):
        return program.run(words)
    from .cli.__main__ import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
