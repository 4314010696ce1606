"""Models on the model hub: pushed there; `hf:org/name` opens them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vizsla.errors import InputError, MissingPackageError, VizslaError
from vizsla.models import Model
from vizsla.models.card import write_card

_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_LEFT_OUT = ["training/*", ".*", "*/.*"]
"""What training keeps beside a model, and hidden files."""


def push_model(folder: str | Path, name: str, *, private: bool = False, message: str = "") -> str:
    """Upload a saved model to the model hub, with its card; gives its address. The token is that of huggingface_hub.

    `name`: as in `org/name`. A repository that does not exist is made, `private` or not.
    """
    path = Path(folder)
    if not _NAME.fullmatch(name):
        raise VizslaError(f"a model on the hub is called org/name, and not {name!r}")
    if not (path / "model.json").is_file():
        raise InputError(
            "there is no saved model here (no model.json); save one with: vizsla models save", file=str(folder)
        )
    Model.load(path)  # a model that cannot be opened here helps nobody there
    hub = _hub()
    write_card(path, name)
    try:
        hub.create_repo(name, private=private, exist_ok=True, repo_type="model")
        done = hub.upload_folder(
            repo_id=name, folder_path=str(path), ignore_patterns=_LEFT_OUT,
            commit_message=message or f"Upload {path.resolve().name} with vizsla",
        )  # fmt: skip
    except Exception as e:  # those of the hub, of the network and of the system have no common type
        reason = " ".join(str(e).split())[:300] or type(e).__name__
        raise VizslaError(f"{name}: the model was not pushed ({reason})") from None
    return str(getattr(done, "commit_url", "") or name)


def _hub() -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingPackageError(
            'pushing a model needs huggingface_hub; install it with: pip install "vizsla[hub]"'
        ) from None
    return HfApi(library_name="vizsla")
