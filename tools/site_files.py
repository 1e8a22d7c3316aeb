"""Hooks of MkDocs: files from outside docs/ that its pages link to, and help texts of commands.

In the repository a page links to `../results/README.md`. On the site `results/` and `examples/` are
beside the pages: such links lose one `../`, and links from `results/` into `../docs/` the folder.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_COLUMNS = 80
"""Of a help text: more would be cut on a screen 1,280 pixels wide."""
_OUTSIDE = (
    "results/**/*.md",
    "results/**/*.csv",
    "results/**/*.png",
    "examples/**/*.py",
    "examples/**/*.ipynb",
)


def on_files(files: Files, config: Any) -> Files:
    for pattern in _OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return with_help(with_links(markdown, page.file.src_uri))


def on_page_content(html: str, **_: Any) -> str:
    return with_whole_options(with_large_pictures(html))


def with_large_pictures(html: str) -> str:
    """Every picture leads to its file: on a phone it is small.

    >>> with_large_pictures('<p><img alt="A" src="a.png" /></p>')
    '<p><a href="a.png"><img alt="A" src="a.png" /></a></p>'
    """
    return re.sub(r'(<img [^>]*?src="([^"]+)"[^>]*>)(?!</a>)', r'<a href="\2">\1</a>', html)


def with_whole_options(html: str) -> str:
    """Options in the running text, which browsers would break after their dashes.

    >>> with_whole_options("<code>mvpi report --static</code>")
    '<code>mvpi report <span class="option">--static</span></code>'
    >>> with_whole_options("<pre><code>mvpi report --static</code></pre>")
    '<pre><code>mvpi report --static</code></pre>'
    """

    def marked(code: re.Match[str]) -> str:
        return re.sub(r"(?<![\w-])--?[a-z][\w-]*", r'<span class="option">\g<0></span>', code[0])

    return re.sub(r"(?<!<pre>)<code>[^<]*</code>", marked, html)


def with_links(markdown: str, src_uri: str) -> str:
    """Links as the site needs them.

    >>> with_links("[a](../results/README.md) [b](../../examples/x.py)", "how-to/a.md")
    '[a](../results/README.md) [b](../examples/x.py)'
    """
    if src_uri.startswith("results/"):
        return markdown.replace("](../docs/", "](../")
    up = "../" * src_uri.count("/")
    return re.sub(rf"\]\({re.escape(up)}\.\./(results|examples)/", rf"]({up}\1/", markdown)


def with_help(markdown: str) -> str:
    """`<!-- help: solve -->` becomes what `mvpi solve --help` prints."""
    return re.sub(r"<!-- help: ([\w -]*)-->", lambda found: _help(found[1].split()), markdown)


def _help(path: list[str]) -> str:
    sys.path[:0] = [str(ROOT / "src")]
    from mvpi.cli.app import _command
    from mvpi.cli.usage import _drawn

    text = _drawn(_command, [*path, "--help"], columns=_COLUMNS)
    lines = [line for long in text.rstrip().splitlines() for line in _wrapped(long.rstrip())]
    return "\n".join(["```text", *lines, "```"])


def _wrapped(line: str) -> list[str]:
    """Lines of at most `_COLUMNS`: descriptions, which tyro leaves to the terminal to break.

    >>> [len(line) for line in _wrapped("usage: mvpi " + "word " * 20)]
    [76, 34]
    """
    width = {"width": _COLUMNS, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(line, **width) if len(line) > _COLUMNS else [line]
