"""Specs and weights of each family's files (cases 3, 4, 25, 27, 28), and what is refused."""

import hashlib

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.families import unpair_rows
from synapse_jax.io.model_file import open_model_file
from tests import raw_gguf, tiny


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tiny.gguf"


def refusal(path, *words, arch="llama", mutate=None, **options):
    """Asserts that a TINY file is refused in one line that has these words."""
    tiny.write_tiny(path, arch, mutate=mutate, **options)
    with pytest.raises(InputError) as caught:
        open_model_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.isprintable(), message
    for word in words:
        assert word in message, message


def set_keys(arch="llama", **values):
    """A mutation that sets keys of an architecture; `__` stands for a dot."""

    def mutate(metadata, _):
        metadata.update({f"{arch}.{key.replace('__', '.')}": value for key, value in values.items()})

    return mutate


def add_tensor(name):
    """A mutation that adds a small tensor."""

    def mutate(_, tensors):
        tensors[name] = np.ones(16, np.float32)

    return mutate


# ---- layout of the weights


@pytest.mark.parametrize("heads, size, rotary", [(4, 32, 32), (2, 32, 32), (3, 48, 32), (1, 6, 2), (2, 8, 8)])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_unpair_rows_row_by_row(heads, size, rotary, columns):
    stored = np.random.RandomState(1).standard_normal((heads * size, *columns)).astype(np.float32)
    got = unpair_rows(stored, heads, rotary)
    assert got.shape == stored.shape and got.dtype == np.float32
    for head in range(heads):
        for row in range(size):
            # Where the half-split row of this index was stored.
            if row < rotary // 2:
                source = 2 * row
            elif row < rotary:
                source = 2 * (row - rotary // 2) + 1
            else:
                source = row
            np.testing.assert_array_equal(got[head * size + row], stored[head * size + source])


SIZES = {
    "default": {},
    "partial rotary": dict(head_size=48, rotary_size=32),
    "many groups": dict(query_heads=6, kv_heads=1, width=96, head_size=16),
    "untied": dict(tied=False),
    "biases": dict(qkv_bias=True, head_size=48, rotary_size=16),
}


ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "phi3")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_weights_are_those_of_the_checkpoint(path, arch, sizes):
    if "qkv_bias" in sizes and arch not in ("llama", "qwen2"):
        # The attribute of test files; these families have no biases.
        refusal(path, "attn_q.bias", arch=arch, **sizes)
        return
    given = tiny.write_tiny(path, arch, **sizes)
    expected = tiny.tiny_weights(given)
    with open_model_file(path) as model:
        assert model.warnings == ()
        assert sorted(model.weight_names()) == sorted(expected)
        assert model.weight_shapes() == {name: array.shape for name, array in expected.items()}
        assert set(model.weight_types().values()) == {"F32"}
        for name, array in expected.items():
            np.testing.assert_array_equal(model.read_weight(name), array, err_msg=name)
        spec = model.spec
    assert (spec.arch, spec.layers) == (arch, given.layers)
    assert (spec.width, spec.ffn_width) == (given.D, given.ffn_width)
    assert (spec.query_heads, spec.kv_heads) == (given.query_heads, given.kv_heads)
    assert (spec.head_size, spec.rotary_size) == (given.head_size, given.rotary)
    assert (spec.vocab_size, spec.trained_context) == (given.vocab, given.context)
    assert (spec.tied_output, spec.qkv_bias) == (given.tied, given.biased)
    assert spec.norm_epsilon == np.float32(1e-5) and spec.rope_base == 10000.0


def test_llama_rows_are_stored_in_pairs_and_qwen2_rows_are_not(path):
    for arch, same in (("llama", False), ("qwen2", True)):
        tiny.write_tiny(path, arch)
        with open_model_file(path) as model:
            for name, tensor in (("q", "attn_q"), ("k", "attn_k")):
                stored = model.gguf.read(f"blk.1.{tensor}.weight")
                assert np.array_equal(stored, model.read_weight(f"layers.1.{name}")) is same


