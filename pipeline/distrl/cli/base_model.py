"""`distrl base-model`: make the tiny base model again, from its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import console
from distrl.telemetry import logs

app = typer.Typer(help="The tiny pre-trained model that stands for AutoUI's BLIP-2 and GPT-2 weights.")


@app.callback()
def base_model() -> None:
    """The tiny pre-trained model that stands for AutoUI's BLIP-2 and GPT-2 weights."""


@app.command("train")
def train(
    out: Annotated[Path, typer.Option(help="Directory to write it to; one that holds a base model is refused.")],
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the synthetic screens.")] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Gradient steps of the second stage.")] = 1000,
    threads: Annotated[int, typer.Option(min=1, help="Threads that torch computes with.")] = 2,
) -> None:
    """Pre-train on synthetic screens (touch the named widget, copy words); held-out entities are never named."""
    from distrl.policy.pretrain import train_base
    from distrl.tasks.suite import held_out_pairs

    logs.configure("base-model")
    report = train_base(out, seed=seed, updates=updates, forbidden=held_out_pairs(), threads=threads)
    console.print(report)
