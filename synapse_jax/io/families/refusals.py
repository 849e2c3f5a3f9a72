"""Keys and tensors that would change the numbers and are not supported yet: refused, never ignored.

Names are those of llama.cpp's `llama-arch.cpp`. A key counts even where llama.cpp
does not read it for the architecture: the file says that the model needs it.
"""

from __future__ import annotations

import re

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

# Sizes and bases of sliding layers alone, which llama.cpp reads → what they must equal where there is one.
_OF_SLIDING_LAYERS = {
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.value_length",
    "rope.dimension_count_swa": "rope.dimension_count",
    "rope.freq_base_swa": "rope.freq_base",
}

KNOWN_KEYS = frozenset(
    (
        *_HARMLESS_VALUES,
        *_OF_SLIDING_LAYERS,
        "rope.scaling.alpha",
        "rope.dimension_sections",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
    )
)
"""Keys that are judged here, without the architecture's prefix."""

# Tensors that llama.cpp applies for these architectures or for relatives of them.
_REFUSED_TENSORS = re.compile(
    r"(blk\.\d+\.)?(rope_freqs\.weight|rope_factors_(long|short)\.weight|attn_qkv\.(weight|bias)"
    r"|attn_(q|k|v)\.bias"
    r"|attn_(q|k)_norm\.(weight|bias)|attn_output\.bias|attn_norm\.bias|attn_norm_2\.(weight|bias)"
    r"|attn_output_norm\.weight|attn_sub_norm\.weight|ffn_sub_norm\.weight|attn_sinks(\.weight)?"
    r"|post_attention_norm\.weight|post_ffw_norm\.weight|layer_output_norm\.weight|attn_gate\.weight"
    r"|ffn_norm\.bias|ffn_(gate|up|down)\.bias|ffn_(gate|up|down)_(exps|shexp)\.(weight|bias)"
    r"|ffn_gate_inp\.(weight|bias)|output_norm\.bias|output\.bias|token_embd\.bias|token_embd_norm\.(weight|bias)"
    r"|position_embd\.weight|.+\.(scale|input_scale))"
)
_BLOCK = re.compile(r"blk\.(\d+)\.")


def refuse_keys(file: GgufFile, arch: str, handled: frozenset[str]) -> None:
    """Refuses metadata that asks for what is not supported.

    Args:
      file: an open file.
      arch: prefix of the keys.
      handled: keys that the family reads itself, without the prefix.

    Raises:
      InputError: naming the key and its value.
    """
    kind = file.optional_text("general.type")
    if kind not in (None, "model"):
        raise file.fail("general.type", f"is {quote(kind)}, not 'model'")
    for name, harmless in _HARMLESS_VALUES.items():
        value = file.metadata.get(f"{arch}.{name}")
        if name not in handled and value is not None and not _is_one_of(value, harmless):
            raise file.fail(f"{arch}.{name}", f"is {quote(value)}, which is not supported yet")
    for name, general in _OF_SLIDING_LAYERS.items():
        value = file.metadata.get(f"{arch}.{name}")
        if name not in handled and value is not None and value != file.metadata.get(f"{arch}.{general}"):
            raise file.fail(
                f"{arch}.{name}",
                f"is {quote(value)}: sliding layers with a value of their own are not supported",
            )
    sections = f"{arch}.rope.dimension_sections"
    if sections in file.metadata:
        raise file.fail(sections, "is there: rotary sections are not supported yet")
    alpha = file.optional_float(f"{arch}.rope.scaling.alpha")
    if alpha not in (None, 0.0, 1.0):
        raise file.fail(f"{arch}.rope.scaling.alpha", f"is {alpha}, which is not supported yet")
    if "attention.sliding_window" not in handled:
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


def _refuse_window(file: GgufFile, arch: str) -> None:
    key = f"{arch}.attention.sliding_window"
    if file.value_types.get(key, "").startswith("array"):
        raise file.fail(key, "is an array with a value for each layer, which is not supported")
    window, context = file.optional_int(key), file.require_int(f"{arch}.context_length")
    if window is not None and window != 0 and window < context:
        raise file.fail(
            key,
            f"is {window}, below the context length {context}: which layers of {arch} slide is not known",
        )
