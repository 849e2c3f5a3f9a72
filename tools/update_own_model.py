"""Writes the decoder that comes with the package: EXP-018's with full attention and the first seed, as Q8_0.

    python tools/update_own_model.py FOLDER

FOLDER is that of tools/exp018.py; a decoder that is not finished there is trained, for some eleven minutes.
Size and digest then go into `io/catalog.py` by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import CATALOG, entry_path  # noqa: E402
from synapse_jax.io.wheels import hash_file  # noqa: E402
from synapse_jax.train.experiment import train_decoder  # noqa: E402
from synapse_jax.train.export import write_gguf  # noqa: E402
from tools.exp018 import SMALL, read_texts, watch_of  # noqa: E402

NAME = "synapse-python-3m"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    run = SMALL.runs[0]
    _, decoder = train_decoder(SMALL, run, read_texts(), folder / "work" / run.name, watch=watch_of(SMALL))
    path = entry_path(CATALOG[NAME])
    path.parent.mkdir(exist_ok=True)
    write_gguf(decoder, path, weight_type="Q8_0")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, sha256 {hash_file(path)}")


if __name__ == "__main__":
    main()
