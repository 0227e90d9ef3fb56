"""Options of nccl-model that its input leaves no room for, or NCCL does not know, are errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from advisor.cli.nccl_model import command
from advisor.cli.plan import command as plan
from advisor.errors import AdvisorError
from advisor.model.nccl.names import element_type
from advisor.model.nccl.version import parse_covered

LOG = Path(__file__).parents[3] / "fixtures" / "nccl-logs" / "v2.10-sockets.log"
TOPOLOGY = """\
nodes: 2
ranks_per_node: 8
compute_capability: 9.0
ring: {pattern: 4, channels: 8, bw_intra: 45, bw_inter: 45, type_intra: NVL, type_inter: PXB}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--op", "allreduce", "--bytes", "64M", *arguments])


@pytest.mark.parametrize(
    ("source", "option", "value"),
    [
        ("--topology", "--nodes", "3"),
        ("--topology", "--compute-capability", "7.0"),
        ("--topology", "--cpu-vendor", "amd"),
        ("--log", "--nodes", "3"),
        ("--hardware", "--compute-capability", "7.0"),
        ("--hardware", "--cpu-vendor", "amd"),
    ],
)
def test_an_option_without_effect_is_refused(
    source: str, option: str, value: str, tmp_path: Path
) -> None:
    topology = tmp_path / "topology.yaml"
    topology.write_text(TOPOLOGY)
    given = {"--topology": str(topology), "--log": str(LOG), "--hardware": "dgx-h100"}[source]
    plain = run(source, given, "--nccl", "2.29.7")
    assert plain.exit_code == 0, plain.output
    result = run(source, given, "--nccl", "2.29.7", option, value)
    assert result.exit_code == 2
    assert f"{option} has no effect with {source}" in result.output


def test_options_with_an_effect_still_have_it() -> None:
    result = run("--hardware", "dgx-h100", "--nodes", "4", "--nccl", "2.29.7")
    assert result.exit_code == 0, result.output
    assert "32 ranks, 4 nodes" in result.output
    result = run("--log", str(LOG), "--compute-capability", "7.0", "--cpu-vendor", "amd")
    assert result.exit_code == 0, result.output
    assert "compute capability" not in result.output


@pytest.mark.parametrize("text", ["3.1", "2.7.8", "1.9"])
def test_releases_that_the_model_does_not_cover_are_refused(text: str) -> None:
    with pytest.raises(AdvisorError, match="does not cover NCCL"):
        parse_covered(text)
    for result in (
        run("--hardware", "dgx-h100", "--nccl", text),
        CliRunner().invoke(plan, ["gpt2", "dgx-h100", "--gpus", "8", "--nccl", text]),
    ):
        assert isinstance(result.exception, AdvisorError)
        assert "does not cover" in result.exception.message


def test_element_types_are_those_of_nccl() -> None:
    result = run("--hardware", "dgx-h100", "--nccl", "2.29.7", "--dtype", "int4")
    assert isinstance(result.exception, AdvisorError)
    assert result.exception.message == "'int4' is no element type of NCCL"
    assert element_type("bfloat16") == "bfloat16"
    fp8 = run("--hardware", "dgx-h100", "--nccl", "2.29.7", "--dtype", "float8_e4m3fn")
    assert fp8.exit_code == 0, fp8.output


@pytest.mark.parametrize(
    ("release", "is_said"), [("2.31.1", True), ("2.30.7", False), ("2.11", False)]
)
def test_a_release_beyond_those_that_were_read_is_said_to_be_so(
    release: str, is_said: bool
) -> None:
    found = run("--hardware", "dgx-h100", "--nodes", "2", "--nccl", release).output
    assert (f"{release} may have others" in found) is is_said
