"""Records other engines' NLL of Gemma-3-270M over 512 tokens, in tests/golden/parity_gemma3.json.

    python tools/update_gemma_golden.py MODEL.gguf F32.gguf [--llama-cpp FOLDER]

Needs transformers, torch and llama-cpp-python. F32.gguf is the model that llama-quantize dequantized
(`--allow-requantize MODEL.gguf F32.gguf F32`). FOLDER is a build of llama.cpp for the binding to use, one
without `GGML_GELU_FP16` (see update_tiny_golden.py): with it single NLLs are up to 0.02 off. Transformers
takes the weights as this project reads them; the architecture, the norms' + 1 and all scales are its own.
Nothing is written unless both agree to 1e-3 at every position.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.model_file import ModelFile, open_model_file  # noqa: E402
from synapse_jax.spec.digest import sha256_tokens  # noqa: E402
from tests.folders import tensor_name  # noqa: E402

TOKENS = 512
TOLERANCE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("f32", type=Path)
    parser.add_argument("--llama-cpp", type=Path)
    arguments = parser.parse_args()
    if arguments.llama_cpp:
        # Read when the binding is imported.
        os.environ["LLAMA_CPP_LIB_PATH"] = str(arguments.llama_cpp)
    import llama_cpp
    import torch
    import transformers

    ids, llama_nll = by_llama_cpp(arguments.f32)
    with open_model_file(arguments.model) as model:
        digest, nll = model.sha256(), by_transformers(model, ids)
    worst = float(np.abs(nll - llama_nll).max())
    print(f"largest difference {worst:.2e}, mean {np.abs(nll - llama_nll).mean():.2e}")
    if not worst <= TOLERANCE:
        sys.exit(f"transformers and llama.cpp differ by {worst:.2e}, more than {TOLERANCE}")
    golden = {
        "provenance": {
            "tool": "tools/update_gemma_golden.py",
            "model": {"sha256": digest},
            "text": "tools/demo_text.txt, tokenized by llama.cpp with BOS, the first 512 tokens",
            "nll": f"transformers {transformers.__version__}, torch {torch.__version__}, CPU, float32, eager",
            "checked_by": f"llama-cpp-python {llama_cpp.__version__} without GGML_GELU_FP16, all in F32",
            "largest_difference": float(f"{worst:.2e}"),
        },
        "tokens": {"ids": ids, "sha256": sha256_tokens(ids)},
        "nll": [float(f"{value:.7g}") for value in nll],
    }
    path = ROOT / "tests" / "golden" / "parity_gemma3.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def by_llama_cpp(path: Path) -> tuple[list[int], np.ndarray]:
    """The token IDs of the text, and the NLL of each but the first."""
    import llama_cpp

    llm = llama_cpp.Llama(
        str(path),
        n_ctx=TOKENS,
        n_batch=TOKENS,
        n_ubatch=TOKENS,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    text = (ROOT / "tools" / "demo_text.txt").read_bytes()
    ids = llm.tokenize(text, add_bos=True, special=False)[:TOKENS]
    llm.eval(ids)
    logits = np.asarray(llm.scores[:TOKENS], np.float32)
    return ids, np.array([nll_of(row, token) for row, token in zip(logits[:-1], ids[1:], strict=True)])


def by_transformers(model: ModelFile, ids: list[int]) -> np.ndarray:
    """The same of transformers' Gemma3ForCausalLM with the file's weights, less the 1 of the norms."""
    import torch
    import transformers

    spec = model.spec
    config = transformers.Gemma3TextConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.width,
        intermediate_size=spec.ffn_width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.query_heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_size,
        max_position_embeddings=spec.trained_context,
        rms_norm_eps=spec.norm_epsilon,
        sliding_window=512,
        query_pre_attn_scalar=256,
    )
    config._attn_implementation = "eager"
    network = transformers.Gemma3ForCausalLM(config).to(torch.float32).eval()
    weights = {}
    for name in model.weight_names():
        array = model.read_weight(name)
        weights[tensor_name("gemma3", name)] = torch.from_numpy(array - 1 if name.endswith("norm") else array)
    missing, unexpected = network.load_state_dict(weights, strict=False)
    if unexpected or set(missing) != {"lm_head.weight"}:
        sys.exit(f"missing {missing}, unexpected {unexpected}")
    with torch.no_grad():
        logits = network(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return np.array([nll_of(row, token) for row, token in zip(logits[:-1], ids[1:], strict=True)])


def nll_of(logits: np.ndarray, token: int) -> float:
    """−ln softmax(logits)[token] in float64."""
    shifted = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(shifted).sum()) - shifted[token])


if __name__ == "__main__":
    main()
