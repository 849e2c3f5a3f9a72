"""Attention over pages: one operation, named implementations.

`xla` defines what is right. Others are chosen by name through the runtime profile and pass the same tests.
"""

from synapse_jax.ops.attention.xla import attend_pages as xla

IMPLEMENTATIONS = {"xla": xla}
