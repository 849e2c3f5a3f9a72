"""Hugging Face folders on the command line."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from tests.folders import train_tokenizer

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
        ("config.json", '{"model_type": 5}', ["config.json: model_type is 5"]),
        (
            "config.json",
            '{"vocab_size": 3, "vocab_size": 4}',
            ["config.json: not JSON", "vocab_size", "twice"],
        ),
        ("config.json", '{"vocab_size": "many"}', ["config.json: vocab_size is 'many'"]),
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