def test_quantized_weights_keep_their_type_and_are_unpaired(path):
    given = tiny.write_tiny(path, types={"blk.0.attn_q.weight": "Q8_0", "token_embd.weight": "F16"})
    expected = tiny.tiny_weights(given)
    with open_model_file(path) as model:
        assert model.weight_types()["layers.0.q"] == "Q8_0" and model.weight_types()["embed"] == "F16"
        for name in ("layers.0.q", "embed"):
            assert 0 < np.abs(model.read_weight(name) - expected[name]).max() < 0.05


def test_head_size_comes_from_the_key_or_from_the_width(path):
    def drop(metadata, _):
        del metadata["llama.attention.key_length"], metadata["llama.attention.value_length"]

    tiny.write_tiny(path, head_size=16, mutate=drop)
    with open_model_file(path) as model:
        assert model.spec.head_size == 16
    refusal(path, "blk.0.attn_q.weight", "[128, 64]", "[64, 64]", head_size=32, rotary_size=16, mutate=drop)
    refusal(path, "llama.attention.key_length", "3", "64", query_heads=3, kv_heads=3, mutate=drop)
    refusal(path, "value_length", "16", "32", mutate=set_keys(attention__value_length=16))

    def drop_value(metadata, _):
        del metadata["llama.attention.value_length"]

    refusal(path, "value_length", "is 16", "32", mutate=drop_value)


# ---- metadata


def test_defaults_are_reported(path):
    def drop(metadata, _):
        for key in ("rope.freq_base", "rope.dimension_count", "attention.head_count_kv"):
            del metadata[f"llama.{key}"]

    tiny.write_tiny(path, kv_heads=4, rope_base=5e5, mutate=drop)
    with open_model_file(path) as model:
        spec, warnings = model.spec, " | ".join(model.warnings)
    assert (spec.rope_base, spec.rotary_size, spec.kv_heads) == (10000.0, 32, 4)
    for words in (
        "llama.rope.freq_base is missing: 10000.0 is used",
        "rope.dimension_count is missing: 32",
        "head_count_kv is missing: 4",
    ):
        assert words in warnings


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_required_keys(path, key):
    refusal(path, f"llama.{key}: is missing", mutate=lambda metadata, _: metadata.pop(f"llama.{key}"))
    refusal(path, f"llama.{key}", "string", mutate=lambda metadata, _: metadata.update({f"llama.{key}": "1"}))


@pytest.mark.parametrize(
    "values, words",
    [
        (dict(attention__head_count=0), ["head_count", "is 0"]),
        (dict(attention__head_count_kv=3), ["kv_heads 3", "query_heads 4"]),
        (dict(attention__head_count_kv=[2, 2]), ["head_count_kv", "array"]),
        (dict(attention__head_count=[4, 4]), ["head_count", "array"]),
        (dict(feed_forward_length=[96, 96]), ["feed_forward_length", "array"]),
        (dict(block_count=2**32 - 1), ["block_count", str(2**32 - 1)]),
        (dict(rope__dimension_count=31), ["rotary_size 31"]),
        (dict(rope__dimension_count=64), ["rotary_size 64", "32"]),
        (dict(attention__layer_norm_rms_epsilon=0.0), ["norm_epsilon", "0.0"]),
        (dict(rope__freq_base=-1.0), ["rope_base", "-1.0"]),
        (dict(rope__freq_base=10000), ["rope.freq_base", "uint32, not a float"]),
        (dict(context_length=0), ["context_length", "is 0"]),
    ],
)
def test_bad_metadata_is_refused(path, values, words):
    refusal(path, *words, mutate=set_keys(**values))


