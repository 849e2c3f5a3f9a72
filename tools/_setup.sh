# Sourced by the other tools: goes to the checkout and makes its .venv ready. Running it twice does nothing twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: error: Python 3.11 or later is needed; PYTHON=/path/to/python names one" >&2
  return 1
}

# What the installation depends on: the declared packages, and this folder, which an editable install points to.
stamp() { { cat pyproject.toml; pwd -P; } | .venv/bin/python -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'; }

# A set-up that was interrupted leaves a .venv without a working pip, a moved checkout one with old paths.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [ "$(cat .venv/.folder 2>/dev/null)" != "$(pwd -P)" ]; then
  if [ -e .venv/bin/python ] && [ ! -e .venv/.folder ] && .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "setup: error: $PWD/.venv was not made by this script; move it away" >&2
    exit 1
  fi
  python=$(find_python)
  echo "setup: making .venv with $("$python" --version)" >&2
  "$python" -m venv --clear .venv || { echo "setup: error: '$python -m venv' failed; on Debian it needs the package python3-venv" >&2; exit 1; }
  pwd -P > .venv/.folder
fi
if [ "$(cat .venv/.installed 2>/dev/null)" != "$(stamp)" ]; then
  echo "setup: installing synapse-jax and its development tools into .venv" >&2
  rm -f .venv/.installed
  .venv/bin/python -m pip install --upgrade pip >&2
  .venv/bin/python -m pip install --editable '.[dev]' >&2
  stamp > .venv/.installed
fi
PATH="$PWD/.venv/bin:$PATH"
