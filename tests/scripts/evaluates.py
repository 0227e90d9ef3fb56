"""A classifier that is evaluated in the loop, its predictions gathered over the ranks."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def batches(seed, size=32, width=192):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(size, width, generator=generator)
        yield x, (x.sum(1) > 0).long()


@torch.no_grad()
def evaluate(model, data, count, gather):
    """Accuracy over the ranks: two counters reduced at the end, or every batch's predictions."""
    model.eval()
    right = torch.zeros(2)
    for _, (x, y) in zip(range(count), data, strict=False):
        predicted = model(x).argmax(1)
        if gather:
            everybody = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, (predicted.tolist(), y.tolist()))
            pairs = [pair for p, t in everybody for pair in zip(p, t, strict=True)]
            right += torch.tensor([sum(p == t for p, t in pairs), len(pairs)], dtype=torch.float)
        else:
            right += torch.tensor([(predicted == y).sum().item(), len(y)])
    if not gather:
        dist.all_reduce(right)
    model.train()
    return (right[0] / right[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=20)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--fault", choices=["gather-objects", "small-buckets", "log-on-one"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    layers = [m for _ in range(args.depth) for m in (nn.Linear(args.width, args.width), nn.Tanh())]
    model = DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(args.width, 2)),
        bucket_cap_mb=0.01 if args.fault == "small-buckets" else 25,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train, valid = batches(rank, width=args.width), batches(100 + rank, width=args.width)
    for step, (x, y) in zip(range(args.steps), train, strict=False):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.fault == "log-on-one" and rank == 1:
            time.sleep(0.03)  # writes its histograms to a slow disk in every step
        if (step + 1) % args.eval_every == 0:
            accuracy = evaluate(model.module, valid, 4, args.fault == "gather-objects")
            if rank == 0 and step % 20 == 19:
                print(f"step {step} accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
