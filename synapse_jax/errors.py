"""What can go wrong on purpose: errors that a user caused and can fix."""


class InputError(ValueError):
    """Bad input: a flag, a file, a token or a length that cannot be used.

    The message is one line that names the file, the field and the numbers. The
    command line prints it as `synapse: error: …` and exits with code 2.
    """


class RunError(RuntimeError):
    """A run that started well and failed: exit code 1."""
