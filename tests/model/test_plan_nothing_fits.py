"""Where nothing fits, the changes to the layout nearest to fitting are shown."""

from __future__ import annotations

import json

from click.testing import CliRunner

from advisor.cli.plan import command

ARGUMENTS = ["llama2-70b", "dgx-h100", "--gpus", "8"]


def test_what_offloading_would_do_is_shown_where_nothing_fits() -> None:
    data = json.loads(CliRunner().invoke(command, [*ARGUMENTS, "--format", "json"]).stdout)
    assert data["recommended"] is None
    nearest = min(data["rows"], key=lambda row: row["memory_bytes"])
    assert data["options_of"] == nearest["strategy"]
    (host,) = [one for one in data["options"] if one["option"] == "optimizer state on the host"]
    assert host["memory_delta_bytes"] < 0 < host["step_delta_s"]
    text = CliRunner().invoke(command, ARGUMENTS).stdout
    assert f"changes to {nearest['strategy']}, the nearest to fitting, before trying them" in text
    assert "optimizer state on the host" in text
