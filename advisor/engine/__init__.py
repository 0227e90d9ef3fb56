"""Rules over the tables: which cause costs the time, what to change, what that gives.

``diagnose`` runs the catalogue (``rules/*.yaml`` and a user's own) on every run of a store.
"""

from advisor.engine.catalogue import load_catalogue, load_rule, recipes, rule_files
from advisor.engine.diagnose import diagnose
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox

__all__ = [
    "Rule",
    "Sandbox",
    "diagnose",
    "load_catalogue",
    "load_rule",
    "recipes",
    "rule_files",
]
