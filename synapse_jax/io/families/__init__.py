"""Model families: what a file's metadata and tensors mean for each architecture."""

from __future__ import annotations

from synapse_jax.errors import InputError
from synapse_jax.io.families import decoder, gemma3, llama, phi3, qwen2, qwen3, refusals, rope_keys, synapse
from synapse_jax.io.families.family import Family, Layout, WeightSource, unpair_rows
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import listed, quote, shown_path
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope import rope_profile

__all__ = ["FAMILIES", "Family", "Layout", "WeightSource", "read_layout", "unpair_rows"]

FAMILIES: dict[str, Family] = {
    module.FAMILY.arch: module.FAMILY for module in (gemma3, llama, phi3, qwen2, qwen3, synapse)
}


def read_layout(file: GgufFile) -> Layout:
    """Spec and weight places of a model file, with everything checked but the numbers.

    Args:
      file: an open file.

    Raises:
      InputError: for an unknown architecture, bad or unsupported metadata, a
        missing or mis-shaped tensor, or one of a type that cannot be read.
    """
    arch = file.require_text("general.architecture")
    if arch not in FAMILIES:
        raise file.fail("general.architecture", f"is {quote(arch)}, supported: {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[arch]
    notes: list[str] = []
    if not file.tensors:
        raise file.fail("tensor count", "is 0: the file holds a vocabulary and no weights")
    refusals.refuse_keys(file, arch, family.keys)
    spec = family.read_spec(file, notes)
    _check_rope(file, spec)
    weights = family.weights(spec)
    for source in weights.values():
        _check_tensor(file, source)
    used = {source.tensor for source in weights.values()} | set(rope_keys.TENSORS)
    unused = [name for name in file.tensors if name not in used]
    refusals.refuse_tensors(file, arch, spec.layers, unused)
    known = decoder.KNOWN_KEYS | rope_keys.KNOWN_KEYS | refusals.KNOWN_KEYS | family.keys
    keys = [key.removeprefix(f"{arch}.") for key in file.metadata if key.startswith(f"{arch}.")]
    unknown = [f"{arch}.{key}" for key in keys if key not in known and not key.startswith(family.remarks)]
    notes += listed("unknown keys, not used", unknown)
    notes += listed("unknown tensors, not used", unused)
    return Layout(spec, weights, tuple(notes))


def _check_rope(file: GgufFile, spec: ModelSpec) -> None:
    """Refuses a scaling whose numbers do not fit the model's, while the file's name is at hand."""
    try:
        rope_profile(spec, None, None)
    except InputError as error:
        raise InputError(f"{shown_path(file.path)}: {error}") from None


def _check_tensor(file: GgufFile, source: WeightSource) -> None:
    file.require_readable(source.tensor)
    shape = file.tensors[source.tensor].shape
    if shape != source.stored_shape:
        raise file.fail(
            f"tensor {quote(source.tensor)}",
            f"has shape {list(shape)}, the metadata asks for {list(source.stored_shape)}",
        )
