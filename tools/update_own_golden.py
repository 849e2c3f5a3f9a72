"""Records NLL of the decoder in the package, by llama.cpp and in float64, in tests/golden/own_model.json.

    python tools/update_own_golden.py [--llama-cpp FOLDER]

Needs llama-cpp-python; FOLDER is a build of llama.cpp for the binding to use. Beside Q8_0 weights it rounds
activations to 8 bits, so it gets the weights as float32, in a file that is not kept. Nothing is written
unless both agree to 1e-3 at every position.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import resolve_model  # noqa: E402
from synapse_jax.io.model_file import open_model_file  # noqa: E402
from synapse_jax.spec.digest import sha256_tokens  # noqa: E402
from synapse_jax.train.cached import corpus_vocabulary  # noqa: E402
from synapse_jax.train.export import write_gguf  # noqa: E402
from synapse_jax.train.python_sources import python_sources  # noqa: E402
from synapse_jax.train.trained import TrainedDecoder  # noqa: E402
from tests.float64_forward import float64_nll  # noqa: E402

NAME = "synapse-python-3m"
TEXT = "synapse_jax/io/wheels.py"
TOKENS = 400
TOLERANCE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path)
    folder = parser.parse_args().llama_cpp
    if folder:
        # Read when the binding is imported.
        os.environ["LLAMA_CPP_LIB_PATH"] = str(folder)
    import llama_cpp

    from synapse_jax.evals.controls.control import check_identity
    from synapse_jax.evals.controls.llama_binding import LlamaBinding
    from synapse_jax.evals.score import Protocol

    with open_model_file(resolve_model(NAME)) as model, tempfile.TemporaryDirectory() as work:
        ids = np.array(model.tokenizer.encode((ROOT / TEXT).read_bytes())[:TOKENS], np.int32)
        weights = {name: model.read_weight(name) for name in model.weight_names()}
        decoder = TrainedDecoder(model.spec, weights, corpus_vocabulary(python_sources()))
        write_gguf(decoder, Path(work) / "f32.gguf")
        control = LlamaBinding(Path(work) / "f32.gguf", TOKENS, 1)
        (scores,) = control.score(ids, Protocol(TOKENS, score_last=TOKENS - 1))
        check_identity(ids, scores.evaluated, control.name)
        control.close()
        digest, exact = model.sha256(), float64_nll(model.spec, weights, ids.tolist())
    worst = float(np.abs(scores.nll - exact).max())
    print(f"largest difference {worst:.2e}, of the means {abs(scores.nll.mean() - exact.mean()):.2e}")
    if not worst <= TOLERANCE:
        sys.exit(f"llama.cpp is {worst:.2e} from float64, more than {TOLERANCE}")
    golden = {
        "provenance": {
            "tool": "tools/update_own_golden.py",
            "model": {"name": NAME, "sha256": digest},
            "text": f"{TEXT} as it was then, the first {TOKENS} tokens",
            "nll": f"float64, tests/float64_forward.py, numpy {np.__version__}",
            "llama_cpp_nll": f"llama-cpp-python {llama_cpp.__version__}, weights and KV in F32",
            "largest_difference": float(f"{worst:.2e}"),
        },
        "tokens": {"ids": ids.tolist(), "sha256": sha256_tokens(ids)},
        "nll": [float(f"{value:.9g}") for value in exact],
        "llama_cpp_nll": [float(f"{value:.7g}") for value in scores.nll],
    }
    path = ROOT / "tests" / "golden" / "own_model.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
