"""Verdict, why and next in ten lines: whole sentences and steps, the most useful ones first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from advisor.findings import Verdict

LINES = 10
_SENTENCE = re.compile(r"(?<=[a-z0-9)%][.!?]) (?=[A-Z0-9])")
_PROOF = "prove it: "


@dataclass(frozen=True)
class Brief:
    """What fits; ``left_out`` says that the full text holds more."""

    why: str
    steps: list[str]
    left_out: bool


def brief(verdict: Verdict, height: Callable[[str], int], *, lines: int = LINES) -> Brief:
    """Fit ``verdict`` into ``lines``, where ``height`` tells how many a text takes.

    The title, the first sentence of why and the first step are always there; then come the proof,
    the other sentences and the other steps, each whole or not at all.
    """
    sentences = _SENTENCE.split(verdict.why) if verdict.why else []
    steps = verdict.next_steps
    said, kept = sentences[:1], set(range(len(steps[:1])))

    def fits(said: list[str], kept: set[int]) -> bool:
        used = height(verdict.title) + (height(" ".join(said)) if said else 0)
        return used + sum(height(steps[index]) for index in kept) <= lines

    proofs = [index for index, step in enumerate(steps) if step.startswith(_PROOF)]
    for index in proofs:
        if fits(said, kept | {index}):
            kept.add(index)
    for sentence in sentences[1:]:
        if not fits([*said, sentence], kept):
            break
        said.append(sentence)
    for index in range(1, len(steps)):
        if index not in kept and fits(said, kept | {index}):
            kept.add(index)
    return Brief(
        why=" ".join(said),
        steps=[steps[index] for index in sorted(kept)],
        left_out=len(said) < len(sentences) or len(kept) < len(steps),
    )
