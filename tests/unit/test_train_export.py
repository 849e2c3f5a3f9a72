"""Small decoders as files: read back bit by bit, with the names that keep others from misreading them."""

import dataclasses
import json

import gguf
import numpy as np
import pytest
import safetensors.numpy

import synapse_jax as sj
from synapse_jax.errors import InputError
from synapse_jax.io.model_file import open_model_file
from synapse_jax.train import export_folder
from synapse_jax.train.export import pair_rows, write_gguf
from synapse_jax.train.export_folder import write_folder
from synapse_jax.train.trained import TrainedDecoder, corpus_provenance
from tests import tiny
from tests.small_decoders import POLICY, own_sources, own_vocabulary, random_decoder

PROVENANCE = {
    "general.name": "a small decoder",
    "general.license": "apache-2.0",
    "synapse.training.seed": 3,
    "synapse.training.tokens": 1 << 40,
    "synapse.training.loss": 0.1,
    "synapse.training.repeats": True,
    "synapse.training.note": "Київ",
}
SHAPES = {
    "plain": {},
    "untied": dict(tied_output=False, head_size=48, kv_heads=1),
    "window": dict(attention="window:16"),
    "compressed": dict(attention=POLICY),
}
IDS = np.random.RandomState(1).randint(0, 511, 60).astype(np.int32)


def assert_same_weights(model, decoder):
    assert set(model.weight_names()) == set(decoder.weights)
    for name, array in decoder.weights.items():
        np.testing.assert_array_equal(model.read_weight(name), array, name)


def assert_same_tokens(tokenizer, decoder):
    own = decoder.vocabulary.tokenizer
    for document in own_sources().held_out:
        assert tokenizer.encode(document.data) == own.encode(document.data)
    assert tokenizer.eos_id == own.eos_id and tokenizer.bos_id == own.bos_id
    assert tokenizer.stop_ids == own.stop_ids and not tokenizer.add_bos and tokenizer.warnings == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gguf_file_is_read_back_bit_by_bit(tmp_path, shape):
    decoder = random_decoder(provenance=PROVENANCE, **SHAPES[shape])
    path = tmp_path / "model.gguf"
    write_gguf(decoder, path)
    with open_model_file(path) as model:
        assert model.spec == decoder.spec and model.warnings == ()
        assert model.arch == ("llama" if decoder.spec.attention == "dense" else "synapse")
        assert_same_weights(model, decoder)
        assert_same_tokens(model.tokenizer, decoder)
        for key, value in PROVENANCE.items():
            assert model.metadata[key] == value and type(model.metadata[key]) is type(value)
        assert model.name == "a small decoder"
    assert list(tmp_path.iterdir()) == [path] and path.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize("shape", ["plain", "untied"])
def test_a_folder_is_read_back_bit_by_bit(tmp_path, shape):
    decoder = random_decoder(provenance=PROVENANCE, **SHAPES[shape])
    write_folder(decoder, tmp_path / "folder")
    with open_model_file(tmp_path / "folder") as model:
        assert model.spec == decoder.spec and model.warnings == ()
        assert_same_weights(model, decoder)
        assert_same_tokens(model.tokenizer, decoder)
    stored = safetensors.numpy.load_file(tmp_path / "folder" / "model.safetensors")
    np.testing.assert_array_equal(
        stored["model.layers.1.self_attn.q_proj.weight"], decoder.weights["layers.1.q"]
    )
    with safetensors.safe_open(tmp_path / "folder" / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"} | {key: str(value) for key, value in PROVENANCE.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_session_scores_the_same_from_memory_and_both_files(tmp_path):
    decoder = random_decoder()
    write_gguf(decoder, tmp_path / "model.gguf")
    write_folder(decoder, tmp_path / "folder")
    profile = sj.RuntimeProfile(context=256, page_size=16)
    scores = []
    for model in (decoder, sj.load(tmp_path / "model.gguf"), sj.load(tmp_path / "folder")):
        scores.append(sj.Session(model, profile, ready=[]).score(IDS, start=1).nll)
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
    assert np.isfinite(scores[0]).all() and scores[0].std() > 0.1


def test_matrices_can_be_q8_0(tmp_path):
    decoder = random_decoder(attention=POLICY)
    path = tmp_path / "model.gguf"
    write_gguf(decoder, path, weight_type="Q8_0")
    kind = gguf.GGMLQuantizationType.Q8_0
    with open_model_file(path) as model:
        assert model.spec == decoder.spec and model.warnings == ()
        for name, array in decoder.weights.items():
            assert model.weight_types()[name] == ("Q8_0" if array.ndim == 2 else "F32")
            if array.ndim == 2:
                array = gguf.quants.dequantize(gguf.quants.quantize(array, kind), kind).reshape(array.shape)
            np.testing.assert_array_equal(model.read_weight(name), array)


def test_q8_0_quantizes_whole_rows_of_a_plain_decoder(tmp_path):
    """Rows are paired before they are quantized, so pairing loses nothing."""
    decoder = random_decoder()
    write_gguf(decoder, tmp_path / "model.gguf", weight_type="Q8_0")
    with open_model_file(tmp_path / "model.gguf") as model:
        got, array = model.read_weight("layers.0.q"), decoder.weights["layers.0.q"]
    assert np.abs(got - array).max() <= np.abs(array).max() / 127 / 2 * 1.01


@pytest.mark.parametrize("heads, size, rotary", [(4, 32, 32), (3, 48, 32), (2, 8, 8)])
def test_pair_rows(heads, size, rotary):
    rows = np.random.RandomState(1).standard_normal((heads * size, 5)).astype(np.float32)
    paired = pair_rows(rows, heads, rotary)
    np.testing.assert_array_equal(paired, tiny.pair_rows(rows, heads, rotary))
    assert not np.array_equal(paired, rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weight_type", ["F32", "Q8_0"])
def test_equal_decoders_make_equal_bytes(tmp_path, shape, weight_type):
    sizes = SHAPES[shape] | (dict(head_size=32) if weight_type == "Q8_0" else {})
    for name, provenance in (("a", PROVENANCE), ("b", dict(reversed(PROVENANCE.items())))):
        decoder = random_decoder(provenance=provenance, **sizes)
        write_gguf(decoder, tmp_path / f"{name}.gguf", weight_type=weight_type)
        if decoder.spec.attention == "dense":
            write_folder(decoder, tmp_path / name)
            for file in (tmp_path / "a").iterdir():
                assert (tmp_path / name / file.name).read_bytes() == file.read_bytes()
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_what_a_file_says_of_its_corpus(tmp_path):
    provenance = corpus_provenance(own_sources(), own_vocabulary())
    write_gguf(random_decoder(provenance=provenance, attention=POLICY), tmp_path / "m.gguf")
    with open_model_file(tmp_path / "m.gguf") as model:
        assert model.metadata["synapse.training.corpus_sha256"] == own_sources().sha256
        assert model.metadata["synapse.training.corpus_license"] == "Apache-2.0"
        assert model.warnings == ()


# ---- what is refused


@pytest.mark.parametrize(
    "key",
    [
        "general.architecture",
        "general.alignment",
        "general",
        "synapse.training",
        "synapse.training.",
        "llama.x",
    ]
    + ["synapse.attention.policy", "general.Name", "general.a b", "tokenizer.ggml.model", "general.name\n"],
)
def test_keys_that_are_not_free_are_refused(key):
    with pytest.raises(InputError, match="provenance: ") as caught:
        random_decoder(provenance={key: "x"})
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("general.name", 1), ("synapse.training.seed", -1), ("synapse.training.seed", 1 << 63)]
    + [("synapse.training.seed", None), ("synapse.training.seed", [1])],
)
def test_values_that_a_file_cannot_hold_are_refused(key, value):
    with pytest.raises(InputError, match=f"provenance: {key} is "):
        random_decoder(provenance={key: value})


