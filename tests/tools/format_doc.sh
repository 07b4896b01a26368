#!/bin/sh
# format_doc.sh TOOL DOC [--check]: puts the tables printed by TOOL between its markers in DOC; with
# --check only says whether they are up to date.
set -eu
tool=$1
doc=$2
case $tool in
    *machine_rows) mark=machine ;;
    *) mark=records ;;
esac
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed "/^<!-- $mark:begin/q" "$doc" >"$new"
echo >>"$new"
"$tool" >>"$new"
echo >>"$new"
sed -n "/^<!-- $mark:end/,\$p" "$doc" >>"$new"
if cmp -s "$new" "$doc"; then
    exit 0
fi
if [ "${3-}" = --check ]; then
    echo "$doc does not match its tables: run tests/tools/format_doc.sh $tool $doc" >&2
    exit 1
fi
cat "$new" >"$doc"
