"""The command line refuses what it can't use, by name, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.__main__ import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--proxy-resources", "128Mi"], "'128Mi' is no JSON object with requests and limits"),
        (["--proxy-resources", '{"memory": "128Mi"}'], "is no JSON object with requests and limits"),
        (["--proxy-pull-policy", "Sometimes"], "'Sometimes' is not one of"),
        (["--max-rollouts", "0"], "0 is not in the range x>=1"),
        (["--health", "19902"], "'19902' is not HOST:PORT"),
        (["--secret", "one", "--tls-secret", "one"], "--tls-secret must be another Secret than --secret"),
    ],
)
def test_the_operator_refuses_what_it_cannot_use(options: list[str], message: str) -> None:
    said = CliRunner().invoke(main, ["controller", "--proxy-image", "proxy:1", *options])

    assert said.exit_code == 2
    assert message in said.output


@pytest.mark.parametrize("content", [None, "", "a: [", "{}", "directory"])
def test_a_kubeconfig_that_names_no_cluster_is_told_in_a_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_text(content)

    said = CliRunner().invoke(main, ["controller", "--proxy-image", "proxy:1", "--kubeconfig", str(path)])

    assert said.exit_code == 2
    assert "no cluster to speak to" in said.output
    assert "Traceback" not in said.output
