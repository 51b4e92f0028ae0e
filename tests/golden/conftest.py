"""Golden files: what a function gives for a whole input, kept beside it and read in review.

`pytest tests/golden --update-golden` writes them anew; the difference is then looked at like any other change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes that file."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.is_file(), f"{path} does not exist: pytest tests/golden --update-golden writes it"
        assert path.read_text() == text

    return compare
