"""What a model file is made of, whatever its format."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from synapse_jax.io.tokenizer import Tokenizer

if TYPE_CHECKING:
    from synapse_jax.io.chat import ChatTemplate
    from synapse_jax.io.families import Layout, WeightSource


class TensorInfo(Protocol):
    """One stored tensor."""

    @property
    def type_name(self) -> str:
        """Stored type, for example `Q4_1` or `BF16`."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest axis first."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes stored."""
        ...


class ModelSource(Protocol):
    """An open model in one format; `model_file.ModelFile` is what others use."""

    @property
    def path(self) -> pathlib.Path:
        """The file or folder."""
        ...

    @property
    def name(self) -> str:
        """What the model calls itself, or the name of its file or folder."""
        ...

    @property
    def arch(self) -> str | None:
        """Architecture as the format names it; None where it names none."""
        ...

    @property
    def format(self) -> str:
        """Format and version."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Everything that the model says about itself, by key."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Stored tensors by the format's names."""
        ...

    def layout(self) -> Layout:
        """Spec and place of each weight; InputError if it is no model that can be run."""
        ...

    def read(self, source: WeightSource) -> np.ndarray:
        """A new float32 array of a weight, rotary rows half-split."""
        ...

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, newly built; InputError if there is none that is supported."""
        ...

    def chat_template(self) -> ChatTemplate:
        """The chat template; InputError if there is none."""
        ...

    def close(self) -> None:
        """Closes the files; arrays that were read stay."""
        ...
