# Sourced after common.sh by recipes whose image has a disk: Debian's packages through mmdebstrap, an
# ext4 file system of them. Needs neither root nor mounts nor loop devices.
PATH="$PATH:/usr/sbin:/sbin"

for tool in mmdebstrap sfdisk mke2fs; do
    command -v $tool >/dev/null ||
        die "no $tool: apt-get install mmdebstrap uidmap fdisk e2fsprogs"
done

# Also the time stamp of every file that is younger.
SOURCE_DATE_EPOCH=1700000000
export SOURCE_DATE_EPOCH

# Programs on the disks are made by this machine's compiler: where the release is an older one, they may ask for
# libraries that it has not.

# as_owner COMMAND...: where the files of the image can belong to root and other users.
as_owner() {
    if [ "$(id -u)" = 0 ]; then "$@"; else mmdebstrap --unshare-helper "$@"; fi
}

# pack_files DIR FILE: a tar of what belongs onto a disk beside packages, owned by root.
pack_files() {
    tar -C "$1" -c --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime=@0 -f "$2" .
}

# bootstrap OPTION...: mmdebstrap -> $work/root.tar.
bootstrap() {
    mode=unshare
    [ "$(id -u)" != 0 ] || mode=root
    sources "$work/sources.list"
    mmdebstrap --quiet --mode=$mode --architectures=$architectures --format=tar \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/info/*' \
        "$@" "$suite" "$work/root.tar" "$work/sources.list" >&2 || return
    rm -f "$work/sources.list"
}

# file_system DISK UUID START: the files of $work/root.tar as ext4, from sector START of DISK to its
# end. mke2fs takes them from a directory: unpacked where they can belong to whom they should. /dev is
# the kernel's, and device nodes cannot be made without privileges anyway.
file_system() {
    chmod 666 "$1" # for the time being: as_owner's root is nobody out here
    E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH as_owner sh -euc '
        root=$(mktemp -d)
        trap "rm -rf \"$root\"" EXIT
        tar -x --numeric-owner -p -f - -C "$root" --exclude="./dev/*"
        mke2fs -q -F -t ext4 -b 4096 -m 1 -L root -U "$1" -d "$root" \
            -O ^orphan_file,^metadata_csum_seed \
            -E hash_seed="$1",lazy_itable_init=0,lazy_journal_init=0,offset=$(($2 * 512)) /dev/fd/3 "$3"
    ' sh "$2" "$3" $(($(stat -c %s "$1") / 4096 - $3 / 8)) <"$work/root.tar" 3<>"$1"
    chmod 644 "$1"
    rm -f "$work/root.tar"
}

# unpacked PACKAGES [OPTION...]: packages as they are, without their scripts, and $work/files ->
# $work/root.tar. Hooks among the options find all that there.
unpacked() {
    pack_files "$work/files" "$work/files.tar"
    packages=$1
    shift
    bootstrap --variant=extract --include="$packages" \
        --extract-hook="tar-in $work/files.tar /" \
        --extract-hook='mkdir -p "$1/dev" "$1/proc" "$1/sys" "$1/tmp" "$1/run"
            for dir in bin sbin lib lib64; do # of no package of these since Debian 13
                [ -e "$1/$dir" ] || [ ! -e "$1/usr/$dir" ] || ln -s "usr/$dir" "$1/$dir"
            done' "$@" || return
    rm -f "$work/files.tar"
}

# gpu_image UUID SIZE PACKAGES: a recipe whose programs run on the display, all but their files: what
# lies in $work/files comes onto the disk. The generic image's kernel, its initramfs with the program
# `gpu` added, and disk.img -> $out.
gpu_image() {
    from_generic "$work/initramfs/modules" crc16 crc32c_generic mbcache jbd2 ext4
    mkdir -p "$work/initramfs/bin"
    install -m 755 images/gpu-mesa/gpu "$work/initramfs/bin/gpu"
    initramfs "$work/initramfs" "$work/more"
    cat "$images"/generic/initrd "$work/more" >"$work/initrd"

    say "$out: downloading and unpacking packages"
    unpacked "$3"
    truncate -s "$2" "$work/disk.img"
    file_system "$work/disk.img" "$1" 0
    (cd "$work" && sha256sum vmlinuz initrd disk.img) >>"$work/version"
    rm -rf "$work/initramfs" "$work/more" "$work/files" "$work/sdk" "$work/debs"
    rm -rf "$out"
    mv "$work" "$out"
    say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
}
