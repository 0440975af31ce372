# Ends runners: SIGTERM, and at the second time of asking they hurry. In: directory, name (empty: all), seconds to wait.
# Out: a line `NAME PID stopped|ends|ended` for each.
set -u
IFS= read -r dir
IFS= read -r name
IFS= read -r seconds
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
lives() { kill -0 "$1" 2>/dev/null && [ "$(cat "$2/mark" 2>/dev/null)" = "$(ps -o lstart= -p "$1")" ]; }
for own in "$dir"/*/; do
    own=${own%/}
    [ -e "$own/pid" ] || continue
    [ -z "$name" ] || [ "$(basename "$own")" = "$name" ] || continue
    pid=$(cat "$own/pid")
    if ! lives "$pid" "$own"; then
        rm -f "$own/token"
        echo "$(basename "$own") $pid ended"
        continue
    fi
    kill -TERM "$pid"
    left=$seconds
    while [ "$left" -gt 0 ] && lives "$pid" "$own"; do
        sleep 1
        left=$((left - 1))
    done
    if lives "$pid" "$own"; then
        echo "$(basename "$own") $pid ends"
    else
        rm -f "$own/token"
        echo "$(basename "$own") $pid stopped"
    fi
done
