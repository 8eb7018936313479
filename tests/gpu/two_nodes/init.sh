#!/bin/bash
# The first process of a node in its namespaces: mounts /proc, /sys, /dev, /run and the cgroups, and becomes systemd.
# init.sh FOLDER ROOT; each line of FOLDER/trees is a cgroup mount: type, options and folder.
set -euo pipefail
folder=$1 root=$2
mount --make-rprivate /
hostname "$(basename "$folder")"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# A separate boot id. The rest of /proc/sys belongs to the machine and is read-only, except for the node's network.
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --bind "/proc/self/root$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,rw "$root/proc/sys/net"
mount --bind "$folder/boot_id" "$root/proc/sys/kernel/random/boot_id"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
[[ $(wc -l <"$folder/trees") -eq 1 ]] || mount -t tmpfs -o nosuid,nodev,noexec,mode=0755 tmpfs "$root/sys/fs/cgroup"
while read -r kind options place; do
    mkdir -p "$root$place"
    mount -t "$kind" -o "$options" "$kind" "$root$place"
done <"$folder/trees"
mount -t tmpfs -o nosuid,mode=0755 tmpfs "$root/dev"
mkdir -p "$root/dev"/{pts,shm,mqueue}
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
mount -t mqueue -o nosuid,nodev,noexec mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
for name in null zero full random urandom tty kmsg; do [[ ! -e /dev/$name ]] || cp -a "/dev/$name" "$root/dev/$name"; done
for path in /dev/nvidia* /dev/dri /dev/infiniband; do [[ ! -e $path ]] || cp -a "$path" "$root/dev/"; done
mount -t tmpfs -o nosuid,nodev,mode=0755 tmpfs "$root/run"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/run/lock"
read -r _ <"$folder/go" # wait for the network
cd "$root"
mkdir -p .old
pivot_root . .old
exec </dev/null >/dev/null 2>&1
umount -l /.old
rmdir /.old
cd /
# Drop capabilities that affect the machine itself: its clock and its modules.
exec setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio --inh-caps=-sys_time,-sys_module,-sys_rawio \
    /usr/bin/env -i container=two-nodes PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /sbin/init
