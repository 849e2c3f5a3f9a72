"""Hugging Face folders on the command line."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from synapse_jax.io.model_file import open_model_file
from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.folders import train_tokenizer, write_folder
from tests.tiny import Tiny, write_tiny

TEXT = "hear the rain <|im_end|> Київ 1234"
CONFIG = {"model_type": "llama", "vocab_size": 320, "rope_scaling": {"type": "yarn", "factor": 4.0}}
TOKENIZER = {"eos_token": "<|im_end|>", "chat_template": "{{ messages[0].content }}"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder without weights, and the library's own tokenizer of it."""
    folder = tmp_path_factory.mktemp("hf") / "trained"
    engine = train_tokenizer(folder, config=CONFIG, tokenizer_config=TOKENIZER)
    return folder, engine


def digest(folder, *names: str) -> str:
    """As the documentation says: a line `NAME SHA256` for each file, in the order of the names."""
    lines = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n" for name in sorted(names)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("special", [False, True])
def test_tokenize_gives_the_library_s_ids(synapse, trained, special):
    folder, engine = trained
    argv = ["tokenize", "--model", folder, "--prompt", TEXT, *(["--special"] if special else []), "--json"]
    record = synapse(*argv).record
    engine.encode_special_tokens = not special
    assert record["result"]["token_ids"] == engine.encode(TEXT).ids
    assert record["model"] == {
        "name": "trained",
        "path": str(folder),
        "sha256": digest(folder, "config.json", "tokenizer.json", "tokenizer_config.json"),
        "arch": "llama",
    }


def test_inspect_shows_config_and_tokenizer(synapse, trained):
    folder, engine = trained
    result = synapse("inspect", "--model", folder, "--json").record["result"]
    end = engine.token_to_id("<|im_end|>")
    assert result["metadata"] == CONFIG
    assert result["tokenizer"]["eos_id"] == end and end in result["tokenizer"]["stop_ids"]
    assert result["tokenizer"]["vocab_size"] == 320
    assert (result["gguf_version"], result["format"], result["tensors"]) == (None, "hugging-face folder", 0)
    assert result["spec"] is None and result["problems"][0].startswith(f"error: {folder}")
    shown = synapse("inspect", "--model", folder)
    assert shown.code == 0 and "rope_scaling" in shown.out and "hugging-face folder" in shown.out


def test_a_folder_may_have_a_tokenizer_and_nothing_else(synapse, tmp_path, monkeypatch):
    engine = train_tokenizer(tmp_path / "bare")
    monkeypatch.chdir(tmp_path / "bare")
    record = synapse("tokenize", "--model", ".", "--prompt", TEXT, "--json").record
    assert record["model"] == {
        "name": "bare",
        "path": ".",
        "sha256": digest(tmp_path / "bare", "tokenizer.json"),
        "arch": None,
    }
    engine.encode_special_tokens = True
    assert record["result"]["token_ids"] == engine.encode(TEXT).ids


