#!/bin/sh
# Installs Torc from an archive of `cargo xtask dist`: fetches it with its checksum, compares, and unpacks.
#
# usage: sh install.sh --from URL-OR-DIRECTORY [--prefix DIR]
#   --from     where SHA256SUMS and the archive are: an http(s) address or a directory
#   --prefix   where to install: bin, share and lib below it  [default: ~/.local; as root /usr/local]
set -eu

from=
prefix=
usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; }
fail() { echo "install.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --from) [ $# -gt 1 ] || fail "--from needs a value"; from=$2; shift 2 ;;
        --prefix) [ $# -gt 1 ] || fail "--prefix needs a value"; prefix=$2; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        *) fail "unknown argument \`$1\`; --from and --prefix are known" ;;
    esac
done
[ -n "$from" ] || { usage >&2; exit 1; }
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi

[ "$(uname -s)" = Linux ] || fail "there are packages for Linux only; this is $(uname -s)"
machine=$(uname -m)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

fetch() { # NAME: gets a file of $from into $work
    case $from in
        http://* | https://*)
            if command -v curl >/dev/null; then
                curl -fsS --retry 3 -o "$work/$1" "${from%/}/$1" || fail "cannot fetch ${from%/}/$1"
            elif command -v wget >/dev/null; then
                wget -q -O "$work/$1" "${from%/}/$1" || fail "cannot fetch ${from%/}/$1"
            else
                fail "curl or wget is needed"
            fi ;;
        *) cp "$from/$1" "$work/$1" || fail "there is no $from/$1" ;;
    esac
}

fetch SHA256SUMS
# One line: 64 hexadecimal digits and the archive of this machine.
line=$(grep -E "^[0-9a-f]{64}  torc-[0-9A-Za-z.+~-]+-$machine-linux\.tar\.gz\$" "$work/SHA256SUMS" | head -n 1) ||
    fail "there is no archive for $machine"
[ -n "$line" ] || fail "there is no archive for $machine"
archive=${line#*  }
fetch "$archive"
actual=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
[ "$actual" = "${line%% *}" ] || fail "the checksum of $archive is wrong: it is $actual and should be ${line%% *}"

mkdir "$work/tree"
tar -xzf "$work/$archive" -C "$work/tree" --strip-components 1
# Does it run here at all? Before anything is replaced.
version=$("$work/tree/bin/torc" --version) || fail "the program does not run on this machine"
mkdir -p "$prefix/bin"
# A program that runs cannot be written over, but it can be replaced.
cp "$work/tree/bin/torc" "$prefix/bin/.torc.new"
mv -f "$prefix/bin/.torc.new" "$prefix/bin/torc"
mkdir -p "$prefix/share"
cp -R "$work/tree/share/." "$prefix/share/"
echo "installed $version to $prefix/bin/torc"
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "put $prefix/bin on your PATH to call it as \`torc\`" ;;
esac
