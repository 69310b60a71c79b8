"""What every stream and every pool of workers must do, as single trials; see `dpmodule.streams.testing`."""
