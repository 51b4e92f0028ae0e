"""The chart's README.md, made of values.yaml: `python -m release.readme`.

A value's description is the `# -- ` comment above it. A value without one is an error, so none is undocumented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

CHART = Path(__file__).parents[1] / "charts" / "steelyard"
KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):")
BEGIN, MORE = re.compile(r" *# -- (.*)"), re.compile(r" *# (.*)")

HEAD = """\
# steelyard

{description}. This chart installs its operator and the `BalancedService` CRD. Kubernetes {kubernetes}, Helm 3 or 4.

```sh
helm install steelyard charts/steelyard --namespace steelyard-system --create-namespace
helm test steelyard --namespace steelyard-system      # a pod sends requests through a BalancedService
kubectl apply -f examples/shop.yaml
```

Upgrading, leaving, permissions, sizes and what can go wrong: [docs/](../../docs/).

## Values

Unknown and wrong values are refused with a message that names them.

| value | default | meaning |
| --- | --- | --- |
"""


class UndocumentedError(Exception):
    """A value without a `# -- ` comment."""


class Row(msgspec.Struct, frozen=True):
    value: str  # its path, with dots
    default: Any
    meaning: str


def rows(text: str) -> Iterator[Row]:
    """The documented values of a values.yaml, in its order. Below one of them nothing needs a description."""
    values = yaml.safe_load(text)
    path: list[tuple[int, str]] = []
    meaning: list[str] = []
    described: str | None = None
    for line in text.splitlines():
        if found := BEGIN.fullmatch(line):
            meaning = [found[1]]
        elif meaning and (found := MORE.fullmatch(line)):
            meaning.append(found[1])
        elif found := KEY.match(line):
            indent = len(found["indent"])
            path = [*(part for part in path if part[0] < indent), (indent, found["key"])]
            value = ".".join(key for _, key in path)
            if described is not None and value.startswith(f"{described}."):
                continue
            default = values
            for _, key in path:
                default = default[key]
            if meaning:
                described = value
                yield Row(value, default, " ".join(meaning))
            elif not isinstance(default, dict) or not default:
                raise UndocumentedError(f"values.yaml: {value} has no description (# -- …) above it")
            meaning = []
        else:
            meaning = []


def readme(chart: Path = CHART) -> str:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    kubernetes = about["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    head = HEAD.format(description=about["description"], kubernetes=f"{kubernetes} or newer")
    lines = []
    for row in rows((chart / "values.yaml").read_text()):
        default = json.dumps(row.default, ensure_ascii=False)
        lines.append(f"| `{row.value}` | `{default}` | {row.meaning.replace('|', chr(92) + '|')} |")
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    (CHART / "README.md").write_text(readme())
