"""Which module may import which (DESIGN.md, section 4), and what CONTRIBUTING.md says of that."""

from __future__ import annotations

import ast
from pathlib import Path

import code_map
import import_graph
import import_picture
import pytest

GRAPH = import_graph.import_graph()


def test_every_package_has_its_layer() -> None:
    placed = {name for layer in import_graph.LAYERS for name in layer}
    assert {import_graph.package(name) for name in GRAPH} <= placed


def test_imports_point_one_way() -> None:
    assert import_graph.upward(GRAPH) == set()


def test_nothing_imports_in_circles() -> None:
    assert import_graph.on_cycles(GRAPH) == set()


def test_every_package_has_its_folder_of_tests() -> None:
    packages = {
        path.parent.name.strip("_") for path in import_graph.SOURCE.glob("mvpi/*/__init__.py")
    }
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert folders - packages == {"attack"}
    assert packages - folders == set()


def public_names(path: Path) -> set[str]:
    """What `__all__` of a module lists."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@pytest.mark.parametrize(
    "example", sorted((code_map.ROOT / "examples").rglob("*.py")), ids=lambda path: path.stem
)
def test_examples_import_public_names_only(example: Path) -> None:
    known = import_graph.modules()
    for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = {alias.name for alias in names if alias.name in known}
                assert {name.count(".") for name in modules} <= {0, 1}, modules
            case ast.ImportFrom(module=str(module), names=names) if module in known:
                assert {alias.name for alias in names} <= public_names(known[module])


def test_imports_are_found_wherever_they_are(tmp_path: Path) -> None:
    """In functions, for types only, of a name or a module, by a text; and cycles of several."""
    sources = {
        "__init__": "from mvpi.cli import main",
        "risk": "def f():\n    from mvpi.cli import app, main",
        "cli/__init__": "main = 1",
        "cli/app": "if TYPE_CHECKING:\n    import mvpi.stats\nLAZY = {'x': 'mvpi.agents'}",
        "stats": "import numpy\nfrom mvpi import risk, __version__",
        "agents": "'''Not an import: see mvpi.stats.'''",
    }
    for name, text in sources.items():
        path = tmp_path / "mvpi" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = import_graph.import_graph(tmp_path)
    assert graph == {
        "mvpi.risk": {"mvpi.cli", "mvpi.cli.app"},
        "mvpi.cli": set(),
        "mvpi.cli.app": {"mvpi.stats", "mvpi.agents"},
        "mvpi.stats": {"mvpi.risk", "mvpi"},
        "mvpi.agents": set(),
    }
    assert import_graph.on_cycles(graph) == {
        ("mvpi.risk", "mvpi.cli.app"),
        ("mvpi.cli.app", "mvpi.stats"),
        ("mvpi.stats", "mvpi.risk"),
    }
    assert import_graph.upward(graph) == {
        ("mvpi.risk", "mvpi.cli"),
        ("mvpi.risk", "mvpi.cli.app"),
        ("mvpi.stats", "mvpi.risk"),
        ("mvpi.stats", "mvpi"),
    }


def test_the_picture_has_no_arrow_through_a_box() -> None:
    counts = import_graph.between_packages(GRAPH)
    edges = import_picture.reduced(counts)
    places = import_picture.places(edges, {name for edge in counts for name in edge})
    assert import_picture.hits(places, edges) == []
    assert len(set(places.values())) == len(places)


def test_the_picture_is_that_of_today() -> None:
    picture = code_map.ROOT / "docs" / "import-graph.png"
    if not import_picture.is_current(import_graph.between_packages(GRAPH), picture):
        pytest.fail(f"other arrows than in {picture.name}: python tests/import_graph.py {picture}")


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    edges = {("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")}
    assert import_picture.reduced(edges) == [("a", "b"), ("b", "c"), ("c", "d")]


def test_the_map_of_the_code_is_that_of_today() -> None:
    text = code_map.CONTRIBUTING.read_text(encoding="utf-8")
    if code_map.written(text) != code_map.code_map():
        pytest.fail("CONTRIBUTING.md has another map of the code: python tests/code_map.py")


def test_the_map_names_every_module_once() -> None:
    """The block is read back as a tree: what is indented by two more is inside."""
    found, folders = [], {4: ""}
    for line in code_map.code_map().splitlines()[1:]:
        indent = len(line) - len(line.lstrip())
        name = line.split()[0]
        if indent - 2 not in folders or not name.endswith((".py", "/")):
            continue  # the rest of a summary
        folders = {depth: folder for depth, folder in folders.items() if depth < indent}
        if name.endswith("/"):
            folders[indent] = f"{folders[indent - 2]}{name}"
        else:
            found.append(f"{folders[indent - 2]}{name}")
    source = import_graph.SOURCE / "mvpi"
    exist = [str(path.relative_to(source)) for path in source.rglob("*.py")]
    assert sorted(found) == sorted(path for path in exist if not path.endswith("__init__.py"))
