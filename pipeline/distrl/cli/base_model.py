"""`distrl base-model`: make the tiny base model again, from its recipe."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import console
from distrl.telemetry import logs


class Words(StrEnum):
    HOME = "home"
    ALL = "all"


app = typer.Typer(help="The tiny pre-trained model that stands for AutoUI's BLIP-2 and GPT-2 weights.")


@app.callback()
def base_model() -> None:
    """The tiny pre-trained model that stands for AutoUI's BLIP-2 and GPT-2 weights."""


@app.command("train")
def train_base(
    out: Annotated[Path, typer.Option(help="Directory to write it to; one that holds a base model is refused.")],
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the synthetic screens.")] = 0,
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="Gradient steps of the second stage; as many as the shipped one had if left out."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads that torch computes with.")] = 2,
    words: Annotated[
        Words, typer.Option(help="Those of the home suite, as the shipped one has, or of all built-in suites.")
    ] = Words.HOME,
) -> None:
    """Pre-train on synthetic screens (touch the named widget, copy words); held-out pairs are never named."""
    from distrl.policy.autoui.pretraining.recipe import Recipe
    from distrl.policy.autoui.pretraining.screens import phone_tokenizer
    from distrl.policy.autoui.pretraining.train import train
    from distrl.rollout.vocabulary import words_of_all_suites
    from distrl.tasks import entities, suite

    logs.configure("base-model")
    recipe = Recipe(seed=seed, threads=threads)
    if updates is not None:
        recipe = replace(recipe, acting=replace(recipe.acting, updates=updates))
    if words is Words.HOME:
        console.print(train(out, recipe, entities.held_out_pairs()))
    else:
        console.print(train(out, recipe, suite.held_out_pairs(), words_of_all_suites(phone_tokenizer())))
