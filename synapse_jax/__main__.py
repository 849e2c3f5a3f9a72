"""`python -m synapse_jax`: the command line."""

from synapse_jax.cli.main import console_main

console_main()
