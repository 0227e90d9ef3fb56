"""What a transformer keeps in a rank's memory: its training state, and activations for backward.

Closed arithmetic, as in transformer.py; activation bytes are an estimate by a published formula.

Sources: [ZeRO] Rajbhandari et al. 2020, arXiv:1910.02054 (bytes per parameter, sharding by stage);
[KOR] Korthikanti et al. 2022, arXiv:2205.05198 (activation bytes, recomputation, tensor and
sequence parallelism).
"""

from dataclasses import dataclass
from typing import Literal

from advisor.model.transformer import TransformerShape

Recompute = Literal["none", "selective", "full"]
Precision = Literal["mixed", "remainders", "fp32", "bf16"]
Loss = Literal["fused", "megatron", "torch"]
# Bytes per logit at the peak. fused: 16-bit logits and their gradient (flash-attn's). megatron:
# these and an fp32 copy that becomes the gradient (vocab_parallel_cross_entropy). torch: three
# fp32 tensors in backward, log-probabilities, their gradient, the logits' (LogSoftmax, NLLLoss).
LOGIT_BYTES: dict[Loss, int] = {"fused": 4, "megatron": 6, "torch": 12}


@dataclass(frozen=True)
class StateBytes:
    """Bytes one rank keeps through training, apart from activations."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.parameters + self.gradients + self.optimizer


# Bytes per parameter: weights, gradients, optimizer state. Adam keeps two moments; "mixed" adds
# the fp32 master copy ([ZeRO] section 3.1: 2 + 2 + 12 = 16); "fp32" has neither 2-byte copy nor
# master (4 + 4 + 8 = 16, also what torch.autocast keeps); "bf16" keeps everything in 2 bytes.
# "remainders": of the master copy what the 16-bit weight leaves out (store_param_remainders of
# apex's DistributedFusedAdam, which NeMo sets, and of Transformer Engine's FusedAdam).
ADAM_BYTES: dict[Precision, tuple[int, int, int]] = {
    "mixed": (2, 2, 12),
    "remainders": (2, 2, 10),
    "fp32": (4, 4, 8),
    "bf16": (2, 2, 4),
}
# What trains 16-bit weights by a 32-bit master copy.
WITH_MASTER: tuple[Precision, ...] = ("mixed", "remainders")


def state_bytes(
    parameter_count: float,
    zero_stage: int = 0,
    shards: int = 1,
    *,
    precision: Precision = "mixed",
    fp32_gradients: bool = False,
) -> StateBytes:
    """Adam training state per rank under ZeRO `zero_stage` over `shards` ranks [ZeRO].

    Stage 1 shards the optimizer, 2 the gradients too, 3 (FSDP full sharding) everything.
    `parameter_count` is what the rank would hold unsharded (divide by tensor, pipeline and expert
    degrees first). `fp32_gradients`: those of 16-bit weights take 4 bytes. Raises ValueError on an
    unknown stage or `shards` below 1.
    """
    if zero_stage not in (0, 1, 2, 3):
        raise ValueError(f"zero_stage is {zero_stage}: it must be 0, 1, 2 or 3")
    if shards < 1:
        raise ValueError(f"shards is {shards}: it must be at least 1")
    weights, gradients, optimizer = (size * parameter_count for size in ADAM_BYTES[precision])
    if fp32_gradients and precision in WITH_MASTER:
        gradients = 4 * parameter_count
    return StateBytes(
        parameters=weights / shards if zero_stage >= 3 else weights,
        gradients=gradients / shards if zero_stage >= 2 else gradients,
        optimizer=optimizer / shards if zero_stage >= 1 else optimizer,
    )


def layer_activation_bytes(
    shape: TransformerShape,
    batch: int,
    sequence: int | None = None,
    *,
    recompute: Recompute = "none",
    flash_attention: bool = False,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    fused_mlp: bool = False,
) -> float:
    """Bytes one layer keeps for the backward pass, per rank, in 16-bit training [KOR].

    Of a GPT without parallelism s·b·h·(34 + 5·a·s/h), of other shapes what `_kept_per_token` says
    in place of the 34; `recompute="selective"` drops the attention term (a fused attention kernel
    does the same: `flash_attention`), `"full"` keeps the layer's input only, 2·s·b·h. Tensor
    parallelism over t ranks leaves 10 of the 34 replicated: s·b·h·(10 + 24/t + 5·a·s/(h·t)); with
    sequence parallelism everything is divided by t. `fused_mlp`: a gated MLP's product is computed
    again (xFormers' SwiGLU, torch.compile).
    """
    length = shape.sequence if sequence is None else sequence
    tokens = float(length) * batch
    ranks = tensor_parallel
    if recompute == "full":
        return 2 * tokens * shape.hidden / (ranks if sequence_parallel else 1)
    replicated, split = _kept_per_token(shape, fused_mlp=fused_mlp)
    if recompute == "none" and not flash_attention:
        split += 5.0 * shape.heads * length
    return tokens * (replicated / (ranks if sequence_parallel else 1) + split / ranks)


def _kept_per_token(shape: TransformerShape, *, fused_mlp: bool) -> tuple[float, float]:
    """Bytes that a layer keeps of one token: what tensor parallelism replicates, what it splits.

    [KOR] section 4.1 by part: 2 h each for the inputs of both norms, of attention and of the MLP,
    h for each dropout's mask; 2 bytes for queries, keys, values, attention's output and what the
    MLP's nonlinearity takes and gives. That is 10 h + 24 h for a GPT. Models without biases train
    without dropout; a gated MLP keeps three tensors of its width (its SiLU is fused), or the two
    that its product is made of.
    """
    replicated = (8 + (2 if shape.bias else 0)) * shape.hidden
    query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors = 6 if shape.gated_mlp and not fused_mlp else 4
    return float(replicated), float(4 * query + 4 * key_value + tensors * _mlp_width(shape))


def _mlp_width(shape: TransformerShape) -> int:
    """Of all that one token goes through: one MLP, or the experts that it is sent to."""
    if shape.experts > 1:
        return (shape.experts_per_token + shape.shared_experts) * shape.expert_ffn_hidden
    return shape.ffn_hidden


def mlp_gradient_bytes(shape: TransformerShape, tokens: float) -> float:
    """Bytes of the gradients that the backward of one MLP holds beside what forward kept.

    Those of its second matrix's input and of what the first gives (two of it where gated), in 16
    bits: the largest that one layer's backward needs at a time.
    """
    tensors = 3 if shape.gated_mlp else 2
    return 2.0 * tensors * _mlp_width(shape) * tokens


def activation_bytes(
    shape: TransformerShape,
    batch: int,
    sequence: int | None = None,
    *,
    recompute: Recompute = "none",
    flash_attention: bool = False,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    layers: int | None = None,
) -> float:
    """`layer_activation_bytes` over `layers` (all by default); GPT-3: about 275 GB per sample.

    Full recomputation adds the one layer that is being recomputed. Embedding and logits are not
    in it: see `output_activation_bytes`.
    """

    def one(mode: Recompute) -> float:
        return layer_activation_bytes(
            shape,
            batch,
            sequence,
            recompute=mode,
            flash_attention=flash_attention,
            tensor_parallel=tensor_parallel,
            sequence_parallel=sequence_parallel,
        )

    count = shape.layers if layers is None else layers
    working = one("none") if recompute == "full" else 0.0
    return count * one(recompute) + working


def output_activation_bytes(
    shape: TransformerShape,
    batch: int,
    sequence: int | None = None,
    *,
    tensor_parallel: int = 1,
    loss: Loss = "fused",
) -> float:
    """Bytes of the last norm, the head's input and the logits: s·b·(4·h + n·V)/t.

    n is 4 where [KOR] counts one fp32 tensor; by what computes the `loss` see `LOGIT_BYTES`.
    """
    length = shape.sequence if sequence is None else sequence
    return length * batch * (4.0 * shape.hidden + LOGIT_BYTES[loss] * shape.vocab) / tensor_parallel
