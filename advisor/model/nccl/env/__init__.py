"""NCCL's environment variables: one table of them, and what to say of settings."""
