"""`holdfast db`: check, rebuild, archive, export and import the stored data, with a running node or a stopped one."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.db import archive, check, export_import, rebuild, snapshot

app = make_app(no_args_is_help=True, help="Check, rebuild, archive, export and import the stored data.")
app.command("check")(check.check)
app.command("snapshot")(snapshot.snapshot)
app.command("rebuild")(rebuild.rebuild)
app.add_typer(archive.app, name="archive")
app.command("export")(export_import.export)
app.command("import")(export_import.import_)
