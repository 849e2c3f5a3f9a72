"""Spec and weights of a decoder in a Hugging Face folder: what the families share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families import rope_fields
from synapse_jax.io.families.decoder import decoder_weights
from synapse_jax.io.families.family import WeightSource
from synapse_jax.io.families.folder_windows import Window
from synapse_jax.io.families.rope_fields import RopeFields
from synapse_jax.io.folder_config import Config
from synapse_jax.io.quoting import quote
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope import rope_profile

NAMES = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
"""Canonical parts of a layer to their names under `model.layers.{i}.`."""
MOST = 1 << 16
"""Layers, and dimensions of a head, that a config may have: each costs work before weights are looked at."""
HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
_WHOLE = {"embed": EMBED, "final_norm": "model.norm.weight", "head": HEAD}


@dataclasses.dataclass(frozen=True)
class FolderFamily:
    """Models of Hugging Face folders that are computed alike."""

    classes: dict[str, str]
    """`model_type` of config.json to the class that `architectures` names."""
    read_spec: Callable[[Config, list[str]], ModelSpec]
    """Config to spec; appends a line to the list for each default in force. `tied_output` is the flag's."""
    weights: Callable[[ModelSpec], dict[str, WeightSource]]
    """Every weight that the spec needs, by canonical name."""


def read_spec(
    config: Config,
    arch: str,
    notes: list[str],
    *,
    window: Callable[[Config, int], Window],
    rope: Callable[[Config, int], RopeFields] | None = None,
    head_size: int | None = None,
    kv_heads_optional: bool = False,
    tied: bool = False,
    activations: tuple[str, ...] = ("silu", "swish"),
    activation_field: str = "hidden_act",
    **fields: Any,
) -> ModelSpec:
    """Reads what all decoders have.

    Args:
      config: config.json.
      arch: name of the spec's architecture.
      notes: gets a line for each default in force.
      window: config and L to the window and its layers.
      rope: config and H to the rotation; by default that of whole heads that all rotate alike.
      head_size: H; by default `head_dim`, or the width divided by the heads.
      kv_heads_optional: whether there may be as many key heads as query heads without a word.
      tied: `tie_word_embeddings`, where it is absent.
      activations: names of the FFN's gate that are the spec's.
      activation_field: which field names it.
      **fields: other fields of the spec.

    Raises:
      InputError: a field that is missing, of the wrong type, or at odds with another.
    """
    heads, width = config.positive("num_attention_heads"), config.positive("hidden_size")
    if head_size is None:
        head_size = _head_size(config, width, heads)
    layers = config.positive("num_hidden_layers", limit=MOST)
    name = config.text(activation_field)
    if name is None:
        notes.append(f"{activation_field} is missing: {activations[0]} is used")
    elif name not in activations:
        raise config.fail(activation_field, f"is {quote(name)}, not {' or '.join(activations)}")
    kv_heads = config.positive("num_key_value_heads", heads if kv_heads_optional else None)
    if not config.has("num_key_value_heads"):
        notes.append(f"num_key_value_heads is missing: {kv_heads} is used")
    if not config.has("tie_word_embeddings"):
        notes.append(f"tie_word_embeddings is missing: {str(tied).lower()} is used")
    read_rope = rope or (lambda config, size: _whole_heads(config, size, notes))
    rotation = read_rope(config, head_size)
    size, sliding = window(config, layers)
    try:
        spec = ModelSpec(
            arch=arch,
            layers=layers,
            width=width,
            ffn_width=config.positive("intermediate_size"),
            query_heads=heads,
            kv_heads=kv_heads,
            head_size=head_size,
            rotary_size=rotation.rotary_size,
            vocab_size=config.positive("vocab_size"),
            trained_context=config.positive("max_position_embeddings"),
            # Norms add it in float32, and GGUF files store it so: equal models have equal specs.
            norm_epsilon=float(np.float32(config.number("rms_norm_eps"))),
            rope_base=rotation.base,
            rope_scaling=rotation.scaling,
            tied_output=config.flag("tie_word_embeddings", tied),
            window=size,
            window_layers=sliding,
            **{"local_rope_base": None, "qkv_bias": False, **fields},
        )
        limit = rope_profile(spec, None, None).context_limit
    except InputError as error:
        # What the spec itself refuses does not know the file.
        known = str(error).startswith(config.shown)
        raise error if known else InputError(f"{config.shown}: {error}") from None
    if 0 < size and size >= limit and spec.local_rope_base is None:
        # No two positions are so far apart.
        spec = dataclasses.replace(spec, window=0, window_layers=())
    return spec


def folder_weights(
    spec: ModelSpec,
    names: dict[str, str] = NAMES,
    *,
    sources: Callable[[ModelSpec], dict[str, WeightSource]] = decoder_weights,
    norm_offset: float = 0.0,
) -> dict[str, WeightSource]:
    """Every weight by canonical name, as folders name them.

    Args:
      spec: sizes.
      names: parts of a layer to their names.
      sources: gives shapes, and rows of fused tensors.
      norm_offset: added to the weights of norms; Gemma's code adds 1.
    """
    found = {}
    for name, source in sources(spec).items():
        prefix, _, part = name.rpartition(".")
        tensor = f"model.{prefix}.{names[part]}" if prefix else _WHOLE[part]
        offset = norm_offset if part.endswith("norm") else 0.0
        found[name] = dataclasses.replace(source, tensor=tensor, offset=offset)
    return found


def _head_size(config: Config, width: int, heads: int) -> int:
    if config.has("head_dim"):
        return config.positive("head_dim", limit=MOST)
    if width % heads:
        raise config.fail("head_dim", f"is missing, and {heads} heads do not divide hidden_size {width}")
    config.skip("head_dim")
    if width // heads > MOST:
        raise config.fail("hidden_size", f"is {width}: {heads} heads of more than {MOST} dimensions")
    return width // heads


def _whole_heads(config: Config, head_size: int, notes: list[str]) -> RopeFields:
    section = rope_fields.only_section(config)
    base = rope_fields.read_base(config, section, notes)
    return rope_fields.read_rope(config, section, notes, head_size=head_size, base=base)
