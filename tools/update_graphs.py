"""Rewrites graphs/: what the catalog's models lower to under the jax that is installed.

    python tools/update_graphs.py [NAME…]

Each model has a file in graphs/jax-VERSION/, so that the manifests of two versions lie side by side.
`synapse graph verify` says whether they are up to date, `synapse graph diff` compares two. A minute a model.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from synapse_jax.graph.manifest import build_manifest, differences  # noqa: E402
from synapse_jax.graph.manifest_file import read_manifest, write_manifest  # noqa: E402
from synapse_jax.io.model_file import load  # noqa: E402

YARN = {"smollm2-135m-instruct": "yarn:4:8192", "gemma-3-270m": "yarn:2:32768"}
"""An extension of each model's trained window."""
POLICIES = {"pages": "pages:budget=512,window=128", "compressed": "compressed:window=1024,block=16"}


def profiles(model: str) -> dict[str, dict[str, str]]:
    """The profiles of a model that are kept, and what each changes."""
    kinds = {"": {}, "yarn-": {"rope_scaling": YARN[model]}}
    kinds |= {f"{name}-": {"attention": policy} for name, policy in POLICIES.items()}
    kept = {
        f"{name}{precision}": {"precision": precision, **choices}
        for precision in ("f32", "bf16")
        for name, choices in kinds.items()
    }
    # Narrow cells take another way through every layer.
    return kept | {"f32-kv-bf16": {"precision": "f32", "kv_dtype": "bf16"}}


MODELS = {name: profiles(name) for name in YARN}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all by default")
    for name in parser.parse_args().names or MODELS:
        target = ROOT / "graphs" / f"jax-{jax.__version__}" / f"{name}.json"
        old = read_manifest(target) if target.exists() else {}
        with load(name) as model:
            # As it will be read back: tuples become lists.
            new = json.loads(json.dumps(build_manifest(name, model.spec, MODELS[name])))
        changed = differences(old, new)
        for path in changed:
            print(f"{target.name}: {path}")
        if changed:
            write_manifest(target, new)
            print(f"wrote {target.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
