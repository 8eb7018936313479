"""A desktop whose screen runs on a GPU: nobody waits for that to end, and nobody kills it.

The names are those of display servers, compositors and login screens, as the kernel cuts them to 15 characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .processes import COMM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable

SCREENS = frozenset(
    name[:COMM_LENGTH]
    for name in (
        *("X", "Xorg", "Xorg.bin", "Xwayland", "Xvnc", "gdm3", "gdm-x-session", "gdm-wayland-session"),
        *("gnome-shell", "gnome-session-binary", "gnome-remote-desktop-daemon", "mutter", "mutter-x11-frames"),
        *("sddm", "sddm-greeter", "kwin_x11", "kwin_wayland", "plasmashell", "lightdm", "lightdm-gtk-greeter"),
        *("cinnamon", "xfwm4", "xfdesktop", "budgie-wm", "marco", "weston", "sway", "Hyprland", "cosmic-comp"),
    )
)
END = "sudo systemctl isolate multi-user.target"
BACK = "sudo systemctl isolate graphical.target brings it back"
FOR_GOOD = "sudo systemctl set-default multi-user.target keeps it away after the next start too"
HOW = f"The screen of the node runs there: end its desktop, with all that is open on it ({BACK}; {FOR_GOOD}), by"


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
    return f"{others}end its desktop, with all that is open there, by {END} ({BACK}; {FOR_GOOD})"
