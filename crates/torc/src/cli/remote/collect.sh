# Sends the logs of runners and of their jobs, never their tokens, as an archive. In: directory, name (empty: all).
set -u
IFS= read -r dir
IFS= read -r name
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
cd "$dir" || exit 1
find . \( -path './*/runner.log' -o -path '*/output/job_stdio/*' -o -path '*/output/resource_utilization/*' \) -type f |
    while IFS= read -r file; do
        [ -z "$name" ] || case $file in ./"$name"/*) ;; *) continue ;; esac
        printf '%s\n' "$file"
    done | tar -cf - -T -
