"""Shapes are said of one operand, larger on the rank that has more to do."""

from __future__ import annotations

import pytest

from advisor.metrics.lateness.unlike import unlike_operands


def _mm(tokens: int) -> dict[str, float]:
    """Shapes -> FLOPs of products whose first operands are words, tokens and weights."""
    shapes = [(512, 8, tokens), (tokens, 8, 32), (32, tokens, 8)]
    return {f"[[{m}, {k}], [{k}, {n}], []]": 2.0 * m * k * n for m, k, n in shapes}


MORE, LESS = "[[90, 64], [64, 64]]", "[[30, 64], [64, 64]]"


@pytest.mark.parametrize(
    ("larger", "smaller", "said"),
    [
        (_mm(130), _mm(100), ("[8,130]", "[8,100]")),  # never [512,8] beside [130,8]
        ({MORE: 8, LESS: 1}, {MORE: 2, LESS: 4}, ("[90,64]", "[30,64]")),
        ({MORE: 8, LESS: 9}, {MORE: 8, LESS: 4}, (None, None)),  # more calls of one shape
        ({"[[30, 64], [64, 900]]": 9}, {"[[64, 30], [30, 90]]": 2}, (None, None)),
        ({MORE: 8}, {"[[4, 30, 64], [64, 64]]": 4}, (None, None)),
        ({MORE: 8}, {}, (None, None)),
    ],
)
def test_one_operand_larger_where_there_is_more_to_do(
    larger: dict[str, float], smaller: dict[str, float], said: tuple[str | None, str | None]
) -> None:
    assert unlike_operands(larger, smaller) == said
