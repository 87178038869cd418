//! Long texts of the help.

pub(super) const CLI_HELP: &str = "\
Example:
  lockwell run --url redis://cache.example.org --wait 30s nightly -- ./report.sh
  runs report.sh while it holds the lock `nightly`. Started on several machines that use this server, it runs on one
  after the other. With --once \"$(date +%F)\" it runs once a day, on one of them.

Lock servers, by the beginning of the address:
  sqlite://FILE   a file, for the processes of one machine
  postgres://     PostgreSQL
  mysql://        MySQL or MariaDB
  redis://        Redis or Valkey; also rediss:// (TLS), redis+sentinel://, redis+cluster://
  redlock://      several independent Redis servers
  zk://           ZooKeeper
  etcd://         etcd; also etcds:// (TLS)
  `lockwell --version` says which of them this program has.

Times are written as 5s, 2m or 1h 30m; a plain number means seconds.
`lockwell run --help` lists exit statuses, signals and environment variables.";

pub(super) const RUN_HELP: &str = "\
Exit status:
  That of the command, or 128 + n if signal n ended it. If lockwell itself ends it:
   64  wrong usage, name or address, or something that this backend cannot do
   69  the lock server cannot be reached, did not answer in time, or grants nothing in a grace period
   70  any other error
   75  the lock was not free in time, or the job of --once failed elsewhere (or as --exit-code-held says)
   76  the lock was lost while the command ran, or its success with --once could not be recorded
   77  the lock server refused access: wrong password or missing permission
   78  with --once: all attempts are used up, without success
  126  the command cannot be executed
  127  the command does not exist
  128 + n  signal n came while lockwell waited for the lock

Signals:
  The command runs in a process group of its own. HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and WINCH are passed
  on to that group, but not those that lockwell was started to ignore (nohup). If the command has not ended --grace
  after TERM was passed on, it gets KILL. If the lock is lost, the whole group is ended. When the command ends, the
  lock is freed, even if other processes of its group still run.
  If the standard input is a terminal, the command stays in lockwell's group, so that it can read from the terminal.
  Then the terminal sends INT, QUIT and TSTP to the command, lockwell passes on only HUP, TERM, USR1 and USR2, and a
  lost lock ends the command but not the processes that it has started. When the command was ended by a signal or a
  lost lock, lockwell gives the terminal the settings that it had before. Ctrl-Z stops both: nothing renews the lock
  then, so it lasts for its ttl.
  KILL and STOP cannot be passed on. If lockwell is killed, the command gets KILL, and so does the rest of its group
  (unless --keep-child; on systems other than Linux the group alone). A command that gains privileges when it starts,
  such as sudo, goes on. To refuse its late writes, let the storage that it writes to compare LOCKWELL_TOKEN.

Environment:
  LOCKWELL_URL  the lock server, unless --url, --url-file or --config is given
  RUST_LOG      what to log to standard error, as in lockwell=debug,info; warnings by default
  LOCKWELL_URL is removed from the environment of the command (see --pass-url). These are added:
  LOCKWELL_NAME   the lock
  LOCKWELL_TOKEN  the fencing token: a number that is higher than that of every earlier holder of the lock
  LOCKWELL_HOLD   the id of the hold, beside the token: see lockwell schema --verify
  LOCKWELL_HELD   token and name of every lock that is held, one lock per line
  LOCKWELL_TRACE  what the command is a part of, for lockwell below it: see lockwell why
  LOCKWELL_ONCE, LOCKWELL_ATTEMPT  with --once: the key, and the number of the attempt for it";

pub(super) const LEAD_HELP: &str = "\
Exit status, signals and environment: see lockwell run --help. If the server cannot be reached at the start, lockwell
ends with 69. Later it tries again without a limit.
A unit of systemd with Type=notify is active when it leads for the first time; its status says whether it leads.";

pub(super) const HOLD_HELP: &str = "\
Lines on standard output, with --json objects with schema_version and event:
  granted    the locks are held: name, token, hold_id, locks (name, token, hold_id), valid_ms
  suspect    a renewal is late or failed: name, token, valid_ms, and message if the cause is known
  recovered  a renewal succeeded again: name, token, valid_ms
  held       the answer to check: valid_ms; or waiting, while the lock is waited for
  lost       stop the work: name, token, cause (expired, taken, held_too_long, no_progress), message
  released   cause (asked, input_ended, output_closed, signal), and message if the server has not confirmed it
  refused    the lock was not obtained: exit_status, message
  The last line is lost, released or refused. If the output ends without one of them, the lock is lost.

Lines on standard input:
  release    free the lock, and end; so does the end of the input
  check      asks for a line held. The lock is held for valid_ms from the moment at which check was sent, at least
  progress   the other program works on (see --progress-within)

  Standard input must be a pipe, a socket or a terminal, which the other program keeps open.

Exit status:
   0  released, as asked or at the end of the input
  64, 69, 70, 75, 77  refused; see lockwell run --help
  76  lost
  128 + n  released, because signal n came";

pub(super) const DOCTOR_HELP: &str = "\
Exit status:
  0  all is good
  1  something is doubtful: locks work, but are weaker or slower than they could be
  2  something is bad: locks can be lost or granted twice, or the server cannot be used at all";
