# Runs a server and outlives whoever asked for it: when its standard input closes, for whatever reason, it
# kills all its descendants and removes the server's folder.
#
# Arguments: the folder to make the server's folder in, the name of the server.
# It answers each line of its input with one line: first, unasked, the folder, then
#   start SCRIPT   the process id of the script, which runs in the background
#   wait PID       the exit status of that process

# Ctrl-C is for the tests. A closed pipe must not end us before we have cleaned up, and a handler, unlike
# ignoring, is not passed on to the server.
trap '' INT HUP
trap : PIPE

dir=$(mktemp -d "$1/lockwell-$2-XXXXXXXX" 2>&1) || { echo "error: $dir"; exit 1; }

# What some servers leave outside their folder, they clear away with functions of these names.
before_kill() { :; }
after_kill() { :; }

# The children of all processes in $tree.
children() {
    if [ -r "/proc/$$/task/$$/children" ]; then
        set --
        for pid in $tree; do set -- "$@" /proc/"$pid"/task/*/children; done
        cat "$@" 2>/dev/null
        return
    fi
    # A kernel without these lists (CONFIG_PROC_CHILDREN). All processes are looked at, which takes a good part of
    # a second where there are hundreds.
    for file in /proc/[0-9]*/stat; do
        { read -r line <"$file"; } 2>/dev/null || continue
        pid=${file#/proc/}
        # Behind the last bracket, since the program's name can hold anything: state, parent, ...
        set -- ${line##*) }
        case $tree in *" $2 "*) echo "${pid%/stat}" ;; esac
    done
}

clean_up() {
    trap '' TERM
    tree=" $$ "
    more=yes
    # Stop everybody before the first is killed, so that no new child escapes. A stopped process can not fork:
    # once a look finds nobody new, all have been found.
    while [ "$more" ]; do
        more=
        for pid in $(children); do
            case $tree in *" $pid "*) continue ;; esac
            # What has listed them is among them, and has ended.
            kill -STOP "$pid" 2>/dev/null || continue
            tree="$tree$pid "
            more=yes
        done
    done
    if [ -f "$dir/hooks.sh" ]; then . "$dir/hooks.sh"; fi
    before_kill
    for pid in $tree; do
        [ "$pid" = "$$" ] || kill -KILL "$pid" 2>/dev/null
    done
    wait
    after_kill
    # A grandchild can be a moment late to die, and still write a file.
    tries=0
    until rm -rf "$dir" 2>/dev/null || [ "$tries" -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}
trap clean_up EXIT
trap 'exit 143' TERM

echo "$dir"
while read -r verb argument; do
    case $verb in
    start)
        /bin/sh "$dir/$argument" </dev/null >>"$dir/log" 2>&1 &
        echo "$!"
        ;;
    wait)
        wait "$argument"
        echo "$?"
        ;;
    esac
done
