"""Other people's scripts, healthy and with faults: recorded, diagnosed, fixed and timed again."""