@pytest.mark.parametrize(
    "values",
    [
        dict(rope__scaling__type="longrope"),
        dict(rope__scaling__alpha=1000.0),
        dict(rope__dimension_sections=[8, 8, 0, 0]),
        dict(rope__freq_base_swa=1e6),
        dict(rope__dimension_count_swa=16),
        dict(attention__key_length_swa=16),
        dict(attention__value_length_swa=16),
        dict(attention__sliding_window=[64, 0]),
        dict(expert_count=8),
        dict(expert_used_count=2),
        dict(attention__causal=False),
        dict(logit_scale=0.5),
        dict(embedding_scale=12.0),
        dict(residual_scale=0.22),
        dict(attention__scale=0.1),
        dict(attention__clamp_kqv=8.0),
        dict(attention__max_alibi_bias=8.0),
        dict(attn_logit_softcapping=50.0),
        dict(final_logit_softcapping=30.0),
        dict(use_parallel_residual=True),
        dict(hidden_activation="gelu"),
        dict(nextn_predict_layers=1),
        dict(logit_scale=[1.0, 1.0]),
    ],
)
def test_metadata_that_changes_the_numbers_is_refused(path, values):
    key = list(values)[-1]
    refusal(path, f"llama.{key.replace('__', '.')}: ", mutate=set_keys(**values))


def test_metadata_that_changes_nothing_is_accepted(path):
    tiny.write_tiny(
        path,
        mutate=set_keys(
            rope__scaling__type="linear",
            rope__scaling__factor=1.0,
            rope__scaling__original_context_length=256,
            attention__sliding_window=256,
            attention__key_length_swa=32,
            rope__freq_base_swa=10000.0,
            expert_count=0,
            attention__causal=True,
            logit_scale=1.0,
            tensor_data_layout="Meta AI original pth",
        ),
    )
    with open_model_file(path) as model:
        assert model.warnings == ()
    tiny.write_tiny(path, mutate=set_keys(rope__scaling__type="none", rope__scaling__factor=4.0))
    with open_model_file(path) as model:
        assert len(model.warnings) == 1 and "llama.rope.scaling.factor is 4.0" in model.warnings[0]


def test_unknown_keys_are_warned_of(path):
    tiny.write_tiny(path, mutate=set_keys(**{"foo.bar\n": 1}, **{f"many.{i}": i for i in range(10)}))
    with open_model_file(path) as model:
        assert len(model.warnings) == 1 and r"'llama.foo.bar\n'" in model.warnings[0]
        assert model.warnings[0].endswith("and 3 more") and model.warnings[0].isprintable()


def test_architecture(path):
    def rename(metadata, _):
        metadata["general.architecture"] = "mamba\n"

    refusal(
        path,
        "general.architecture",
        r"'mamba\n'",
        "gemma3, llama, phi3, qwen2, qwen3, synapse",
        mutate=rename,
    )
    with open_model_file(path, weights=False) as model:
        assert model.arch == "mamba\n" and model.name == "tiny llama"
    refusal(
        path,
        "general.type",
        "adapter",
        mutate=lambda metadata, _: metadata.update({"general.type": "adapter"}),
    )
    path.write_bytes(raw_gguf.build())
    with pytest.raises(InputError, match=r"general\.architecture: is missing"):
        open_model_file(path, weights=False)


def test_vocabulary_sizes(path):
    refusal(
        path,
        "tokenizer.ggml.tokens",
        "3 tokens",
        "288 rows",
        mutate=lambda metadata, _: metadata.update({"tokenizer.ggml.tokens": ["a", "b", "c"]}),
    )
    tiny.write_tiny(path, mutate=set_keys(vocab_size=300))
    with open_model_file(path) as model:
        assert model.spec.vocab_size == 288 and "llama.vocab_size is 300" in model.warnings[0]


# ---- tensors


@pytest.mark.parametrize(
    "arch, name",
    [
        ("llama", "blk.1.ffn_up.weight"),
        ("llama", "token_embd.weight"),
        ("qwen2", "blk.1.attn_k.bias"),
        ("qwen2", "output_norm.weight"),
        ("qwen3", "blk.1.attn_q_norm.weight"),
        ("gemma3", "blk.0.attn_k_norm.weight"),
        ("gemma3", "blk.1.post_attention_norm.weight"),
        ("gemma3", "blk.0.post_ffw_norm.weight"),
        ("phi3", "blk.1.attn_qkv.weight"),
        ("phi3", "blk.0.ffn_up.weight"),
    ],
)
def test_missing_tensor_is_named(path, arch, name):
    refusal(path, f"tensor '{name}'", "missing", arch=arch, mutate=lambda _, tensors: tensors.pop(name))


