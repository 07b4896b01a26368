#!/bin/bash
# A Debian server on a disk -> build/images/debian/: disk.img (MBR, one ext4 partition), its vmlinuz
# and initrd, id_ed25519 (root's key for ssh), version. Needs neither root nor mounts nor loop devices.
cd "$(dirname "$0")/../.."
name=debian
. images/common.sh
. images/disk.sh
here=images/debian
size=2G                                     # of the disk; the file is sparse
uuid=5e1f0c3a-7d42-4b8e-9a66-0d2b7c915f4e   # of the root filesystem: also in files/
start=2048                                  # of the partition, in sectors

include=systemd-sysv,udev,dbus,kmod,init,systemd-resolved,libpam-systemd
include=$include,linux-image-cloud-amd64,initramfs-tools,lz4,e2fsprogs
include=$include,iproute2,iputils-ping,procps,less,cron,logrotate,ca-certificates,curl
include=$include,openssh-server,nginx-light,sqlite3,gcc,libc6-dev,make,python3,stress-ng
include=$include,postgresql,apache2-utils # for tests/soak.py --kind servers

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"
cp -r $here/files "$work/files"
guest-agent/build.sh "$work/reprise-agent"
guest-agent/debian/install.sh "$work/reprise-agent" "$work/files"
pack_files "$work/files" "$work/files.tar"

say "debian: downloading and installing packages"
bootstrap --variant=minbase --include=$include \
    --essential-hook="tar-in $work/files.tar /" \
    --customize-hook="upload $here/configure.sh /configure.sh" \
    --customize-hook='chroot "$1" sh /configure.sh' \
    --customize-hook="download /configure.version $work/version" \
    --customize-hook="download /configure.key $work/id_ed25519" \
    --customize-hook="download /vmlinuz $work/vmlinuz" \
    --customize-hook="download /initrd.img $work/initrd" \
    --customize-hook='rm "$1"/configure.*'
chmod 600 "$work/id_ed25519"

say "debian: making the disk"
truncate -s $size "$work/disk.img"
sfdisk --quiet "$work/disk.img" <<EOT
label: dos
label-id: 0x5e1f0c3a
start=$start, type=83, bootable
EOT
file_system "$work/disk.img" $uuid $start

(cd "$work" && sha256sum vmlinuz initrd disk.img) >>"$work/version"
rm -rf "$work/files.tar" "$work/files" "$work/reprise-agent"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h --apparent-size "$out/disk.img" | cut -f1) disk, $(du -h "$out/disk.img" | cut -f1) of it used"
