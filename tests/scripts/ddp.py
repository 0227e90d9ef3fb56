"""Plain DDP as people write it: accumulation with no_sync, a DataLoader, checkpoints, eval."""

import argparse
import contextlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, width, delay_s=0.0):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(4096, width, generator=generator)
        self.y = torch.randint(0, 10, (4096,), generator=generator)
        self.delay_s = delay_s

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.x[index], self.y[index]


class Mlp(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        blocks = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(x))


def save_checkpoint(model, optimizer, path, pause_s):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    time.sleep(pause_s)  # a slow file system


@torch.no_grad()
def evaluate(model, loader, batches=2):
    model.eval()
    total = torch.zeros(2)
    for _, (inputs, labels) in zip(range(batches), loader, strict=False):
        total += torch.tensor([(model(inputs).argmax(1) == labels).sum().item(), len(labels)])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument(
        "--fault",
        choices=[
            "sync-always", "slow-loader", "slow-save", "more-work", "unused", "small-buckets",
        ],
    )  # fmt: skip
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batch = args.batch * (4 if args.fault == "more-work" and rank == 1 else 1)
    delay_s = 0.001 if args.fault == "slow-loader" and rank == 1 else 0.0
    data = Rows(args.width, delay_s)
    loader = DataLoader(data, batch_size=batch, sampler=DistributedSampler(data))
    model = DistributedDataParallel(
        Mlp(args.width, args.depth),
        find_unused_parameters=args.fault == "unused",
        bucket_cap_mb=0.01 if args.fault == "small-buckets" else 25,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = iter(loader)
    for step in range(args.steps):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(args.accumulate):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            last = micro == args.accumulate - 1
            sync = last or args.fault == "sync-always"
            with (
                contextlib.nullcontext() if sync else model.no_sync(),
                torch.autocast("cpu", torch.bfloat16, enabled=args.bf16),
            ):
                loss = nn.functional.cross_entropy(model(x), y) / args.accumulate
            with contextlib.nullcontext() if sync else model.no_sync():
                loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item() * args.accumulate:.4f}", flush=True)
        if args.save_every and step % args.save_every == 0 and rank == 0:
            Path(args.out).mkdir(parents=True, exist_ok=True)
            pause_s = 0.2 if args.fault == "slow-save" else 0.0
            save_checkpoint(model, optimizer, f"{args.out}/last.pt", pause_s)
        if args.eval_every and step and step % args.eval_every == 0:
            print(f"accuracy {evaluate(model, loader):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
