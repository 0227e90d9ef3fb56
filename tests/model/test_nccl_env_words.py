"""Values and names that NCCL passes over in silence are said aloud."""

from __future__ import annotations

import pytest

from advisor.model.nccl.env.check import check_env


def said(name: str, value: str, version: str | None = "2.29.7") -> str:
    issues = check_env({name: value}, version)
    return "\n".join(f"{i.severity}: {i.title}. {i.action}" for i in issues)


@pytest.mark.parametrize("name", ["nccl_debug", "Nccl_Debug", "NCCL_debug"])
def test_a_variable_in_lower_case_is_another_variable(name: str) -> None:
    assert "warning: NCCL does not know this variable. Did you mean NCCL_DEBUG?" in said(
        name, "INFO"
    )


@pytest.mark.parametrize("name", ["NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"])
@pytest.mark.parametrize(
    ("value", "meant"), [("pix", "PIX"), ("NVLINK", "NVL"), ("Phb", "PHB"), ("sys ", "SYS")]
)
def test_a_path_level_that_nccl_passes_over(name: str, value: str, meant: str) -> None:
    told = f"warning: no path level: NCCL passes over it. Did you mean {meant}?"
    assert told in said(name, value)


@pytest.mark.parametrize("value", ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS"])
def test_path_levels_in_upper_case_pass(value: str) -> None:
    assert "path level" not in said("NCCL_P2P_LEVEL", value)


def test_a_path_level_as_a_number_is_still_a_number() -> None:
    assert "info: a path level given as a number" in said("NCCL_P2P_LEVEL", "3")


def test_names_of_cta_policies_are_words_before_2_29() -> None:
    told = "no effect as written: policies have names from 2.29 on. Write 1"
    assert told in said("NCCL_CTA_POLICY", "EFFICIENCY", "2.28.9")
    assert "no effect" not in said("NCCL_CTA_POLICY", "EFFICIENCY", "2.29.2")
    assert "no effect" not in said("NCCL_CTA_POLICY", "1", "2.28.9")
    assert "no effect" not in said("NCCL_CTA_POLICY", "default", "2.28.9")


@pytest.mark.parametrize(
    ("name", "value", "word", "meant"),
    [
        ("NCCL_ALGO", "Rings", "Rings", "Ring"),
        ("NCCL_ALGO", "ring,treee", "treee", "Tree"),
        ("NCCL_ALGO", "^nvlstre", "nvlstre", "NVLSTree"),
        ("NCCL_PROTO", "LL129", "LL129", "LL128"),
    ],
)
def test_unknown_words_of_a_list_before_2_24(name: str, value: str, word: str, meant: str) -> None:
    told = f"warning: NCCL 2.20.5 does not know '{word}'. Did you mean {meant}?"
    assert told in said(name, value, "2.20.5")
    assert "does not start" in said(name, value, "2.24.3"), "there the job fails instead"


@pytest.mark.parametrize("value", ["ring,tree", "^ring", "COLLNETDIRECT", "", "allreduce:ring"])
def test_known_words_and_entries_per_collective_are_no_unknown_words(value: str) -> None:
    assert "does not know" not in said("NCCL_ALGO", value, "2.20.5")


@pytest.mark.parametrize(
    ("value", "meant"),
    [("Sockets", "Socket"), ("sokcet", "Socket"), ("tcp", "Socket"), ("RoCE", "IB")],
)
def test_a_network_that_is_nearly_one_of_nccls_own(value: str, meant: str) -> None:
    text = said("NCCL_NET", value)
    assert "error: no network of NCCL's own: the job does not start" in text
    assert f"Did you mean {meant}?" in text


@pytest.mark.parametrize("value", ["IB", "ib", "Socket", "AWS Libfabric", "OFI", "UCX", "IBext_v8"])
def test_networks_and_names_of_plugins_pass(value: str) -> None:
    assert "no network" not in said("NCCL_NET", value)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("allgather:^ring", "error: AllGather has no ring: CollNetDirect, NVLS, PAT left"),
        ("reducescatter:^ring,nvls", "warning: ReduceScatter has no ring: CollNetDirect, PAT left"),
        ("^ring", "error: ReduceScatter has no ring: CollNetDirect, NVLS, PAT left"),
    ],
)
def test_collectives_left_without_a_ring_are_named_with_what_is_left(value: str, left: str) -> None:
    assert left in said("NCCL_ALGO", value)
    assert "has no ring" not in said("NCCL_ALGO", "^tree")
    assert "has no ring" not in said("NCCL_ALGO", "allgather:^nvls")


def test_what_is_left_by_excluding_rings_may_return_wrong_data_or_not_be_there() -> None:
    (issue,) = [
        i for i in check_env({"NCCL_ALGO": "allgather:^ring"}, "2.29.7") if "ring:" in i.title
    ]
    assert "issue 1906" in issue.why
    assert "no algorithm is available" in issue.why