def test_qwen2_without_biases_and_llama_with_one_bias_are_refused(path):
    refusal(path, "blk.0.attn_q.bias", "missing", arch="qwen2", qkv_bias=False)
    refusal(
        path,
        "blk.0.attn_q.bias",
        "missing",
        mutate=lambda _, tensors: tensors.update({"blk.1.attn_v.bias": np.zeros(64, np.float32)}),
    )


def test_wrong_shape_names_both(path):
    refusal(
        path,
        "blk.0.attn_k.weight",
        "[64, 32]",
        "[64, 64]",
        mutate=lambda _, tensors: tensors.update({"blk.0.attn_k.weight": np.zeros((64, 32), np.float32)}),
    )
    refusal(
        path,
        "output.weight",
        "[287, 64]",
        "[288, 64]",
        tied=False,
        mutate=lambda _, tensors: tensors.update({"output.weight": tensors["output.weight"][:-1]}),
    )


def test_unknown_tensor_is_warned_of(path):
    tiny.write_tiny(path, mutate=add_tensor("blk.0.foo.weight"))
    with open_model_file(path) as model:
        assert model.warnings == ("unknown tensors, not used: 'blk.0.foo.weight'",)


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.rope_freqs.weight",
        "blk.1.attn_output.bias",
        "blk.0.ffn_up.bias",
        "output.bias",
        "blk.0.attn_q_norm.weight",
        "blk.0.attn_qkv.weight",
        "blk.0.ffn_gate_inp.weight",
        "blk.0.attn_q.scale",
        "blk.2.attn_norm.weight",
    ],
)
def test_tensor_that_changes_the_numbers_is_refused(path, name):
    refusal(path, f"tensor '{name}'", mutate=add_tensor(name))


@pytest.mark.parametrize(
    "arch, name",
    [
        ("qwen2", "blk.0.attn_q_norm.weight"),
        ("qwen3", "blk.0.attn_q.bias"),
        ("qwen3", "blk.1.post_ffw_norm.weight"),
        ("gemma3", "blk.0.attn_v.bias"),
        ("gemma3", "output.bias"),
        ("phi3", "blk.0.attn_qkv.bias"),
        ("phi3", "blk.0.ffn_gate_inp.weight"),
        ("phi3", "blk.0.attn_k_norm.weight"),
    ],
)
def test_tensor_of_another_family_is_refused(path, arch, name):
    refusal(path, f"tensor '{name}'", arch, arch=arch, mutate=add_tensor(name))


# ---- what a family's spec says


def spec_of(path, arch, mutate=None, **sizes):
    tiny.write_tiny(path, arch, mutate=mutate, **sizes)
    with open_model_file(path) as model:
        return model.spec, model.warnings


def test_case_4_gemma3_is_scaled_once_and_its_norms_are_the_file_s(path):
    given = tiny.Tiny("gemma3", width=640, layers=1)
    spec, _ = spec_of(path, "gemma3", width=640, layers=1)
    assert (spec.qk_norm, spec.post_norms, spec.activation) == (True, True, "gelu")
    assert round(spec.embed_scale, 3) == 25.298
    expected = tiny.tiny_weights(given)
    with open_model_file(path) as model:
        for name in expected:
            stored = model.gguf.read(model._layout.weights[name].tensor)
            np.testing.assert_array_equal(model.read_weight(name), stored)
            if name.endswith("norm"):
                # About 1, or 2 for the heads: the + 1 is in the file.
                assert 0.8 < expected[name].mean() < 2.2


