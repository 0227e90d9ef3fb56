"""The judgement on a run: facts are read, a table of six shapes decides, words come last."""

from advisor.engine.verdict.judge import verdict_of

__all__ = ["verdict_of"]
