"""What a transformer's shape fixes before any run: parameters and FLOPs (memory.py: bytes).

Everything is closed arithmetic over `TransformerShape` (no torch), so the same numbers serve the
roofline, the plan, MFU and checks of what other people publish. Figures are exact for the layouts
named below (GPT-2, LLaMA with grouped queries and SwiGLU, Mixtral-like experts).

Sources: [PALM] Chowdhery et al. 2022, arXiv:2204.02311, appendix B (6N + 12LHQT); [MEG] Narayanan
et al. 2021, arXiv:2104.04473 (FLOPs of a GPT iteration).
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

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
        ends = self.token_embedding + self.position_embedding + self.output_head
        return ends + self.attention + self.mlp + self.router + self.norms

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


def flops_per_token(shape: TransformerShape, sequence: int | None = None) -> int:
    """FLOPs to train on one token: forward and backward, no recomputation.

    6 per multiplied parameter plus attention's 12·layers·heads·head_dim·sequence [PALM]; for a
    GPT this equals [MEG]'s 72·L·h²(1 + s/(6h) + V/(12·L·h)). The attention term is
    whole, as MFU is published with it, though causal kernels skip half of it. Norms, activations
    and softmax are left out, as in both papers.
    """
    length = shape.sequence if sequence is None else sequence
    attention = 12 * shape.layers * shape.heads * shape.head_dim * length
    return 6 * matmul_parameters(shape) + attention
