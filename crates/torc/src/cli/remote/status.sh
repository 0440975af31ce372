# Tells of every runner that was started. In: directory. Out: a line `NAME PID running|ended LAST LINE OF ITS LOG` for each.
set -u
IFS= read -r dir
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
for own in "$dir"/*/; do
    [ -e "$own/pid" ] || continue
    pid=$(cat "$own/pid")
    state=ended
    if kill -0 "$pid" 2>/dev/null && [ "$(cat "$own/mark" 2>/dev/null)" = "$(ps -o lstart= -p "$pid")" ]; then
        state=running
    fi
    echo "$(basename "$own") $pid $state $(tail -n 1 "$own/runner.log" 2>/dev/null | cut -c 1-200)"
done
