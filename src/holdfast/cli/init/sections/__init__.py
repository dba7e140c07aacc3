"""Every setting of a node with one line about it: for the file of `holdfast init` and for the reference."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.gateway import ARCHIVING
from holdfast.cli.init.sections.listeners import LISTENERS
from holdfast.cli.init.sections.node import NODE, STORES
from holdfast.cli.init.sections.policy_of_jobs import JOBS
from holdfast.cli.init.sections.policy_of_storage import STORAGE
from holdfast.cli.init.sections.setting_line import Section, SettingLine

SECTIONS: Final[tuple[Section, ...]] = (*NODE, *LISTENERS, *STORES, *ARCHIVING, *JOBS, *STORAGE)
"""In the order of the file: where the node is, who reaches it, where it stores; then what the network agrees on."""

__all__ = ["SECTIONS", "Section", "SettingLine"]
