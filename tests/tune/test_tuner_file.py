"""A winner's NCCL_ALGO and NCCL_PROTO as a tuner file: NCCL takes the same under both."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.config.hardware import machine
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from advisor.model.nccl.settings import Call
from advisor.model.nccl.version import NcclVersion
from advisor.model.topology import Topology
from advisor.model.topology_machine import topology_of
from advisor.tune.modelled import release_of
from advisor.tune.plugin.rules import Rule, format_rules
from advisor.tune.tuner_file import tuner_rules, winning_variables, write_tuner
from tests.tune.test_plugin import Session, library, needs_compiler

__all__ = ["library"]

NCCL = (2, 29, 7)
SIZES = [8, 1 << 10, 1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 25, 1 << 28, 1 << 32]
MACHINES = ["dgx-a100", "dgx-h100", "dgx-b200", "pcie-a100", "aws-p4d"]


def table_of(topology: Topology, function: str, size: int, version: NcclVersion) -> list[float]:
    """NCCL's cost table for a call without any variable set."""
    rows = {(r.algo, r.proto): r for r in predict(topology, function, size, version).rows}
    times = [rows[a, p].time_us if (a, p) in rows else None for a in ALGORITHMS for p in PROTOCOLS]
    return [-1.0 if time is None else time for time in times]


_ELEMENTS = {
    "NCCL_ALGO": ["ring", "tree", "Ring,Tree", "nvls", "^tree", "collnetdirect,ring", "^ring"],
    "NCCL_PROTO": ["LL", "Simple", "LL,Simple", "ll128", "^LL"],
}


def values_of(variable: str) -> st.SearchStrategy[str | None]:
    """Bare lists, lists per function and both, as NCCL 2.24 reads them."""
    elements = st.sampled_from(_ELEMENTS[variable])
    named = st.tuples(st.sampled_from([f.lower() for f in FUNCTIONS]), elements)
    entries = st.lists(named.map(":".join), min_size=1, max_size=3)
    return st.one_of(
        st.none(),
        elements,
        entries.map(";".join),
        st.tuples(elements, entries).map(lambda pair: ";".join([pair[0], *pair[1]])),
    )


@pytest.mark.slow
@needs_compiler
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(MACHINES),
    nodes=st.sampled_from([1, 2, 4]),
    version=st.sampled_from([(2, 24, 3), (2, 27, 3), (2, 29, 7), (2, 30, 7)]),
    algo=values_of("NCCL_ALGO"),
    proto=values_of("NCCL_PROTO"),
)
def test_the_file_makes_nccl_choose_what_the_variables_made_it_choose(
    library: Path,
    tmp_path: Path,
    name: str,
    nodes: int,
    version: NcclVersion,
    algo: str | None,
    proto: str | None,
) -> None:
    # GIVEN a job with calls of every function at many sizes, and variables
    topology = topology_of(machine(name), nodes)
    variables = {k: v for k, v in (("NCCL_ALGO", algo), ("NCCL_PROTO", proto)) if v}
    under = {
        (function, size): predict(topology, function, size, version, algo=algo, proto=proto).choice
        for function in FUNCTIONS
        for size in SIZES
    }
    # (a job runs to its end only with functions for which something is left)
    ran = {key: choice for key, choice in under.items() if choice is not None}
    calls = [Call(function.lower(), size) for function, size in ran]
    try:
        rules = tuner_rules(variables, calls, version)
    except AdvisorError as error:
        assert any(why in error.message for why in ("LL128", "NVLS can return permuted"))
        return
    path = tmp_path / "tuner.csv"
    path.write_text(format_rules(rules, version))
    # WHEN NCCL asks the plugin, without those variables
    session = Session(library, 5, path, topology.ranks, topology.nodes)
    assert session.status == 0
    # THEN it takes the same, call for call
    for (function, size), choice in ran.items():
        table = table_of(topology, function, size, version)
        taken, channels = session.choose_from(table, function, size)
        assert (taken, channels) == ((choice.algo, choice.proto), 0), (function, size, rules)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"NCCL_ALGO": "allreduce:ring"}, ("Ring", "any")),
        ({"NCCL_ALGO": "allreduce:ring", "NCCL_PROTO": "allreduce:LL,Simple"},
         ("Ring", "LL|Simple")),
        ({"NCCL_PROTO": "allreduce:LL,Simple"}, ("any", "LL|Simple")),
        ({"NCCL_PROTO": "Simple"}, ("any", "Simple")),
        ({"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "LL"}, ("Tree|Ring", "LL")),
    ],
)  # fmt: skip
def test_what_the_variables_leave_open_a_rule_leaves_open(
    variables: dict[str, str], expected: tuple[str, str]
) -> None:
    calls = [Call("allreduce", 1 << 20, 4), Call("allreduce", 1 << 25)]
    assert tuner_rules(variables, calls, NCCL) == [Rule("AllReduce", 1 << 20, 1 << 25, *expected)]


