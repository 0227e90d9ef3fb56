"""A character GPT as nanoGPT trains it: micro-steps, the flag instead of no_sync, master writes."""

import argparse
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 48


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads = heads

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            z.view(b, t, self.heads, -1).transpose(1, 2)
            for z in self.c_attn(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=96, width=128, depth=3, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(BLOCK, width)
        self.h = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx, targets):
        x = self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-iters", type=int, default=50)
    parser.add_argument("--micro-steps", type=int, default=4)
    parser.add_argument("--eval-interval", type=int, default=0)
    parser.add_argument("--fault", choices=["sync-always", "slow-save", "master-evaluates"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    master = rank == 0
    torch.manual_seed(1337 + rank)
    text = torch.randint(0, 96, (100_000,))

    def get_batch(size=6):
        ix = torch.randint(len(text) - BLOCK - 1, (size,))
        return (
            torch.stack([text[i : i + BLOCK] for i in ix]),
            torch.stack([text[i + 1 : i + 1 + BLOCK] for i in ix]),
        )

    model = DDP(GPT())
    raw = model.module
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))

    @torch.no_grad()
    def estimate_loss(batches=20):
        raw.eval()
        losses = [raw(*get_batch(16)).item() for _ in range(batches)]
        raw.train()
        return sum(losses) / len(losses)

    x, y = get_batch()
    for iteration in range(args.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * iteration / args.max_iters))
        if args.fault == "master-evaluates" and iteration % 3 == 0 and master:
            print(f"step {iteration}: val loss {estimate_loss():.4f}", flush=True)
        if args.fault == "slow-save" and iteration % 3 == 0 and master:
            raw.state_dict()
            time.sleep(0.25)  # torch.save to a slow file system
        for micro_step in range(args.micro_steps):
            last = micro_step == args.micro_steps - 1
            model.require_backward_grad_sync = last or args.fault == "sync-always"
            loss = model(x, y) / args.micro_steps
            x, y = get_batch()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if iteration % 10 == 0 and master:
            print(f"iter {iteration}: loss {loss.item() * args.micro_steps:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
