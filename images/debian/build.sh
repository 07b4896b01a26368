#!/bin/bash
# A Debian 12 server on a disk -> build/images/debian/: disk.img (MBR, one ext4 partition), its vmlinuz
# and initrd, id_ed25519 (root's key for ssh), version. Needs neither root nor mounts nor loop devices.
cd "$(dirname "$0")/../.."
out=build/images/debian
. images/common.sh
here=images/debian
size=2G                                     # of the disk; the file is sparse
uuid=5e1f0c3a-7d42-4b8e-9a66-0d2b7c915f4e   # of the root filesystem: also in files/
start=2048                                  # of the partition, in sectors

include=systemd-sysv,udev,dbus,kmod,init,systemd-resolved,libpam-systemd
include=$include,linux-image-cloud-amd64,initramfs-tools,lz4,e2fsprogs
include=$include,iproute2,iputils-ping,procps,less,cron,logrotate,ca-certificates,curl
include=$include,openssh-server,nginx-light,sqlite3,gcc,libc6-dev,make,python3,stress-ng

# Debian's archives as apt on this machine knows them (a mirror, say), or else the public ones.
sources() {
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        grep -E ' bookworm(-updates|-security)? main$' | sort -u >"$1" || true
    if ! grep -q ' bookworm main$' "$1"; then
        cat >"$1" <<LIST
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
LIST
    fi
}

# as_owner COMMAND...: where the files of the image can belong to root and other users.
as_owner() {
    if [ "$(id -u)" = 0 ]; then "$@"; else mmdebstrap --unshare-helper "$@"; fi
}

for tool in mmdebstrap sfdisk mke2fs; do
    PATH="$PATH:/usr/sbin:/sbin" command -v $tool >/dev/null ||
        die "no $tool: apt-get install mmdebstrap uidmap fdisk e2fsprogs"
done
PATH="$PATH:/usr/sbin:/sbin"

# Also the time stamp of every file that is younger.
SOURCE_DATE_EPOCH=1700000000
export SOURCE_DATE_EPOCH

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"
sources "$work/sources.list"
tar -C $here/files -c --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime=@0 -f "$work/files.tar" .

say "debian: downloading and installing packages"
mode=unshare
[ "$(id -u)" != 0 ] || mode=root
mmdebstrap --quiet --mode=$mode --variant=minbase --architectures=amd64 --format=tar \
    --include=$include \
    --aptopt='Acquire::Languages "none"' \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --essential-hook="tar-in $work/files.tar /" \
    --customize-hook="upload $here/configure.sh /configure.sh" \
    --customize-hook='chroot "$1" sh /configure.sh' \
    --customize-hook="download /configure.version $work/version" \
    --customize-hook="download /configure.key $work/id_ed25519" \
    --customize-hook="download /vmlinuz $work/vmlinuz" \
    --customize-hook="download /initrd.img $work/initrd" \
    --customize-hook='rm "$1"/configure.*' \
    bookworm "$work/root.tar" "$work/sources.list" >&2
chmod 600 "$work/id_ed25519"

say "debian: making the disk"
truncate -s $size "$work/disk.img"
sfdisk --quiet "$work/disk.img" <<EOT
label: dos
label-id: 0x5e1f0c3a
start=$start, type=83, bootable
EOT
# mke2fs takes the files from a directory: unpacked where they can belong to whom they should.
# /dev is the kernel's, and device nodes cannot be made without privileges anyway.
chmod 666 "$work/disk.img" # for the time being: as_owner's root is nobody out here
E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH as_owner sh -euc '
    root=$(mktemp -d)
    trap "rm -rf \"$root\"" EXIT
    tar -x --numeric-owner -p -f - -C "$root" --exclude="./dev/*"
    mke2fs -q -F -t ext4 -b 4096 -m 1 -L root -U "$1" -d "$root" \
        -O ^orphan_file,^metadata_csum_seed \
        -E hash_seed="$1",lazy_itable_init=0,lazy_journal_init=0,offset=$(($2 * 512)) /dev/fd/3 "$3"
' sh $uuid $start $(($(stat -c %s "$work/disk.img") / 4096 - start / 8)) \
    <"$work/root.tar" 3<>"$work/disk.img"
chmod 644 "$work/disk.img"

(cd "$work" && sha256sum vmlinuz initrd disk.img) >>"$work/version"
rm -f "$work/root.tar" "$work/files.tar" "$work/sources.list"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h --apparent-size "$out/disk.img" | cut -f1) disk, $(du -h "$out/disk.img" | cut -f1) of it used"
