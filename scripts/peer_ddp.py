#!/usr/bin/env python3
"""One of two processes that train a RoBERTa of 12 x 256 by PyTorch's DistributedDataParallel over gloo: the peer of
check_network.sh. The first one prints tokens a second of both and, behind it, those of the same steps without exchange."""
import argparse, os, time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--address", required=True)
parser.add_argument("--interface", required=True)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--wire", choices=["f32", "bf16"], default="f32")
parser.add_argument("--steps", type=int, default=10)
o = parser.parse_args()
os.environ.update(MASTER_ADDR=o.address, MASTER_PORT="29511", GLOO_SOCKET_IFNAME=o.interface)

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from transformers import RobertaConfig, RobertaForMaskedLM

torch.set_num_threads(1)
torch.manual_seed(o.rank)
dist.init_process_group("gloo", rank=o.rank, world_size=2)
ROWS, LENGTH, VOCABULARY = 16, 128, 4096
config = RobertaConfig(
    vocab_size=VOCABULARY, hidden_size=256, num_hidden_layers=12, num_attention_heads=4, intermediate_size=1024,
    max_position_embeddings=LENGTH + 2,
)
model = RobertaForMaskedLM(config)
ddp = DistributedDataParallel(model)
if o.wire == "bf16":
    ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def loss_of(module):
    ids = torch.randint(5, VOCABULARY, (ROWS, LENGTH))
    labels = torch.where(torch.rand(ids.shape) < 0.15, ids, -100)
    return module(input_ids=ids, labels=labels).loss / o.accumulate


def step(exchange):
    for part in range(o.accumulate):
        if exchange and part + 1 == o.accumulate:
            loss_of(ddp).backward()
        elif exchange:
            with ddp.no_sync():
                loss_of(ddp).backward()
        else:
            loss_of(model).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def tokens_per_second(exchange):
    step(exchange)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(o.steps // 2):
        step(exchange)
    dist.barrier()
    return 2 * o.accumulate * ROWS * LENGTH * (o.steps // 2) / (time.perf_counter() - begun)


model.train()
together, apart = tokens_per_second(True), tokens_per_second(False)
if o.rank == 0:
    print(f"{together:9.0f} {100 * together / apart:9.0f} %  of {apart:.0f} without exchange")
