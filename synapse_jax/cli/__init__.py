"""The command line: flags become profiles, and the Python API does the rest."""
