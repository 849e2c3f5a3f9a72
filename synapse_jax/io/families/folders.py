"""Layout of a Hugging Face folder: config.json and weights to a spec and the place of each weight."""

from __future__ import annotations

import dataclasses
import re

from synapse_jax.io.families import gemma3, llama, phi3, qwen2, qwen3
from synapse_jax.io.families.family import Layout
from synapse_jax.io.families.folder_decoder import EMBED, HEAD, FolderFamily
from synapse_jax.io.folder_config import Config
from synapse_jax.io.folder_weights import FolderWeights
from synapse_jax.io.quoting import listed, quote
from synapse_jax.spec.model import ModelSpec

FOLDER_FAMILIES: dict[str, FolderFamily] = {
    model_type: module.FOLDER_FAMILY
    for module in (gemma3, llama, phi3, qwen2, qwen3)
    for model_type in module.FOLDER_FAMILY.classes
}
"""By the `model_type` of config.json."""

# Fields that would change the numbers → the values with which they do not; null always is one.
_HARMLESS: dict[str, tuple[object, ...]] = {
    "add_cross_attention": (False,),
    "alibi": (False,),
    "attention_bias": (False,),
    "attention_chunk_size": (),
    "attention_multiplier": (),
    "attn_logit_softcapping": (),
    "compression_config": (),
    "embedding_multiplier": (1,),
    "expert_layer_period": (),
    "final_logit_softcapping": (),
    "hidden_activation": ("silu",),
    "is_encoder_decoder": (False,),
    "layer_types": (),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "mlp_bias": (False,),
    "no_rope_layers": (),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "n_routed_experts": (0,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
    "query_pre_attn_scalar": (),
    "residual_multiplier": (1,),
    "rope_interleaved": (False,),
    "rope_local_base_freq": (),
    "sliding_window": (),
    "sliding_window_pattern": (),
    "text_config": (),
    "use_bidirectional_attention": (False,),
    "use_qk_norm": (False,),
    "use_sliding_window": (False,),
    "vision_config": (),
}

# Fields about training, files and other programs.
_REMARKS = frozenset((
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "_sliding_window_pattern",
    "architectures", "attention_dropout", "attn_implementation", "auto_map", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "dtype", "embd_pdrop", "eos_token_id",
    "finetuning_task", "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "label2id",
    "max_window_layers", "model_type", "num_labels", "original_max_position_embeddings", "output_attentions",
    "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "resid_pdrop", "return_dict",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers.js_config", "transformers_version",
    "unk_token_id", "unsloth_fixed", "unsloth_version", "use_cache",
))  # fmt: skip

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
# Buffers of old checkpoints that are computed anew.
_BUFFER = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_REFUSED = re.compile(r".*(\.bias|norm\d*\.weight|[_.](scale|scales|scale_inv|zeros|qweight|qzeros|g_idx))")


def read_folder_layout(config: Config, weights: FolderWeights) -> Layout:
    """Spec and weight places of a folder, with everything checked but the numbers.

    A head beside a flag that ties it to the embedding is what transformers 5 makes of it: equal, it is the
    embedding; different, the head counts and a warning says so.

    Args:
      config: config.json.
      weights: the open weights.

    Raises:
      InputError: an unknown model type or class, bad or unsupported fields, a missing or mis-shaped
        tensor, or one of a type that cannot be read.
    """
    notes: list[str] = []
    family = _family(config)
    spec = family.read_spec(config, notes)
    _refuse_fields(config)
    if spec.layers > len(weights.tensors):
        # Names are made for every layer, so a wild count must stop here.
        raise config.fail(
            "num_hidden_layers", f"is {spec.layers}, but there are only {len(weights.tensors)} tensors"
        )
    spec = dataclasses.replace(spec, tied_output=_is_tied(config, weights, spec, notes))
    sources = family.weights(spec)
    for source in sources.values():
        weights.require(source.tensor, source.stored_shape)
    used = {HEAD, *(source.tensor for source in sources.values())}
    unused = [
        name for name in weights.tensors if name not in used and _is_remarkable(config, weights, spec, name)
    ]
    notes += listed("unknown fields, not used", config.unread())
    warnings = (*weights.warnings, *(f"config.json: {line}" for line in notes))
    return Layout(spec, sources, (*warnings, *listed("unknown tensors, not used", unused)))


def _family(config: Config) -> FolderFamily:
    model_type = config.text("model_type")
    if model_type is None:
        raise config.fail("model_type", "is missing")
    if model_type not in FOLDER_FAMILIES:
        hint = ""
        if model_type == "gemma3":
            hint = " (gemma3 is the model that sees images; gemma3_text is the one without)"
        supported = ", ".join(sorted(FOLDER_FAMILIES))
        raise config.fail("model_type", f"is {quote(model_type)}, supported: {supported}{hint}")
    family = FOLDER_FAMILIES[model_type]
    classes = config.get("architectures")
    if classes is not None and (not isinstance(classes, list) or family.classes[model_type] not in classes):
        shown = quote(classes[0]) if isinstance(classes, list) and len(classes) == 1 else quote(classes)
        raise config.fail("architectures", f"is {shown}, supported: {family.classes[model_type]}")
    return family


def _refuse_fields(config: Config) -> None:
    """Refuses fields that no family has read and that ask for what is not supported."""
    for field in config.unread():
        if field in _HARMLESS:
            value = config.get(field)
            if not any(
                value == good and type(value) is type(good) for good in _with_floats(_HARMLESS[field])
            ):
                raise config.fail(field, f"is {_shown(value)}, which is not supported")
    config.skip(*_REMARKS)


def _with_floats(values: tuple[object, ...]) -> tuple[object, ...]:
    """Numbers may be written as 1 or 1.0; true is not 1."""
    return values + tuple(float(value) for value in values if type(value) is int)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        method = value.get("quant_method")
        return "an object" if method is None else f"an object with quant_method {quote(method)}"
    return quote(value)


def _is_tied(config: Config, weights: FolderWeights, spec: ModelSpec, notes: list[str]) -> bool:
    if HEAD not in weights.tensors:
        if not spec.tied_output:
            raise weights.fail(
                f"tensor {quote(HEAD)}", "is missing, and config.json: tie_word_embeddings is not true"
            )
        return True
    if not spec.tied_output:
        return False
    if EMBED in weights.tensors and weights.equal(HEAD, EMBED):
        return True
    notes.append(
        f"tie_word_embeddings is true, but {HEAD} is not {EMBED}: {HEAD} is used, as in transformers 5"
    )
    return False


def _is_remarkable(config: Config, weights: FolderWeights, spec: ModelSpec, name: str) -> bool:
    """Whether a tensor that no weight comes from is worth a warning; InputError if it changes the numbers."""
    if _BUFFER.fullmatch(name):
        return False
    layer = _LAYER.match(name)
    if layer and int(layer[1]) >= spec.layers:
        raise weights.fail(
            f"tensor {quote(name)}",
            f"is of layer {int(layer[1])}, but config.json: num_hidden_layers is {spec.layers}",
        )
    if not _REFUSED.fullmatch(name):
        return True
    stored = weights.tensors[name]
    if name.endswith(".bias") and len(stored.shape) == 1 and not weights.read(name).any():
        return False  # transformers' Llama has such biases in its output projections
    raise weights.fail(f"tensor {quote(name)}", f"changes the numbers and is not supported for {spec.arch}")
