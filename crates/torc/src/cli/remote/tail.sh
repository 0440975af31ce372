# Shows the end of the runners' logs. In: directory, name (empty: all), lines.
set -u
IFS= read -r dir
IFS= read -r name
IFS= read -r lines
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
for own in "$dir"/*/; do
    own=${own%/}
    [ -e "$own/runner.log" ] || continue
    [ -z "$name" ] || [ "$(basename "$own")" = "$name" ] || continue
    echo "== $(basename "$own")"
    tail -n "$lines" "$own/runner.log"
done
