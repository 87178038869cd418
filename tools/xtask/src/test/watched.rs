//! A process whose output is read line by line, and that is ended if it makes no progress for too long.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What is ended when the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The process. Whoever looks after the servers of its tests goes on, and clears them away.
    Alone,
    /// With all that it has started.
    WithDescendants,
}

#[derive(Debug)]
pub(crate) struct Watched {
    child: Child,
    lines: Receiver<io::Result<String>>,
    ends: Ends,
    limit: Duration,
    /// When it is ended, unless it makes progress until then.
    deadline: Instant,
}

impl Watched {
    /// Starts it. It may take as long as this without progress.
    pub(crate) fn start(command: &mut Command, limit: Duration, ends: Ends) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("it is piped");
        let (tell, lines) = channel();
        // In a thread of its own: who has inherited the output may keep it open for ever, and only this
        // thread waits for that.
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let is_last = line.is_err();
                let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
                // Nobody listens any more after the process was ended.
                if tell.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(Self { child, lines, ends, limit, deadline: Instant::now() + limit })
    }

    /// Its next line. `None` at the end of its output, or when the time is over.
    pub(crate) fn line(&mut self) -> io::Result<Option<String>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let next =
            if left.is_zero() { Err(RecvTimeoutError::Timeout) } else { self.lines.recv_timeout(left) };
        next.map_or(Ok(None), |line| line.map(Some))
    }

    pub(crate) fn note_progress(&mut self) {
        self.deadline = Instant::now() + self.limit;
    }

    /// Waits for its end. The flag: the time was over, and it was ended.
    pub(crate) fn end(mut self) -> io::Result<(ExitStatus, bool)> {
        // It may also close its output, and then hang.
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, false));
            }
            if Instant::now() >= self.deadline {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if self.ends == Ends::WithDescendants
            && let Err(error) = testbed::kill_tree(self.child.id())
        {
            eprintln!("xtask: {error}");
        }
        // One that has ended meanwhile cannot be killed.
        drop(self.child.kill());
        Ok((self.child.wait()?, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn all_lines_are_read() {
        let mut command = shell("echo one; printf '\\377'; exit 3");
        let mut watched = Watched::start(&mut command, Duration::from_mins(10), Ends::Alone).unwrap();
        assert_eq!(watched.line().unwrap().as_deref(), Some("one"));
        watched.note_progress();
        assert_eq!(watched.line().unwrap().as_deref(), Some("\u{fffd}"));
        assert_eq!(watched.line().unwrap(), None);
        let (status, was_ended) = watched.end().unwrap();
        assert_eq!((status.code(), was_ended), (Some(3), false));
    }

    /// Whether it holds its output open, or has closed it, and whoever else has it.
    #[test]
    fn what_hangs_is_ended() {
        for (script, ends) in [
            ("exec sleep 600", Ends::Alone),
            ("exec >&-; exec sleep 600", Ends::Alone),
            ("sleep 30 & exec sleep 600", Ends::Alone),
            ("sleep 600 & sleep 600; true", Ends::WithDescendants),
        ] {
            let began = Instant::now();
            let mut watched = Watched::start(&mut shell(script), Duration::from_millis(200), ends).unwrap();
            while watched.line().unwrap().is_some() {}
            let (status, was_ended) = watched.end().unwrap();
            assert!(!status.success() && was_ended, "{script}: {status}");
            assert!(began.elapsed() < Duration::from_secs(25), "{script}");
        }
    }
}
