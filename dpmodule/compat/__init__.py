"""What MXNet's programs, torch and Python need beyond the public: old import paths, late imports, private functions."""
