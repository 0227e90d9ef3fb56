"""FSDP2 as torch's tutorial writes it: a unit for each layer and the root, with accumulation."""

import argparse
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--ahead", action="store_true", help="gather the next layer meanwhile")
    parser.add_argument(
        "--fault",
        choices=["sync-always", "more-work", "late-host", "no-prefetch", "regather"],
    )
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if args.ahead and args.fault != "no-prefetch":
        # On a CPU a gather blocks unless it is asked for asynchronously.
        model._set_unshard_async_op(True)
        for layer, following in itertools.pairwise(model):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])
    keep = args.accumulate > 1 and args.fault != "regather"
    if keep:  # within a step the parameters do not change
        model.set_reshard_after_forward(False)
    optimizer = torch.optim.AdamW(model.parameters())
    second = dist.get_rank() == 1
    rows = 256 if args.fault == "more-work" and second else 16
    for _ in range(args.steps):
        for micro in range(args.accumulate):
            last = micro == args.accumulate - 1
            model.set_requires_gradient_sync(last or args.fault == "sync-always")
            model.set_reshard_after_backward(last or not keep)
            if args.fault == "late-host" and second:
                time.sleep(0.03)  # tokenises as it goes
            model(torch.randn(rows, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
