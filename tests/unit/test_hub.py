"""Models of the hub: which files are fetched, and what is said where there is no hub. None is reached."""

from __future__ import annotations

import socket
import threading
import types
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors

from synapse_jax.errors import InputError, RunError
from synapse_jax.io import hub
from synapse_jax.io.catalog import resolve_model
from synapse_jax.io.model_file import load
from tests.folders import write_folder
from tests.tiny import Tiny

NAME = "hf:org/tiny"


class Hub:
    """A hub of one model, whose files lie in a folder; they are copied to a cache like the client's."""

    def __init__(self, source: Path, cache: Path):
        self.source, self.fetched, self.error = source, [], None
        self.snapshot = cache / "models--org--tiny" / "snapshots" / "abc"

    def HfApi(self):
        return self

    def model_info(self, repo, timeout):
        assert timeout <= 10
        if self.error:
            raise self.error
        files = [
            path.relative_to(self.source).as_posix() for path in self.source.rglob("*") if path.is_file()
        ]
        return types.SimpleNamespace(
            sha="abc", siblings=[types.SimpleNamespace(rfilename=name) for name in files]
        )

    def hf_hub_download(self, repo, file, revision, etag_timeout):
        assert (repo, revision) == ("org/tiny", "abc") and etag_timeout <= 10
        self.fetched.append(file)
        target = self.snapshot / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((self.source / file).read_bytes())
        return str(target)

    def try_to_load_from_cache(self, repo, file, revision=None):
        return str(self.snapshot / file) if (self.snapshot / file).exists() else None


@pytest.fixture
def repo(tmp_path, monkeypatch) -> Hub:
    source = write_folder(tmp_path / "source", Tiny(), shards=2)
    for name in ("README.md", "pytorch_model.bin", "consolidated.safetensors", "tokenizer.model"):
        (source / name).write_text("not needed")
    made = Hub(source, tmp_path / "cache")
    for name in ("HfApi", "hf_hub_download", "try_to_load_from_cache"):
        monkeypatch.setattr(huggingface_hub, name, getattr(made, name))
    return made


def test_only_files_that_the_model_is_read_from_are_fetched(repo):
    lines: list[str] = []
    with load(NAME, log=lines.append, bar=False) as model:
        assert model.name == "org/tiny" and model.spec.layers == 2
    assert sorted(repo.fetched) == [
        "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    assert lines[0] == "fetching org/tiny/config.json" and len(lines) == 7
    # Known files are asked for again, without a word.
    resolve_model(NAME, log=lines.append, bar=False)
    assert len(lines) == 7


def test_one_file_of_weights_counts_before_shards(repo):
    (repo.source / "model.safetensors").write_bytes(b"whole")
    resolve_model(NAME, log=lambda _: None, bar=False)
    assert "model.safetensors" in repo.fetched and not any("-of-" in name for name in repo.fetched)


@pytest.mark.parametrize("folder", ["", "q4/"])
def test_a_gguf_file_is_fetched_alone_or_with_its_parts(repo, folder):
    (repo.source / "q4").mkdir()
    for name in ("one.gguf", "two-00001-of-00002.gguf", "two-00002-of-00002.gguf"):
        (repo.source / folder / name).write_bytes(b"GGUF")
    path = resolve_model(f"{NAME}/{folder}one.gguf", log=lambda _: None, bar=False)
    assert path == repo.snapshot / folder / "one.gguf" and repo.fetched == [f"{folder}one.gguf"]
    path = resolve_model(f"{NAME}/{folder}two-00002-of-00002.gguf", log=lambda _: None, bar=False)
    assert path.name == "two-00002-of-00002.gguf"
    assert repo.fetched[1:] == [f"{folder}two-0000{i}-of-00002.gguf" for i in (1, 2)]


@pytest.mark.parametrize(
    "name, words",
    [
        ("hf:", "is not of the form hf:org/repo"),
        ("hf:repo", "is not of the form"),
        ("hf:org/", "is not of the form"),
        ("hf:/etc/passwd", "is not of the form"),
        ("hf:../up/x.gguf", "is not of the form"),
        ("hf:org/a..b", "is not of the form"),
        ("hf:org/tiny/", "is not of the form"),
        ("hf:org/tiny/model.safetensors", "is not a .gguf file"),
        ("hf:org/tiny/../x.gguf", "is not a .gguf file"),
        ("hf:org/tiny/none.gguf", "there is no 'none.gguf'; it has no .gguf file"),
    ],
)
def test_bad_names_are_refused_in_one_line(repo, name, words):
    with pytest.raises(InputError, match=r"^model 'hf:") as caught:
        resolve_model(name, log=lambda _: None, bar=False)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert repo.fetched == []


def test_a_repository_of_gguf_files_needs_a_name(repo):
    (repo.source / "config.json").unlink()
    with pytest.raises(InputError, match=r"has no config\.json: not a model that can be read"):
        resolve_model(NAME, bar=False)
    (repo.source / "b.gguf").touch()
    with pytest.raises(InputError, match=r"name one of its files: b\.gguf"):
        resolve_model(NAME, bar=False)


def _http(kind, text="not found\nmore"):
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


@pytest.mark.parametrize(
    "kind, words",
    [(errors.RepositoryNotFoundError, "no such model on the hub"), (errors.GatedRepoError, "it is gated")],
)
def test_unknown_and_gated_models_are_the_user_s_to_fix(repo, kind, words):
    repo.error = _http(kind)
    with pytest.raises(InputError, match=words):
        resolve_model(NAME, bar=False)


@pytest.mark.parametrize("error", [ConnectionError("no route\nto host"), OSError(), TimeoutError("slow")])
def test_without_a_hub_the_cached_copy_is_used_or_one_line_says_so(repo, error):
    repo.error = error
    with pytest.raises(
        RunError, match="model 'hf:org/tiny': the hub cannot be asked and the cache"
    ) as caught:
        resolve_model(NAME, bar=False)
    assert "\n" not in str(caught.value)
    repo.error = None
    resolve_model(NAME, log=lambda _: None, bar=False)
    repo.error, lines = error, []
    assert resolve_model(NAME, log=lines.append, bar=False) == repo.snapshot
    assert len(lines) == 1 and "the cached copy is used" in lines[0]


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))


def test_offline_mode_of_the_client(empty_cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RunError, match=r"hf:org/none.*HF_HUB_OFFLINE"):
        resolve_model("hf:org/none", bar=False)


@pytest.mark.parametrize("answers", [False, True], ids=["refuses", "is silent"])
def test_a_hub_that_does_not_answer_is_not_waited_for(empty_cache, monkeypatch, answers):
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen()
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        api = huggingface_hub.HfApi
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api(endpoint=endpoint))
        caught: list[Exception] = []

        def ask() -> None:
            try:
                resolve_model("hf:org/none/x.gguf", bar=False)
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(caught[0], RunError) and "\n" not in str(caught[0])
