"""A Hugging Face Trainer on a tiny GPT-2, as its examples write it; one rank's rows may be slow."""

import argparse
import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, delay_s):
        self.delay_s = delay_s

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        if self.delay_s:  # else a sleep of nothing gives its core away
            time.sleep(self.delay_s)
        ids = torch.randint(0, 256, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--out", default="hf-output")
    parser.add_argument("--fault", choices=["slow-loader", "unused", "save-often"])
    args = parser.parse_args()
    slow = args.fault == "slow-loader" and os.environ.get("RANK") == "1"
    shape = {"n_embd": args.width, "n_layer": args.layers, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, **shape))
    training = TrainingArguments(
        args.out, max_steps=args.steps, per_device_train_batch_size=4, use_cpu=True,
        report_to=[], save_steps=2 if args.fault == "save-often" else 500, logging_steps=10,
        disable_tqdm=True,
        ddp_backend="gloo", ddp_find_unused_parameters=args.fault == "unused",
    )  # fmt: skip
    Trainer(model, training, train_dataset=Tokens(0.01 if slow else 0.0)).train()


if __name__ == "__main__":
    main()
