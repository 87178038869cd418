#!/bin/sh
# Works under a lock that `lockwell hold` keeps: hold.sh NAME STEPS
#
# For a single command `lockwell run` is simpler. This is for a script that holds a lock during its own steps.
set -u
trap '' PIPE

folder=$(mktemp -d) || exit 70
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/in" "$folder/out"
lockwell hold --json --wait 5s -- "$1" < "$folder/in" > "$folder/out" &
keeper=$!
# If this script ends in whatever way, 3 is closed, and the lock is free.
exec 3> "$folder/in" 4< "$folder/out"

read -r line <&4 || line=
case $line in
*'"event":"granted"'*) ;;
*)
    echo "not obtained: $line"
    exec 3>&-
    wait "$keeper"
    exit $?
    ;;
esac
echo "granted with token $(echo "$line" | sed 's/^[^{]*{[^{]*"token":\([0-9]*\),.*/\1/')"

# Reads all the time. When the lock is lost, or lockwell has ended, it tells the script, which waits for a step.
script=$$
(
    exec 3>&-
    while read -r line; do
        case $line in
        *'"event":"lost"'* | *'"event":"released"'*) break ;;
        esac
    done <&4
    kill -USR1 "$script"
) &
reader=$!

finished=$reader
lost() {
    trap '' USR1
    # The step that is under way, if there is one.
    if [ "$!" != "$finished" ]; then
        kill "$!"
        wait "$!"
    fi
    echo "lost"
    exit 76
}
trap lost USR1

step=0
while [ "$step" -lt "$2" ]; do
    step=$((step + 1))
    # The work of a step. It inherits 3: if this script is killed, the lock is held until the work ends.
    sleep 0.1 &
    wait "$!"
    finished=$!
    echo "step $step of $2"
done

trap '' USR1
echo release >&3
wait "$keeper"
status=$?
wait "$reader"
if [ "$status" -ne 0 ]; then
    echo "lost"
    exit 76
fi
echo "released"
