"""What DyNet's programs expect besides: names of its module, and its text files."""
