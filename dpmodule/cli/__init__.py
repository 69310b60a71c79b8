"""The command line: ``dpmodule fit | predict | summary | info``. Parsing and printing only."""
