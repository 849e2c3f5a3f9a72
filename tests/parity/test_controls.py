"""Other engines as controls: token identity, and figures that are those of the oracles."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from synapse_jax.cli.main import main
from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.controls.control import ControlScores, Evaluated, check_identity, nll_and_greedy
from synapse_jax.evals.controls.llama_binding import LlamaBinding
from synapse_jax.evals.controls.llama_command import LlamaCommand
from synapse_jax.evals.controls.open import open_control
from synapse_jax.evals.score import Protocol
from synapse_jax.io.model_file import load
from tests.float64_forward import float64_logits
from tests.tiny import write_tiny

IDS = np.random.RandomState(0).randint(0, 288, 90).astype(np.int32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model's file, and the model."""
    path = tmp_path_factory.mktemp("controls") / "tiny.gguf"
    return path, write_tiny(path, context=128)


def expected(model, ids: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """NLL and greedy tokens of positions `start` … by the float64 evaluation."""
    return nll_and_greedy(float64_logits(model, ids)[start - 1 : -1], ids[start:])


def test_a_dropped_last_token_is_refused_with_both_counts():
    """The other engine dropped the prompt's final newline and was recorded as "identical tokens"."""
    prompt = [12, 44, 3, 198]
    check_identity(prompt, Evaluated.of(prompt), "engine")
    with pytest.raises(InputError, match="engine evaluated 3 tokens, 4 were meant"):
        check_identity(prompt, Evaluated.of(prompt[:-1]), "engine")
    with pytest.raises(InputError, match="engine evaluated 4 other tokens"):
        check_identity(prompt, Evaluated.of([12, 44, 3, 199]), "engine")


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        (1, "dropper 1.0 evaluated 29 tokens, 30 were meant"),
        (0, "dropper 1.0 has a vocabulary of 289 tokens, ours has 288"),
    ],
)
def test_compare_refuses_a_control_of_other_tokens(tiny, monkeypatch, capfd, dropped, reason):
    class Dropping:
        name = "dropper 1.0"

        def score(self, ids, protocol):
            for chunk in protocol.cut(ids):
                n = len(chunk) - protocol.start
                evaluated = Evaluated.of(chunk[: len(chunk) - dropped])
                yield ControlScores(np.ones(n), np.zeros(n, np.int32), evaluated, 289)

        def close(self):
            pass

    monkeypatch.setattr("synapse_jax.cli.controls.open_control", lambda *_: Dropping())
    ids = " ".join(map(str, IDS))
    code = main(
        ["compare", "", "--control", "x:y", "--model", str(tiny[0]), "--tokens", ids, "--context", "30"]
    )
    err = capfd.readouterr().err
    assert code == 2 and reason in err.splitlines()[-1]


@pytest.mark.parametrize("given", ["llama.cpp", "llama.cpp:", "vllm:x", ""])
def test_unknown_controls_are_refused(given, tiny):
    with pytest.raises(InputError, match=r"is not llama\.cpp:FILE\.gguf, transformers:FOLDER or command:"):
        open_control(given, 64, 1, load(tiny[0]).tokenizer)


@pytest.mark.control
@pytest.mark.parametrize("start", [1, 40, 89])
def test_llama_cpp_scores_what_it_is_given(tiny, start, monkeypatch):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    path, model = tiny
    nll, greedy = expected(model, IDS, start)
    monkeypatch.setattr("synapse_jax.evals.controls.llama_binding.BATCH", 32)
    control = LlamaBinding(path, 128, 1)
    (scores,) = control.score(IDS, Protocol(len(IDS), score_last=len(IDS) - start))
    check_identity(IDS, scores.evaluated, control.name)
    assert np.abs(scores.nll - nll).max() < 1e-3
    assert np.array_equal(scores.greedy, greedy)
    heard = []
    text = control.generate(IDS[:40], 3, progress=heard.append)
    assert heard == sorted(set(heard)) and heard[-1] == 40
    check_identity(IDS[:40], text.evaluated, control.name)
    first = int(expected(model, IDS[:41], 40)[1][0])
    assert text.token_ids is not None and text.token_ids[0] == first
    assert (text.stopped, text.margin, text.vocab_size) == (False, None, 288)
    # Beside an engine that took another token, and with a token that ends the text.
    logits = float64_logits(model, IDS[:40])[-1]
    other = int(logits.argsort()[-2])
    parted = control.generate(IDS[:40], 3, beside=[{other}])
    assert parted.token_ids == text.token_ids and parted.margin is not None
    assert parted.margin == pytest.approx(logits[first] - logits[other], abs=1e-3)
    ended = control.generate(IDS[:40], 3, stop_ids={text.token_ids[1]}, beside=[{first}, {text.token_ids[1]}])
    assert (ended.token_ids, ended.stopped, ended.margin) == (text.token_ids[:1], True, None)
    control.close()


@pytest.mark.control
def test_compare_with_llama_cpp(tiny, capfd):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    path, ids = tiny[0], " ".join(map(str, IDS))
    given = ["--control", f"llama.cpp:{path}", "--model", str(path), "--tokens", ids, "--context", "30"]
    assert main(["compare", "", *given]) == 0
    out = capfd.readouterr().out
    assert "worst relative difference 0.00" in out and "100.000 %" in out


