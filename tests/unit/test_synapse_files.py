"""Files of the architecture `synapse`: policies and keys that cannot be used."""

import gguf
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.model_file import open_model_file
from synapse_jax.train.export import write_gguf
from tests import tiny
from tests.small_decoders import POLICY, random_decoder


def rewrite(tmp_path, change):
    """A compressed decoder's file, with its `synapse.` keys changed."""
    path, out = tmp_path / "model.gguf", tmp_path / "changed.gguf"
    write_gguf(random_decoder(attention=POLICY), path)
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "synapse")
    keys = {
        key: field for key, field in reader.fields.items() if not key.startswith(("GGUF.", "general.arch"))
    }
    values = {key: (field.contents(), field.types[0]) for key, field in keys.items()}
    change(values)
    for key, (value, kind) in values.items():
        sub = gguf.GGUFValueType.INT32 if key.endswith("token_type") else gguf.GGUFValueType.STRING
        writer.add_key_value(key, value, kind, sub if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    tiny.finish(writer)
    return out


KEY = "synapse.attention.policy"
TEXT, NUMBER = gguf.GGUFValueType.STRING, gguf.GGUFValueType.UINT32


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is missing from the metadata"),
        ((4, NUMBER), "not"),
        (("", TEXT), "attention '' is not supported"),
        (("sparse:4", TEXT), "attention 'sparse:4' is not supported"),
        (("compressed:window=64", TEXT), "block must be given"),
        (("compressed:window=64,block=0", TEXT), "block 0"),
        (("compressed:window=64,block=4,block=4", TEXT), "block is there twice"),
        (("window:-1", TEXT), "'-1' is not a whole number"),
        (("pages:budget=512,window=256", TEXT), "no model is trained with it"),
        (("dense", TEXT), "a dense model is of architecture llama"),
        (("window:" + "9" * 100_000, TEXT), "not an attention policy"),
        (("window:1\n2", TEXT), "'1\\\\n2' is not a whole number"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(tmp_path, value, words):
    path = rewrite(tmp_path, lambda keys: keys.pop(KEY) if value is None else keys.update({KEY: value}))
    with pytest.raises(InputError) as caught:
        open_model_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {KEY}: ") and words.replace("\\\\", "\\") in message
    assert message.isprintable() and len(message) < 400


def test_other_keys_of_the_architecture(tmp_path):
    def change(keys):
        keys[KEY] = ("compressed:block=4,window=64", TEXT)
        keys["synapse.training.anything.else"] = (1, NUMBER)
        keys["synapse.trainings"] = (1, NUMBER)

    with open_model_file(rewrite(tmp_path, change)) as model:
        assert model.spec.attention == POLICY
        assert model.warnings == ("unknown keys, not used: 'synapse.trainings'",)


def test_a_policy_in_a_llama_file_is_an_unknown_key(tmp_path):
    """It is never read as one: the architecture decides."""
    tiny.write_tiny(
        tmp_path / "t.gguf", mutate=lambda keys, _: keys.update({"llama.attention.policy": POLICY})
    )
    with open_model_file(tmp_path / "t.gguf") as model:
        assert model.spec.attention == "dense" and "llama.attention.policy" in model.warnings[0]
