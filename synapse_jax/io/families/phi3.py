"""The phi3 family: Phi-3 and Phi-4-mini, with fused projections, partial rotary heads and LongRoPE.

`attn_qkv` holds the rows of queries, keys and values one after the other, `ffn_up` those of gate and up.
Rows are half-split. Follows `modeling_phi3.py` of transformers. llama.cpp computes the same but for the
sliding window, which it leaves out (`phi3.cpp`).
"""

from __future__ import annotations

from synapse_jax.io.families import windows
from synapse_jax.io.families.decoder import amended, fused_decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family, WeightSource
from synapse_jax.io.families.folder_decoder import NAMES, FolderFamily, folder_weights, read_spec
from synapse_jax.io.families.folder_windows import every_layer
from synapse_jax.io.families.rope_fields import RopeFields, only_section, read_base, read_rope
from synapse_jax.io.folder_config import Config
from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    spec = read_decoder_spec(file, "phi3", qkv_bias=False, notes=notes)
    key = "phi3.attention.sliding_window"
    if key not in file.metadata:
        # Converters have written it, as 0 for models without one, since 2024.
        notes.append(f"{key} is missing: every layer sees all keys")
    window, layers = windows.read_window(file, "phi3", spec.layers, 0, notes)
    if not 0 < window < spec.trained_context:
        return spec
    notes.append(f"{key} is {window}: applied as in transformers; llama.cpp leaves it out")
    return amended(file, spec, window=window, window_layers=layers)


FAMILY = Family("phi3", _read_spec, fused_decoder_weights, windows.KNOWN_KEYS)


_NAMES = NAMES | {
    **dict.fromkeys(("q", "k", "v"), "self_attn.qkv_proj.weight"),
    **dict.fromkeys(("gate", "up"), "mlp.gate_up_proj.weight"),
}


def _read_config(config: Config, notes: list[str]) -> ModelSpec:
    def rope(config: Config, head_size: int) -> RopeFields:
        section = only_section(config)
        base = read_base(config, section, notes)
        # "su" and "yarn" are what early files call LongRoPE.
        return read_rope(
            config, section, notes, head_size=head_size, base=base, partial=True, as_longrope=("su", "yarn")
        )

    # Without scaling it changes nothing.
    config.skip("original_max_position_embeddings")
    return read_spec(config, "phi3", notes, window=every_layer, rope=rope, kv_heads_optional=True)


def _folder_weights(spec: ModelSpec) -> dict[str, WeightSource]:
    return folder_weights(spec, _NAMES, sources=fused_decoder_weights)


FOLDER_FAMILY = FolderFamily({"phi3": "Phi3ForCausalLM"}, _read_config, _folder_weights)
