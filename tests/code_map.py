"""The map of the code in CONTRIBUTING.md: every module with the first line of its docstring.

python tests/code_map.py    writes it anew, between the lines that say so.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- map of the code: python tests/code_map.py -->\n"
END = "<!-- end of the map -->\n"


def code_map(source: Path = ROOT / "src" / "mvpi") -> str:
    """The tree of modules as an indented block of Markdown."""
    return "\n".join(["    src/mvpi/", *_lines(source, "      ")]) + "\n"


def _lines(folder: Path, indent: str) -> Iterator[str]:
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    folders = [path.parent for path in sorted(folder.glob("*/__init__.py"))]
    column = max((len(path.name) for path in [*files, *folders]), default=0) + 2
    for path in [*files, *folders]:
        name = f"{path.name}/" if path in folders else path.name
        told = _summary(path / "__init__.py" if path in folders else path)
        yield f"{indent}{name:<{column}}{told}"
        if path in folders:
            yield from _lines(path, indent + "  ")


def _summary(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0].rstrip(".")


def written(text: str) -> str:
    """The map that CONTRIBUTING.md has."""
    return text.partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


def rewritten(text: str) -> str:
    """CONTRIBUTING.md with the map of today."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{code_map()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    CONTRIBUTING.write_text(rewritten(CONTRIBUTING.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
