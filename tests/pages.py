"""What the pages under docs/ list and show, for comparing it with the code."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"


def section(name: str, heading: str) -> str:
    """The part of a page under that heading, up to the next one of the same depth or higher."""
    depth = len(heading) - len(heading.lstrip("#"))
    text = (DOCS / name).read_text()
    rest = text[text.index(f"\n{heading}\n") + len(heading) + 2 :]
    return re.split(rf"(?m)^#{{1,{depth}}} ", rest)[0]


def table(name: str, heading: str = "") -> list[list[str]]:
    """The rows of all tables of a page, or of a part of it; without rules."""
    text = section(name, heading) if heading else (DOCS / name).read_text()
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in rows if not row[0].startswith("---")]


def fenced(path: Path, language: str) -> list[str]:
    """The examples of a page in that language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", path.read_text())