@pytest.mark.parametrize("layers, scale", [(18, 32**-0.5), (61, 32**-0.5), (62, 16**-0.5)])
def test_gemma3_scales_queries_by_the_head_size_but_for_the_27b(path, layers, scale):
    """62 layers are the 27B: there it is width / heads = 16, not the head size of 32."""
    spec, _ = spec_of(path, "gemma3", layers=layers, ffn_width=8, head_size=32, kv_heads=1)
    assert spec.attention_scale == pytest.approx(scale)


WINDOW = dict(attention__sliding_window=8)


def gemma3_keys(**values):
    def mutate(metadata, _):
        for key in ("sliding_window_pattern", "sliding_window"):
            metadata.pop(f"gemma3.attention.{key}", None)
        metadata.pop("gemma3.rope.freq_base_swa", None)
        set_keys("gemma3", **values)(metadata, _)

    return mutate


@pytest.mark.parametrize(
    "values, window, full_layers, base",
    [
        ({}, 0, range(7), None),
        (dict(attention__sliding_window=0), 0, range(7), None),
        (dict(attention__sliding_window=8), 8, [5], 1e4),
        (dict(attention__sliding_window=8, rope__freq_base_swa=5e3), 8, [5], 5e3),
        (WINDOW | dict(attention__sliding_window_pattern=2), 8, [1, 3, 5], 1e4),
        (WINDOW | dict(attention__sliding_window_pattern=0), 8, [], 1e4),
        (WINDOW | dict(attention__sliding_window_pattern=1), 0, range(7), None),
        (
            dict(attention__sliding_window=8, attention__sliding_window_pattern=[True] * 3 + [False] * 4),
            8,
            [3, 4, 5, 6],
            1e4,
        ),
        (WINDOW | dict(attention__sliding_window_pattern=[1, 0, 1, 0, 1, 0, 1]), 8, [1, 3, 5], 1e4),
        # A window beyond the context hides nothing, but its layers have their own base.
        (dict(attention__sliding_window=300), 300, [5], 1e4),
    ],
)  # fmt: skip
def test_gemma3_windows(path, values, window, full_layers, base):
    spec, warnings = spec_of(path, "gemma3", layers=7, mutate=gemma3_keys(**values))
    assert (spec.window, spec.local_rope_base) == (window, base)
    assert [i for i in range(7) if not spec.window_of(i)] == list(full_layers)
    defaults = int(window > 0) * (
        ("attention__sliding_window_pattern" not in values) + ("rope__freq_base_swa" not in values)
    )
    assert len(warnings) == defaults, warnings


@pytest.mark.parametrize(
    "values, words",
    [
        (dict(attention__sliding_window=[8, 8]), ["sliding_window", "array"]),
        (dict(attention__sliding_window=np.int32(-8)), ["sliding_window", "-8"]),
        (dict(attention__sliding_window="8"), ["sliding_window", "string"]),
        (WINDOW | dict(attention__sliding_window_pattern=[True]), ["pattern", "7 layers"]),
        (WINDOW | dict(attention__sliding_window_pattern=[2] * 7), ["pattern", "7 layers"]),
        (WINDOW | dict(attention__sliding_window_pattern=["a"] * 7), ["pattern", "7 layers"]),
        (WINDOW | dict(attention__sliding_window_pattern="a"), ["pattern", "string"]),
        (WINDOW | dict(attention__sliding_window_pattern=np.int32(-1)), ["pattern", "-1"]),
        (dict(attention__sliding_window=8, rope__freq_base_swa=-1.0), ["local_rope_base", "-1.0"]),
        (dict(final_logit_softcapping=30.0), ["final_logit_softcapping", "30.0"]),
        (dict(attn_logit_softcapping=50.0), ["attn_logit_softcapping", "50.0"]),
        (dict(hidden_activation="silu"), ["hidden_activation", "'silu'"]),
        (dict(attention__key_length_swa=16), ["key_length_swa", "16"]),
    ],
)  # fmt: skip
def test_gemma3_refuses_what_it_cannot_do(path, values, words):
    refusal(path, *words, arch="gemma3", layers=7, mutate=gemma3_keys(**values))


