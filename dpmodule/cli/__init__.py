"""The ``dpmodule`` command: parsing of options, and printing."""
