"""Tables read out of NCCL's own sources, release by release."""
