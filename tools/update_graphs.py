"""Rewrites graphs/: what the catalog's models lower to under the jax that is installed.

    python tools/update_graphs.py [--check]

With --check nothing is written, and the exit code is 1 if a manifest is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.graph.manifest import build_manifest, differences  # noqa: E402
from synapse_jax.io.model_file import load  # noqa: E402
from synapse_jax.spec.runtime import RuntimeProfile  # noqa: E402

PROFILES = {"f32": RuntimeProfile(precision="f32"), "bf16": RuntimeProfile(precision="bf16")}
MODELS = {"smollm2-135m-instruct": PROFILES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for name, profiles in MODELS.items():
        target = ROOT / "graphs" / f"{name}.json"
        old = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        with load(name) as model:
            new = build_manifest(name, model.spec, profiles)
        # As it will be read back: tuples become lists.
        changed = differences(old, json.loads(json.dumps(new)))
        for path in changed:
            print(f"{target.name}: {path}")
        stale += bool(changed)
        if changed and not check:
            text = json.dumps(new, indent=1, ensure_ascii=False) + "\n"
            target.write_text(text, encoding="utf-8")
            print(f"wrote graphs/{target.name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
