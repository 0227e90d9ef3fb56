"""How a ring passes its message on: its order, its locations, how a slow one would look."""
