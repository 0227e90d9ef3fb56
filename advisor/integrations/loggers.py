"""The verdict and its figures in the experiment trackers that a job uses already.

Weights & Biases and MLflow are found by their active run; TensorBoard's writer has to be given,
for torch knows none by itself. A tracker that the job has not imported is not imported for this.
"""

import sys
from typing import Any

from advisor.api import Run

PREFIX = "advisor"


def figures(run: Run) -> dict[str, float]:
    """What is worth a curve: step time and its parts per rank and step, what the fix would give.

    Shares are of the step, means over ranks and used steps.
    """
    (parts,) = run.store.con.execute(
        """
        SELECT median(window_ns) / 1e6 AS step_ms,
          sum(compute_ns) / sum(window_ns) AS compute_share,
          sum(exposed_comm_ns) / sum(window_ns) AS exposed_comm_share,
          sum(exposed_wait_ns) / sum(window_ns) AS exposed_wait_share,
          sum(idle_ns) / sum(window_ns) AS idle_share
        FROM step_breakdown WHERE used
        """
    ).fetchall()
    names = ("step_ms", "compute_share", "exposed_comm_share", "exposed_wait_share", "idle_share")
    found = {name: float(v) for name, v in zip(names, parts, strict=True) if v is not None}
    if run.report.verdict.savings_ns is not None:
        found["recoverable_ms"] = run.report.verdict.savings_ns / 1e6
    return found


def publish(run: Run, *, step: int | None = None, tensorboard: Any = None) -> list[str]:
    """Write verdict and figures to every tracker that has a run open; the names of those.

    ``step`` is the job's own step; ``tensorboard`` a ``torch.utils.tensorboard.SummaryWriter``.
    W&B takes the curves over ``advisor/step``, in the row that the job's next log writes.
    """
    said = run.render("chat")
    curves = {f"{PREFIX}/{name}": value for name, value in figures(run).items()}
    into = []
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        # W&B drops what comes behind its own step, and a row of ours would move that step.
        own = {} if step is None else {f"{PREFIX}/step": step}
        if own:
            wandb.run.define_metric(f"{PREFIX}/*", step_metric=f"{PREFIX}/step")
        wandb.run.log({**curves, **own}, commit=False)
        wandb.run.summary[f"{PREFIX}/verdict"] = said
        into.append("wandb")
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(curves, step=step)
        mlflow.log_text(said, f"{PREFIX}/verdict.txt")
        mlflow.set_tag(f"{PREFIX}.cause", run.report.verdict.cause)
        into.append("mlflow")
    if tensorboard is not None:
        for name, value in curves.items():
            tensorboard.add_scalar(name, value, step)
        # Markdown there: two spaces break a line.
        tensorboard.add_text(f"{PREFIX}/verdict", said.replace("\n", "  \n"), step)
        into.append("tensorboard")
    return into
