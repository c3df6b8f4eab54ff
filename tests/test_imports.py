"""What importing the package may do, and what its folders offer."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import keras
import pytest

import keras_tta

BACKEND_LIBRARIES = {
    "tensorflow": {"tensorflow", "tensorflow_text"},
    "jax": {"jax"},
    "torch": {"torch"},
}
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
OPTIONAL_LIBRARIES = {
    re.match(r"\w+", requirement)[0]
    for extra in EXTRAS.keys() - {*BACKEND_LIBRARIES, "test", "docs", "dev"}
    for requirement in EXTRAS[extra]
}

IMPORT_EVERYTHING = """
import importlib, pkgutil, socket, sys

def connect(self, address):
    raise PermissionError(f"connected to {address} at import")

socket.socket.connect = connect
# The import system takes `None` for a library that is not installed.
sys.modules.update(dict.fromkeys(sys.argv[1:]))

import keras_tta
modules = list(pkgutil.walk_packages(keras_tta.__path__, "keras_tta."))
for module in modules:
    importlib.import_module(module.name)
print(len(modules))
"""

PACKAGE = Path(keras_tta.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted(
    {f"keras_tta.{path.parent.name}" for path in PACKAGE.glob("*/[!_]*.py")}
)


def loaded_at_import(node):
    """Yields (line, module) of each import outside a function's body."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.lineno, child.module
        elif not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from loaded_at_import(child)


@pytest.mark.agnostic
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_backends_and_extras_are_imported_where_they_are_used(path):
    lazy = OPTIONAL_LIBRARIES.union(*BACKEND_LIBRARIES.values())
    early = [
        f"{path}:{line}: import {module} inside the function that uses it"
        for line, module in loaded_at_import(ast.parse(path.read_text()))
        if module.partition(".")[0] in lazy
    ]
    assert not early, "\n".join(early)


def test_every_module_imports_offline_with_this_backend_alone():
    absent = set(OPTIONAL_LIBRARIES)
    for backend, libraries in BACKEND_LIBRARIES.items():
        if backend != keras.backend.backend():
            absent |= libraries
    if keras.backend.backend() == "jax":
        absent -= {"scipy"}  # JAX itself is built on it.
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, *sorted(absent)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= len(FOLDERS) > 0


@pytest.mark.agnostic
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_lists_what_it_offers(folder):
    module = importlib.import_module(folder)
    assert module.__doc__, f"{folder} does not say what it holds."
    assert module.__all__, f"{folder} offers nothing."
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{folder}.{name} has no docstring."
