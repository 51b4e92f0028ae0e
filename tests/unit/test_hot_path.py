"""What compiled code would do otherwise than Python, and what is compiled."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from release import hot_path

PROJECT = Path(__file__).parents[2]
MODULES = hot_path.modules(PROJECT)


@pytest.mark.parametrize("module", MODULES)
def test_no_struct_is_defined_where_two_of_them_would_be_compared_by_identity(module: str) -> None:
    tree = ast.parse((PROJECT / module).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]

    assert [each.name for each in classes if any("Struct" in ast.unparse(base) for base in each.bases)] == []


def test_every_policy_and_the_way_of_a_request_are_compiled() -> None:
    assert {"controller/balancing/power_of_two.py", "controller/proxy/forward.py"} < set(MODULES)
    assert len(MODULES) == len(set(MODULES))
