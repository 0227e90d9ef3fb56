"""bf16 autocast with a schedule, clipping and metrics that are averaged over the ranks."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def average(value):
    value = torch.tensor(float(value))
    dist.all_reduce(value)
    return (value / dist.get_world_size()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--metrics", type=int, default=40)
    parser.add_argument("--fault", choices=["metrics", "small-buckets", "late-host"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    blocks = [Block(args.width) for _ in range(6)]
    model = DistributedDataParallel(
        nn.Sequential(*blocks, nn.Linear(args.width, 10)),
        bucket_cap_mb=0.01 if args.fault == "small-buckets" else 25,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        x = torch.randn(32, args.width, generator=generator)
        y = torch.randint(0, 10, (32,), generator=generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits.float(), y)
        if args.fault == "late-host" and rank == 1:
            time.sleep(0.03)  # augments on the CPU between forward and backward
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if args.fault == "metrics":
            per_class = [
                average((logits[:, k % 10] > 0).float().mean()) for k in range(args.metrics)
            ]
            if rank == 0 and step % 20 == 0:
                print(f"step {step} {sum(per_class):.3f}", flush=True)
        elif step % 20 == 0:
            loss_now = average(loss.detach())
            if rank == 0:
                print(f"step {step} loss {loss_now:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
