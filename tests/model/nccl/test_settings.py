"""What settings would cost: never less than NCCL's own choice, by its own model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_machines import a100_four, h100_node, h100_three_nodes, rtx5090_socket

from advisor.errors import AdvisorError
from advisor.model.nccl.constants import known_versions
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import FUNCTIONS
from advisor.model.nccl.settings import Call, rank_settings

MIB = 1 << 20


@given(
    version=st.sampled_from(known_versions()),
    machine=st.sampled_from([a100_four, h100_node, h100_three_nodes, rtx5090_socket]),
    calls=st.lists(
        st.builds(
            Call,
            st.sampled_from(FUNCTIONS),
            st.integers(1, 1 << 32),
            st.integers(1, 50),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_no_setting_beats_the_default(version, machine, calls) -> None:  # type: ignore[no-untyped-def]
    rows = rank_settings(machine(), version, calls)
    default = next(row for row in rows if not row.variable)
    assert default.time_us == rows[0].time_us
    for row in rows:
        assert (row.time_us is None) == bool(row.breaks)
        assert "LL128" not in row.value
        assert row.extra_share is None or row.extra_share >= 0


def test_a_ring_on_an_nvswitch_node_costs_what_the_model_says() -> None:
    rows = rank_settings(h100_node(), (2, 29, 7), [Call("allreduce", 64 * MIB, 10)])
    ring = next(row for row in rows if row.value == "allreduce:ring")
    alone = predict(h100_node(), "allreduce", 64 * MIB, (2, 29, 7), algo="Ring").choice
    assert alone is not None
    assert ring.time_us == pytest.approx(10 * alone.time_us)
    assert ring.extra_share is not None
    assert ring.extra_share > 0.2
    assert ring.basis == "modelled"


def test_settings_that_break_are_last_and_name_what_breaks() -> None:
    rows = rank_settings(a100_four(), (2, 29, 7), [Call("allreduce", MIB)])
    assert rows[-1].value in ("allreduce:nvls", "allreduce:nvlstree", "allreduce:collnetchain")
    assert rows[-1].breaks == ("AllReduce",)
    assert rows[-1].time_us is None


def test_old_releases_have_no_function_prefix() -> None:
    rows = rank_settings(a100_four(), (2, 20, 5), [Call("allreduce", MIB)])
    assert {row.value for row in rows} >= {"Tree", "Ring", "Simple"}
    assert all(":" not in row.value for row in rows)


def test_nothing_to_rank_is_said() -> None:
    with pytest.raises(AdvisorError, match="no calls"):
        rank_settings(a100_four(), (2, 29, 7), [])
