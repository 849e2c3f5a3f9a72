"""Imports follow the layers of the design: data flows one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "synapse_jax"
LAYERS = {
    "errors": 0, "dims": 0, "spec": 1, "io": 2, "ir": 2, "kv": 2, "ops": 3, "graph": 4, "runtime": 5,
    "evals": 6, "train": 7, "cli": 8,
}  # fmt: skip
"""A module imports from lower layers and from its own part; parts of one layer do not import each other."""
WITHOUT_JAX = ("errors", "dims", "spec", "io", "ir", "kv/allocator.py")
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LAYERS)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_only_to_lower_layers(path):
    part = part_of(path)
    for name in imports(path):
        words = name.split(".")
        if words[0] != "synapse_jax" or len(words) < 2:
            continue
        assert words[1] in LAYERS, f"{words[1]} has no layer"
        assert words[1] == part or LAYERS[words[1]] < LAYERS[part], f"{part} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_data_layers_import_no_jax(path):
    relative = path.relative_to(PACKAGE).as_posix()
    if any(relative == f"{name}.py" or relative.startswith((f"{name}/", name)) for name in WITHOUT_JAX):
        assert not {
            name for name in imports(path) if name.split(".")[0] in ("jax", "jaxlib", "flax", "optax")
        }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_graph_layer_compiles(path):
    if part_of(path) not in ("graph",):
        text = path.read_text(encoding="utf-8")
        assert "jax.jit" not in text and "import jit" not in text


def test_files_stay_short():
    long = {
        path.relative_to(PACKAGE.parent).as_posix(): lines
        for path in [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "tools").glob("*.py")]
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 300
    }
    assert not long