@pytest.mark.parametrize(
    ("variables", "version", "reason"),
    [
        ({"NCCL_PROTO": "allreduce:LL128"}, NCCL, "forces LL128 for AllReduce"),
        ({"NCCL_PROTO": "^LL"}, NCCL, "forces LL128 for AllGather"),
        ({"NCCL_ALGO": "allgather:nvls"}, NCCL, "permuted data"),
        ({"NCCL_ALGO": "Tree"}, (2, 22, 3), "leave nothing for AllGather"),
        ({"NCCL_ALGO": "Ring"}, (2, 21, 5), "reads no rules by size"),
    ],
)
def test_what_no_rule_can_say_is_refused_with_the_reason(
    variables: dict[str, str], version: NcclVersion, reason: str
) -> None:
    calls = [Call("allgather", 1 << 20), Call("allreduce", 1 << 20)]
    with pytest.raises(AdvisorError, match=reason):
        tuner_rules(variables, calls, version)


def test_a_variable_that_was_not_swept_keeps_its_value_of_the_environment() -> None:
    algo, proto = "env.NCCL_ALGO", "env.NCCL_PROTO"
    environment = {"NCCL_ALGO": "allreduce:ring"}
    # PROTO won while ALGO was set all the time: the file stands for both
    assert winning_variables({proto: "Simple"}, {proto: None}, environment) == {
        "NCCL_ALGO": "allreduce:ring", "NCCL_PROTO": "Simple",
    }  # fmt: skip
    # ALGO won by being unset, PROTO was swept and stayed
    start = {algo: "allreduce:ring", proto: "LL"}
    assert winning_variables({algo: None}, start, environment) == {"NCCL_PROTO": "LL"}
    # neither changed
    assert winning_variables({"bucket_cap_mb": 5}, {"bucket_cap_mb": 25}, environment) == {}


@needs_compiler
@pytest.mark.parametrize("api", [4, 5])
def test_a_sweeps_winner_becomes_a_tuner_that_nccl_would_load(api: int, tmp_path: Path) -> None:
    # GIVEN a sweep of a job with two sizes of all-reduce in which one setting won
    calls = [Call("allreduce", 1 << 20, 4), Call("allreduce", 8 << 20), Call("broadcast", 64)]
    rules = tuner_rules({"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:LL"}, calls, NCCL)
    files = write_tuner(rules, NCCL, tmp_path, "set NCCL_ALGO=allreduce:tree")
    assert [path.name for path in files] == ["tuner.csv", "tuner.c", "tuner.sh"]
    # WHEN the script beside the rules is sourced
    done = subprocess.run(
        ["sh", "-euc", '. ./tuner.sh; echo "$NCCL_TUNER_PLUGIN"; echo "$NCCL_TUNER_CONFIG_FILE"; '
         'echo "${NCCL_ALGO-unset}"'],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "NCCL_ALGO": "allreduce:tree"},
    )  # fmt: skip
    built, table, algorithm = done.stdout.split()
    assert algorithm == "unset", "variables would mask the tuner"
    # THEN the plugin takes the winner for the sizes that were run, and nothing else
    made = Session(Path(built), api, Path(table), 16, 2)
    assert made.status == 0
    assert made.choose("AllReduce", 1 << 20) == (("Tree", "LL"), 0)
    assert made.choose("AllReduce", 8 << 20) == (("Tree", "LL"), 0)
    assert made.choose("AllReduce", (8 << 20) + 1) == (("Ring", "Simple"), 0)
    assert made.choose("Broadcast", 64) == (("Ring", "Simple"), 0)


def test_a_winner_without_nccls_variables_makes_no_tuner(tmp_path: Path) -> None:
    assert tuner_rules({}, [Call("allreduce", 1 << 20)], NCCL) == []
    assert write_tuner([], NCCL, tmp_path, "leave it") == []
    assert list(tmp_path.iterdir()) == []


def test_the_release_is_that_of_the_traced_run() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE rank (run VARCHAR, nccl_version VARCHAR)")
        con.execute("INSERT INTO rank VALUES ('a', '2.27.3'), ('b', NULL)")
        assert (release_of(con, "a"), release_of(con, "b")) == ((2, 27, 3), None)
