"""Other engines as controls: token identity, and figures that are those of the oracles."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.cli.main import main
from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import ControlScores, Evaluated, check_identity, nll_and_greedy
from synapse_jax.evals.controls.open import open_control
from tests.float64_forward import float64_logits
from tests.tiny import write_tiny

IDS = np.random.RandomState(0).randint(0, 288, 90).astype(np.int32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model's file, and NLL and greedy tokens of IDS by the float64 evaluation."""
    path = tmp_path_factory.mktemp("controls") / "tiny.gguf"
    model = write_tiny(path, context=128)
    nll, greedy = nll_and_greedy(float64_logits(model, IDS)[:-1], IDS[1:])
    return path, nll, greedy


def test_a_dropped_last_token_is_refused_with_both_counts():
    """The other engine dropped the prompt's final newline and was recorded as "identical tokens"."""
    prompt = [12, 44, 3, 198]
    check_identity(prompt, Evaluated.of(prompt), "engine")
    with pytest.raises(InputError, match="engine evaluated 3 tokens, 4 were meant"):
        check_identity(prompt, Evaluated.of(prompt[:-1]), "engine")
    with pytest.raises(InputError, match="engine evaluated 4 other tokens"):
        check_identity(prompt, Evaluated.of([12, 44, 3, 199]), "engine")


def test_compare_refuses_a_control_that_evaluated_other_tokens(tiny, monkeypatch, capfd):
    class Dropping:
        name = "dropper 1.0"

        def score(self, ids, start):
            n = len(ids) - start
            return ControlScores(np.ones(n), np.zeros(n, np.int32), Evaluated.of(ids[:-1]))

    monkeypatch.setattr("synapse_jax.cli.compare.open_control", lambda *_: Dropping())
    ids = " ".join(map(str, IDS))
    code = main(
        ["compare", "", "--control", "x:y", "--model", str(tiny[0]), "--tokens", ids, "--context", "30"]
    )
    err = capfd.readouterr().err
    assert code == 2 and "dropper 1.0 evaluated 29 tokens, 30 were meant" in err.splitlines()[-1]


@pytest.mark.parametrize("given", ["llama.cpp", "llama.cpp:", "vllm:x", ""])
def test_unknown_controls_are_refused(given):
    with pytest.raises(InputError, match=r"is not llama\.cpp:FILE\.gguf or transformers:FOLDER"):
        open_control(given, 64, 1)


@pytest.mark.control
@pytest.mark.parametrize("start", [1, 40, 89])
def test_llama_cpp_scores_what_it_is_given(tiny, start, monkeypatch):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    path, nll, greedy = tiny
    monkeypatch.setattr("synapse_jax.evals.controls.llama_cpp.BATCH", 32)
    control = open_control(f"llama.cpp:{path}", 128, 1)
    scores = control.score(IDS, start)
    check_identity(IDS, scores.evaluated, control.name)
    assert np.abs(scores.nll - nll[start - 1 :]).max() < 1e-3
    assert np.array_equal(scores.greedy, greedy[start - 1 :])
    text = control.generate(IDS[:40], 3)
    check_identity(IDS[:40], text.evaluated, control.name)
    assert text.token_ids[0] == greedy[39]
    control.close()


@pytest.mark.control
def test_compare_with_llama_cpp(tiny, capfd):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    path, ids = tiny[0], " ".join(map(str, IDS))
    given = ["--control", f"llama.cpp:{path}", "--model", str(path), "--tokens", ids, "--context", "30"]
    assert main(["compare", "", *given]) == 0
    out = capfd.readouterr().out
    assert "worst relative difference 0.00" in out and "100.000 %" in out
