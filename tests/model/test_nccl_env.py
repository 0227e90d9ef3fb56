"""Lint of NCCL settings: each statement for the releases it holds in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from advisor.cli.check_env import command
from advisor.errors import AdvisorError
from advisor.model.nccl.env.check import check_env
from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import statements
from advisor.model.nccl.env.table import value_read, variables
from advisor.model.nccl.version import parse_version
from advisor.tune.env_file import read_env_file


def only(name: str, value: str, version: str | None = "2.29.7") -> list[EnvIssue]:
    return check_env({name: value}, version)


def titles(issues: list[EnvIssue]) -> str:
    return "\n".join(f"{issue.severity}: {issue.title}" for issue in issues)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_P2P_LEVEL", "LOC"),
        ("NCCL_SHM_DISABLE", "1"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_NVLS_ENABLE", "0"),
        ("NCCL_CHECK_POINTERS", "1"),
        ("NCCL_DEBUG", "trace"),
        ("NCCL_NET", "Socket"),
        ("NCCL_HOSTID", "rank0"),
        ("NCCL_DEBUG_SUBSYS", "INIT,COLL"),
    ],
)
def test_leftovers_of_debugging_are_flagged_with_a_remedy(name: str, value: str) -> None:
    issues = [issue for issue in only(name, value) if issue.severity == "warning"]
    assert len(issues) == 1
    assert issues[0].why
    assert issues[0].action


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_IB_TC", "106"),
        ("NCCL_TESTS_DEVICE", "0"),
        ("NCCL_FASTRAK_NUM_FLOWS", "2"),
        ("PATH", "/usr/bin"),
    ],
)
def test_legitimate_settings_pass(name: str, value: str) -> None:
    assert [i for i in only(name, value) if i.severity != "info"] == []


def test_tree_alone_breaks_every_other_collective_from_2_24() -> None:
    for version in ("2.24.3", "2.29.7", None):
        broken = next(i for i in only("NCCL_ALGO", "Tree", version) if i.severity == "error")
        assert "Broadcast, Reduce, AllGather, ReduceScatter fail" in broken.title
        assert broken.since == "2.24"
    assert "error" not in titles(only("NCCL_ALGO", "Tree", "2.23.4"))
    assert "error" not in titles(only("NCCL_ALGO", "allreduce:tree", "2.29.7"))
    assert "error" not in titles(only("NCCL_ALGO", "^nvls", "2.29.7"))


def test_algorithm_and_protocol_together_may_leave_nothing() -> None:
    issues = check_env({"NCCL_ALGO": "allreduce:nvls", "NCCL_PROTO": "LL"}, "2.29.7")
    assert "error: AllReduce fails: nothing is left for it" in titles(issues)


def test_words_nccl_refuses_stop_the_job_only_where_they_do() -> None:
    assert "does not start" in titles(only("NCCL_ALGO", "rings", "2.29.7"))
    assert "does not start" not in titles(only("NCCL_ALGO", "ring,rings", "2.20.5"))


@pytest.mark.parametrize("value", ["LL128", "LL128,Simple", "^LL", "allreduce:LL128", "^Simple"])
def test_forced_ll128_is_contested_and_no_error(value: str) -> None:
    forced = next(i for i in only("NCCL_PROTO", value) if "LL128 is forced" in i.title)
    assert forced.severity == "warning"
    assert "corrupted" in forced.why


def test_leaving_ll128_out_is_no_error() -> None:
    for value in ("Simple", "LL,Simple", "^LL128"):
        assert "error" not in titles(only("NCCL_PROTO", value))
        assert "protocol is fixed" in titles(only("NCCL_PROTO", value))


def test_nvls_for_all_gather_is_an_error() -> None:
    named = only("NCCL_ALGO", "allgather:nvls,ring")
    assert "warning: NVLS is named for AllGather" in titles(named)
    assert "1906" in named[0].why
    assert "error" not in titles(only("NCCL_ALGO", "allgather:^nvls"))
    assert "NVLS is named" not in titles(only("NCCL_ALGO", "^tree"))


def test_unknown_names_get_a_suggestion() -> None:
    issue = only("NCCL_IB_HAC", "mlx5_0")[0]
    assert (issue.severity, issue.title) == ("warning", "NCCL does not know this variable")
    assert issue.action == "Did you mean NCCL_IB_HCA?"
    # A word too many, where the nearest spelling is another variable's.
    assert only("NCCL_DYNAMIC_CHUNK_SIZE", "1")[0].action == "Did you mean NCCL_CHUNK_SIZE?"
    # What a misspelt former name was replaced by, not the variable that looks like it.
    assert only("NCCL_CHECK_DISABLE", "1")[0].action == "Did you mean NCCL_CHECK_POINTERS?"
    # A script's own.
    assert only("NCCL_TEST_PATH", "/opt/nccl-tests")[0].severity == "info"
    assert "spelling" in only("NCCL_XYZZY", "1")[0].action


def test_a_name_that_a_newer_release_may_read_is_not_called_dead() -> None:
    """GIVEN 2.39.1, whose variables are not in the table THEN no release up to it is spoken for."""
    issue = only("NCCL_XYZZY", "1", "2.39.1")[0]
    assert (issue.severity, issue.effect) == ("info", "")
    assert "2.39.1" in issue.why
    assert only("NCCL_XYZZY", "1", "2.32.3")[0].effect == "dead"


def test_what_only_libraries_of_newer_releases_read_is_known() -> None:
    """GIVEN releases of which no source is out THEN their names and defaults hold for them."""
    assert "2.30.7 does not read" in titles(only("NCCL_IB_PKEY_VALUE", "0x8001", "2.30.7"))
    assert only("NCCL_IB_PKEY_VALUE", "0x8001", "2.31.2") == []
    assert "default anyway" in titles(only("NCCL_SYM_TMA_ENABLE", "1", "2.31.2"))
    assert "newer NCCL releases" in titles(only("NCCL_MLOPART_RDMA_ENABLE", "1", "2.32.3"))


def test_names_outside_their_releases_are_dead() -> None:
    assert "2.14.3 does not read" in titles(only("NCCL_NVLS_ENABLE", "2", "2.14.3"))
    gone = only("NCCL_RINGS", "0 1 2 3", "2.29.7")
    assert "newer NCCL releases do not read" in titles(gone)
    assert only("NCCL_RINGS", "0 1 2 3", "2.4.8") == []
    # read through other code since 2.28, not gone
    assert "do not read" not in titles(only("NCCL_DEBUG", "WARN", "2.30.7"))
    assert "do not read" not in titles(only("NCCL_P2P_DISABLE", "0", "2.30.7"))


def test_replaced_names_say_by_what() -> None:
    issue = only("NCCL_MAX_NCHANNELS", "8", "2.29.7")[0]
    assert issue.action == "Use NCCL_MAX_CTAS."
    assert issue.since == "2.17"
    assert "replaced" not in titles(only("NCCL_MAX_NCHANNELS", "8", "2.14.3"))
    assert "TORCH_NCCL_BLOCKING_WAIT" in only("NCCL_BLOCKING_WAIT", "1")[0].action


def test_defaults_depend_on_the_release() -> None:
    assert "default anyway" in titles(only("NCCL_IB_TIMEOUT", "20", "2.29.7"))
    assert "default anyway" not in titles(only("NCCL_IB_TIMEOUT", "20", "2.20.5"))
    assert "default anyway" in titles(only("NCCL_IB_TIMEOUT", "18", "2.20.5"))
    assert only("NCCL_IB_TIMEOUT", "20", None) == []


def test_settings_that_limit_one_another() -> None:
    sockets = check_env({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, "2.29.7")
    assert "warning: 128 sockets per connection" in titles(sockets), "NCCL lowers them"
    crossed = check_env({"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "8"}, "2.29.7")
    assert "warning: the minimum exceeds the maximum" in titles(crossed), "NCCL clamps"
    assert "at most 32 channels" in titles(only("NCCL_MAX_CTAS", "48", "2.24.3"))
    assert "at most" not in titles(only("NCCL_MAX_CTAS", "48", "2.25.1"))
    assert "a tuner file without a tuner" in titles(only("NCCL_TUNER_CONFIG_FILE", "/a.csv"))


def test_classes_come_from_the_guide() -> None:
    assert only("NCCL_P2P_DISABLE", "1")[0].category == "D"
    assert only("NCCL_SOCKET_IFNAME", "lo")[0].category == "S"
    assert only("NCCL_HOSTID", "a")[0].category == "U"
    assert "production" in only("NCCL_P2P_DISABLE", "1")[0].to_dict()["category_means"]


def test_the_worst_comes_first() -> None:
    env = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1", "NCCL_PROTO": "LL128"}
    severities = [issue.severity for issue in check_env(env, "2.29.7")]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


def test_unexpanded_values_are_not_judged() -> None:
    assert only("NCCL_ALGO", "$ALGO") == []


def test_the_data_are_consistent() -> None:
    known = variables()
    assert len(known) > 250
    for rule in statements().costs:
        assert rule.variable in known or rule.variable.startswith(("TORCH_", "CUDA_"))
        for text in (rule.why, rule.action):
            assert text.endswith(".")
    for name, renamed in statements().renamed.items():
        assert renamed.to in known or renamed.to.startswith("TORCH_NCCL_"), name
    for variable in known.values():
        releases = [since for since, _ in variable.defaults]
        assert releases == sorted(releases)
        assert variable.until is None or variable.since is None or variable.since <= variable.until


@pytest.mark.slow
@given(
    env=st.dictionaries(
        st.one_of(st.sampled_from(sorted(variables())), st.from_regex(r"NCCL_[A-Z_]{1,20}")),
        st.text(max_size=30),
        max_size=6,
    ),
    version=st.sampled_from([None, "2.8.4", "2.18.5", "2.23.4", "2.24.3", "2.30.7"]),
)
def test_any_environment_is_survived(env: dict[str, str], version: str | None) -> None:
    for issue in check_env(env, version):
        assert issue.variable in env
        assert issue.title
        assert issue.why
        assert issue.action
        if issue.since:
            parse_version(issue.since)


SCRIPT = """\
#!/bin/sh
# export NCCL_IB_DISABLE=1
export NCCL_P2P_DISABLE=1  # only for the test bench
NCCL_ALGO='allreduce:tree;allgather:ring' mpirun -x NCCL_DEBUG=TRACE python train.py
export NCCL_SHM_DISABLE=1; unset NCCL_SHM_DISABLE
docker run --env=NCCL_IB_HCA=mlx5_0 image
echo "an open quote NCCL_NET=Socket
NCCL_IB_TC=106
"""


def test_scripts_are_read_without_being_run(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    assert read_env_file(path).settings == {
        "NCCL_P2P_DISABLE": ("1", 3),
        "NCCL_ALGO": ("allreduce:tree;allgather:ring", 4),
        "NCCL_DEBUG": ("TRACE", 4),
        "NCCL_IB_HCA": ("mlx5_0", 6),
        "NCCL_IB_TC": ("106", 8),
    }
    with pytest.raises(AdvisorError, match="cannot be read"):
        read_env_file(tmp_path / "absent")


def test_the_command_names_lines_and_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    result = CliRunner().invoke(
        command, ["--file", str(path), "--nccl", "2.29.7"], standalone_mode=False
    )
    assert result.return_value == 0
    assert f"{path}:3: warning NCCL_P2P_DISABLE=1" in result.output
    assert "class D" in result.output
    arguments = ["--file", str(path), "--format", "json", "--fail-on", "warning"]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.return_value == 1
    assert {"variable", "value", "severity", "why", "action", "category", "since", "until"} <= set(
        json.loads(result.stdout)[0]
    )


def test_a_clean_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.cli import check_env as module

    monkeypatch.setattr(module.os, "environ", {"NCCL_IB_HCA": "mlx5_0"})
    result = CliRunner().invoke(command, [], standalone_mode=False)
    assert result.output == "1 NCCL variable set, nothing to say about them\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "allgather:nvls"),
        ("NCCL_ALGO", "allreduce:tree,ring;allgather:ring"),
        ("NCCL_PROTO", "allreduce:ll128"),
        ("NCCL_PROTO", "^allreduce:ll"),
    ],
)
def test_entries_per_collective_have_no_effect_before_2_24(name: str, value: str) -> None:
    old = [issue for issue in check_env({name: value}, "2.23.4") if "no effect" in issue.title]
    assert [(issue.variable, issue.until) for issue in old] == [(name, "2.24")]
    assert "2.23.4" in old[0].why
    assert not [i for i in check_env({name: value}, "2.24.3") if "no effect" in i.title]


def test_a_plain_list_has_its_effect_in_every_release() -> None:
    for version in ("2.23.4", "2.24.3"):
        assert not [i for i in check_env({"NCCL_ALGO": "ring"}, version) if "no effect" in i.title]
    titles = [issue.title for issue in check_env({"NCCL_ALGO": "allgather:nvls"}, "2.23.4")]
    assert "the choice of algorithm is fixed" not in titles, "it fixes nothing there"


@pytest.mark.parametrize(
    ("name", "value", "title"),
    [
        ("NCCL_P2P_DISABLE", "true", "not a number: NCCL reads it as 0"),
        ("NCCL_IB_TIMEOUT", "high", "not a number: NCCL reads it as 0"),
        ("NCCL_BUFFSIZE", "4M", "not a number: NCCL reads it as 4"),
        ("NCCL_COLLNET_ENABLE", "yes", "not a number: NCCL reads it as 0"),
        ("NCCL_SOCKET_NTHREADS", "32", "out of range: 1 to 16"),
        ("NCCL_IB_TIMEOUT", "50", "out of range: 1 to 31"),
        ("NCCL_CROSS_NIC", "5", "out of range: 0 to 2"),
        ("NCCL_IB_QPS_PER_CONNECTION", "500", "out of range: 1 to 128"),
        ("NCCL_CTA_POLICY", "FAST", "'FAST' is no CTA policy"),
        ("NCCL_CTA_POLICY", "EFFICIENCY|FAST", "'FAST' is no CTA policy"),
    ],
)
def test_values_that_do_not_mean_what_they_say(name: str, value: str, title: str) -> None:
    issues = [issue for issue in only(name, value) if issue.title == title]
    assert [issue.severity for issue in issues] == ["warning"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_CROSS_NIC", "-2"),
        ("NCCL_SOCKET_NTHREADS", "0x4"),
        ("NCCL_CTA_POLICY", "efficiency|zero"),
        ("NCCL_CTA_POLICY", "1"),
        ("NCCL_IB_SL", "15"),
        ("NCCL_ALGO", ""),
        ("NCCL_PROTO", ""),
        ("NCCL_CROSS_NIC", ""),
    ],
)
def test_values_in_their_range_pass(name: str, value: str) -> None:
    assert only(name, value) == []


def test_a_gid_index_that_no_queue_pair_can_hold_is_named() -> None:
    assert "out of range: 0 to 255" in titles(only("NCCL_IB_GID_INDEX", "300"))
    assert "out of range" not in titles(only("NCCL_IB_GID_INDEX", "3"))


def test_a_debugging_variable_of_which_nothing_else_is_known_is_named() -> None:
    for name, value in [("NCCL_MAX_CTAS", "16"), ("NCCL_NET_GDR_READ", "0")]:
        (issue,) = only(name, value)
        assert (issue.severity, issue.category) == ("info", "D")
        assert "debugging" in issue.title
    # once is enough, and one that is switched off is as if it were not set
    assert len(only("NCCL_P2P_DISABLE", "1")) == 1
    assert [i.severity for i in only("NCCL_P2P_DISABLE", "0")] == ["info"], "the default anyway"


def test_our_own_tuner_reads_its_file_from_2_22_on() -> None:
    env = {"NCCL_TUNER_PLUGIN": "/x.so", "NCCL_TUNER_CONFIG_FILE": "/x.csv"}
    assert check_env(env, "2.24.3") == []
    assert [issue.variable for issue in check_env(env, "2.21.5")] == ["NCCL_TUNER_CONFIG_FILE"]


@pytest.mark.parametrize(
    "value",
    ["\u00b2", "\u0664", "9" * 5000, "-", "0x", "\x1b[31m"],
    ids=["superscript", "arabic", "long", "sign", "prefix", "colour"],
)
@pytest.mark.parametrize("name", ["NCCL_BUFFSIZE", "NCCL_P2P_LEVEL", "NCCL_MAX_CTAS"])
def test_values_that_only_look_like_numbers_are_no_internal_error(name: str, value: str) -> None:
    assert all(issue.variable == name for issue in only(name, value))


def test_a_number_too_long_for_nccl_is_read_as_the_largest() -> None:
    (issue,) = only("NCCL_IB_TIMEOUT", f"{'9' * 5000}x")
    assert issue.title == f"not a number: NCCL reads it as {2**63 - 1}"


def test_a_number_of_channels_beyond_all_limits_is_named_however_long_it_is() -> None:
    titles = [issue.title for issue in only("NCCL_MAX_CTAS", "9" * 20)]
    assert "NCCL has at most 64 channels" in titles


def test_a_list_without_an_entry_fixes_no_choice() -> None:
    assert [issue.title for issue in only("NCCL_ALGO", ";;;")] == [
        "a variable for debugging is set"
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("srun --export=ALL,NCCL_NET_GDR_READ=0 foo", {"NCCL_NET_GDR_READ": "0"}),
        ("srun --export NONE,NCCL_DEBUG=INFO,PATH,NCCL_ALGO=Ring foo",
         {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}),
        ("#SBATCH --export=NCCL_IB_HCA=mlx5_0,mlx5_1,NCCL_DEBUG=WARN",
         {"NCCL_IB_HCA": "mlx5_0", "NCCL_DEBUG": "WARN"}),
        ("srun --export=\"NCCL_IB_HCA='mlx5_0,mlx5_1',NCCL_DEBUG=WARN\" foo",
         {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_DEBUG": "WARN"}),
        ("sbatch --export=ALL,NCCL_DEBUG job.sh", {}),
        ("# srun --export=ALL,NCCL_NET_GDR_READ=0 foo", {}),
    ],
)  # fmt: skip
def test_settings_of_slurms_own_option_are_read(
    tmp_path: Path, line: str, found: dict[str, str]
) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\n{line}\n")
    assert read_env_file(path).settings == {name: (value, 2) for name, value in found.items()}


@pytest.mark.parametrize("version", [None, "2.18.5", "2.21.5", "2.26.2", "2.30.7"])
def test_published_recipes_give_no_error(version: str | None) -> None:
    recipes = YAML(typ="safe").load(Path(__file__).with_name("nccl_recipes.yaml"))
    assert len(recipes) > 40
    assert not [
        (recipe["name"], issue)
        for recipe in recipes
        for issue in check_env(recipe["env"], version)
        if issue.severity == "error"
    ]


def test_names_that_plugins_read_are_known() -> None:
    for name in ("NCCL_IBEXT_DISABLE", "NCCL_TUNER_CONFIG_PATH", "NCCL_FASTRAK_USE_LLCM"):
        assert only(name, "1") == []


@pytest.mark.parametrize(
    "name",
    ["NCCL_SYM_CTAS", "NCCL_SYM_TMA_ENABLE", "NCCL_SYM_GIN_KERNELS_ENABLE",
     "NCCL_SYM_RS_GIN_CHUNK_SIZE", "NCCL_LSA_TEAM_SIZE", "NCCL_IB_OOO_RQ"],
)  # fmt: skip
def test_the_newest_names_are_known(name: str) -> None:
    assert "does not know" not in titles(only(name, "1", None))


def test_one_node_may_use_the_loopback() -> None:
    assert "warning" in titles(check_env({"NCCL_SOCKET_IFNAME": "lo"}, "2.29.7"))
    assert check_env({"NCCL_SOCKET_IFNAME": "lo"}, "2.29.7", nodes=1) == []


def test_cumem_off_is_no_loss_of_nvls() -> None:
    (issue,) = only("NCCL_CUMEM_ENABLE", "0")
    assert issue.severity == "info"


@pytest.mark.parametrize(
    ("value", "taken"),
    [("64", None), ("96", None), ("384", None), ("512", None), ("32", 64), ("100", 512),
     ("1024", 512)],
)  # fmt: skip
def test_threads_are_multiples_of_32_from_64_to_512(value: str, taken: int | None) -> None:
    replaced = [i.title for i in only("NCCL_NTHREADS", value) if i.severity == "warning"]
    assert replaced == ([f"NCCL takes {taken} threads instead"] if taken else [])


@pytest.mark.parametrize(
    ("name", "value", "warned"),
    [
        ("NCCL_DEBUG", "DEBUG", True),
        ("NCCL_DEBUG", "info", False),
        ("NCCL_DEBUG_SUBSYS", "NONSENSE", True),
        ("NCCL_DEBUG_SUBSYS", "INIT,GRAF", True),
        ("NCCL_DEBUG_SUBSYS", "^INIT,NET", False),
        ("NCCL_SOCKET_FAMILY", "IPv4", True),
        ("NCCL_SOCKET_FAMILY", "AF_INET", False),
        ("NCCL_NET", "gIB", False),
    ],
)
def test_words_that_nccl_does_not_know(name: str, value: str, warned: bool) -> None:
    assert any(issue.severity == "warning" for issue in only(name, value)) is warned


@pytest.mark.parametrize(
    ("value", "read"),
    [("true", "0"), ("1", "1"), (" 2x", "2"), ("0x10", "16"), ("010", "8"), ("-3", "-3"),
     ("9" * 60, str(2**63 - 1))],
)  # fmt: skip
def test_a_number_is_what_c_reads(value: str, read: str) -> None:
    assert value_read("NCCL_P2P_DISABLE", value) == read
    assert value_read("NCCL_IB_HCA", value) == value


def test_null_in_yaml_sets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("env:\n  NCCL_ALGO: null\n  - name: NCCL_PROTO\n    value: ~\n")
    settings = {name: value for name, (value, _) in read_env_file(path).settings.items()}
    assert settings == {"NCCL_ALGO": "", "NCCL_PROTO": ""}
    assert check_env(settings, "2.29.7") == []


@pytest.mark.parametrize(("name", "lost"), [("NCCL_ALGO", "NVLS"), ("NCCL_PROTO", "LL128")])
def test_a_list_that_is_set_and_empty_leaves_little_until_2_23(name: str, lost: str) -> None:
    for release in ("2.19.4", "2.23.4"):
        (issue,) = check_env({name: ""}, release)
        assert (issue.variable, issue.severity, issue.until) == (name, "warning", "2.24")
        assert lost in issue.why
    assert check_env({name: ""}, "2.24.3") == check_env({name: ""}) == []


def test_a_prefix_of_nobody_is_unknown() -> None:
    """RCCL reads RCCL_MSCCLPP_ENABLE; NCCL_MSCCLPP_ENABLE leaves MSCCL++ on."""
    assert "NCCL does not know" in titles(only("NCCL_MSCCLPP_ENABLE", "0"))
