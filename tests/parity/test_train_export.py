"""Exported small decoders in other engines: a plain one is the same model there, another one is refused."""

import shutil
import subprocess

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import check_identity, nll_and_greedy
from synapse_jax.evals.controls.llama_binding import LlamaBinding
from synapse_jax.evals.score import Protocol
from synapse_jax.train.export import write_gguf
from synapse_jax.train.export_folder import write_folder
from tests import oracles
from tests.small_decoders import POLICY, own_sources, random_decoder

TOLERANCE = 1e-4
"""Largest difference of a position's NLL."""
SHAPES = {"default": {}, "untied": dict(tied_output=False, kv_heads=1, head_size=64)}

pytestmark = pytest.mark.control


def ids_of(decoder) -> np.ndarray:
    document = own_sources().held_out[0].data
    return np.array(decoder.vocabulary.tokenizer.encode(document)[:200], np.int32)


def own_nll(path, ids) -> np.ndarray:
    """By this engine; the spread says that another model would show."""
    with sj.load(path) as model:
        session = sj.Session(model, sj.RuntimeProfile(context=256, page_size=16), ready=[])
        nll = session.score(ids, start=1).nll
    assert len(ids) == 200 and np.std(nll) > 0.5
    return nll


@pytest.mark.parametrize("shape", SHAPES)
def test_llama_cpp_computes_the_same(tmp_path, shape):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    decoder = random_decoder(provenance={"synapse.training.loss": 0.5}, **SHAPES[shape])
    write_gguf(decoder, tmp_path / "model.gguf")
    ids, control = ids_of(decoder), LlamaBinding(tmp_path / "model.gguf", 256, 1)
    (scores,) = control.score(ids, Protocol(len(ids), score_last=len(ids) - 1))
    check_identity(ids, scores.evaluated, control.name)
    control.close()
    assert np.abs(scores.nll - own_nll(tmp_path / "model.gguf", ids)).max() < TOLERANCE


@pytest.mark.parametrize("attention", ["window:64", POLICY])
def test_llama_cpp_refuses_a_decoder_with_a_policy(tmp_path, attention):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    write_gguf(random_decoder(attention=attention), tmp_path / "model.gguf")
    with pytest.raises(InputError, match=r"llama\.cpp does not load it"):
        LlamaBinding(tmp_path / "model.gguf", 256, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_computes_the_same(tmp_path, shape):
    oracles.require_transformers()
    import transformers

    decoder = random_decoder(**SHAPES[shape])
    write_folder(decoder, tmp_path / "folder")
    ids, model = ids_of(decoder), oracles.transformers_folder_model(tmp_path / "folder")
    nll, _ = nll_and_greedy(oracles.transformers_logits(model, ids)[:-1], ids[1:])
    assert np.abs(nll - own_nll(tmp_path / "folder", ids)).max() < TOLERANCE
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    text = own_sources().held_out[0].data.decode()
    assert tokenizer(text)["input_ids"] == decoder.vocabulary.tokenizer.encode(text)
    assert tokenizer.eos_token_id == decoder.vocabulary.end_id


def test_llama_tokenize_gives_the_same_ids(tmp_path):
    """llama.cpp's own tokenizer on held-out text."""
    program = shutil.which("llama-tokenize")
    if program is None:
        pytest.skip("llama-tokenize is not on the PATH")
    decoder = random_decoder()
    write_gguf(decoder, tmp_path / "model.gguf")
    for i, document in enumerate(own_sources().held_out[:4]):
        (tmp_path / f"{i}.txt").write_bytes(document.data)
        command = [
            program,
            "-m",
            tmp_path / "model.gguf",
            "-f",
            tmp_path / f"{i}.txt",
            "--ids",
            "--no-parse-special",
        ]
        run = subprocess.run([*command, "--log-disable"], capture_output=True, text=True, check=True)
        ids = [int(word) for word in run.stdout.strip().strip("[]").split(",")]
        assert ids == decoder.vocabulary.tokenizer.encode(document.data)
