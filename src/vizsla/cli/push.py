"""vizsla push: a saved model to the model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console, options


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a saved or trained model.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="What the model is called on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[str, typer.Option("--message", metavar="TEXT", help="What the commit says.")] = "",
    as_json: options.Json = False,
) -> None:
    """Upload a saved model to the Hugging Face hub.

    Its model card goes with it, and hf:ORG/NAME opens it.

    huggingface_hub signs in: by HF_TOKEN, or by `hf auth login` before. Without --private everybody can see the model.
    """
    from vizsla.backends.hub import push_model

    address = push_model(folder, name, private=private, message=message)
    if as_json:
        console.print_json({"model": name, "address": address})
        return
    console.remark(f"Pushed: {address}. Open it with: hf:{name}")
