"""FullyShardedDataParallel with a wrap policy, a DataLoader and accumulation."""

import argparse
import contextlib
import functools
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Text(Dataset):
    def __init__(self, delay_s):
        self.tokens = torch.randint(0, 512, (4096, 33), generator=torch.Generator().manual_seed(3))
        self.delay_s = delay_s

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        if self.delay_s:  # else a sleep of nothing gives its core away
            time.sleep(self.delay_s)
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(512, 128)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0) for _ in range(4)
        )
        self.head = nn.Linear(128, 512)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fault", choices=["sync-always", "slow-loader", "more-work"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    second = os.environ["RANK"] == "1"
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    )
    # Where it accumulates, each micro-batch finds the parameters gathered.
    keep = args.accumulate > 1
    strategy = ShardingStrategy.SHARD_GRAD_OP if keep else ShardingStrategy.FULL_SHARD
    model = FSDP(
        Model(),
        sharding_strategy=strategy,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = Text(0.004 if args.fault == "slow-loader" and second else 0.0)
    batch = 24 if args.fault == "more-work" and second else 8
    loader = DataLoader(data, batch_size=batch, sampler=DistributedSampler(data), drop_last=True)
    batches = iter(loader)
    for step in range(args.steps):
        for micro in range(args.accumulate):
            try:
                tokens, labels = next(batches)
            except StopIteration:
                batches = iter(loader)
                tokens, labels = next(batches)
            sync = micro == args.accumulate - 1 or args.fault == "sync-always"
            with contextlib.nullcontext() if sync else model.no_sync():
                loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
                (loss / args.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