def test_a_folder_cannot_declare_a_policy(tmp_path):
    with pytest.raises(InputError, match=f"attention is {POLICY}: a Hugging Face folder cannot declare it"):
        write_folder(random_decoder(attention=POLICY), tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_the_models_are_refused():
    decoder = random_decoder()
    spec, vocabulary = decoder.spec, decoder.vocabulary

    def make(**weights):
        changed = {**decoder.weights, **{name.replace("__", "."): array for name, array in weights.items()}}
        return TrainedDecoder(spec, {k: v for k, v in changed.items() if v is not None}, vocabulary)

    q = decoder.weights["layers.0.q"]
    with pytest.raises(ValueError, match=r"other names: \['layers\.0\.q'\]"):
        make(layers__0__q=None)
    with pytest.raises(ValueError, match=r"other names: \['head'\]"):
        make(head=q)
    with pytest.raises(ValueError, match=r"layers\.0\.q is float32 \(64, 128\)"):
        make(layers__0__q=q.T)
    with pytest.raises(ValueError, match=r"layers\.0\.q is float64"):
        make(layers__0__q=q.astype(np.float64))
    with pytest.raises(InputError, match=r"layers\.0\.q holds a value that is not finite"):
        make(layers__0__q=np.where(np.arange(64) == 3, np.float32(np.nan), q))
    with pytest.raises(InputError, match="vocab_size is 500, the vocabulary has 512"):
        TrainedDecoder(dataclasses.replace(spec, vocab_size=500), decoder.weights, vocabulary)
    with pytest.raises(InputError, match="qkv_bias is True"):
        TrainedDecoder(dataclasses.replace(spec, qkv_bias=True), decoder.weights, vocabulary)


def test_types_that_matrices_cannot_have_are_refused(tmp_path):
    with pytest.raises(InputError, match="weight type 'Q4_0' is not"):
        write_gguf(random_decoder(), tmp_path / "m.gguf", weight_type="Q4_0")
    with pytest.raises(InputError, match=r"weight layers\.0\.down has rows of 80, which Q8_0 cannot hold"):
        write_gguf(random_decoder(ffn_width=80), tmp_path / "m.gguf", weight_type="Q8_0")
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("kept")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("kept")
    decoder = random_decoder()
    for place in ("full", "none/model.gguf"):
        with pytest.raises(InputError, match=f"{tmp_path / place}: cannot be written"):
            write_gguf(decoder, tmp_path / place)
    for place in ("full", "file", "none/folder"):
        with pytest.raises(InputError, match=f"{tmp_path / place}: cannot be written"):
            write_folder(decoder, tmp_path / place)
    write_folder(decoder, tmp_path / "empty")
    assert (tmp_path / "full" / "precious").read_text() == (tmp_path / "file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]


def test_an_export_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    path = tmp_path / "model.gguf"
    path.write_text("before")
    monkeypatch.setattr(gguf.GGUFWriter, "write_kv_data_to_file", lambda writer: (writer.close(), fail()))
    with pytest.raises(KeyboardInterrupt):
        write_gguf(random_decoder(), path)
    monkeypatch.setattr(export_folder, "_write_safetensors", fail)
    with pytest.raises(KeyboardInterrupt):
        write_folder(random_decoder(), tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "before"


def test_config_names_what_transformers_reads(tmp_path):
    write_folder(random_decoder(), tmp_path / "f")
    config = json.loads((tmp_path / "f" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"] and config["eos_token_id"] == 511
    assert config["rope_parameters"]["rope_theta"] == config["rope_theta"] == 10000.0
