"""`holdfast db`: what an operator does with the stored data, beside a running node or without one."""

from __future__ import annotations

from holdfast.cli import verb
from holdfast.cli.db import archive, check, rebuild, snapshot, transfer

app = verb(no_args_is_help=True, help="Work on the stored data.")
app.command("check")(check.check)
app.command("snapshot")(snapshot.snapshot)
app.command("rebuild")(rebuild.rebuild)
app.add_typer(archive.app, name="archive")
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
