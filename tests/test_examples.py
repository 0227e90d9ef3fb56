"""The examples of property tests depend on nothing but the test."""

from __future__ import annotations

from hypothesis.internal.conjecture import providers


def test_constants_of_imported_modules_are_not_drawn() -> None:
    """GIVEN the modules of this checkout that are imported THEN no example holds their constants.

    Hypothesis has no setting for it: where a release takes them in another way, this tells.
    """
    provider = providers.HypothesisProvider(None)
    assert len(provider._local_constants) == 0
