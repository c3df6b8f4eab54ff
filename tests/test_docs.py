"""Every ```python block a reader may copy runs: docstrings, README.md, docs/.

The blocks of one docstring, and those of one page, run in order and share their names.
"""

import ast
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.agnostic


def blocks_of(text, first_line=1):
    """Yields (line number in the file, code) of each block."""
    for match in BLOCK.finditer(text):
        line = first_line + text.count("\n", 0, match.start(2))
        yield line, textwrap.dedent(match[2])


def public_docstrings(node, name):
    """Yields (name, docstring, its line) of a module or class and what is in it."""
    body = node.body
    if ast.get_docstring(node) is not None:
        yield name, body[0].value.value, body[0].value.lineno
    for child in body:
        documented = isinstance(child, ast.ClassDef | ast.FunctionDef)
        if documented and not child.name.startswith("_"):
            yield from public_docstrings(child, f"{name}.{child.name}")


def documents():
    """Yields one test case a docstring or page that has blocks: (path, blocks)."""
    for path in sorted(ROOT.glob("keras_tta/**/*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name, text, line in public_docstrings(ast.parse(path.read_text()), module):
            if blocks := list(blocks_of(text, line)):
                yield pytest.param(path, blocks, id=name.removesuffix(".__init__"))
    for path in PAGES:
        if path.is_file() and (blocks := list(blocks_of(path.read_text()))):
            yield pytest.param(path, blocks, id=str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path, blocks", list(documents()))
def test_example_runs(path, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for line, code in blocks:
        # Padded so that a traceback points at the line in the file.
        exec(compile("\n" * (line - 1) + code, path, "exec"), names)


def test_blocks_are_found_where_they_stand():
    text = "intro\n\n    ```python\n    x = 1\n    y = 2\n    ```\n```bash\nls\n```\n"
    assert list(blocks_of(text, first_line=10)) == [(13, "x = 1\ny = 2\n")]
