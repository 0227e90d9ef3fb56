"""What a transformer's shape fixes before any run: parameters, FLOPs, state and activation bytes.

Everything is closed arithmetic over `TransformerShape` (no torch), so the same numbers serve the
roofline, the plan, MFU and checks of what other people publish. Figures are exact for the layouts
named below (GPT-2, LLaMA with grouped queries and SwiGLU, Mixtral-like experts); activation bytes
are an estimate by a published formula.

Sources: [ZeRO] Rajbhandari et al. 2020, arXiv:1910.02054 (bytes per parameter, sharding by stage);
[KOR] Korthikanti et al. 2022, arXiv:2205.05198 (activation bytes, recomputation, tensor and
sequence parallelism); [PALM] Chowdhery et al. 2022, arXiv:2204.02311, appendix B (6N + 12LHQT);
[MEG] Narayanan et al. 2021, arXiv:2104.04473 (FLOPs of a GPT iteration).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Recompute = Literal["none", "selective", "full"]
Precision = Literal["mixed", "fp32", "bf16"]
# Limits of what a file may say (presets.py).
Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TransformerShape:
    """The sizes that define a decoder-only transformer.

    `kv_heads` below `heads` is grouped-query attention; `gated_mlp` is SwiGLU (three matrices
    instead of two); `experts` above 1 replaces each MLP by that many of width
    `expert_ffn_hidden` (default `ffn_hidden`), of which a token uses `experts_per_token`, chosen by
    a router without bias, and all tokens `shared_experts` more; the first `dense_layers` keep a
    plain MLP. `attention_parameters` per layer is for compressed attention (MLA), whose matrices
    the heads alone do not give. `norm_tensors` is 2 for LayerNorm
    (weight and bias) and 1 for RMSNorm. `sequence` is the trained context length and, with
    `learned_positions`, the number of position embeddings.
    """

    name: str
    layers: Positive
    hidden: Positive
    heads: Positive
    ffn_hidden: Positive
    vocab: Positive
    sequence: Positive
    kv_heads: Natural = 0
    gated_mlp: bool = False
    bias: bool = False
    tied_embeddings: bool = False
    learned_positions: bool = False
    norm_tensors: Annotated[int, Field(ge=1, le=2)] = 1
    experts: Positive = 1
    experts_per_token: Positive = 1
    head_dim: Natural = 0
    expert_ffn_hidden: Natural = 0
    shared_experts: Natural = 0
    dense_layers: Natural = 0
    attention_parameters: Natural = 0
    source: str = ""

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if not self.head_dim:
            if self.hidden % self.heads:
                raise ValueError(
                    f"{self.name}: hidden={self.hidden} is not a multiple of heads={self.heads}; "
                    "give head_dim"
                )
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if not self.expert_ffn_hidden:
            object.__setattr__(self, "expert_ffn_hidden", self.ffn_hidden)
        if not 0 <= self.dense_layers <= self.layers:
            raise ValueError(f"{self.name}: dense_layers must lie between 0 and layers")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: heads={self.heads} is not a multiple of kv_heads={self.kv_heads}"
            )
        if not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(
                f"{self.name}: experts_per_token={self.experts_per_token} must lie between 1 and "
                f"experts={self.experts}"
            )


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part. With tied embeddings `output_head` is 0: it is the token embedding."""

    token_embedding: int
    position_embedding: int
    attention: int
    mlp: int
    router: int
    norms: int
    output_head: int
    active_mlp: int
    expert: int = 0  # of `mlp`, what expert parallelism distributes

    @property
    def total(self) -> int:
        """All parameters that exist: what memory and gradient traffic depend on."""
        return (
            self.token_embedding
            + self.position_embedding
            + self.attention
            + self.mlp
            + self.router
            + self.norms
            + self.output_head
        )

    @property
    def active(self) -> int:
        """Parameters one token passes through; below `total` only with experts."""
        return self.total - self.mlp + self.active_mlp


