"""FSDP2 with a profiler of its own, one recorded step in a folder each, as torchtitan writes it.

torchtitan/tools/profiling.py: iteration_N/rankR_trace.json, active 1 of every profile_freq steps.
"""

import argparse
import itertools
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm1 = Attention(width, 4), nn.RMSNorm(width)
        self.w1, self.w2, self.norm2 = (
            nn.Linear(width, 3 * width), nn.Linear(3 * width, width), nn.RMSNorm(width),
        )  # fmt: skip

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.w2(nn.functional.silu(self.w1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width=128, depth=4):
        super().__init__()
        self.embeddings = nn.Embedding(512, width)
        self.layers = nn.ModuleList(TransformerBlock(width) for _ in range(depth))
        self.output = nn.Linear(width, 512)

    def forward(self, tokens):
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--profile-freq", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--dump-folder", default="outputs")
    parser.add_argument("--ahead", action="store_true", help="gather the next layer meanwhile")
    parser.add_argument("--fault", choices=["slow-loader", "more-work", "sync-always"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    second = os.environ["RANK"] == "1"
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if args.ahead:
        model._set_unshard_async_op(True)
        for layer, following in itertools.pairwise(model.layers):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])
    keep = args.accumulate > 1  # within a step the parameters do not change
    if keep:
        model.set_reshard_after_forward(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = 24 if args.fault == "more-work" and second else 8

    def trace_handler(prof):
        folder = Path(args.dump_folder) / "profile_trace" / f"iteration_{prof.step_num}"
        folder.mkdir(parents=True, exist_ok=True)
        prof.export_chrome_trace(str(folder / f"rank{dist.get_rank()}_trace.json"))

    def batches():
        while True:
            if args.fault == "slow-loader" and second:
                time.sleep(0.04)
            tokens = torch.randint(0, 512, (batch, 33))
            yield tokens[:, :-1], tokens[:, 1:]

    warmup, active = 3, 1
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(
            wait=args.profile_freq - (active + warmup), warmup=warmup, active=active
        ),
        on_trace_ready=trace_handler,
        record_shapes=True,
    ) as profiler:
        data = batches()
        for step in range(args.steps):
            optimizer.zero_grad()
            for micro in range(args.accumulate):
                last = micro == args.accumulate - 1
                model.set_requires_gradient_sync(last or args.fault == "sync-always")
                model.set_reshard_after_backward(last or not keep)
                tokens, labels = next(data)
                loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
                (loss / args.accumulate).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(f"step: {step:2}  loss: {loss.item():7.4f}", flush=True)
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
