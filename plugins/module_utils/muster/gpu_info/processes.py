"""Processes that use GPUs, except daemons of the driver. There is special advice for desktop processes.

Desktops are recognised by the names of display servers, compositors and login screens, which the kernel truncates to 15
characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Daemons that keep the GPUs initialised or monitor them, by unit or name: a reboot interrupts no work of theirs.
DAEMONS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nv-fabricmanager", "nv-hostengine"),
    *("dcgm-exporter", "nvidia-smi", "nvtop"),
)
COMM_LENGTH = 15
# Primus treats more memory than this on an unused GPU as left by a dead process.
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
BACK = "to start it again: sudo systemctl isolate graphical.target"
FOR_GOOD = "to disable it permanently: sudo systemctl set-default multi-user.target"
SCREEN_HOW = f"The node's desktop uses the GPU. Stop the desktop and its programs ({BACK}; {FOR_GOOD}) with"


def holders(seen: Iterable[Mapping[str, Any]], uptime: float) -> list[dict[str, Any]]:
    """Return the processes that have a device file of the driver open: [{pid, name, owner, devices, unit, age}]."""
    found = []
    for each in seen:
        described = {**describe(each, uptime), "devices": each["devices"]}
        if not keeps_ready(described):
            found.append(described)
    return found


def describe(each: Mapping[str, Any], uptime: float) -> dict[str, Any]:
    """Describe a process. age: seconds since the process started, None if it has ended."""
    # The last unit in the cgroup path; podman and docker create a scope.
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
    """Return whether a process belongs to a desktop. This is determined from its name, or from its path in the output
    of nvidia-smi."""
    return name.rpartition("/")[2][:COMM_LENGTH] in SCREENS


def way_out(names: Iterable[str]) -> str:
    """Return a clause that says how to free GPUs that are held by processes with these names."""
    there = list(names)
    screens = [name for name in there if is_screen(name)]
    if not screens:
        return "wait until the processes finish, or end them"
    others = "" if len(screens) == len(there) else "wait until the other processes finish, or end them, and "
    return f"{others}stop the desktop and its programs with {SCREEN_END} ({BACK}; {FOR_GOOD})"