GOLDEN = Path(__file__).resolve().parent.parent / "golden"
"""What llama-perplexity printed and saved of a text (tools/update_control_golden.py)."""
TEXT = json.loads((GOLDEN / "llama_perplexity.json").read_text())["text"] + "\n"


@pytest.fixture
def replay(tmp_path, tiny):
    """A program that prints and saves what llama-perplexity did; `cut` bytes of it."""

    def make(cut: int | None = None, code: int = 0, text: str | None = TEXT) -> LlamaCommand:
        program = tmp_path / "llama-perplexity"
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, sys\n"
            f"golden = json.load(open({str(GOLDEN / 'llama_perplexity.json')!r}))\n"
            "if sys.argv[1:] == ['--version']: sys.exit('version: ' + golden['engine'])\n"
            "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
            f"assert given['-c'] == '30' and {text!r} in (None, open(given['-f']).read()), given\n"
            f"saved = open({str(GOLDEN / 'llama_perplexity.bin')!r}, 'rb').read()[:{cut}]\n"
            "open(given['--kl-divergence-base'], 'wb').write(saved)\n"
            "print(golden['printed'])\n"
            f"print('the last word', file=sys.stderr); sys.exit({code})\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        tokenizer = load(tiny[0]).tokenizer
        return LlamaCommand(str(program), lambda ids: tokenizer.decode_bytes(ids.tolist()), None)

    return make


@pytest.fixture(scope="module")
def text_ids(tiny) -> np.ndarray:
    """Tokens of the golden's text."""
    return np.array(load(tiny[0]).tokenizer.encode(TEXT.removesuffix("\n")), np.int32)


def check_program(control: LlamaCommand, model, text_ids: np.ndarray) -> None:
    """Its tokens are ours, its figures those of the float64 evaluation."""
    protocol, nll = Protocol(30), []
    for ids, scores in zip(protocol.cut(text_ids), control.score(text_ids, protocol), strict=True):
        check_identity(ids, scores.evaluated, control.name)
        want, greedy = expected(model, ids, protocol.start)
        assert np.abs(scores.nll - want).max() < 1.3e-4 and np.array_equal(scores.greedy, greedy)
        nll.append(want)
        if scores.running_perplexity is not None:
            assert scores.running_perplexity == pytest.approx(np.exp(np.concatenate(nll).mean()), rel=1e-5)


def test_a_program_gives_its_own_tokens_and_figures(replay, tiny, text_ids):
    check_program(replay(), tiny[1], text_ids)
    other = text_ids.copy()
    other[40] += 1
    scored = list(zip(Protocol(30).cut(other), replay(text=None).score(other, Protocol(30)), strict=True))
    check_identity(scored[0][0], scored[0][1].evaluated, "engine")
    with pytest.raises(InputError, match="evaluated 30 other tokens"):
        check_identity(scored[1][0], scored[1][1].evaluated, "engine")


def test_a_program_that_fails_is_named(replay, text_ids):
    with pytest.raises(RunError, match=r"scored 1 of 2 chunks: it ended with 3: the last word"):
        list(replay(cut=-1, code=3).score(text_ids, Protocol(30)))
    with pytest.raises(RunError, match=r"scored 0 of 2 chunks"):
        list(replay(cut=10).score(text_ids, Protocol(30)))


def test_what_a_program_cannot_do_is_refused(replay, text_ids):
    with pytest.raises(InputError, match="never the last 3 targets"):
        list(replay().score(text_ids, Protocol(30, score_last=3)))
    with pytest.raises(InputError, match=r"at least 2 · 30 tokens, 59 were given"):
        list(replay().score(text_ids[:59], Protocol(30)))
    for command, reason in (("/no/such/program -m x", "cannot be started"), (" ", "is empty")):
        with pytest.raises(InputError, match=reason):
            LlamaCommand(command, bytes, None)


@pytest.mark.control
def test_llama_programs_score_and_generate(tiny, text_ids):
    """The live programs: the tokens of a prompt, its greedy continuation, the figures of a text."""
    path, model = tiny
    for name in ("llama-perplexity", "llama-completion"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not on the PATH")
    given, tokenizer = f"-m {path} -ctk f32 -ctv f32 -fa off -t 1", load(path).tokenizer
    control = open_control(f"command:llama-perplexity {given}", 30, 1, tokenizer)
    assert isinstance(control, LlamaCommand)
    check_program(control, model, text_ids)
    control = open_control(f"command:llama-completion {given}", 30, 1, tokenizer)
    # It can end before its log is written; so quick a run often does.
    for _ in range(20):
        with contextlib.suppress(RunError):
            text = control.generate(text_ids[:20], 1)
            break
    check_identity(text_ids[:20], text.evaluated, "llama-completion")
    greedy = expected(model, text_ids[:21], 20)[1]
    assert text.text == tokenizer.decode_bytes(greedy.tolist())
