"""A Lightning module on CPU ranks with a checkpoint callback, logged as people log it."""

import argparse
import os
import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, delay_s):
        self.x, self.y = torch.randn(4096, 128), torch.randint(0, 10, (4096,))
        self.delay_s = delay_s

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.delay_s:  # else a sleep of nothing gives its core away
            time.sleep(self.delay_s)
        return self.x[index], self.y[index]


class Net(pl.LightningModule):
    def __init__(self, sync_dist, width, depth):
        super().__init__()
        self.sync_dist = sync_dist
        hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.net = nn.Sequential(nn.Linear(128, width), *hidden, nn.Linear(width, 10))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, sync_dist=self.sync_dist)
        for name, value in self.metrics(x, y).items():
            self.log(name, value, sync_dist=self.sync_dist)
        return loss

    @torch.no_grad()
    def metrics(self, x, y):
        right = (self.net(x).argmax(1) == y).float()
        return {f"accuracy/{k}": right[y == k].sum() / right.numel() for k in range(10)}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", default="lightning-output")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--fault", choices=["sync-dist", "slow-loader", "small-buckets"])
    args = parser.parse_args()
    pl.seed_everything(0)
    slow = args.fault == "slow-loader" and os.environ.get("RANK") == "1"
    loader = DataLoader(Rows(0.001 if slow else 0.0), batch_size=32, shuffle=True)
    buckets = {"bucket_cap_mb": 0.01} if args.fault == "small-buckets" else {}
    pl.Trainer(
        max_steps=args.steps, accelerator="cpu", devices=args.devices, num_nodes=args.nodes,
        strategy=DDPStrategy(process_group_backend="gloo", **buckets), logger=False,
        default_root_dir=args.out, enable_progress_bar=False,
    ).fit(Net(args.fault == "sync-dist", args.width, args.depth), loader)  # fmt: skip


if __name__ == "__main__":
    main()