def parameters(shape: TransformerShape) -> ParameterCount:
    """Count the parameters of `shape` exactly.

    A tied output head shares the token embedding and is counted once: GPT-2 large then has
    774,030,080 parameters; counting the head again would give 838,359,040.
    """
    hidden, layers = shape.hidden, shape.layers
    query = shape.heads * shape.head_dim
    key_value = shape.kv_heads * shape.head_dim
    attention = shape.attention_parameters or (
        hidden * query + 2 * hidden * key_value + query * hidden
    )
    mlp, expert = _mlp(shape, shape.ffn_hidden), _mlp(shape, shape.expert_ffn_hidden)
    if shape.bias:
        attention += query + 2 * key_value + hidden
    dense = shape.dense_layers if shape.experts > 1 else layers
    sparse = layers - dense
    always = dense * mlp + sparse * shape.shared_experts * expert
    return ParameterCount(
        token_embedding=shape.vocab * hidden,
        position_embedding=shape.sequence * hidden if shape.learned_positions else 0,
        attention=layers * attention,
        mlp=always + sparse * expert * shape.experts,
        router=sparse * hidden * shape.experts,
        norms=(2 * layers + 1) * shape.norm_tensors * hidden,
        output_head=0 if shape.tied_embeddings else shape.vocab * hidden,
        active_mlp=always + sparse * expert * shape.experts_per_token,
        expert=sparse * expert * shape.experts,
    )


def _mlp(shape: TransformerShape, width: int) -> int:
    """Parameters of one MLP or expert of that width."""
    matrices = (3 if shape.gated_mlp else 2) * shape.hidden * width
    if not shape.bias:
        return matrices
    return matrices + (2 if shape.gated_mlp else 1) * width + shape.hidden


def layer_parameters(shape: TransformerShape) -> int:
    """Parameters of one layer with its norms: the unit FSDP usually wraps and pipelines split.

    The mean, where the first layers are dense and the others of experts.
    """
    count = parameters(shape)
    inside = count.attention + count.mlp + count.router
    return inside // shape.layers + 2 * shape.norm_tensors * shape.hidden


def matmul_parameters(shape: TransformerShape) -> int:
    """Parameters a token is multiplied by: active matrices and the head, tied or not.

    Look-ups (token and position embeddings), norms and biases are no matrix products.
    """
    count = parameters(shape)
    biases = 0
    if shape.bias:
        query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        mlp_bias = (2 if shape.gated_mlp else 1) * shape.ffn_hidden + shape.hidden
        biases = shape.layers * (
            query + 2 * key_value + shape.hidden + mlp_bias * shape.experts_per_token
        )
    head = shape.vocab * shape.hidden
    return count.attention + count.active_mlp + count.router - biases + head


def flops_per_token(
    shape: TransformerShape, sequence: int | None = None, *, causal: bool = False
) -> int:
    """FLOPs to train on one token: forward and backward, no recomputation.

    6 per multiplied parameter plus attention's 12·layers·heads·head_dim·sequence [PALM]; for a
    GPT this equals [MEG]'s 72·L·h²(1 + s/(6h) + V/(12·L·h)). `causal` halves the attention term,
    as kernels that skip the masked half do; MFU is published with the full term, hence the
    default. Norms, activations and softmax are left out, as in both papers.
    """
    length = shape.sequence if sequence is None else sequence
    attention = 12 * shape.layers * shape.heads * shape.head_dim * length
    return 6 * matmul_parameters(shape) + (attention // 2 if causal else attention)


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
ADAM_BYTES: dict[Precision, tuple[int, int, int]] = {
    "mixed": (2, 2, 12),
    "fp32": (4, 4, 8),
    "bf16": (2, 2, 4),
}


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
    if fp32_gradients and precision == "mixed":
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
    width = shape.ffn_hidden
    if shape.experts > 1:
        width = (shape.experts_per_token + shape.shared_experts) * shape.expert_ffn_hidden
    return float(replicated), float(4 * query + 4 * key_value + tensors * width)


def mlp_gradient_bytes(shape: TransformerShape, tokens: float) -> float:
    """Bytes of the gradients that the backward of one MLP holds beside what forward kept.

    Those of its second matrix's input and of what the first gives (two of it where gated), in 16
    bits: the largest that one layer's backward needs at a time.
    """
    tensors = 3 if shape.gated_mlp else 2
    width = shape.ffn_hidden
    if shape.experts > 1:
        width = (shape.experts_per_token + shape.shared_experts) * shape.expert_ffn_hidden
    return 2.0 * tensors * width * tokens


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
    fused_loss: bool = True,
) -> float:
    """Bytes of the last norm, the head's input and the fp32 logits: 4·s·b·h·(1 + V/h)/t [KOR].

    That is of a loss that writes its gradient over the logits (Megatron's, flash-attn's, Liger's).
    torch's cross_entropy holds three fp32 tensors of their size in backward: log-probabilities,
    their gradient, and the logits' (LogSoftmax, NLLLoss).
    """
    length = shape.sequence if sequence is None else sequence
    tensors = 1 if fused_loss else 3
    return 4.0 * length * batch * (shape.hidden + tensors * shape.vocab) / tensor_parallel
