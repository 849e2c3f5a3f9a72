"""`synapse graph verify`."""

from __future__ import annotations

from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress
from synapse_jax.io.quoting import shown_path


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    flags.DEFINE_string(
        "graphs",
        "graphs",
        "A folder of manifests, or one of them. Exit code 0: none of this jax has moved; 1: one has.",
        flag_values=values,
    )
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Lowers what manifests say anew and names what has moved; needs no model file and no device."""
    with optional_file(values.output) as output:
        import jax

        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.manifest import drift
        from synapse_jax.graph.manifest_file import manifest_files, read_manifest

        files: list[dict[str, Any]] = []
        progress = Progress(values.progress, "verify", "manifests")
        manifests = [(str(path), read_manifest(path)) for path in manifest_files(values.graphs)]
        for done, (path, manifest) in enumerate(manifests):
            progress(done, len(manifests))
            is_ours = manifest["jax"] == jax.__version__
            moved = drift(manifest, shown_path(path)) if is_ours else []
            state = ("moved" if moved else "same") if is_ours else "another jax"
            about = {"file": path, "model": manifest["model"], "jax": manifest["jax"]}
            files.append({**about, "state": state, "moved": moved})
        progress(len(manifests), len(manifests))
        record = build_record("graph verify", result={"jax": jax.__version__, "files": files})
        save(output, record)
    show(values, record, [line for file in files for line in _lines(file, jax.__version__)])
    return 1 if any(file["moved"] for file in files) else 0


def _lines(file: dict[str, Any], version: str) -> list[tuple[str, str]]:
    path = shown_path(file["file"])
    if file["state"] == "another jax":
        return [(path, f"of jax {file['jax']}, not compared with {version}")]
    return [(path, f"moved: {what}") for what in file["moved"]] or [(path, "the same")]
