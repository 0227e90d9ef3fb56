"""What works inside the ranks of somebody's own command: Python loads it, no script changes.

``site/sitecustomize.py`` stands on PYTHONPATH and waits for torch; the ``Order`` in the environment
says what to do then: apply settings, time steps, record, end.
"""
