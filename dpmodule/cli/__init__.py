"""The command line: ``dpmodule fit | predict | check | explain | summary | info``. Parsing and printing only."""
