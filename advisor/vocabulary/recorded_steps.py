"""How many steps a recording has unless somebody says otherwise, and what is printed at its end."""

STEPS = 12
"""A small model reduces its gradients in one call per step: over 5 steps a rank that holds the
others up in every one of them is no more than a chance of 1 in 16 for two ranks, over 12 one of
1 in 2,048, and 12 matched calls are what rule ``jitter`` asks for to tell whose fault it is."""

TRIAL_ENDS = "advisor: the trial has its steps; the script is asked to stop"
"""Printed where a trial ends: what a job's output says behind it comes of that."""
