"""How a model is run: every choice that is not the model's own, as frozen data."""

from __future__ import annotations

import dataclasses

from synapse_jax.errors import InputError
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.policy import AttentionPolicy
from synapse_jax.spec.rope import RopeProfile, rope_profile
from synapse_jax.spec.rope_scaling import RopeScaling

_CHOICES = {
    "precision": ("f32", "bf16"),
    "kv_dtype": ("f32", "bf16", "f16"),
    "kernels": ("xla",),
    "layers": ("unrolled", "scan"),
}


@dataclasses.dataclass(frozen=True)
class RuntimeProfile:
    """Context, caches, precision and device of a session.

    `context` and `rope` may be left out; `resolve` fills them from the model. A record
    always shows the resolved profile.
    """

    context: int | None = None
    """Most positions that a sequence may have; None means the whole window."""
    rope: RopeProfile | RopeScaling | None = None
    """Rotary profile, or a scaling that is asked for; None means the file's own."""
    page_size: int = 256
    """C, positions a page: one page is one key block of the online softmax."""
    kv_dtype: str = "f32"
    """Type of cached keys and values: f32, bf16 or f16. Attention computes in float32 whatever it is."""
    attention: str = "dense"
    """Attention policy (`spec.attention`), in its canonical form whatever form is given; `dense` is the
    file's own: its masks, and the policy that the model was trained with where it declares one."""
    precision: str = "f32"
    """Type of weights and matmul inputs: f32 or bf16. Accumulation is float32 in both."""
    kernels: str = "xla"
    """Implementations of the ops: `xla` is the plain one that defines what is right."""
    layers: str = "unrolled"
    """How equal layers are lowered: `unrolled`, one after the other, or `scan`, as a loop over them whose
    weights and pages are stacked, so that lowering and compiling take as long for many layers as for one."""
    device: str = "auto"
    """XLA device: auto, or cpu, gpu, tpu or metal with an optional index, as in `gpu:1`."""

    def __post_init__(self):
        for field, choices in _CHOICES.items():
            if getattr(self, field) not in choices:
                raise InputError(
                    f"{field} {getattr(self, field)!r} is not supported; choose from {', '.join(choices)}"
                )
        for field in ("context", "page_size"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InputError(f"{field} {value!r} is not an integer")
        if self.context is not None and self.context < 1:
            raise InputError(f"context {self.context} is below 1")
        size = self.page_size
        if not 16 <= size <= 1024 or size & (size - 1):
            raise InputError(f"page size {size} is not a power of two from 16 to 1024")
        object.__setattr__(self, "attention", str(parse_attention(self.attention)))

    @property
    def policy(self) -> AttentionPolicy:
        """The attention policy."""
        return parse_attention(self.attention)


def resolve(profile: RuntimeProfile, spec: ModelSpec) -> RuntimeProfile:
    """The profile with context and RoPE profile filled in, checked against the model.

    Raises:
        InputError: the context is above the window of the RoPE profile, both numbers are named; the RoPE
            profile contradicts the file's; or the attention policy does not fit the model or the page size,
            or contradicts the one that the model was trained with.
    """
    if spec.attention not in ("dense", profile.attention):
        if profile.attention != "dense":
            raise InputError(
                f"attention {profile.attention} contradicts the file: the model was trained with "
                f"{spec.attention}"
            )
        profile = dataclasses.replace(profile, attention=spec.attention)
    profile.policy.check(spec, profile.page_size)
    rope = profile.rope
    if not isinstance(rope, RopeProfile):
        rope = rope_profile(spec, rope, profile.context)
    elif spec.rope_scaling.type != "none" and rope != rope_profile(spec, None, profile.context):
        raise InputError(f"the RoPE profile {rope} contradicts the file, which declares {spec.rope_scaling}")
    if (rope.rotary_size, rope.trained_context) != (spec.rotary_size, spec.trained_context):
        raise InputError(
            f"a RoPE profile for rotary size {rope.rotary_size} and {rope.trained_context} trained positions "
            f"does not fit a model with {spec.rotary_size} and {spec.trained_context}"
        )
    context = rope.context_limit if profile.context is None else profile.context
    if context > rope.context_limit:
        limit = f"context {context} is above the {rope.context_limit} positions"
        if rope.context_limit == rope.trained_context:
            raise InputError(f"{limit} the model was trained for (RoPE scaling {rope.type})")
        raise InputError(
            f"{limit} of RoPE scaling {rope.type} (factor {rope.factor:g}, original {rope.original}); "
            f"the model was trained for {rope.trained_context}"
        )
    return dataclasses.replace(profile, context=context, rope=rope)