@pytest.mark.parametrize("arch", ["llama", "phi3"])
@pytest.mark.parametrize("window, applied", [(0, 0), (12, 12), (255, 255), (256, 0), (262144, 0)])
def test_a_window_of_llama_and_phi3_is_every_layer_s_and_is_noted(path, arch, window, applied):
    spec, warnings = spec_of(path, arch, mutate=set_keys(arch, attention__sliding_window=window))
    assert [spec.window_of(i) for i in range(2)] == [applied, applied]
    assert len(warnings) == (applied > 0) and all(f"sliding_window is {window}" in line for line in warnings)


def test_phi3_without_the_key_of_a_window_is_noted(path):
    def drop(metadata, _):
        del metadata["phi3.attention.sliding_window"]

    spec, warnings = spec_of(path, "phi3", mutate=drop)
    assert spec.window == 0 and len(warnings) == 1 and "sliding_window is missing" in warnings[0]


@pytest.mark.parametrize("arch", ["qwen2", "qwen3"])
def test_a_window_of_qwen_is_refused(path, arch):
    """Which layers slide is not in the file: Hugging Face has `max_window_layers` for it."""
    refusal(path, "sliding_window", "255", arch=arch, mutate=set_keys(arch, attention__sliding_window=255))


def test_phi3_parts_are_rows_of_the_fused_tensors_whatever_their_type(path):
    given = tiny.write_tiny(
        path, "phi3", types={"blk.0.attn_qkv.weight": "Q4_0", "blk.1.ffn_up.weight": "Q8_0"}
    )
    expected = tiny.tiny_weights(given)
    with open_model_file(path) as model:
        for layer, tensor, parts in ((0, "attn_qkv", "qkv"), (1, "ffn_up", ["gate", "up"])):
            read = [model.read_weight(f"layers.{layer}.{part}") for part in parts]
            np.testing.assert_array_equal(
                np.concatenate(read), model.gguf.read(f"blk.{layer}.{tensor}.weight")
            )
            for part, rows in zip(parts, read, strict=True):
                assert 0 < np.abs(rows - expected[f"layers.{layer}.{part}"]).max() < 0.3
        for first, rows in ((0, 300), (-1, 2), (255, 2)):
            with pytest.raises(ValueError, match="rows"):
                model.gguf.read("blk.0.attn_qkv.weight", first, rows)
        with pytest.raises(ValueError, match="rows"):
            model.gguf.read("output_norm.weight", 1, 3)
    refusal(
        path,
        "blk.0.attn_qkv.weight",
        "[255, 128]",
        "[256, 128]",
        arch="phi3",
        mutate=lambda _, tensors: tensors.update(
            {"blk.0.attn_qkv.weight": tensors["blk.0.attn_qkv.weight"][:-1]}
        ),
    )


def test_type_that_cannot_be_read_is_refused_at_open(path):
    tiny.write_tiny(path)
    content = bytearray(path.read_bytes())
    # The type follows the name, the dimension count and one dimension; I32 is as large as F32.
    at = content.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8
    content[at] = 26
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"tensor 'output_norm\.weight': has type I32 \(number 26\)"):
        open_model_file(path)


def test_file_without_weights_opens_for_its_header_only(path):
    refusal(path, "vocabulary", mutate=lambda _, tensors: tensors.clear())
    with open_model_file(path, weights=False) as model:
        assert len(model.gguf.metadata["tokenizer.ggml.tokens"]) == 288
        with pytest.raises(InputError, match="vocabulary"):
            _ = model.spec


def test_digest_and_name(path):
    tiny.write_tiny(path, mutate=lambda metadata, _: metadata.pop("general.name"))
    with open_model_file(path) as model:
        assert model.name == "tiny" and model.path == path
        assert model.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
        with pytest.raises(KeyError):
            model.read_weight("head")
