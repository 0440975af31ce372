# Starts a runner that outlives this connection. In: directory, name, program, address of the server, number of lines of the
# certificates, these lines, the token, number of arguments, these, one per line. Out: `started PID` or `runs PID`.
# The token is written to a file that only this user can read and is on no command line.
set -u
umask 077
IFS= read -r dir
IFS= read -r name
IFS= read -r program
IFS= read -r url
case $dir in '') dir=$HOME/.torc-remote ;; /*) ;; *) dir=$HOME/$dir ;; esac
own=$dir/$name
mkdir -p "$own" || exit 1
cd "$own" || exit 1
pid=$(cat pid 2>/dev/null)
if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ "$(cat mark 2>/dev/null)" = "$(ps -o lstart= -p "$pid")" ]; then
    echo "runs $pid"
    exit 0
fi
IFS= read -r lines
rm -f ca.pem token
while [ "$lines" -gt 0 ]; do
    IFS= read -r line
    printf '%s\n' "$line" >> ca.pem
    lines=$((lines - 1))
done
IFS= read -r token
printf '%s\n' "$token" > token
IFS= read -r count
set -- --url "$url" --token-file "$own/token"
[ ! -e ca.pem ] || set -- "$@" --tls-ca "$own/ca.pem"
set -- "$@" runner
while [ "$count" -gt 0 ]; do
    IFS= read -r argument
    set -- "$@" "$argument"
    count=$((count - 1))
done
if command -v setsid >/dev/null 2>&1; then
    setsid "$program" "$@" < /dev/null >> runner.log 2>&1 &
else
    nohup "$program" "$@" < /dev/null >> runner.log 2>&1 &
fi
pid=$!
echo "$pid" > pid
ps -o lstart= -p "$pid" > mark
echo "started $pid"
