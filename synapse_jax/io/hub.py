"""Models of the Hugging Face hub: `hf:org/repo` for a folder, `hf:org/repo/FILE.gguf` for a file.

The client is huggingface_hub, with its own cache and settings (HF_HOME, HF_HUB_OFFLINE, HF_TOKEN …). Only
files that a model is read from are fetched. Nothing here waits long for a hub that does not answer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.catalog import HUB_PREFIX
from synapse_jax.io.folder_files import INDEX, SETTINGS, WEIGHTS, read_object
from synapse_jax.io.gguf_split import part_names
from synapse_jax.io.quoting import quote

TIMEOUT_S = 10.0
"""Seconds that a question to the hub may take; a download has the client's own limit for silence."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?P<repo>{_PART}/{_PART})(?:/(?P<file>[^\0]+))?")
_TEMPLATES = "additional_chat_templates/"
_LISTED = 6
_LONGEST = 300


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """A name of the hub, taken apart."""

    name: str
    repo: str
    file: str | None


def resolve_hub(name: str, *, log: Callable[[str], None], bar: bool) -> Path:
    """The file or folder of a model of the hub; fetched where the cache does not have it.

    Args:
      name: `hf:org/repo` or `hf:org/repo/FILE.gguf`. Of a split file any part is named, and all are fetched.
      log: Receives plain progress lines.
      bar: Show the client's own progress bars.

    Returns:
      The path of the file, or of the folder that is the cache's snapshot.

    Raises:
      InputError: a bad name; no such model or file, or one that needs an account.
      RunError: the hub cannot be reached and the cache does not have the model, or a download failed.
    """
    wanted = _parse(name)
    # Not at the top: it takes 0.3 s, and few commands need it.
    import huggingface_hub as hub
    from huggingface_hub import errors
    from huggingface_hub.utils import disable_progress_bars

    if not bar:
        disable_progress_bars()
    try:
        info = hub.HfApi().model_info(wanted.repo, timeout=TIMEOUT_S)
        files, revision = {str(file.rfilename) for file in info.siblings or ()}, info.sha
        return _fetch(hub, wanted, files, revision, log)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
        hint = "it is gated: accept its terms on the hub and set HF_TOKEN"
        gated = isinstance(error, errors.GatedRepoError)
        raise InputError(
            f"model {quote(name)}: {hint if gated else 'no such model on the hub, or it is private'}"
        ) from None
    except (InputError, RunError):
        raise
    except Exception as error:  # the client's, its HTTP library's and the system's: no common base
        cached = _cached(hub, wanted)
        if cached is None:
            raise RunError(
                f"model {quote(name)}: the hub cannot be asked and the cache does not have it: "
                f"{_first_line(error)}"
            ) from None
        log(f"{name}: the hub cannot be asked ({_first_line(error)}): the cached copy is used")
        return cached


def _parse(name: str) -> _Wanted:
    match = _NAME.fullmatch(name.removeprefix(HUB_PREFIX))
    if match is None or ".." in match["repo"] or "--" in match["repo"]:
        raise InputError(f"model {quote(name)}: is not of the form hf:org/repo or hf:org/repo/FILE.gguf")
    file = match["file"]
    if file is not None:
        parts = file.split("/")
        if not file.endswith(".gguf") or any(part in ("", ".", "..") for part in parts):
            raise InputError(
                f"model {quote(name)}: {quote(file)} is not a .gguf file; hf:{match['repo']} is the whole"
            )
    return _Wanted(name, match["repo"], file)


def _fetch(
    hub: Any, wanted: _Wanted, files: set[str], revision: str | None, log: Callable[[str], None]
) -> Path:
    def get(file: str) -> Path:
        if not hub.try_to_load_from_cache(wanted.repo, file, revision=revision):
            log(f"fetching {wanted.repo}/{file}")
        return Path(hub.hf_hub_download(wanted.repo, file, revision=revision, etag_timeout=TIMEOUT_S))

    ggufs = sorted(file for file in files if file.endswith(".gguf"))
    if wanted.file is not None:
        folder, _, own = wanted.file.rpartition("/")
        parts = [f"{folder}/{part}" if folder else part for part in part_names(own)]
        for part in parts:
            if part not in files:
                raise InputError(f"model {quote(wanted.name)}: there is no {quote(part)}; {_listed(ggufs)}")
        return {part: get(part) for part in parts}[wanted.file]
    if "config.json" not in files:
        raise InputError(
            f"model {quote(wanted.name)}: has no config.json"
            + (f"; name one of its files: {_listed(ggufs)}" if ggufs else ": not a model that can be read")
        )
    folder = get("config.json").parent
    for file in sorted(files):
        is_template = file.startswith(_TEMPLATES) and file.endswith(".jinja")
        if file != "config.json" and (file in SETTINGS or is_template):
            get(file)
    if WEIGHTS in files:
        get(WEIGHTS)
    elif INDEX in files:
        places = read_object(get(INDEX)).get("weight_map")
        # What the index gets wrong is refused when it is opened.
        named = (
            {file for file in places.values() if isinstance(file, str)} if isinstance(places, dict) else set()
        )
        for file in sorted(named & files):
            get(file)
    else:
        raise InputError(
            f"model {quote(wanted.name)}: has neither {WEIGHTS} nor {INDEX}"
            + (f"; name one of its files: {_listed(ggufs)}" if ggufs else "")
        )
    return folder


def _cached(hub: Any, wanted: _Wanted) -> Path | None:
    """The copy that the cache has, if it has one; what is missing in it is refused when it is opened."""
    found = hub.try_to_load_from_cache(wanted.repo, wanted.file or "config.json")
    if not isinstance(found, str):
        return None
    return Path(found) if wanted.file else Path(found).parent


def _listed(names: list[str]) -> str:
    if not names:
        return "it has no .gguf file"
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The client's own words: longer than what a file says about itself.
    return ascii(lines[0])[1:-1][:_LONGEST] if lines else type(error).__name__
