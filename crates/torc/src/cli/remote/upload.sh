# Takes the program. In: directory, version, then the program itself. Out: `found PATH`, or what it said.
set -u
umask 077
IFS= read -r dir
IFS= read -r version
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
mkdir -p "$dir" || exit 1
part=$dir/torc-$version.$$
cat > "$part" && chmod 700 "$part" || { rm -f "$part"; exit 1; }
said=$("$part" --version 2>&1 | head -n 1)
if [ "$said" = "torc $version" ]; then
    mv "$part" "$dir/torc-$version" && echo "found $dir/torc-$version"
else
    rm -f "$part"
    echo "other $said"
fi
