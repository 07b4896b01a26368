#!/bin/sh
# Installs the packages that are missing: the one list, in groups. Called by make for what it is about to make
# (mk/deps.mk). When everything is there it says nothing and uses no network. Names are Debian's; what
# Ubuntu and Fedora call them is in images/packages.
#
#   images/deps.sh [GROUP...]          install what is missing (through sudo when not root)
#   images/deps.sh --check [GROUP...]  only name what is missing; status 1 if anything is
#   images/deps.sh --list [GROUP...]   print the list
#   images/deps.sh --ask WHAT [GROUP...]   only say that WHAT is missing, and what helps
#   images/deps.sh --command PACKAGE...    the command that installs these
#   --on debian|ubuntu|fedora before that: for another system than this one
#
# A GROUP is one below, or demo: what `make demo` and README's first examples need; or make: what a
# plain `make` needs, and gdb. Without one: all of them but package, which `make deb` wants.
set -eu

here=$(dirname "$0")
# Which column of images/packages: by what the system says it is, or is like.
system=debian
if [ -r /etc/os-release ]; then
    case " $(. /etc/os-release && echo "${ID:-} ${ID_LIKE:-}") " in
    *" ubuntu "*) system=ubuntu ;;
    *" debian "*) system=debian ;;
    *" fedora "* | *" rhel "*) system=fedora ;;
    esac
fi
if [ "${1:-}" = --on ]; then
    system=${2:-}
    shift 2
fi
case $system in
debian | ubuntu) command="apt-get install --no-install-recommends" ;;
fedora) command="dnf install" ;;
*) echo "deps: there are no names for '$system': debian ubuntu fedora" >&2; exit 2 ;;
esac

# named PACKAGE...: what they are called there. Status 2: the table lacks one.
named() {
    printf '%s\n' "$@" | awk -v on="$system" -v table="$here/packages" '
        BEGIN {
            while ((getline line < table) > 0)
                if (line !~ /^#/ && split(line, c, " ") >= 3)
                    name[c[1]] = on == "debian" ? "=" : on == "ubuntu" ? c[2] : c[3]
        }
        !($0 in name) { print "deps: images/packages has no " $0 >"/dev/stderr"; bad = 2; next }
        name[$0] == "=" { print; next }
        name[$0] != "-" { gsub(",", "\n", name[$0]); print name[$0] }
        END { exit bad }'
}

groups="reprise gpu display libvirt draw image disk windows debug test"

packages_of() {
    case $1 in
    # reprise itself, with keysyms by their names in libvncserver's header, and reprise-net.
    reprise) echo "gcc libc6-dev make pkg-config libzydis-dev liblz4-dev libxxhash-dev libssl-dev
        libfdt-dev zlib1g-dev liblzma-dev libzstd-dev libmpfr-dev libslirp-dev libpng-dev libnbd-dev libseccomp-dev
        libvncserver-dev acpica-tools" ;;
    # reprise-gpu; reprise-display.
    gpu) echo "libvirglrenderer-dev libepoxy-dev libseccomp-dev" ;;
    display) echo "libvncserver-dev libsdl2-dev" ;;
    # reprise-libvirt, which is left out of the build where these are missing; libvirt0 comes along.
    libvirt) echo "libvirt-dev libxml2-dev" ;;
    # Drawing: Mesa's software rasterizers, without a screen. Needed when reprise-gpu runs.
    draw) echo "libegl1 libegl-mesa0 libgl1-mesa-dri libopengl0" ;;
    # Images: apt-get downloads packages, dpkg-deb unpacks them, cpio makes the initramfs, of modules
    # that are packed.
    image) echo "gcc libc6-dev apt dpkg debian-archive-keyring cpio xz-utils zstd e2fsprogs" ;;
    # Those with a disk, and what is read of one at boot.
    disk) echo "mmdebstrap uidmap fdisk e2fsprogs grub-common" ;;
    # Programs for Wine.
    windows) echo "gcc-mingw-w64-i686-win32 gcc-mingw-w64-x86-64-win32 binutils make" ;;
    debug) echo "gdb" ;;
    # Tests: cmocka; their driver is in Python; gdb and packers as peers; file systems; iasl; clang;
    # libvirt's tools and daemon.
    test) echo "libcmocka-dev clang clang-format python3 binutils gdb gzip xz-utils zstd lz4 device-tree-compiler
        acpica-tools python3-drgn xvfb xdotool gvncviewer libdrm-dev grub-common mtools btrfs-progs
        xfsprogs qemu-utils openssh-client openssl strace iproute2 mandoc man-db zsh fish
        libvirt-clients libvirt-daemon" ;;
    # Packages of this tree, and who looks at them.
    package) echo "build-essential debhelper dpkg-dev fakeroot lintian" ;;
    demo) for g in reprise gpu image debug; do packages_of $g; done ;;
    make) for g in reprise gpu display libvirt debug; do packages_of $g; done ;;
    *)
        echo "deps: there is no group '$1': $groups package demo make" >&2
        return 2
        ;;
    esac
}

missing() {
    if [ $system = fedora ]; then
        for p in $packages; do rpm -q --whatprovides "$p" >/dev/null 2>&1 || echo "$p"; done
        return
    fi
    # One query for all; a package dpkg has never heard of is missing too.
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages 2>/dev/null |
        awk -v want="$packages" '$2 == "installed" { have[$1] = 1 }
            END { n = split(want, w, " "); for (i = 1; i <= n; i++) if (!have[w[i]]) print w[i] }'
}

what=install
case "${1:-}" in
--list | --check) what=$1; shift ;;
--command) shift; echo "$command" "$@"; exit ;;
--ask) what=$1; lacks=${2:-}; shift 2 ;;
-*) echo "usage: $0 [--on SYSTEM] [--check | --list] [GROUP...]" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- $groups
packages=
for group; do
    packages="$packages $(packages_of "$group")" || exit 2
done
packages=$(named $(printf '%s\n' $packages | sort -u)) || exit 2
packages=$(printf '%s\n' $packages | sort -u)
packages=$(echo $packages)

case $what in
--list) printf '%s\n' $packages; exit ;;
--ask)
    m=
    ! { command -v dpkg-query || command -v rpm; } >/dev/null || m=$(missing)
    case $lacks in
    *-l*) lacks="a library is missing here, or more than one of them: $lacks" ;;
    *) lacks="$lacks is missing here" ;;
    esac
    [ -z "$m" ] || m=" (it installs: $(echo $m))"
    echo "make: $lacks: run \`make deps\`$m" >&2
    exit ;;
--check) m=$(missing); [ -z "$m" ] || { echo $m; exit 1; }; exit 0 ;;
esac

# One at a time: make may ask for two groups at once.
exec 9<"$0"
flock 9
m=$(missing)
[ -n "$m" ] || exit 0

root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "deps: missing packages, and neither root nor sudo to install them:" $m >&2
        exit 1
    }
    root=sudo
fi
echo "deps: installing with ${command%% *}:" $m
if [ $system = fedora ]; then
    $root dnf install -y -q --setopt=install_weak_deps=False $m
else
    install() {
        $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $m
    }
    # The package lists of a fresh container are empty or stale: then they are fetched first.
    lists=$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)
    [ -n "$lists" ] || $root apt-get update -q
    install || { $root apt-get update -q && install; }
fi
m=$(missing)
[ -z "$m" ] || { echo "deps: still missing:" $m >&2; exit 1; }
