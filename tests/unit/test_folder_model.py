"""What a Hugging Face folder says beyond what its GGUF twin can: defaults, warnings, heads, windows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.model_file import ModelFile, open_model_file
from synapse_jax.spec.rope import rope_profile
from tests.folders import folder_tensors, write_folder
from tests.tiny import Tiny
from tests.tiny_rope import TinyRope


def opened(folder: Path, tiny: Tiny, mutate=None, **options) -> ModelFile:
    """The model of a folder; it is read and closed."""
    write_folder(folder, tiny, mutate=mutate, **options)
    with open_model_file(folder) as model:
        _ = model.spec
        return model


# ---- heads: case 27


def head(array: np.ndarray, tie: bool):
    def change(config, tensors) -> None:
        config["tie_word_embeddings"] = tie
        tensors["lm_head.weight"] = array

    return change


def test_case_27_tie_flag_and_head(tmp_path):
    tiny = Tiny()
    embed = folder_tensors(tiny)["model.embed_tokens.weight"]
    other = embed[::-1].copy()
    same = opened(tmp_path / "same", tiny, head(embed, tie=True))
    assert same.spec.tied_output and same.warnings == ()
    # As transformers 5: what is stored counts.
    differs = opened(tmp_path / "differs", tiny, head(other, tie=True))
    assert not differs.spec.tied_output
    assert (
        "tie_word_embeddings is true, but lm_head.weight is not model.embed_tokens.weight"
        in differs.warnings[0]
    )
    untied = opened(tmp_path / "untied", tiny, head(embed, tie=False))
    assert not untied.spec.tied_output and untied.warnings == ()
    with open_model_file(tmp_path / "differs") as model:
        np.testing.assert_array_equal(model.read_weight("head"), other)


@pytest.mark.parametrize("arch, tied", [("llama", False), ("gemma3", True)])
def test_a_missing_tie_flag_is_the_family_s_and_is_said(tmp_path, arch, tied):
    tiny = Tiny(arch, tied=tied, window=8 if arch == "gemma3" else 0)
    model = opened(tmp_path, tiny, lambda config, _: config.pop("tie_word_embeddings"))
    assert model.spec.tied_output == tied
    assert model.warnings == (f"config.json: tie_word_embeddings is missing: {str(tied).lower()} is used",)


# ---- warnings: case 28


def test_unknown_fields_and_tensors_are_named(tmp_path):
    def change(config, tensors) -> None:
        config |= {"my_field": 1, "_name_or_path": "x", "auto_map": {}, "quantization_config": None}
        tensors["model.layers.0.foo.weight"] = np.ones(3, np.float32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float32)

    assert opened(tmp_path, Tiny(), change).warnings == (
        "config.json: unknown fields, not used: 'my_field'",
        "unknown tensors, not used: 'model.layers.0.foo.weight'",
    )


def test_defaults_in_force_are_named(tmp_path):
    def change(config, _) -> None:
        for name in ("hidden_act", "num_key_value_heads", "rope_parameters", "head_dim"):
            config.pop(name)

    model = opened(tmp_path, Tiny(head_size=16, kv_heads=4), change)
    assert (model.spec.rope_base, model.spec.kv_heads, model.spec.head_size) == (10000.0, 4, 16)
    assert model.warnings == tuple(
        f"config.json: {line}"
        for line in (
            "hidden_act is missing: silu is used",
            "num_key_value_heads is missing: 4 is used",
            "rope_theta is missing: 10000.0 is used",
        )
    )


def test_what_an_index_says_besides_is_named(tmp_path):
    write_folder(tmp_path, Tiny(), shards=2)
    index = tmp_path / "model.safetensors.index.json"
    stored = json.loads(index.read_text())
    size = stored["metadata"]["total_size"]
    stored["metadata"]["total_size"] = 5
    index.write_text(json.dumps(stored))
    with open_model_file(tmp_path) as model:
        assert model.warnings == (f"{index.name}: metadata.total_size is 5, the tensors have {size} bytes",)
    write_folder(tmp_path, Tiny())
    with open_model_file(tmp_path) as model:
        assert model.warnings == (f"{index.name} is not used: model.safetensors is there",)


def test_a_tensor_that_the_index_does_not_name_is_not_used(tmp_path):
    write_folder(tmp_path, Tiny(tied=False), shards=2)
    index = tmp_path / "model.safetensors.index.json"
    stored = json.loads(index.read_text())
    stored["weight_map"].pop("lm_head.weight")
    stored.pop("metadata")
    index.write_text(json.dumps(stored))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with open_model_file(tmp_path) as model:
        assert model.spec.tied_output
        assert model.warnings == (f"tensors that {index.name} does not name, not used: 'lm_head.weight'",)


# ---- windows


@pytest.mark.parametrize(
    "arch, fields, window, layers",
    [
        ("mistral", {"sliding_window": 8}, 8, (True, True)),
        ("mistral", {"sliding_window": 8, "layer_types": ["sliding_attention"] * 2}, 8, (True, True)),
        ("mistral", {"sliding_window": None}, 0, ()),
        # No two positions of the window are so far apart.
        ("mistral", {"sliding_window": 256}, 0, ()),
        ("mistral", {"sliding_window": 255}, 255, (True, True)),
        ("phi3", {"sliding_window": 8}, 8, (True, True)),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}, 0, ()),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, 8,
         (False, True)),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, 0, ()),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 8,
                   "layer_types": ["sliding_attention", "full_attention"]}, 8, (True, False)),
        ("llama", {"sliding_window": None, "layer_types": ["full_attention"] * 2}, 0, ()),
        ("gemma3", {"layer_types": ["full_attention"] * 2}, 0, ()),
        ("gemma3", {"layer_types": None, "sliding_window": 8, "sliding_window_pattern": 2}, 8,
         (True, False)),
        ("gemma3", {"layer_types": None, "sliding_window": 8, "_sliding_window_pattern": 1}, 0, ()),
    ],
)  # fmt: skip
def test_windows_are_those_of_transformers(tmp_path, arch, fields, window, layers):
    tiny = Tiny("llama" if arch == "mistral" else arch, window=8 if arch in ("mistral", "gemma3") else 0)
    model = opened(tmp_path, tiny, lambda config, _: config.update(fields))
    assert (model.spec.window, model.spec.window_layers) == (window, layers)
    assert model.warnings == ()


def test_a_mistral_without_a_word_has_the_window_of_transformers(tmp_path):
    model = opened(tmp_path, Tiny(window=8, context=8192), lambda config, _: config.pop("sliding_window"))
    assert model.spec.window == 4096
    assert model.warnings == ("config.json: sliding_window is missing: 4096 is used, as in transformers",)


def test_gemma_s_queries_are_scaled_by_the_config(tmp_path):
    tiny = Tiny("gemma3", window=8)
    scaled = opened(tmp_path, tiny, lambda config, _: config.update(query_pre_attn_scalar=168))
    assert scaled.spec.query_scale == 168**-0.5 and scaled.spec.embed_scale == 8.0
    assert opened(tmp_path, tiny).spec.query_scale is None


# ---- RoPE


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"rope_type": "linear", "factor": 1}, dict(type="none")),
        ({"rope_type": "linear", "factor": 4}, dict(type="linear", context_limit=1024)),
        # The original window is the trained one, where it is not said.
        ({"rope_type": "yarn", "factor": 2.5}, dict(original=256, context_limit=640)),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "finetuned": True},
            dict(original=64, context_limit=256),
        ),
        ({"rope_type": "yarn", "factor": 4.0, "truncate": False}, dict(truncate=False)),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_fast": None, "beta_slow": 0},
            dict(beta_fast=32, beta_slow=1),
        ),
        ({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5}, dict(magnitude=1.5)),
        (
            {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0},
            dict(magnitude=1.0),
        ),
        (
            {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2] * 16, "factor": 4.0,
             "original_max_position_embeddings": 16},
            dict(magnitude=1.5**0.5, divisors=(2.0,) * 16, context_limit=256),
        ),
        (
            {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2] * 16,
             "original_max_position_embeddings": 16, "attention_factor": 1.25},
            dict(magnitude=1.25),
        ),
        (
            {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 64},
            dict(type="llama3", context_limit=256, magnitude=1.0),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("old", [False, True])
def test_rope_parameters(tmp_path, fields, expected, old):
    def change(config, _) -> None:
        config.pop("rope_parameters", None)
        config["rope_scaling" if old else "rope_parameters"] = fields
        config["rope_theta"] = 1e4

    model = opened(tmp_path, Tiny(), change)
    profile = rope_profile(model.spec, None, None)
    for name, value in expected.items():
        found = getattr(profile, name)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), name
    assert model.warnings == ()


def test_one_mscale_changes_nothing_and_is_said(tmp_path):
    rope = {"rope_type": "yarn", "factor": 4.0, "mscale": 2.0, "rope_theta": 1e4}
    model = opened(tmp_path, Tiny(), lambda config, _: config.update(rope_parameters=rope))
    assert model.spec.rope_scaling.magnitude is None
    assert "mscale and mscale_all_dim count only together" in model.warnings[0]


@pytest.mark.parametrize("name", ["su", "yarn"])
def test_early_names_of_phi3_s_scaling(tmp_path, name):
    scaling = TinyRope("longrope", original=32, short=(1.0,) * 16, long=(2.0,) * 16)
    tiny = Tiny("phi3", tied=False, context=128, rope=scaling)
    model = opened(tmp_path, tiny, lambda config, _: config["rope_parameters"].update(rope_type=name))
    assert model.spec.rope_scaling.type == "longrope"
    assert model.spec.rope_scaling == opened(tmp_path, tiny).spec.rope_scaling


# ---- any value in any field

LONGROPE = TinyRope("longrope", original=32, short=(1.0,) * 16, long=(2.0,) * 16)

ODD = (
    None, True, 0, -1, 1, 3, 2**31, 10**400, 1e-300, 1e308, float("nan"), "", "silu", "\ud800\n", [], [1],
    [None] * 2, {},
)  # fmt: skip
"""Values of every kind, some of which a field may have."""


def _places(config: dict, path: tuple = ()) -> list[tuple]:
    """Every field, those of objects in it too."""
    found = []
    for name, value in config.items():
        found.append((*path, name))
        if isinstance(value, dict):
            found += _places(value, (*path, name))
    return found


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(rope=TinyRope("yarn", 4.0, 64)),
        Tiny(rope=TinyRope("llama3", 8.0, 64), context=512),
        Tiny("qwen2", window=8),
        Tiny("qwen3"),
        Tiny("gemma3", window=8, rope=TinyRope("linear", 2.0)),
        Tiny("phi3", tied=False, context=64, rope=LONGROPE),
    ],
    ids=lambda tiny: tiny.arch,
)  # fmt: skip
@pytest.mark.parametrize("old", [False, True])
def test_any_value_in_any_field_is_taken_or_refused_in_one_line(tmp_path, tiny, old):
    write_folder(tmp_path, tiny, old=old)
    path = tmp_path / "config.json"
    text, taken, refused = path.read_text(), 0, 0
    for place in _places(json.loads(text)):
        for value in ODD:
            config = json.loads(text)
            inner = config
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = value
            path.write_text(json.dumps(config))
            try:
                open_model_file(tmp_path).close()
                taken += 1
            except InputError as error:
                assert str(error).startswith(f"{tmp_path}/") and "\n" not in str(error), (place, value)
                refused += 1
    assert taken > 50 and refused > 100
