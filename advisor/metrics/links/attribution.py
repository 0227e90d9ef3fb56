"""Which link, rank or host makes transfers slow (METRICS section 6), and what that costs."""

from typing import Any

from advisor.metrics.links.by_posterior import by_posterior
from advisor.metrics.links.cost import Inputs, homes, link_row
from advisor.metrics.links.probes import Probe, probe_rows


def link_rows(data: Inputs, probe: Probe | None = None) -> list[dict[str, Any]]:
    """Rows of ``link_excess``: locations and what they rest on. Empty when all is alike.

    ``probe`` is a measurement of the same links: it settles location and share, or says that the
    links are alike by now.
    """
    home = homes(data)
    found = by_posterior(data, home)
    probed = probe.places(home) if probe is not None else None
    if not found:
        return probe_rows(data, probed or (), alone=True)
    seen, *beside = found
    same = next((one for one in probed or () if one.is_at(seen.culprit)), None)
    denied = probed is not None and probe is not None and probe.covers(seen.culprit, home)
    row = link_row(
        data,
        same.culprit if same else seen.culprit,
        same.share if same else seen.share,
        calls=seen.calls,
        expected_from="probe" if same else seen.expected_from,
        p_value=seen.p_value,
        evidence={
            "probe": "confirms" if same else "denies" if denied else None,
            **(same.numbers() if same else {}),
            **seen.evidence,
        },
    )
    whole = [
        link_row(data, one.culprit, one.share, calls=one.calls,
                 expected_from=one.expected_from, evidence=one.evidence)
        for one in beside
    ]  # fmt: skip
    others = [one for one in probed or () if one is not same]
    return [row, *whole, *probe_rows(data, others, alone=False)]
