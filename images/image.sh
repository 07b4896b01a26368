#!/bin/sh
# Makes guest images by their recipes, and those that they are made of first. `reprise image` calls it where
# reprise is installed; in a source tree `make image-NAME` does the same and knows what has changed.
#
#   images/image.sh [--release R] [--remake] DIR NAME...   makes DIR/NAME, if it is not there
#   images/image.sh --list | --names                       what there is
#   images/image.sh --groups NAME                          packages it needs
#   images/image.sh --installed | --sources                what `make install` takes: recipes, what they use besides
#
# Nothing is installed and nothing needs root: of packages that are missing it says so.
set -eu
cd "$(dirname "$0")/.."

# Those for tests of ours are not installed.
rows() {
    grep -v '^#' images/table | while read -r name rest; do
        [ ! -f "images/$name/build.sh" ] || echo "$name $rest"
    done
}
# column NAME N: "" for "-".
column() { rows | awk -v name="$1" -v n="$2" '$1 == name && $n != "-" { gsub(",", " ", $n); print $n }'; }
die() { echo "images: $*" >&2; exit 1; }

release= remake=
while :; do
    case ${1:-} in
    --list) rows | while read -r name _ _ _ what; do printf '%-12s %s\n' "$name" "$what"; done; exit ;;
    --names) rows | cut -d' ' -f1; exit ;;
    --installed) rows | awk '$4 !~ /^tests\/bench/ { print $1 }'; exit ;;
    --groups) column "${2:?}" 3; exit ;;
    --sources) rows | awk '$4 != "-" && $4 !~ /^tests\/bench/ { gsub(",", "\n", $4); print $4 }' | sort -u; exit ;;
    --release) release=${2:?}; shift 2 ;;
    --remake) remake=1; shift ;;
    *) break ;;
    esac
done
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
dir=$1
shift
case $release in *[!a-z]*) echo "images: '$release' is no release's name (such as trixie)" >&2; exit 2 ;; esac
for name; do
    rows | grep -q "^$name " || {
        echo "images: there is no image '$name': $(rows | cut -d' ' -f1 | paste -sd' ')" >&2
        exit 2
    }
done
mkdir -p "$dir" || die "$dir cannot be made"
dir=$(cd "$dir" && pwd)
[ -w "$dir" ] || die "$dir: nothing can be written there"

# One at a time: they are made of one another.
exec 9>"$dir/.lock"
flock -n 9 || { echo "images: waiting for another one" >&2; flock 9; }

there() { [ -s "$dir/$1/version" ]; }
make_one() {
    for need in $(column "$1" 2); do
        there "$need" || make_one "$need"
    done
    missing=$(images/deps.sh --check $(column "$1" 3)) || {
        echo "images: $1 needs packages that are not here. As root: $(images/deps.sh --command $missing)" >&2
        exit 1
    }
    # A half of one is not there: a recipe renames what it has made.
    IMAGES_RELEASE=$release "images/$1/build.sh" "$dir"
}
# The subshell's own end is not errexit's.
for name; do
    if there "$name" && [ -z "$remake" ]; then
        echo "images: $dir/$name is there (--remake makes it anew)" >&2
    else
        make_one "$name"
    fi
done
