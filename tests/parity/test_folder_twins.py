"""The same random weights as a Hugging Face folder and as a GGUF file compute the same, and what transformers
computes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.spec.rope import rope_profile
from tests import oracles
from tests.folders import change_header, folder_tensors, rounded, write_folder
from tests.tiny import Tiny, pair_rows, write_tiny
from tests.tiny_cases import CASES, LINEAR, LLAMA3, LONGROPE, TOKENS, context, tokens
from tests.tiny_sessions import assert_close

TOLERANCE = 1e-5
"""Largest difference of logits."""
FLOAT32_ROPE = 1e-4
"""The same where GGUF's float32 numbers of RoPE are not those that config.json gives: 1e-7 in an angle's
frequency or magnitude is amplified as rounding is."""


def _has_folder(tiny: Tiny) -> bool:
    """Whether transformers has the model: GGUF declares more."""
    if tiny.rotary != tiny.head_size and tiny.arch != "phi3":
        return False
    scaled = tiny.rope
    if scaled and (scaled.ext_factor != 1 or scaled.log_multiplier):
        return False
    return not (tiny.arch == "phi3" and scaled and scaled.type != "longrope")


_MISTRAL = CASES["mistral-window"]
TWINS = {name: tiny for name, tiny in CASES.items() if _has_folder(tiny)} | {
    # Mistral's other scalings, with quiet seeds too.
    "mistral-window-linear": dataclasses.replace(_MISTRAL, rope=LINEAR, seed=177),
    "mistral-window-llama3": dataclasses.replace(_MISTRAL, rope=LLAMA3, seed=179),
    "mistral-window-longrope": dataclasses.replace(_MISTRAL, rope=LONGROPE, context=128, seed=160),
}
TYPES = {"none", "linear", "yarn", "llama3", "longrope"}


def _open(path: Path) -> sj.ModelFile:
    return sj.load(path)


def _logits(path: Path, ids: Sequence[int] = TOKENS, context: int = 64) -> np.ndarray:
    with _open(path) as model:
        return sj.Session(model, sj.RuntimeProfile(context=context, page_size=16), ready=[]).logits(ids)


@pytest.fixture(scope="module")
def twins(tmp_path_factory) -> Iterator[dict[str, tuple[Path, Path]]]:
    folder = tmp_path_factory.mktemp("twins")
    paths = {}
    for name, tiny in TWINS.items():
        paths[name] = (folder / f"{name}.gguf", write_folder(folder / name, tiny))
        write_tiny(paths[name][0], **vars(tiny))
    yield paths


@pytest.mark.parametrize("name", TWINS)
def test_spec_and_weights_are_those_of_the_gguf_file(twins, name):
    with _open(twins[name][0]) as gguf, _open(twins[name][1]) as folder:
        assert folder.warnings == ()
        assert folder.weight_shapes() == gguf.weight_shapes()
        assert set(folder.weight_types().values()) == {"F32"}
        # GGUF stores the numbers of RoPE as float32, and says some in another way.
        own = {"rope_scaling": None}
        assert dataclasses.asdict(folder.spec) | own == dataclasses.asdict(gguf.spec) | own
        for context in (32, None):
            one, two = (rope_profile(model.spec, None, context) for model in (gguf, folder))
            assert one.context_limit == two.context_limit
            np.testing.assert_allclose(_numbers(one), _numbers(two), rtol=1e-7)
        for weight in folder.weight_names():
            np.testing.assert_allclose(
                folder.read_weight(weight), gguf.read_weight(weight), rtol=0, atol=1e-7
            )


def _numbers(profile: sj.RopeProfile) -> list[float]:
    found = [value for value in dataclasses.asdict(profile).values() if isinstance(value, float | int)]
    return [float(value) for value in (*found, *profile.divisors)]


# Spec, profile and weights of all twins are compared above. These are each family and each kind of RoPE.
COMPUTED = [
    *("llama-tied", "llama-untied", "llama-biases", "mistral-window", "llama-llama3", "llama-yarn-mscale"),
    *("qwen2-tied", "qwen2-yarn", "qwen3-untied", "qwen3-linear", "gemma3-tied", "gemma3-window-20"),
    *("phi3-window-partial-rotary", "phi3-longrope"),
]


@pytest.mark.parametrize("name", [name for name in COMPUTED if name in TWINS])
def test_logits_are_those_of_the_gguf_file(twins, name):
    with _open(twins[name][0]) as gguf, _open(twins[name][1]) as folder:
        profiles = [rope_profile(model.spec, None, 64) for model in (gguf, folder)]
    one, two = map(_logits, twins[name])
    same = _numbers(profiles[0]) == _numbers(profiles[1])
    assert np.abs(one - two).max() <= (TOLERANCE if same else FLOAT32_ROPE)


def test_each_family_has_each_kind_of_rope():
    kinds = {family: set() for family in ("llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3")}
    for tiny in TWINS.values():
        family = "mistral" if tiny.arch == "llama" and tiny.window else tiny.arch
        kinds[family].add(tiny.rope.type if tiny.rope else "none")
    assert kinds.pop("phi3") == {"none", "longrope"}
    assert all(found == TYPES for found in kinds.values())


@pytest.mark.control
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("name", TWINS)
def test_logits_are_those_of_transformers_on_the_folder(twins, tmp_path, name, old):
    """`old`: transformers reads RoPE as configs spelled it before its version 5."""
    oracles.require_transformers()
    folder = write_folder(tmp_path, TWINS[name], old=True) if old else twins[name][1]
    ids = tokens(name)
    expected = oracles.transformers_logits(oracles.transformers_folder_model(folder), ids)
    assert_close(_logits(twins[name][1], ids, context(name)), expected)


@pytest.mark.parametrize("name", TWINS)
def test_old_configs_say_the_same(twins, tmp_path, name):
    write_folder(tmp_path, TWINS[name], old=True)
    with _open(tmp_path) as old, _open(twins[name][1]) as new:
        assert old.spec == new.spec
        assert old.warnings == ()


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("arch", ["llama", "phi3", "gemma3"])
def test_every_dtype_is_read_from_one_file_and_from_shards(tmp_path, arch, dtype, shards):
    tiny = Tiny(arch, tied=False, window=8 if arch == "gemma3" else 0)
    write_folder(tmp_path, tiny, dtype=dtype, shards=shards)
    stored = {name: rounded(array, dtype) for name, array in folder_tensors(tiny).items()}
    with _open(tmp_path) as model:
        assert set(model.weight_types().values()) == {dtype}
        assert sum(tensor.nbytes for tensor in model.tensors.values()) == sum(
            array.size * (4 if dtype == "F32" else 2) for array in stored.values()
        )
        np.testing.assert_array_equal(model.read_weight("head"), stored["lm_head.weight"])
        np.testing.assert_array_equal(
            model.read_weight("layers.1.attn_norm"),
            stored["model.layers.1.input_layernorm.weight"] + np.float32(arch == "gemma3"),
        )
        if arch == "phi3":
            qkv = stored["model.layers.1.self_attn.qkv_proj.weight"]
            rows = [model.read_weight(f"layers.1.{part}") for part in "qkv"]
            np.testing.assert_array_equal(np.concatenate(rows), qkv)
            halves = [model.read_weight(f"layers.1.{part}") for part in ("gate", "up")]
            np.testing.assert_array_equal(
                np.concatenate(halves), stored["model.layers.1.mlp.gate_up_proj.weight"]
            )


def test_case_46_a_folder_may_mix_dtypes(tmp_path):
    tiny = Tiny(tied=False)
    kinds = dict(zip(folder_tensors(tiny), itertools.cycle(["F32", "F16", "BF16"]), strict=False))

    def store(_, tensors):
        tensors |= {name: rounded(array, kinds[name]) for name, array in tensors.items()}

    write_folder(tmp_path / "mixed", tiny, dtype=kinds, shards=2)
    write_folder(tmp_path / "rounded", tiny, mutate=store)
    write_folder(tmp_path / "whole", tiny)
    with _open(tmp_path / "mixed") as model:
        assert set(model.weight_types().values()) == {"F32", "F16", "BF16"}
    mixed, same, whole = (_logits(tmp_path / name) for name in ("mixed", "rounded", "whole"))
    np.testing.assert_array_equal(mixed, same)
    assert np.abs(mixed - whole).max() > 0.1


def test_case_46_empty_metadata_change_nothing(tmp_path):
    before = _logits(write_folder(tmp_path, Tiny(), shards=2))
    for number in (1, 2):
        change_header(
            tmp_path / f"model-0000{number}-of-00002.safetensors",
            lambda text: '{"__metadata__": {}, ' + text.removeprefix("{"),
        )
    np.testing.assert_array_equal(_logits(tmp_path), before)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-tied"])
def test_case_3_rows_of_a_folder_are_half_split(twins, tmp_path, name):
    """The same rows in adjacent pairs are another model, for either family."""
    tiny = TWINS[name]

    def pair(_, tensors):
        for i in range(tiny.layers):
            for part, heads in (("q", tiny.query_heads), ("k", tiny.kv_heads)):
                weight = f"model.layers.{i}.self_attn.{part}_proj.weight"
                tensors[weight] = pair_rows(tensors[weight], heads, tiny.rotary)

    write_folder(tmp_path, tiny, mutate=pair)
    assert np.abs(_logits(tmp_path) - _logits(twins[name][0])).max() > 0.1


@pytest.mark.parametrize(
    "part",
    [
        *("input_layernorm", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm"),
        *("pre_feedforward_layernorm", "post_feedforward_layernorm", "model.norm"),
    ],
)
def test_case_4_every_norm_of_gemma_gets_its_one(twins, tmp_path, part):
    """Where a file holds the 1 already, as GGUF files do, the model is another one."""
    name = "gemma3-tied"

    def add_one(_, tensors):
        for weight in tensors:
            if weight.endswith(f"{part}.weight"):
                tensors[weight] = tensors[weight] + 1

    write_folder(tmp_path, TWINS[name], mutate=add_one)
    assert np.abs(_logits(tmp_path) - _logits(twins[name][0])).max() > 0.1
