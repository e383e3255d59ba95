"""`distrl policy`: what a policy answers, what a base model takes, and a published one for other programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from distrl.cli.common import (
    Begin,
    ConfigFile,
    End,
    OfRun,
    Sets,
    command_line,
    console,
    load,
    print_line,
    row,
    run_settings,
    table,
)
from distrl.errors import ConfigError
from distrl.images import ImageError, opened

app = typer.Typer(
    help="Ask a policy once, compute what a base model takes, check recorded steps, export a version.",
    no_args_is_help=True,
)


@app.callback()
def policy() -> None:
    """Ask a policy once, compute what a base model takes, check recorded steps, export a version."""


@app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Directory to write to; one that holds an adapter is refused.")],
    version: Annotated[int | None, typer.Option(min=0, help="Its number; the newest if not given.")] = None,
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Write the adapter of a version as PEFT has it: adapter_model.safetensors and adapter_config.json.

    The weights are the published bytes, checked against the version's hash. `PeftModel.from_pretrained(model, OUT)`
    loads them on the base model that adapter_config.json names by its sha256.
    """
    settings = run_settings(config, sets, run)
    from distrl.offline.adapter import export_adapter

    found = export_adapter(settings, version, out)
    console.print(
        f"version {found.version} of run {settings.run} ({found.adapter.sha256[:12]}) is in {out}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@app.command("try")
def try_(
    image: Annotated[Path, typer.Option(help="A screenshot, as PNG.")],
    instruction: Annotated[str, typer.Option(help="What is to be done.")],
    out: Annotated[Path | None, typer.Option(help="PNG to write: the screenshot with the touch drawn on it.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.01, help="Draw an action; the likeliest one if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    run: Annotated[str | None, typer.Option(help="A run, whose version answers.")] = None,
    version: Annotated[int | None, typer.Option(min=0, help="Its number; the newest of the run if not given.")] = None,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Ask the policy for its first action on a screenshot: what it reads, what it writes, what that is taken for.

    Without --run and --version the base model answers, untrained; no broker is needed then. It answers in this process,
    on worker.device, and never by a model server.
    """
    try:
        png = image.read_bytes()
        opened(png)
    except OSError as error:
        raise ConfigError("--image", f"{image} cannot be read ({error.strerror})", "name a screenshot") from None
    except ImageError as error:
        raise ConfigError(
            "--image", f"{image} {error}", "take a screenshot as a phone gives it: adb exec-out screencap -p > FILE"
        ) from None
    published = run is not None or version is not None
    settings = run_settings(config, sets, run) if published else load(config, sets)
    if settings.policy.server.endpoint is not None:
        raise ConfigError(
            "policy.server.endpoint",
            "is set, and `distrl policy try` asks the model in its own process, not the server",
            "add --set policy.server.endpoint=null, which loads the model here",
        )
    from distrl.accelerator import deciding, device_of
    from distrl.judge.marks import marked
    from distrl.policy.registry import policy_of
    from distrl.policy.sampling import Sampling
    from distrl.text import printable

    policy = policy_of(settings.policy, device=device_of(settings.worker.device, "worker.device"))
    if published:
        from distrl.offline.adapter import adapter_of

        found, adapter = adapter_of(settings, version)
        policy.load(adapter)
        print_line(f"version {found.version} of run {settings.run} ({found.adapter.sha256[:12]})")
    sampling = None if temperature is None else Sampling(temperature)
    with deciding(1):
        prompt = policy.tokenizer.encode_prompt(instruction, (), policy.image_features(png).size)
        (made,) = policy.decide([png], [prompt], sampling, [seed])
    print_line(f"reads ({len(prompt)} tokens): {printable(policy.tokenizer.text(prompt))}")
    print_line(f"writes ({len(made.action_ids)} tokens): {printable(policy.tokenizer.text(made.action_ids))}")
    print_line(f"action: {printable(made.action_text)}")
    print_line(f"log-probability: {made.logprob:.4f}")
    if out is not None:
        try:
            out.write_bytes(marked(png, made.action))
        except OSError as error:
            raise ConfigError("--out", f"{out} cannot be written ({error.strerror})", "name another file") from None
        print_line(f"drawn: {out}")


@app.command("check")
def check(
    topic: Annotated[
        Literal["trajectories", "demonstrations"], typer.Option(help="Whose steps are played.")
    ] = "trajectories",
    begin: Begin = None,
    end: End = None,
    steps: Annotated[int, typer.Option(min=1, help="Most steps, from the range's first on.")] = 1000,
    rows: Annotated[int, typer.Option(min=1, help="Steps of a batch.")] = 8,
    threshold: Annotated[
        float, typer.Option(min=0.0, help="Largest difference in nats with which the check ends well.")
    ] = 1e-4,
    run: OfRun = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, for programs, in place of a table.")
    ] = False,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Play recorded steps as the learner and as a worker computes them, and compare the log-probabilities.

    Each step is played under the weights of its version, demonstrations under the newest; with worker.temperature,
    worker.top_p, worker.top_k and worker.ladder of the run. Where policy.server names a server, it is asked for each
    decision again.
    Ends with an error where a difference is above --threshold.
    """
    from distrl.offline.check import mismatch
    from distrl.offline.mismatch import EXACT, SHARES
    from distrl.offline.topic_range import RangeRequest, bound_of

    now = datetime.now(UTC)
    settings = run_settings(config, sets, run)
    bounds = [None if text is None else bound_of(text, now) for text in (begin, end)]
    given = {
        "--run": settings.run,
        "--topic": topic,
        "--steps": steps,
        "--rows": rows,
        "--threshold": threshold,
        "--json": as_json,
    }
    line = command_line("policy check", config, sets, given)
    found = mismatch(settings, RangeRequest(settings.run, topic, bounds[0], bounds[1], (), line), steps, rows)
    if as_json:
        json.dump(found.as_json(), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        shown = table("difference", "steps", *(f"{share:.0%}" for share in SHARES), "largest", "at", f"above {EXACT:g}")
        for name, each in found.by_name.items():
            nats = [f"{value:.2g}" for value in (*each.quantiles.values(), each.largest)]
            shown.add_row(*row(name, each.steps, *nats, each.worst, each.beyond))
        console.print(shown)
        print_line(f"{found.skipped} steps skipped: adapter or screenshot gone, or no action of this policy")
    found.refuse_above(threshold)


@app.command("size")
def size(
    models: Annotated[list[Path], typer.Argument(help="Base models: directories, or their config.json alone.")],
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt, those of its screenshots counted.")] = 1500,
    action: Annotated[int, typer.Option(min=2, help="Tokens of an action.")] = 64,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a shard, and of a batch of decisions.")] = 8,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Compute the memory that a base model takes to train and to act, from shapes: nothing is loaded, nothing measured.

    Adapters are those of policy.lora_rank, policy.lora_targets and policy.trains. Prints a table in Markdown.
    """
    settings = load(config, sets)
    from distrl.policy.sizing import sizes_of

    short = [model.stem if model.suffix == ".json" else model.name for model in models]
    names = short if len(set(short)) == len(models) else [str(model) for model in models]
    found = {name: sizes_of(model, settings.policy, prompt, action) for name, model in zip(names, models, strict=True)}
    lines = {
        "parameters": [billions(each.parameters) for each in found.values()],
        "of them see": [billions(each.seeing) for each in found.values()],
        "trained": [f"{each.trained / 1e6:.2f} M" for each in found.values()],
        "a reload": [f"{each.reload / 1e6:.1f} MB" for each in found.values()],
        "weights": [gigabytes(each.weights) for each in found.values()],
        "gradients and moments": [gigabytes(each.learned) for each in found.values()],
        "activations of a row": [gigabytes(each.activations) for each in found.values()],
        f"a step on {rows} rows": [gigabytes(each.step(rows)) for each in found.values()],
        "keys and values of a row": [f"{each.cache / 1e6:.0f} MB" for each in found.values()],
        f"deciding {rows} rows": [gigabytes(each.acting(rows)) for each in found.values()],
    }
    print_line(f"| | {' | '.join(found)} |")
    print_line(f"| --- |{' ---: |' * len(found)}")
    for name, values in lines.items():
        print_line(f"| {name} | {' | '.join(values)} |")


def billions(count: int) -> str:
    return f"{count / 1e9:.3f} B"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
