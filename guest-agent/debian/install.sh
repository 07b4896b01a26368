#!/bin/sh
# install.sh AGENT ROOT: the agent and what starts it, for a Debian (or what is like it) whose root is ROOT.
# `systemctl enable reprise-agent` and `update-initramfs -u` there do the rest.
set -eu
here=$(dirname "$0")
install -D -m 755 "$1" "$2/usr/sbin/reprise-agent"
install -D -m 644 "$here/reprise-agent.service" "$2/etc/systemd/system/reprise-agent.service"
install -D -m 644 "$here/../reprise-mark.h" "$2/usr/include/reprise-mark.h"
install -D -m 755 "$here/hook" "$2/etc/initramfs-tools/hooks/reprise-agent"
install -D -m 755 "$here/premount" "$2/etc/initramfs-tools/scripts/init-premount/reprise-agent"
install -D -m 755 "$here/bottom" "$2/etc/initramfs-tools/scripts/init-bottom/reprise-agent"
