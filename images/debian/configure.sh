#!/bin/sh
# Runs in the new system's root, last: what packages do not do by themselves. Called by build.sh.
set -eu

passwd -q -d root # logs in on the serial console without a password; over ssh by key only
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -C 'reprise test image' -f /configure.key
mv /configure.key.pub /root/.ssh/authorized_keys
chmod 600 /root/.ssh/authorized_keys

systemctl -q enable systemd-networkd.service systemd-resolved.service nginx.service ssh.service reprise-agent.service
systemctl -q disable postgresql.service # who wants it starts it
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
# Not useful to a machine whose disk, clock and packages never change behind its back.
systemctl -q mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer \
    e2scrub_all.timer e2scrub_reap.service

# An installed system, not one at its first boot.
echo 5e1f0c3a7d424b8e9a660d2b7c915f4e >/etc/machine-id
mkdir -p /var/lib/dbus
ln -sf /etc/machine-id /var/lib/dbus/machine-id

release=$(basename "$(readlink /vmlinuz)" | sed 's/^vmlinuz-//')
sed -i "s/@RELEASE@/$release/g" /boot/grub/grub.cfg

apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/debconf/*-old /var/lib/dpkg/*-old
dpkg-query -W -f '${Package} ${Version}\n' >/configure.version