def test_the_digest_is_of_what_the_model_is_read_from(synapse, tmp_path):
    folder = tmp_path / "hf"
    train_tokenizer(folder, generation_config={"eos_token_id": [3]}, special_tokens_map={})
    (folder / "README.md").write_text("not read")
    (folder / "consolidated.safetensors").write_bytes(b"not read either")
    (folder / "additional_chat_templates").mkdir()
    others = ["chat_template.jinja", "additional_chat_templates/tool.jinja", "model.safetensors.index.json"]
    others += ["a-1.safetensors", "a-2.safetensors"]
    for name in others:
        (folder / name).write_text("x")
    index = {"weight_map": {"a": "a-1.safetensors", "b": "a-2.safetensors", "c": "../c", "d": "gone", "e": 1}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    always = ["tokenizer.json", "generation_config.json", "special_tokens_map.json", *others]
    argv = ["tokenize", "--model", folder, "--prompt", "a", "--json"]
    assert synapse(*argv).record["model"]["sha256"] == digest(folder, *always)
    # One file of weights counts before an index.
    (folder / "model.safetensors").write_bytes(b"y")
    used = [*always[:5], "model.safetensors"]
    assert synapse(*argv).record["model"]["sha256"] == digest(folder, *used)


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("config.json", "{", ["config.json: not JSON"]),
        ("config.json", "[]", ["config.json: is not a JSON object"]),
        ("config.json", '{"model_type": 5}', ["config.json: model_type: is 5"]),
        (
            "config.json",
            '{"vocab_size": 3, "vocab_size": 4}',
            ["config.json: not JSON", "vocab_size", "twice"],
        ),
        ("config.json", '{"vocab_size": "many"}', ["config.json: vocab_size is 'many'"]),
        (
            "generation_config.json",
            '{"eos_token_id": 2, "eos_token_id": 3}',
            ["generation_config.json: not JSON", "eos_token_id", "twice"],
        ),
        (
            "generation_config.json",
            '{"eos_token_id": [2, 320]}',
            ["generation_config.json: eos_token_id 320 is outside the vocabulary of"],
        ),
        ("tokenizer.json", "{}", ["tokenizer.json"]),
        ("tokenizer.json", None, ["tokenizer.json: cannot be read"]),
        (
            "tokenizer_config.json",
            '{"eos_token": "<nope>"}',
            ["tokenizer_config.json: eos_token is '<nope>'"],
        ),
    ],
)
def test_bad_folders_are_refused_with_file_and_field(synapse, tmp_path, name, content, words):
    train_tokenizer(tmp_path, config={})
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_text(content)
    refusal = synapse("tokenize", "--model", tmp_path, "--prompt", "a").refusal
    assert str(tmp_path) in refusal and all(word in refusal for word in words), refusal


def test_a_folder_that_is_no_model_is_refused(synapse, tmp_path):
    for command in (["tokenize", "--prompt", "a"], ["inspect"]):
        refusal = synapse(*command, "--model", tmp_path).refusal
        assert "is a folder without config.json and tokenizer.json" in refusal


def test_a_folder_starts_no_jax(trained):
    folder, _ = trained
    script = f"""
import sys
from synapse_jax.cli.main import main
assert main(["tokenize", "--model", {str(folder)!r}, "--prompt", "a"]) == 0
assert main(["inspect", "--model", {str(folder)!r}]) == 0
assert not {{"jax", "jaxlib", "flax"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr


# ---- models


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same TINY llama as a GGUF file and as a folder of two files of weights."""
    path = tmp_path_factory.mktemp("twins")
    write_tiny(path / "tiny.gguf", context=CONTEXT)
    return path / "tiny.gguf", write_folder(path / "tiny", Tiny(context=CONTEXT), shards=2)


FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"),
)


def both(synapse, twins, *argv):
    """Records of a command on the file and on the folder; but for the model they tell the same."""
    gguf, folder = (synapse(*argv, "--model", path, "--json").record for path in twins)
    assert folder["model"] == {
        "name": "tiny", "path": str(twins[1]), "sha256": digest(twins[1], *FILES), "arch": "llama",
    }  # fmt: skip
    assert folder["fingerprints"] == gguf["fingerprints"] and folder["tokens"] == gguf["tokens"]
    return gguf["result"], folder["result"]


def test_score_is_that_of_the_file(synapse, twins):
    gguf, folder = both(synapse, twins, "score", "--tokens", as_argument(some_ids(96)), "--context", 32)
    assert folder["perplexity"] == pytest.approx(gguf["perplexity"], rel=1e-6)
    text = twins[0].parent / "text"
    text.write_text("hear the rain in the north, on the moor\n" * 9)
    gguf, folder = both(synapse, twins, "score", "--text-file", text, "--context", 32)
    assert folder["perplexity"] == pytest.approx(gguf["perplexity"], rel=1e-6)


