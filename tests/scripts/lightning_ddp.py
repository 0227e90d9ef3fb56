"""A Lightning module on two CPU ranks with a checkpoint callback, logged as people log it."""

import argparse

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self, sync_dist):
        super().__init__()
        self.sync_dist = sync_dist
        self.net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, sync_dist=self.sync_dist)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", default="lightning-output")
    parser.add_argument("--fault", choices=["sync-dist"])
    args = parser.parse_args()
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(4096, 128), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    pl.Trainer(
        max_steps=args.steps, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        default_root_dir=args.out, enable_progress_bar=False,
    ).fit(Net(args.fault == "sync-dist"), loader)  # fmt: skip


if __name__ == "__main__":
    main()
