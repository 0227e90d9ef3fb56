"""What a recording says about the model's size, so that theory can stand beside what was measured.

The readers of a trace have no torch and no model: the shape as `advisor.model` describes it and the
parameters that each rank holds once the model has been cut (but before data parallelism shards
them) go into the recording's metadata.
"""

from dataclasses import asdict
from typing import Any

from advisor.config.workload import Workload
from advisor.model.transformer import TransformerShape
from advisor.profile.strategies.base import Job, layers_of


def transformer(workload: Workload, shape: Any) -> TransformerShape | None:
    """The model in the terms of the cost formulas; None for emulated layers, which have none."""
    if workload.compute == "emulated":
        return None
    family, preset = workload.model.family, workload.model.preset
    common = {
        "name": f"{family}-{preset}",
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "vocab": shape.vocabulary,
        "sequence": shape.positions,
    }
    if family == "gpt2":
        return TransformerShape(
            **common, ffn_hidden=4 * shape.hidden, bias=True, tied_embeddings=True,
            learned_positions=True, norm_tensors=2,
        )  # fmt: skip
    return TransformerShape(
        **common,
        ffn_hidden=shape.mlp,
        kv_heads=shape.key_value_heads,
        gated_mlp=True,
        tied_embeddings=shape.is_tied,
        experts=getattr(shape, "experts", 1),
        experts_per_token=getattr(shape, "top", 1),
    )


def held(job: Job) -> dict[str, Any]:
    """This rank's part of the model, in parameters, and the degrees that cut it.

    ``shared`` are reduced over the data-parallel ranks, ``experts`` over an expert's replicas only,
    ``outside_layers`` is the part of ``shared`` in embedding and head.
    """
    in_layers = {
        id(parameter)
        for part in job.parts
        for layer in layers_of(part)
        for parameter in layer.parameters()
    }
    sizes = {"shared": 0, "experts": 0, "outside_layers": 0}
    for parameter in job.parameters():
        # Of a DTensor, whose class takes half a second to import.
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if parameter in job.ignored_parameters:
            sizes["experts"] += local.numel()
            continue
        sizes["shared"] += local.numel()
        if id(parameter) not in in_layers:
            sizes["outside_layers"] += local.numel()
    shape = transformer(job.workload, job.shape)
    return {
        "held_parameters": sizes,
        "layers_held": sum(len(layers_of(part)) for part in job.parts),
        "degrees": asdict(job.degrees),
        "transformer": None if shape is None else asdict(shape),
    }
