"""Attention over pages: one operation, named implementations.

`xla` defines what is right. Others are chosen by name through the runtime profile and pass the same tests.
"""

from synapse_jax.ops.attention.selected import attend_selected as xla_selected
from synapse_jax.ops.attention.xla import attend_pages as xla

IMPLEMENTATIONS = {"xla": xla}
SELECTING = {"xla": xla_selected}
"""The same of one token that reads the pages it selects."""
