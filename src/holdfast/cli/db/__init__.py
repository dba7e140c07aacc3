"""`holdfast db`: check, rebuild, archive, export and import the stored data, with a running node or a stopped one."""

from __future__ import annotations

from holdfast.cli import make_app
from holdfast.cli.db import archive, check, export_import, rebuild, snapshot

app = make_app(no_args_is_help=True, help="Check, rebuild, archive, export and import the stored data.")
app.command("check", example="holdfast db check --data /var/lib/holdfast")(check.check)
app.command("snapshot", example="holdfast db snapshot")(snapshot.snapshot)
app.command("rebuild", example="holdfast db rebuild")(rebuild.rebuild)
app.add_typer(archive.app, name="archive")
app.command(
    "export", example="holdfast db export --to /backup/holdfast\nholdfast db export --to /backup --every 6h --keep 7"
)(export_import.export)
app.command("import", example="holdfast db import --from /backup/holdfast --data restored")(export_import.import_)
