"""`distrl base-model`: make the tiny base model again from its recipe, a recurrent Q over it, or the paper's from
published parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import console, note, print_line
from distrl.telemetry import logs

app = typer.Typer(
    help="AutoUI: the tiny model that stands for it, a recurrent Q over it, and the paper's own from published weights."
)


@app.callback()
def base_model() -> None:
    """AutoUI: the tiny model that stands for it, a recurrent Q over it, and the paper's own from published weights."""


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
        Path | None,
        typer.Option(help="A text, such as a list of tasks, whose words it learns besides those of the suites."),
    ] = None,
) -> None:
    """Pre-train on synthetic screens (touch the named widget, copy words); held-out pairs are never named."""
    from distrl.policy.autoui.pretraining.recipe import Recipe
    from distrl.policy.autoui.pretraining.screens import phone_tokenizer
    from distrl.policy.autoui.pretraining.train import train
    from distrl.policy.autoui.tokenizer import SPECIALS
    from distrl.rollout.vocabulary import words_of_all_suites, words_of_file, words_to_type
    from distrl.tasks import suite

    logs.configure("base-model")
    recipe = Recipe(seed=seed, threads=threads)
    if updates is not None:
        recipe = replace(recipe, acting=replace(recipe.acting, updates=updates))
    more = words_of_all_suites(phone_tokenizer())
    asked = words_of_file(words, phone_tokenizer(more)) if words else ()
    own = [word for word in asked if word not in SPECIALS]
    if never := [word for word in asked if word in SPECIALS]:
        note(
            f"{', '.join(never)}: this base model writes its actions with it, so it can be no word of an instruction; "
            "word such tasks without it",
            "yellow",
        )
    console.print(train(out, recipe, suite.held_out_pairs(), (*more, *own), (*words_to_type(), *own)))


@app.command("recurrent-q")
def recurrent_q(
    out: Annotated[Path, typer.Option(help="Directory to write it to; one that holds files is refused.")],
    base: Annotated[
        Path | None,
        typer.Option(help="Directory of the tiny AutoUI whose vision it uses; the shipped one if left out."),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Units of its memory.")] = 128,
    epsilon: Annotated[
        float,
        typer.Option(min=0.0001, max=0.9999, help="Share of its behaviour policy that is uniform over all actions."),
    ] = 0.1,
    memory: Annotated[
        bool, typer.Option(help="Whether it is recurrent; else each step is decided by itself, as DQfD does.")
    ] = True,
) -> None:
    """Make a recurrent Q over a grid of actions a base model, for algorithm.type=r2d3; its weights begin random."""
    from distrl.policy.recurrent_q.directory import Described, make
    from distrl.policy.registry import SHIPPED

    logs.configure("base-model")
    made = make(out, base or SHIPPED, Described(width, memory, epsilon))
    print_line(f"identity {made}, in {out}")


@app.command("autoui")
def autoui(
    checkpoint: Annotated[
        Path, typer.Option(help="Directory of Auto-GUI's checkpoint, or of a T5; a T5's fusion is drawn at random.")
    ],
    vision: Annotated[Path, typer.Option(help="Directory of BLIP-2; only its vision model is read.")],
    out: Annotated[Path, typer.Option(help="Directory to write it to; one that holds files is refused.")],
    decoder: Annotated[
        Path | None, typer.Option(help="Directory of a GPT-2, from which the decoder begins as in the paper.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fusion's weights, where the checkpoint has no fusion.")] = 0,
) -> None:
    """Make the paper's AutoUI a base model from published checkpoints; of pickled ones only tensors are read."""
    from distrl.policy.autoui_t5.assemble import assemble

    logs.configure("base-model")
    made = assemble(checkpoint, vision, out, decoder, seed)
    print_line(f"{made.parameters:,} parameters, identity {made.base_sha256}, in {out}")
    if made.drawn:
        print_line(f"the checkpoint has no fusion: its weights were drawn with seed {seed}")
    if made.decoder is not None:
        print_line(f"{len(made.decoder.tensors)} tensors of the decoder are GPT-2's; the T5's own stay:")
        for name in made.decoder.kept:
            print_line(f"  {name}")
