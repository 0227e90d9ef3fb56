"""An Accelerate loop: accumulation by its context, metrics gathered, a checkpoint by rank 0."""

import argparse
import contextlib
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, delay_s):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(8192, 256, generator=generator)
        self.y = torch.randint(0, 10, (8192,), generator=generator)
        self.delay_s = delay_s

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.delay_s:  # else a sleep of nothing gives its core away
            time.sleep(self.delay_s)
        return self.x[index], self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fault", choices=["sync-always", "gather-always", "slow-loader"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    model = nn.Sequential(
        nn.Linear(256, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 10)
    )
    slow = args.fault == "slow-loader" and accelerator.process_index == 1
    loader = DataLoader(Rows(0.002 if slow else 0.0), batch_size=16, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done, micro = 0, 0
    while done < args.steps:
        for x, y in loader:
            micro += 1
            together = args.fault == "sync-always"
            with contextlib.nullcontext() if together else accelerator.accumulate(model):
                logits = model(x)
                loss = nn.functional.cross_entropy(logits, y)
                if together:  # what people write who count themselves
                    (loss / args.accumulate).backward()
                    if micro % args.accumulate == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                else:
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
            if args.fault == "gather-always":
                for value in (loss.detach(), *logits.detach().float().mean(0)):
                    accelerator.gather(value.reshape(1))
            if micro % args.accumulate == 0:
                done += 1
                if done % 20 == 0:
                    accelerator.print(f"step {done} loss {loss.item():.3f}", flush=True)
                if done >= args.steps:
                    break
    accelerator.end_training()


if __name__ == "__main__":
    main()
