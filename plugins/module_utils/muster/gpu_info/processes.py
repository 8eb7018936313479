"""Who uses a GPU: processes, without those that keep the GPUs ready, and desktops, which nobody ends.

Desktops are known by the names of display servers, compositors and login screens, as the kernel cuts them to 15
characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# They keep the GPUs ready or watch them, and a reboot takes nothing from anybody: by unit, else by name.
DAEMONS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nv-fabricmanager", "nv-hostengine"),
    *("dcgm-exporter", "nvidia-smi", "nvtop"),
)
COMM_LENGTH = 15
# Primus takes more than this on a GPU that nobody uses for memory that a dead process left.
HELD_MIB = 1024
SCREENS = frozenset(
    name[:COMM_LENGTH]
    for name in (
        *("X", "Xorg", "Xorg.bin", "Xwayland", "Xvnc", "gdm3", "gdm-x-session", "gdm-wayland-session"),
        *("gnome-shell", "gnome-session-binary", "gnome-remote-desktop-daemon", "mutter", "mutter-x11-frames"),
        *("sddm", "sddm-greeter", "kwin_x11", "kwin_wayland", "plasmashell", "lightdm", "lightdm-gtk-greeter"),
        *("cinnamon", "xfwm4", "xfdesktop", "budgie-wm", "marco", "weston", "sway", "Hyprland", "cosmic-comp"),
    )
)
SCREEN_END = "sudo systemctl isolate multi-user.target"
BACK = "sudo systemctl isolate graphical.target brings it back"
FOR_GOOD = "sudo systemctl set-default multi-user.target keeps it away after the next start too"
SCREEN_HOW = f"The screen of the node runs there: end its desktop, with all that is open on it ({BACK}; {FOR_GOOD}), by"


def holders(seen: Iterable[Mapping[str, Any]], uptime: float) -> list[dict[str, Any]]:
    """Return the processes that have a file of the driver open: [{pid, name, owner, devices, unit, age}]."""
    found = []
    for each in seen:
        described = {**describe(each, uptime), "devices": each["devices"]}
        if not keeps_ready(described):
            found.append(described)
    return found


def describe(each: Mapping[str, Any], uptime: float) -> dict[str, Any]:
    """Return who a process is. age: seconds since its start, None for one that is gone."""
    # The last part of a cgroup's path that is a unit; libpod and docker put a scope there.
    units = re.findall(r"/([^/\n]+\.(?:service|scope))", each["cgroup"])
    age = None if each["started"] is None else max(0, int(uptime - each["started"]))
    return {
        **{key: each[key] for key in ("pid", "name", "owner")},
        "unit": units[-1] if units else "",
        "age": age,
    }


def keeps_ready(process: Mapping[str, Any]) -> bool:
    unit = process["unit"].removesuffix(".service")
    return unit in DAEMONS or process["name"] in {name[:COMM_LENGTH] for name in DAEMONS}


def is_screen(name: str) -> bool:
    """Whether a process is one of these, by its name or its path as nvidia-smi has it."""
    return name.rpartition("/")[2][:COMM_LENGTH] in SCREENS


def way_out(names: Iterable[str]) -> str:
    """Say how to free GPUs that processes of these names hold, for the middle of a sentence."""
    there = list(names)
    screens = [name for name in there if is_screen(name)]
    if not screens:
        return "wait for it, or end it"
    others = "" if len(screens) == len(there) else "wait for what is no screen, or end it, and "
    return f"{others}end its desktop, with all that is open there, by {SCREEN_END} ({BACK}; {FOR_GOOD})"
