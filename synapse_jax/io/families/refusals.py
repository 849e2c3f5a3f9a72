"""Keys and tensors that would change the numbers and are not supported yet: refused, never ignored.

Names are those of llama.cpp's `llama-arch.cpp`. A key counts even where llama.cpp
does not read it for the architecture: the file says that the model needs it.
"""

from __future__ import annotations

import re

from synapse_jax.errors import InputError
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import quote

# Key without the architecture's prefix → the values with which it changes nothing.
# 0 is how writers and llama.cpp spell "not set" for these numbers.
_HARMLESS_VALUES: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.scale": (0,),
    "attention.temperature_length": (0,),
    "attention.temperature_scale": (0,),
    "attention.value_scale": (0, 1),
    "attn_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0,),
    "hidden_activation": ("silu", "swiglu"),
    "logit_scale": (0, 1),
    "nextn_predict_layers": (0,),
    "num_loops": (0, 1),
    "residual_scale": (0, 1),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}

_SCALING_DETAILS = (
    "original_context_length",
    "finetuned",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_log_multiplier",
)
_SCALING_KEYS = (
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.alpha",
    "rope.scaling.attn_factor",
    *(f"rope.scaling.{name}" for name in _SCALING_DETAILS),
)
_WINDOW_KEYS = ("attention.sliding_window", "attention.sliding_window_pattern")

KNOWN_KEYS = frozenset((*_HARMLESS_VALUES, *_SCALING_KEYS, *_WINDOW_KEYS, "rope.dimension_sections"))
"""Keys that are judged here, without the architecture's prefix."""

# Tensors that llama.cpp applies for these architectures or for relatives of them.
_REFUSED_TENSORS = re.compile(
    r"(blk\.\d+\.)?(rope_freqs\.weight|rope_factors_(long|short)\.weight|attn_qkv\.(weight|bias)"
    r"|attn_(q|k)_norm\.(weight|bias)|attn_output\.bias|attn_norm\.bias|attn_norm_2\.(weight|bias)"
    r"|attn_output_norm\.weight|attn_sub_norm\.weight|ffn_sub_norm\.weight|attn_sinks(\.weight)?"
    r"|post_attention_norm\.weight|post_ffw_norm\.weight|layer_output_norm\.weight|attn_gate\.weight"
    r"|ffn_norm\.bias|ffn_(gate|up|down)\.bias|ffn_(gate|up|down)_(exps|shexp)\.(weight|bias)"
    r"|ffn_gate_inp\.(weight|bias)|output_norm\.bias|output\.bias|token_embd\.bias|token_embd_norm\.(weight|bias)"
    r"|position_embd\.weight|.+\.(scale|input_scale))"
)
_BLOCK = re.compile(r"blk\.(\d+)\.")


def refuse_keys(file: GgufFile, arch: str, notes: list[str]) -> None:
    """Refuses metadata that asks for what is not supported.

    Args:
      file: an open file.
      arch: prefix of the keys.
      notes: gets a line for a scaling factor that the file itself switches off.

    Raises:
      InputError: naming the key and its value.
    """
    kind = file.optional_text("general.type")
    if kind not in (None, "model"):
        raise file.fail("general.type", f"is {quote(kind)}, not 'model'")
    for name, harmless in _HARMLESS_VALUES.items():
        value = file.metadata.get(f"{arch}.{name}")
        if value is not None and not _is_one_of(value, harmless):
            raise file.fail(f"{arch}.{name}", f"is {quote(value)}, which is not supported yet")
    _refuse_rope_scaling(file, arch, notes)
    _refuse_window(file, arch)


def refuse_tensors(file: GgufFile, arch: str, layers: int, unused: list[str]) -> None:
    """Refuses tensors that the forward pass would have to apply.

    Args:
      file: an open file.
      arch: prefix of the keys.
      layers: blocks of the spec.
      unused: tensors that no canonical weight comes from.

    Raises:
      InputError: naming the tensor.
    """
    for name in unused:
        block = _BLOCK.match(name)
        if block and int(block[1]) >= layers:
            raise file.fail(
                f"tensor {quote(name)}", f"is of block {block[1]}, but {arch}.block_count is {layers}"
            )
        if _REFUSED_TENSORS.fullmatch(name):
            raise file.fail(
                f"tensor {quote(name)}",
                f"changes the numbers and is not supported yet for architecture {arch}",
            )


def _is_one_of(value: object, harmless: tuple[object, ...]) -> bool:
    # Arrays and bytes never compare equal; True == 1 must not pass for a number.
    if not isinstance(value, (int, float, str)):
        return False
    return any(value == good and isinstance(value, bool) == isinstance(good, bool) for good in harmless)


def _refuse_rope_scaling(file: GgufFile, arch: str, notes: list[str]) -> None:
    """Only unscaled rotary frequencies: type none, or linear by a factor of 1."""
    prefix = f"{arch}.rope"
    if f"{prefix}.dimension_sections" in file.metadata:
        raise file.fail(f"{prefix}.dimension_sections", "is there: rotary sections are not supported yet")
    kind = file.optional_text(f"{prefix}.scaling.type")
    if kind not in (None, "none", "linear"):
        raise _scaled(file, f"{prefix}.scaling.type", kind)
    # These apply whatever the type is.
    for name in ("alpha", "attn_factor"):
        value = file.optional_float(f"{prefix}.scaling.{name}")
        if value not in (None, 0.0, 1.0):
            raise _scaled(file, f"{prefix}.scaling.{name}", value)
    for key in (f"{prefix}.scaling.factor", f"{prefix}.scale_linear"):
        factor = file.optional_float(key)
        if factor in (None, 0.0, 1.0):  # llama.cpp takes 0 as not set
            continue
        if kind != "none":
            raise _scaled(file, key, factor)
        notes.append(f"{key} is {factor}, but {prefix}.scaling.type is 'none': positions are not scaled")


def _scaled(file: GgufFile, key: str, value: object) -> InputError:
    return file.fail(key, f"is {quote(value)}: scaled rotary positions are not supported yet")


def _refuse_window(file: GgufFile, arch: str) -> None:
    key = f"{arch}.attention.sliding_window"
    if file.value_types.get(key, "").startswith("array"):
        raise file.fail(key, "is an array with a value for each layer, which is not supported")
    window, context = file.optional_int(key), file.require_int(f"{arch}.context_length")
    if window is not None and window != 0 and window < context:
        raise file.fail(
            key, f"is {window}, less than the context length {context}: sliding windows are not supported yet"
        )
