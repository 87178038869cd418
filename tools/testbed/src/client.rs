//! Runs a client program of a server with one text on its standard input.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// Generous: it only ends the wait for a server that is paused or dead.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What the program wrote to its standard output, if it succeeded within the time.
///
/// The environment is emptied, since these programs take much from it.
pub(crate) fn run(program: &str, args: &[&str], input: &str) -> Result<String, Error> {
    attempt(program, args, input).unwrap_or_else(|error| Err(Error::Io(program.to_owned(), error)))
}

fn attempt(program: &str, args: &[&str], input: &str) -> io::Result<Result<String, Error>> {
    // Files and not pipes: nothing can block on a full one.
    let mut stdin = tempfile::tempfile()?;
    let mut stdout = tempfile::tempfile()?;
    let mut stderr = tempfile::tempfile()?;
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Err(Error::Client(format!("{program} got no answer within {TIMEOUT:?}"))));
        }
        thread::sleep(Duration::from_millis(2));
    };
    let output = contents(&mut stdout)?;
    if status.success() {
        return Ok(Ok(output));
    }
    Ok(Err(Error::Client(format!("{program}: {status}: {}", contents(&mut stderr)?.trim_end()))))
}

fn contents(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
