//! On a terminal.

use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};

use pty_process::blocking::{Command, Pty, open};
use rustix::process::Pid;
use rustix::termios::{InputModes, LocalModes, OutputModes, tcgetattr, tcgetpgrp};

use crate::support::{Site, block_on, pid_of, wait_until};

const LOCKWELL: &str = env!("CARGO_BIN_EXE_lockwell");

/// A program on a terminal of its own. Its output is what the terminal shows.
pub(crate) struct OnTerminal {
    pty: Arc<Pty>,
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    /// Starts `lockwell`.
    pub(crate) fn start(site: &Site, args: &[&str]) -> Self {
        Self::program(site, LOCKWELL, args)
    }

    /// Starts a shell that controls jobs. It finds lockwell as `$LOCKWELL`.
    pub(crate) fn shell(site: &Site) -> Self {
        let shell = Self::program(site, "sh", &["-i"]);
        // An editor of command lines would change the settings of the terminal. What is typed is shown as
        // well, but with quotes.
        shell.types("set +o emacs +o vi; echo 'it is' ready\n");
        shell.shows("it is ready");
        shell
    }

    fn program(site: &Site, program: &str, args: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        let command = Command::new(program).args(args).current_dir(site.path(""));
        let command = command.env("LOCKWELL_URL", site.url()).env("LOCKWELL", LOCKWELL);
        let command = command.env_remove("RUST_LOG").env_remove("LOCKWELL_HELD").env_remove("ENV");
        let child = command.spawn(pts).unwrap();
        let (pty, shown) = (Arc::new(pty), Arc::new(Mutex::new(String::new())));
        let (reader, text) = (Arc::clone(&pty), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            // The end of the terminal is an error.
            while let Ok(count @ 1..) = (&*reader).read(&mut buffer) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { pty, child, shown }
    }

    pub(crate) fn types(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn shows(&self, part: &str) {
        wait_until(part, || self.shown.lock().unwrap().contains(part));
    }

    pub(crate) fn pid(&self) -> Pid {
        pid_of(self.child.id())
    }

    /// The process group that may read from the terminal. The group of a shell has the number of the shell.
    pub(crate) fn foreground(&self) -> Pid {
        tcgetpgrp(&*self.pty).unwrap()
    }

    /// How the terminal treats what is typed and shown.
    pub(crate) fn settings(&self) -> (InputModes, OutputModes, LocalModes) {
        let settings = tcgetattr(&*self.pty).unwrap();
        (settings.input_modes, settings.output_modes, settings.local_modes)
    }

    pub(crate) fn finish(&mut self) -> i32 {
        wait_until("the end of lockwell", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_command_reads_from_the_terminal() {
    let site = Site::new();
    let script = "printf 'name? '; read name; echo \"hello $name\"";
    let mut terminal = OnTerminal::start(&site, &["run", "a", "--", "sh", "-c", script]);
    terminal.shows("name? ");
    terminal.types("ann\n");
    terminal.shows("hello ann");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn an_interrupt_reaches_the_command_once() {
    let site = Site::new();
    let script = "trap 'echo got >> got; exit 9' INT; echo ready; while :; do sleep 0.02; done";
    let mut terminal = OnTerminal::start(&site, &["run", "a", "--", "sh", "-c", script]);
    terminal.shows("ready");
    terminal.types("\u{3}");
    assert_eq!(terminal.finish(), 9);
    assert_eq!(site.read("got"), "got");
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

/// There is no watcher on a terminal: the command is bound to lockwell by itself.
#[test]
fn the_command_dies_with_lockwell() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 60";
    let mut terminal = OnTerminal::start(&site, &["run", "a", "--", "sh", "-c", script]);
    let command = pid_of(site.wait_for_file("pid").parse().unwrap());
    terminal.child.kill().unwrap();
    terminal.finish();
    wait_until("the end of the command", || !crate::support::is_alive(command));
}

#[test]
fn force_frees_only_those_it_has_shown() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let shown = locks.lock("a").await.unwrap();
        let mut terminal = OnTerminal::start(&site, &["release", "--force", "a"]);
        terminal.shows("[y/N]");
        shown.release().await.unwrap();
        let other = locks.lock("a").await.unwrap();
        terminal.types("y\n");
        assert_eq!(terminal.finish(), 75);
        terminal.shows("the holders have changed");
        // It fails if the lock was taken away.
        other.release().await.unwrap();
    });
}

#[test]
fn force_asks_before() {
    let site = Site::new();
    let holder = site.holder("a", &["--ttl", "3s", "--label", "job 7"]);
    let ask = || OnTerminal::start(&site, &["release", "--force", "a"]);
    let mut no = ask();
    no.shows("Free the lock all the same? [y/N]");
    no.types("\n");
    assert_eq!(no.finish(), 75);
    site.finish(&["run", "--no-wait", "a", "--", "true"]).complains(75, "job 7");
    let mut yes = ask();
    yes.shows("[y/N]");
    yes.types("y\n");
    assert_eq!(yes.finish(), 0);
    holder.finish().complains(76, "lost the lock");
}
