# Finds the program. In: directory, version, program (may be empty). Out: `found PATH` or `missing SYSTEM`.
set -u
IFS= read -r dir
IFS= read -r version
IFS= read -r program
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
for each in "$program" "$dir/torc-$version" "$(command -v torc 2>/dev/null)"; do
    [ -n "$each" ] || continue
    if [ "$("$each" --version 2>/dev/null)" = "torc $version" ]; then
        echo "found $each"
        exit 0
    fi
    [ "$each" != "$program" ] || { echo "other $("$each" --version 2>&1 | head -n 1)"; exit 0; }
done
echo "missing $(uname -sm)"
