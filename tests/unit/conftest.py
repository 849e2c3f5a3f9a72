"""The tokenizers of the catalog's models: built once, they never change."""

from __future__ import annotations

import pytest

from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer


@pytest.fixture(scope="session")
def smol(smol_path) -> Tokenizer:
    with open_gguf(smol_path) as file:
        return build_tokenizer(file.metadata, source=smol_path.name)


@pytest.fixture(scope="session")
def gemma(gemma_path) -> Tokenizer:
    with open_gguf(gemma_path) as file:
        return build_tokenizer(file.metadata, source=gemma_path.name)
