"""Cost models: alpha-beta fits, rooflines, NCCL's own model, hardware figures with sources."""
