"""Settings as files other than plain shell scripts write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli.check_env import command
from advisor.errors import AdvisorError
from advisor.model.nccl.env.table import NEWEST
from advisor.tune.env_file import EnvFile, read_env_file


def read(tmp_path: Path, text: str, name: str = "settings") -> EnvFile:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_env_file(path)


LISTS = "NCCL_ALGO=allreduce:ring;allgather:nvls\nNCCL_PROTO=allreduce:simple;allgather:ll128\n"


@pytest.mark.parametrize("text", [LISTS, f"# all nodes\n\n{LISTS}NCCL_IB_HCA=^mlx5_0  # slow\n"])
def test_a_semicolon_ends_no_value_in_files_without_commands(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text, "nodes.txt").settings
    assert found["NCCL_ALGO"][0] == "allreduce:ring;allgather:nvls"
    assert found["NCCL_PROTO"][0] == "allreduce:simple;allgather:ll128"


def test_a_semicolon_ends_a_command_in_a_script(tmp_path: Path) -> None:
    found = read(tmp_path, "NCCL_ALGO=ring; export NCCL_DEBUG=INFO\npython train.py\n").settings
    assert found == {"NCCL_ALGO": ("ring", 1), "NCCL_DEBUG": ("INFO", 1)}


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("env:\n  - name: NCCL_P2P_DISABLE\n    value: \"1\"\n", "1", 3),
        ("env:\n  - {name: NCCL_P2P_DISABLE, value: '1'}\n", "1", 2),
        ("environment:\n  NCCL_P2P_DISABLE: \"1\"  # old\n", "1", 2),
        ("#!/bin/csh\nsetenv NCCL_P2P_DISABLE 1\n", "1", 2),
        ("set -x NCCL_P2P_DISABLE 1\n", "1", 1),
        ("set -gx NCCL_P2P_DISABLE 1\n", "1", 1),
        ("FROM x\nENV NCCL_P2P_DISABLE 1\n", "1", 2),
        ("FROM x\nENV NCCL_P2P_DISABLE=1\n", "1", 2),
        ("import os\nos.environ[\"NCCL_P2P_DISABLE\"] = \"1\"\n", "1", 2),
        ("\ufeffNCCL_P2P_DISABLE=1\nexport A=b\n", "1", 1),
        (": \"${NCCL_P2P_DISABLE:=1}\"\n", "1", 1),
    ],
)  # fmt: skip
def test_other_forms_are_read(tmp_path: Path, text: str, value: str, line: int) -> None:
    found = read(tmp_path, text)
    assert found.settings == {"NCCL_P2P_DISABLE": (value, line)}
    assert found.unread == {}


def test_a_value_left_empty_in_yaml_is_null(tmp_path: Path) -> None:
    text = "env:\n  - name: NCCL_IB_HCA\n    value:\n  - name: NCCL_DEBUG\n    value: ~  # no\n"
    found = read(tmp_path, text)
    assert found.settings == {"NCCL_IB_HCA": ("", 3), "NCCL_DEBUG": ("", 5)}
    assert found.unread == {}


def test_a_default_leaves_what_is_set(tmp_path: Path) -> None:
    text = 'export NCCL_MIN_NCHANNELS=8\n: "${NCCL_MIN_NCHANNELS:=32}"\n'
    assert read(tmp_path, text).settings == {"NCCL_MIN_NCHANNELS": ("8", 1)}


def test_what_is_printed_or_written_to_a_file_is_not_set(tmp_path: Path) -> None:
    text = (
        'echo "NCCL_TOPO_FILE=/foo"; NCCL_DEBUG=WARN python train.py\n'
        "cat > /etc/nccl.conf <<'EOF'\nNCCL_IB_DISABLE=1\nEOF\nexport NCCL_NET=IB\n"
    )
    found = read(tmp_path, text)
    assert found.settings == {"NCCL_DEBUG": ("WARN", 1), "NCCL_NET": ("IB", 5)}
    assert found.unread == {"NCCL_IB_DISABLE": 3}


def test_names_that_are_not_understood_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "# NCCL_NET\nenv = dict(os.environ,\n    A=ONE)\nenv.update({'NCCL_DEBUG': x()})\n"
        'print("$NCCL_SOCKET_IFNAME")\n'
    )
    result = CliRunner().invoke(command, ["--file", str(path)], standalone_mode=False)
    assert "names seen but not understood: NCCL_DEBUG (line 4)" in result.output
    assert "NCCL_SOCKET_IFNAME" not in result.output


def test_only_files_and_pipes_are_read(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="no file of settings"):
        read_env_file(Path("/dev/zero"))
    with pytest.raises(AdvisorError, match="a folder"):
        read_env_file(tmp_path)
    reader, writer = os.pipe()
    os.write(writer, b"NCCL_NET=IB\n")
    os.close(writer)
    try:
        assert read_env_file(Path(f"/dev/fd/{reader}")).settings == {"NCCL_NET": ("IB", 1)}
    finally:
        os.close(reader)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.sh"
    path.write_bytes(b"#\n" * (2 * 1024 * 1024 + 1))
    with pytest.raises(AdvisorError, match="larger than 4 MiB"):
        read_env_file(path)


def test_a_release_newer_than_all_known_is_told() -> None:
    result = CliRunner().invoke(command, ["--nccl", "99.1"], env={"NCCL_NET": "IB"})
    known = ".".join(map(str, NEWEST))
    assert f"NCCL 99.1 is newer than all releases known here (up to {known})" in result.stderr
    result = CliRunner().invoke(command, ["--nccl", "2.29.7"], env={"NCCL_NET": "IB"})
    assert "newer" not in result.stderr


@pytest.mark.parametrize(
    "line",
    ["export NCCL_BUFFSIZE=$((1 << 22))", "size = 1 << 22", 'x="a << b"'],
    ids=["arithmetic", "Python", "in quotes"],
)
def test_a_shift_begins_no_here_document(tmp_path: Path, line: str) -> None:
    file = tmp_path / "job.sh"
    file.write_text(f"{line}\nexport NCCL_PROTO=LL128\nexport NCCL_P2P_DISABLE=1\n")
    found = read_env_file(file)
    assert found.settings["NCCL_PROTO"] == ("LL128", 2)
    assert found.settings["NCCL_P2P_DISABLE"] == ("1", 3)


@pytest.mark.parametrize(("name", "value"), [("nccl.conf", "1"), ("docker.env", "0")])
def test_which_line_of_a_repeated_name_holds(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / name
    file.write_text("NCCL_P2P_DISABLE=1\nNCCL_P2P_DISABLE=0\n")
    assert read_env_file(file).settings["NCCL_P2P_DISABLE"][0] == value


def test_what_csh_removes_is_not_set(tmp_path: Path) -> None:
    file = tmp_path / "job.csh"
    file.write_text("setenv NCCL_P2P_DISABLE 1\nunsetenv NCCL_P2P_DISABLE\n")
    assert read_env_file(file).settings == {}


def test_a_file_in_utf_16_is_read(tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text("NCCL_DEBUG=TRACE\n", encoding="utf-16")
    assert read_env_file(file).settings["NCCL_DEBUG"] == ("TRACE", 1)


@pytest.mark.parametrize(
    ("runs", "breaks"),
    [
        # As oracle-quickstart/oci-hpc-oke (BM.GPU.RTXPRO.8) and coreweave/nccl-tests (SHARP) do.
        ("/workspace/nccl-tests/build/all_reduce_perf -b 1G -e 8G -f 2", False),
        ("/opt/nccl_tests/build/broadcast_perf -b 1G", True),
        ("all_reduce_perf && torchrun train.py", True),
        ("./train", True),
    ],
)
def test_an_algorithm_breaks_no_collective_that_the_benchmark_leaves_out(
    tmp_path: Path, runs: str, breaks: bool
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"# broadcast_perf too\nargs:\n  - mpirun -x NCCL_ALGO=Tree \\\n    {runs}\n", "utf-8"
    )
    ran = CliRunner().invoke(command, ["--file", str(path)])
    assert ("error NCCL_ALGO" in ran.output) is breaks
    assert "warning NCCL_ALGO" in ran.output
