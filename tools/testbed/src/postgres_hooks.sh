# initdb has no setting for the kind of shared memory, and uses the kind that outlives those who are killed.
before_kill() {
    files=$(
        for pid in $tree; do
            cat "/proc/$pid/maps"
        done 2>/dev/null | grep -o '/dev/shm/PostgreSQL\.[0-9]*' | sort -u
    )
}

# The small System V segment by which Postgres knows its orphans stays as well, and a machine has only 4096 of
# them. Line 7 of the file ends with its id.
after_kill() {
    [ -z "$files" ] || rm -f $files
    segment=$(sed -n '7s/.* \([0-9][0-9]*\) *$/\1/p' "$dir/data/postmaster.pid" 2>/dev/null)
    [ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null
}
