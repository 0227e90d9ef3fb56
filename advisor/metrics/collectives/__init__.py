"""One rank's calls, as NCCL kernels or gloo spans; groups, phases, matching across ranks."""
