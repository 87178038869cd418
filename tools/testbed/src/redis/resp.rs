//! One command to a Redis, in its own protocol.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::Error;

/// The answer to a command, as it comes over the wire; empty if the server ends the connection instead. If
/// logging in fails, the answer to the command says so. `timeout` is for each piece of the answer.
///
/// It does not ask the server to end the connection: a sentinel knows no `QUIT`.
pub(super) fn command(
    addr: SocketAddr,
    login: Option<(&str, &str)>,
    words: &[&str],
    timeout: Duration,
) -> Result<String, Error> {
    attempt(addr, login, words, timeout).map_err(Error::io(format!("{} to redis on {addr}", words.join(" "))))
}

fn attempt(
    addr: SocketAddr,
    login: Option<(&str, &str)>,
    words: &[&str],
    timeout: Duration,
) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    if let Some((user, password)) = login {
        stream.write_all(array(&["AUTH", user, password]).as_bytes())?;
        reply(&mut answers, &mut Vec::new())?;
    }
    stream.write_all(array(words).as_bytes())?;
    let mut raw = Vec::new();
    match reply(&mut answers, &mut raw) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && raw.is_empty() => {}
        done => done?,
    }
    Ok(String::from_utf8_lossy(&raw).into_owned())
}

fn array(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// Appends one whole answer.
fn reply(source: &mut impl BufRead, raw: &mut Vec<u8>) -> io::Result<()> {
    let begin = raw.len();
    source.read_until(b'\n', raw)?;
    let Some(line) = raw[begin..].strip_suffix(b"\r\n") else { return Err(ErrorKind::UnexpectedEof.into()) };
    // A line that holds no number is complete, and -1 stands for nothing.
    let number = line.get(1..).and_then(|text| str::from_utf8(text).ok()?.parse::<u64>().ok()).unwrap_or(0);
    let parts = match line.first() {
        Some(b'$' | b'=' | b'!') if !line.ends_with(b"-1") => {
            let length = number + 2;
            let read = source.take(length).read_to_end(raw)?;
            return if read as u64 == length { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
        Some(b'*' | b'~' | b'>') => number,
        Some(b'%') => 2 * number,
        _ => 0,
    };
    (0..parts).try_for_each(|_| reply(source, raw))
}

/// The value behind `name` in an answer that is a list of names and values.
pub(super) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    // Between the two is the length of the value.
    answer.split("\r\n").skip_while(|line| *line != name).nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_list() {
        let answer = "*4\r\n$4\r\nport\r\n$4\r\n6379\r\n$5\r\nflags\r\n$6\r\nmaster\r\n";
        assert_eq!(field(answer, "port"), Some("6379"));
        assert_eq!(field(answer, "flags"), Some("master"));
        assert_eq!(field(answer, "quorum"), None);
    }

    #[test]
    fn an_answer_ends_where_it_ends() {
        assert_eq!(array(&["SET", "ü", ""]), "*3\r\n$3\r\nSET\r\n$2\r\nü\r\n$0\r\n\r\n");
        for whole in [
            "+OK\r\n",
            "-ERR 7\r\n",
            ":-1\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n*2\r\n$-1\r\n+a\r\n$1\r\nb\r\n",
            "%1\r\n+a\r\n:1\r\n",
        ] {
            let (mut raw, more) = (Vec::new(), format!("{whole}+next\r\n"));
            reply(&mut more.as_bytes(), &mut raw).expect("an answer");
            assert_eq!(String::from_utf8_lossy(&raw), whole);
            for end in 0..whole.len() {
                reply(&mut &whole.as_bytes()[..end], &mut Vec::new()).expect_err("not a whole answer");
            }
        }
    }
}
