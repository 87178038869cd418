//! Long texts of the help.

pub(super) const RUN_HELP: &str = "\
Exit status:
  The command's own, or 128 + n if signal n ended it. Otherwise:
   64  wrong usage, name or address, or something that this backend cannot do
   69  the lock server cannot be reached
   70  any other error
   75  the lock was not free in time (or as --exit-code-held says)
   76  the lock was lost while the command ran
   77  the lock server refused us: password or permission
  126  the command cannot be executed
  127  the command does not exist
  128 + n  signal n came while waiting for the lock; the place in the queue is given up

Signals:
  The command runs in a process group of its own. HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and WINCH are passed
  on to that group, but not those that lockwell was started to ignore (nohup). If the lock is lost, the whole group
  is ended. If the command ends, the lock is freed, whatever else of its group still runs.
  If the standard input is a terminal, the command stays in lockwell's group, so that it can read from the terminal.
  Then the terminal sends INT, QUIT and TSTP to the command, lockwell passes on only HUP, TERM, USR1 and USR2, and a
  lost lock ends the command but not the processes that it has started.
  KILL and STOP cannot be passed on. If lockwell is killed, the command gets KILL, and so does the rest of its group
  (unless --keep-child; on systems other than Linux the group alone). A command that gains privileges when it starts,
  such as sudo, goes on: let what it changes compare LOCKWELL_TOKEN, so that a late write is refused.

Environment:
  LOCKWELL_URL  the lock server, unless --url, --url-file or --config is given
  RUST_LOG      what to log to standard error, as in lockwell=debug,info; warnings by default
  The command does not find LOCKWELL_URL in its environment (see --pass-url), but:
  LOCKWELL_NAME   the lock
  LOCKWELL_TOKEN  the fencing token: a number that is higher than that of every earlier holder of the lock
  LOCKWELL_HELD   token and name of every lock that it runs under, a line for each";

pub(super) const LEAD_HELP: &str = "\
Exit status, signals and environment: see lockwell run --help. A server that cannot be reached for a while is asked again
for as long as it takes, except at the start.";

pub(super) const DOCTOR_HELP: &str = "\
Exit status:
  0  all is good
  1  something is doubtful: locks work, but are weaker or slower than they could be
  2  something is bad: locks can be lost or granted twice, or the server cannot be used at all";
