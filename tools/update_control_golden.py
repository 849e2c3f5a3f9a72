"""Records what llama-perplexity prints and saves of a short text on a TINY model, in tests/golden.

    python tools/update_control_golden.py --llama-cpp FOLDER

FOLDER holds built llama-perplexity.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.tiny import write_tiny  # noqa: E402

TEXT = "The engine of models, and of pages.\nA line after it, with more words in it: 1, 2, 3."
CONTEXT = 30
FLAGS = ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path, required=True)
    program = parser.parse_args().llama_cpp / "llama-perplexity"
    golden = ROOT / "tests" / "golden"
    with tempfile.TemporaryDirectory() as folder:
        model, text = Path(folder, "tiny.gguf"), Path(folder, "text")
        write_tiny(model, context=128)
        text.write_text(TEXT + "\n")
        given = ["-m", model, "-f", text, "-c", CONTEXT, "-b", CONTEXT, *FLAGS]
        given += ["--kl-divergence-base", golden / "llama_perplexity.bin"]
        done = subprocess.run([program, *map(str, given)], capture_output=True, check=True)
    said = subprocess.run([program, "--version"], capture_output=True, check=True)
    version = (said.stdout + said.stderr).decode().splitlines()[0]
    printed = done.stdout.decode()
    if "[2]" not in printed:
        sys.exit("the program ended before it had printed everything: run this again")
    record = {
        "engine": version,
        "flags": FLAGS,
        "tool": "tools/update_control_golden.py",
        "text": TEXT,
        "printed": printed,
    }
    (golden / "llama_perplexity.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