@pytest.mark.parametrize("prompt", [["--prompt", "hear the rain"], ["--tokens", "1 2 3"]])
def test_generate_gives_the_text_of_the_file(synapse, twins, prompt):
    gguf, folder = both(synapse, twins, "generate", *prompt, "--max-new-tokens", 9)
    # Padding rows are called after their ids in one and counted in the other.
    assert {**folder, "text": None} == {**gguf, "text": None} and len(folder["token_ids"]) == 9


def test_chat_takes_the_folder_s_template(synapse, twins):
    argv = [
        "generate",
        "--model",
        twins[1],
        "--prompt",
        "the rain",
        "--chat",
        "--max-new-tokens",
        1,
        "--json",
    ]
    assert synapse(*argv).record["result"]["chat"]["text"] == "user: the rain<|im_end|>\n"


def test_tokenize_and_graphs_are_those_of_the_file(synapse, twins):
    gguf, folder = both(synapse, twins, "tokenize", "--prompt", "hear the rain <|im_end|> Київ")
    assert folder == gguf
    gguf, folder = both(synapse, twins, "graph", "show", "--rows", 32)
    assert folder == gguf
    gguf, folder = both(synapse, twins, "graph", "list")
    assert folder == gguf


def test_inspect_shows_spec_tokenizer_and_tensors(synapse, twins):
    gguf, folder = both(synapse, twins, "inspect")
    assert folder["spec"] == gguf["spec"] and folder["problems"] == []
    assert (folder["tensors"], folder["tensor_bytes"]) == (gguf["tensors"], gguf["tensor_bytes"])
    assert folder["types"] == {"F32": folder["tensors"]}
    assert folder["tokenizer"] == gguf["tokenizer"]
    assert folder["metadata"]["max_position_embeddings"] == CONTEXT


def test_inspect_shows_what_is_wrong(synapse, tmp_path):
    write_folder(tmp_path, Tiny(), mutate=lambda config, _: config.update(mlp_bias=True))
    result = synapse("inspect", "--model", tmp_path, "--json").record["result"]
    assert result["spec"] is None and result["tensors"] == 20 and result["tokenizer"]["vocab_size"] == 288
    assert "mlp_bias: is True" in result["problems"][0]


# ---- stop tokens and padding


@pytest.mark.parametrize(
    "generation, config, tokenizer, expected",
    [
        ({"eos_token_id": 7}, {}, {}, {7}),
        ({"eos_token_id": [7, 9]}, {"eos_token_id": 3}, {}, {7, 9}),
        ({}, {"eos_token_id": [3, 4]}, {}, {3, 4}),
        (None, {"eos_token_id": 3}, {}, {3}),
        ({"eos_token_id": 7}, {}, {"eos_token": "a"}, {7, 64}),
        (None, {}, {}, set()),
    ],
)
def test_every_stop_token_that_the_files_name_counts(tmp_path, generation, config, tokenizer, expected):
    write_folder(tmp_path, Tiny(), mutate=lambda fields, _: fields.update(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (tmp_path / "generation_config.json").unlink()
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    with open_model_file(tmp_path) as model:
        # The known ends of texts among the control tokens always stop.
        assert model.stop_ids == expected | {264, 265}


def test_rows_of_the_embedding_may_be_padding_and_tokens_may_not(synapse, tmp_path):
    write_folder(tmp_path / "padded", Tiny(vocab=320, context=CONTEXT))
    with open_model_file(tmp_path / "padded") as model:
        assert model.tokenizer.vocab_size == model.spec.vocab_size == 320
    write_folder(tmp_path / "short", Tiny(context=CONTEXT), mutate=cut_vocabulary)
    argv = ["--model", tmp_path / "short", "--max-new-tokens", 1]
    done = synapse("generate", *argv, "--prompt", "a")
    assert done.code == 0 and "tokenizer.json: has 266 tokens, but config.json: vocab_size is 264" in done.err
    refused = synapse("generate", *argv, "--chat", "--prompt", "a")
    assert refused.code == 2 and "265" in refused.error


def cut_vocabulary(config, tensors) -> None:
    config["vocab_size"] = 264
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:264]
