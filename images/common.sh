# Sourced by the recipes: package download and the initramfs. Expects $name, and to be started where the folder
# images is. The recipe's argument is where images go (build/images): $images, and this one to $out.
# Everything is a function of the packages' contents.
set -eu
LC_ALL=C
export LC_ALL
umask 022
images=${1:-build/images}
case $images in /*) ;; *) images=$PWD/$images ;; esac
out=$images/${name:-}
# Warnings are errors in CI, as the Makefile has it.
werror=
[ "${WERROR:-0}" != 1 ] || werror=-Werror

say() {
    echo "images: $*" >&2
}

die() {
    echo "images: $*" >&2
    exit 1
}

# The release whose packages these are: this machine's, if it is Debian, or the one that is named.
host_release=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || true
suite=${IMAGES_RELEASE:-${host_release:-bookworm}}

# What of a release's archives is asked for besides the release itself; of which architectures.
releases='(-updates|-security)?'
architectures=amd64

# sources FILE: Debian's archives as apt on this machine knows them (a mirror, say), or else the public ones.
sources() {
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        sed "s/ ${host_release:-$suite}\([ -]\)/ $suite\1/" | grep -E " $suite$releases main\$" | sort -u >"$1" || true
    grep -q " $suite main\$" "$1" || {
        keys=/usr/share/keyrings/debian-archive-keyring.gpg
        [ -n "$host_release" ] || [ -f $keys ] ||
            die "no keys of Debian's archives ($keys), to tell its packages from others: $(images/deps.sh --command image)"
        [ -n "$host_release" ] && by= || by="[signed-by=$keys] "
        cat >"$1" <<LIST
deb ${by}http://deb.debian.org/debian $suite main
deb ${by}http://deb.debian.org/debian $suite-updates main
deb ${by}http://deb.debian.org/debian-security $suite-security main
LIST
    }
}

# The concrete package a meta package depends on now: linux-image-cloud-amd64 ->
# linux-image-6.1.0-NN-cloud-amd64, linux-source -> linux-source-6.1.
resolve() {
    apt-cache depends "$1" 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-[a-z]*-[0-9].*\)$/\1/p' | head -n 1
}

# fetch PACKAGE DIR: downloads PACKAGE (not installed, no root needed) and unpacks it into DIR.
fetch() {
    mkdir -p "$work/debs" "$2"
    (cd "$work/debs" && apt-get download -q "$1" >apt.log 2>&1) ||
        { refresh && (cd "$work/debs" && apt-get download -q "$1" >apt.log 2>&1); } ||
        { cat "$work/debs/apt.log" >&2; die "cannot download $1"; }
    deb=$(ls "$work/debs/$1"_*.deb)
    dpkg-deb -x "$deb" "$2"
    echo "$1 $(dpkg-deb -f "$deb" Version) $(sha256sum "$deb" | cut -d' ' -f1)" >>"$work/version"
    rm -f "$deb"
}

# Package lists: this machine's, or, where they are too old and we are not root, others below $images, which
# nobody else sees.
refreshed=
refresh() {
    [ -z "$refreshed" ] || return 1
    refreshed=1
    say "updating apt's package lists"
    if [ "$(id -u)" != 0 ]; then
        own_lists host
    fi
    apt-get update -q >&2
}

# own_lists NAME: apt's lists and cache, for this recipe, in a place of their own; more for apt's configuration on
# standard input, unless NAME is host.
own_lists() {
    lists=$images/.apt/$1
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    {
        [ "$1" = host ] || cat
        echo "Dir::State::Lists \"$lists/lists\"; Dir::Cache \"$lists/cache\"; APT::Sandbox::User \"\";"
    } >"$lists/conf"
    APT_CONFIG=$lists/conf
    export APT_CONFIG
}

# source_of PACKAGE RELEASE DIR: the upstream source of Debian's PACKAGE in that release, unpacked into DIR.
source_of() {
    mkdir -p "$images/.apt" "$3"
    (
        sources "$images/.apt/$name.list"
        sed -i "s/^deb /deb-src /; s/ $suite\([ -]\)/ $2\1/" "$images/.apt/$name.list"
        own_lists "$name" <<CONF
Dir::Etc::SourceList "$images/.apt/$name.list"; Dir::Etc::SourceParts "-";
CONF
        apt-get update -qq >&2 || die "the lists of the sources of Debian's $2 cannot be had"
        cd "$work"
        apt-get source -qq --tar-only --download-only "$1" >&2 || die "the source of $1 of Debian's $2 cannot be had"
        sha256sum "$1"_*.orig.tar.* >>"$work/version"
        tar -x -f "$1"_*.orig.tar.* -C "$3" --strip-components=1
        rm "$1"_*
    )
}

if [ "$suite" != "$host_release" ] && command -v apt-get >/dev/null; then
    mkdir -p "$images/.apt"
    sources "$images/.apt/$suite.list"
    own_lists "$suite" <<CONF
Dir::Etc::SourceList "$images/.apt/$suite.list"; Dir::Etc::SourceParts "-"; Dir::State::Status "/dev/null";
APT::Architecture "amd64"; APT::Architectures { "amd64"; };
CONF
    refreshed=1
    apt-get update -qq >&2 || die "the package lists of Debian's $suite cannot be had"
fi

# initramfs ROOT FILE: a newc archive of ROOT, the same bytes whenever and by whomever it is made.
# Not compressed: unpacking would cost the guest more instructions than the rest of early boot.
initramfs() {
    find "$1" -exec touch -h -d @0 {} +
    (cd "$1" && find . -mindepth 1 | sort | cpio --quiet --reproducible -o -H newc -R 0:0) >"$2"
}

# module FILE DIR: a kernel module into DIR, unpacked: kernels since Debian 13's have them compressed, and
# the initramfs is not. Status 1 if there is none.
module() {
    into="$2/$(basename "$1")"
    if [ -f "$1" ]; then cp "$1" "$into"
    elif [ -f "$1.xz" ]; then xz -dc "$1.xz" >"$into"
    elif [ -f "$1.zst" ]; then zstd -dcq "$1.zst" >"$into"
    elif [ -f "$1.gz" ]; then gzip -dc "$1.gz" >"$into"
    else return 1
    fi
    chmod 644 "$into"
}

# from_generic DIR MODULE...: the generic image's kernel into $work, modules of it into DIR, without
# those that this kernel has built in (virtio, since Debian 13).
from_generic() {
    generic=$images/generic
    modules=$1
    shift
    mkdir -p "$modules"
    cp "$generic/vmlinuz" "$work/vmlinuz"
    sed -n 1p "$generic/version" >>"$work/version"
    for module; do
        if [ -f "$generic/modules/$module.ko" ]; then cp "$generic/modules/$module.ko" "$modules/"
        else grep -q "/$module\.ko\$" "$generic/modules/builtin" || die "$generic has no module $module"
        fi
    done
}

# An image that is the generic one with more in its initramfs. begin_more MODULE...: what comes besides goes to
# $root, modules to $root/lib/modules/$release; the kernel is the package $kernel of $version.
begin_more() {
    work="$out.tmp"
    rm -rf "$work"
    mkdir -p "$work"
    read -r kernel version _ <"$images/generic/version"
    release=${kernel#linux-image-}
    root="$work/initramfs"
    from_generic "$root/lib/modules/$release" "$@"
}

# of_that_kernel WHAT: what was fetched last has the kernel's version; another one's modules it does not load.
of_that_kernel() {
    [ "$(awk 'END { print $2 }' "$work/version")" = "$version" ] ||
        die "apt's $1 is not of the generic image's kernel, $version: make images-clean images"
}

# end_more WHAT [FILE...]: $out is there, with the initrd and FILE... of $work, and nothing else.
end_more() {
    what=$1
    shift
    initramfs "$root" "$work/more"
    cat "$images/generic/initrd" "$work/more" >"$work/initrd"
    (cd "$work" && sha256sum vmlinuz initrd "$@") >>"$work/version"
    for file in "$work"/*; do
        case " vmlinuz initrd version $* " in
        *" ${file##*/} "*) ;;
        *) rm -rf "$file" ;;
        esac
    done
    rm -rf "$out"
    mv "$work" "$out"
    say "$out: $(head -n 1 "$out/version" | cut -d' ' -f1,2), with $what"
}

