"""The trainer class of torch's multi-GPU tutorial, with accumulation and no_sync."""

import argparse
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.rank = dist.get_rank()
        self.model = DDP(model)
        self.train_data = train_data
        self.optimizer = optimizer
        self.args = args
        self.steps = 0

    def _run_batch(self, source, targets, last):
        sync = last or self.args.fault == "sync-always"
        with contextlib.nullcontext() if sync else self.model.no_sync():
            loss = F.cross_entropy(self.model(source), targets) / self.args.accumulate
            loss.backward()
        return loss

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for number, (source, targets) in enumerate(self.train_data):
            last = (number + 1) % self.args.accumulate == 0
            loss = self._run_batch(source, targets, last)
            if not last:
                continue
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1
            if self.args.fault == "barrier":
                for _ in range(self.args.barriers):
                    dist.barrier()
            if self.args.fault == "slow-save" and self.rank == 0 and self.steps % 3 == 0:
                self._save_checkpoint()
            if self.rank == 0 and self.steps % 10 == 0:
                print(f"epoch {epoch} step {self.steps} loss {loss.item():.3f}", flush=True)
            if self.steps == self.args.steps:
                return

    def _save_checkpoint(self):
        import time

        self.model.module.state_dict()
        time.sleep(0.25)  # a slow file system

    def train(self):
        epoch = 0
        while self.steps < self.args.steps:
            self._run_epoch(epoch)
            epoch += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--barriers", type=int, default=1)
    parser.add_argument("--fault", choices=["sync-always", "barrier", "slow-save"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(8192, 256), torch.randint(0, 10, (8192,)))
    model = nn.Sequential(
        nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10)
    )
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-2), args).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
