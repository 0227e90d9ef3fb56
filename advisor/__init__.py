"""Find what a distributed training step loses in communication, and what to change."""

__version__ = "0.1.0"