# kernel_image META [MODULE...]: the whole recipe. Makes $out/{vmlinuz,config,initrd,version}, and
# modules/ with those of the initrd and MODULE..., which it has not, for images made of this one.
kernel_image() {
    work="$out.tmp"
    rm -rf "$work"
    mkdir -p "$work"
    meta=$1
    shift
    package=$(resolve "$meta")
    [ -n "$package" ] || { refresh && package=$(resolve "$meta"); } || true
    [ -n "$package" ] || die "apt knows no package $meta: is this Debian with its main repository?"
    say "fetching $package and busybox-static"
    fetch "$package" "$work/kernel"
    fetch busybox-static "$work/busybox"
    release=${package#linux-image-}
    root="$work/root"
    mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/root" "$root/etc" \
        "$root/lib/modules/$release"
    ln -s bin "$root/sbin"
    chmod 1777 "$root/tmp"
    busybox="$work/busybox/usr/bin/busybox" # since Debian 13
    [ -f "$busybox" ] || busybox="$work/busybox/bin/busybox"
    cp "$busybox" "$root/bin/busybox"
    for applet in $("$root/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    gcc ${machine:-} -O2 -Wall $werror -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie \
        -fcf-protection=none -fno-asynchronous-unwind-tables -Wl,--build-id=none \
        -Wl,-z,noseparate-code -s -o "$root/bin/debug-exit" images/linux/debug-exit.c
    cp images/linux/init "$root/init"
    chmod 755 "$root/init" "$root/bin/busybox" "$root/bin/debug-exit"
    tree="$work/kernel/usr/lib/modules/$release/kernel"
    [ -d "$tree" ] || tree="$work/kernel/lib/modules/$release/kernel"
    # Modules in Debian's kernels: the power button, virtio. The init loads them, in its order.
    for module in drivers/acpi/button.ko drivers/input/evdev.ko drivers/virtio/virtio.ko \
        drivers/virtio/virtio_ring.ko drivers/virtio/virtio_pci_legacy_dev.ko \
        drivers/virtio/virtio_pci_modern_dev.ko drivers/virtio/virtio_pci.ko \
        drivers/char/hw_random/rng-core.ko drivers/char/hw_random/virtio-rng.ko \
        drivers/block/virtio_blk.ko net/core/failover.ko drivers/net/net_failover.ko \
        drivers/net/virtio_net.ko drivers/virtio/virtio_dma_buf.ko drivers/gpu/drm/drm.ko \
        drivers/gpu/drm/drm_kms_helper.ko drivers/gpu/drm/drm_shmem_helper.ko \
        drivers/gpu/drm/virtio/virtio-gpu.ko drivers/char/virtio_console.ko \
        drivers/virtio/virtio_input.ko fs/fuse/fuse.ko fs/fuse/virtiofs.ko; do
        # What is not there is built in, or of no use to the cloud's kernel.
        module "$tree/$module" "$root/lib/modules/$release" || true
    done
    initramfs "$root" "$work/initrd"
    cp -r "$root/lib/modules/$release" "$work/modules"
    for module; do
        module "$tree/$module" "$work/modules" || die "$package has no $module"
    done
    cp "${tree%/kernel}/modules.builtin" "$work/modules/builtin"
    cp "$work/kernel/boot/vmlinuz-$release" "$work/vmlinuz"
    cp "$work/kernel/boot/config-$release" "$work/config"
    (cd "$work" && sha256sum vmlinuz initrd) >>"$work/version"
    rm -rf "$work/kernel" "$work/busybox" "$work/root" "$work/debs"
    rm -rf "$out"
    mv "$work" "$out"
    say "$out: $(head -n 1 "$out/version" | cut -d' ' -f1,2)"
}
