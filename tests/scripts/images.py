"""A small convolutional network as the ImageNet example trains it: workers, meters, epochs."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        if self.decode_s:  # else a sleep of nothing gives its core away
            time.sleep(self.decode_s)  # decoding
        return torch.full((3, 24, 24), index / 2048), index % 10


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


def conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--decode-ms", type=float, default=0.0)
    parser.add_argument("--fault", choices=["slow-decode", "one-slow-disk", "more-work"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    second = os.environ["RANK"] == "1"
    decode_ms = args.decode_ms
    if args.fault == "slow-decode" or (args.fault == "one-slow-disk" and second):
        decode_ms = 4.0
    batch_size = 48 if args.fault == "more-work" and second else 16
    data = Images(decode_ms / 1e3)
    sampler = DistributedSampler(data)
    loader = DataLoader(
        data, batch_size, sampler=sampler, num_workers=args.workers,
        persistent_workers=args.workers > 0, drop_last=True,
    )  # fmt: skip
    model = DistributedDataParallel(
        nn.Sequential(conv(3, 24), conv(24, 48), conv(48, 96), nn.Flatten(), nn.Linear(864, 10))
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        model.train()
        batch_time, losses = AverageMeter(), AverageMeter()
        end = time.time()
        for images, target in loader:
            loss = criterion(model(images), target)
            losses.update(loss.item(), images.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch_time.update(time.time() - end)
            end = time.time()
            step += 1
            if step % 20 == 0 and dist.get_rank() == 0:
                print(f"Epoch: [{epoch}] Time {batch_time.sum / batch_time.count:.3f} "
                      f"Loss {losses.sum / losses.count:.4f}", flush=True)  # fmt: skip
            if step >= args.steps:
                break
        epoch += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
