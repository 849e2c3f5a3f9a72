"""Attention over pages: one operation, named implementations.

`xla` defines what is right. Others are chosen by name through the runtime profile and pass the same tests.
"""

from synapse_jax.ops.attention.compressed import attend_compressed as xla_compressed
from synapse_jax.ops.attention.selected import attend_selected as xla_selected
from synapse_jax.ops.attention.xla import attend_pages as xla

IMPLEMENTATIONS = {"xla": xla}
SELECTING = {"xla": xla_selected}
"""The same of one token that reads the pages it selects."""
COMPRESSED = {"xla": xla_compressed}
"""The same of rows that read pooled blocks beside their newest keys."""
