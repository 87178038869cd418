//! The proxy's faults, against a server that echoes.

mod held_back;

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use testbed::{Direction, Proxy};

/// Long enough for a slow machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Long enough to say that nothing comes.
const SILENCE: Duration = Duration::from_millis(300);

/// An echo server. It never ends, which does no harm.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    addr
}

fn proxy() -> Proxy {
    Proxy::start_blocking(echo()).expect("a proxy")
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).expect("connects");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn send(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("writes");
}

fn receive(mut stream: &TcpStream, text: &str) {
    let mut buffer = vec![0; text.len()];
    stream.read_exact(&mut buffer).expect("reads");
    assert_eq!(String::from_utf8_lossy(&buffer), text);
}

fn ping(stream: &TcpStream) {
    send(stream, "ping");
    receive(stream, "ping");
}

fn assert_silent(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(SILENCE)).expect("a timeout");
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
}

fn assert_reset(mut stream: &TcpStream) {
    // A write can be what first meets the reset; after it the read does not find it again.
    let outcome = stream.write_all(b"x").and_then(|()| stream.read(&mut [0]));
    let error = outcome.expect_err("reset");
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn passes_bytes_and_counts_them() {
    let proxy = proxy();
    let first = connect(&proxy);
    let second = connect(&proxy);
    ping(&first);
    ping(&second);
    ping(&second);
    assert_eq!((proxy.accepted(), proxy.connections(), proxy.turns()), (2, 2, 3));
    let (up, down) = (proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient));
    assert_eq!((up, down, proxy.bytes(Direction::Both)), (12, 12, 24));
    drop(first);
    eventually("the connection has ended", || proxy.connections() == 1);
}

#[test]
fn passes_the_end_of_one_side() {
    let proxy = proxy();
    proxy.delay(Duration::from_millis(30));
    let mut stream = connect(&proxy);
    let sent = "much to say ".repeat(100_000);
    let mut writer = stream.try_clone().expect("a clone");
    let all = sent.clone();
    let writer = thread::spawn(move || {
        writer.write_all(all.as_bytes()).expect("writes");
        writer.shutdown(std::net::Shutdown::Write).expect("ends");
    });
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("reads to the end");
    writer.join().expect("has written");
    assert!(received == sent, "all of it, in order");
    eventually("the connection has ended", || proxy.connections() == 0);
}

#[test]
fn delay_is_a_long_line_and_not_a_narrow_one() {
    let proxy = proxy();
    let stream = connect(&proxy);
    ping(&stream);
    let each_way = Duration::from_millis(150);
    proxy.delay(each_way);
    let begun = Instant::now();
    ping(&stream);
    assert!(begun.elapsed() >= each_way * 2, "{:?}", begun.elapsed());

    // Twenty messages one behind the other, 10 ms apart: all are on the line at the same time.
    let begun = Instant::now();
    let reader = stream.try_clone().expect("a clone");
    let reader = thread::spawn(move || (0..20).for_each(|n| receive(&reader, &format!("message {n:02}"))));
    for n in 0..20 {
        send(&stream, &format!("message {n:02}"));
        thread::sleep(Duration::from_millis(10));
    }
    reader.join().expect("all messages, in order");
    let took = begun.elapsed();
    assert!(took >= each_way * 2 && took < each_way * 20, "{took:?}");

    // Nothing overtakes when the line gets short again.
    let turns = proxy.turns();
    send(&stream, "slow,");
    eventually("the request is on the line", || proxy.turns() > turns);
    proxy.delay(Duration::ZERO);
    send(&stream, "quick");
    receive(&stream, "slow,quick");
    let begun = Instant::now();
    (0..20).for_each(|_| ping(&stream));
    assert!(begun.elapsed() < each_way * 20, "no delay any more: {:?}", begun.elapsed());
}

#[test]
fn cut_closes_all_until_healed() {
    let proxy = proxy();
    let old = connect(&proxy);
    ping(&old);
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert_reset(&old);
    for _ in 0..3 {
        // The kernel has taken the connection; the proxy throws it out, perhaps before we ask it anything.
        if let Ok(new) = TcpStream::connect(proxy.addr()) {
            new.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            assert!((&new).read(&mut [0]).is_err(), "reset");
        }
    }
    proxy.heal();
    ping(&connect(&proxy));
}

#[test]
fn cut_existing_welcomes_new_ones() {
    let proxy = proxy();
    let old = [connect(&proxy), connect(&proxy)];
    old.iter().for_each(ping);
    proxy.cut_existing();
    assert_eq!(proxy.connections(), 0);
    old.iter().for_each(assert_reset);
    let new = connect(&proxy);
    ping(&new);
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn blackhole_to_the_server() {
    let proxy = proxy();
    let (loser, idle) = (connect(&proxy), connect(&proxy));
    ping(&loser);
    ping(&idle);
    let passed = proxy.bytes(Direction::ToServer);
    proxy.blackhole(Direction::ToServer);
    send(&loser, "lost");
    let new = connect(&proxy);
    send(&new, "lost too");
    assert_silent(&loser);
    assert_silent(&new);
    assert_eq!(proxy.bytes(Direction::ToServer), passed, "nothing has passed");
    assert_eq!(proxy.connections(), 3, "all are still open");
    proxy.heal();
    assert_eq!(proxy.connections(), 1, "those that have lost something are gone");
    assert_reset(&loser);
    assert_reset(&new);
    ping(&idle);
    ping(&connect(&proxy));
}

#[test]
fn blackhole_to_the_client() {
    let proxy = proxy();
    let (loser, idle) = (connect(&proxy), connect(&proxy));
    ping(&loser);
    ping(&idle);
    let (up, down) = (proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient));
    proxy.blackhole(Direction::ToClient);
    send(&loser, "heard");
    assert_silent(&loser);
    assert_eq!(proxy.bytes(Direction::ToServer), up + 5, "the server has heard it");
    assert_eq!(proxy.bytes(Direction::ToClient), down);
    // Opening the other way does not make good what is lost.
    proxy.blackhole(Direction::Both);
    proxy.heal();
    assert_reset(&loser);
    ping(&idle);
}

#[test]
fn blackhole_swallows_the_end_of_a_connection() {
    let proxy = proxy();
    let stream = connect(&proxy);
    ping(&stream);
    proxy.blackhole(Direction::Both);
    drop(stream);
    thread::sleep(SILENCE);
    assert_eq!(proxy.connections(), 1, "the server does not know yet");
    proxy.heal();
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn hold_delivers_late() {
    let proxy = proxy();
    let old = connect(&proxy);
    ping(&old);
    for direction in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let passed = proxy.bytes(direction);
        proxy.hold(direction);
        send(&old, "late");
        let new = connect(&proxy);
        send(&new, "new");
        assert_silent(&old);
        assert_silent(&new);
        assert_eq!(proxy.bytes(direction), passed, "{direction:?}");
        proxy.heal();
        receive(&old, "late");
        receive(&new, "new");
        ping(&old);
    }
}

#[test]
fn drop_reply_takes_the_reply_and_the_connection() {
    let proxy = proxy();
    let (first, second) = (connect(&proxy), connect(&proxy));
    ping(&first);
    proxy.drop_reply(3);
    ping(&first);
    ping(&second);
    let (up, down) = (proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient));
    send(&first, "done?");
    let error = (&first).read(&mut [0]).expect_err("no reply, and a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.bytes(Direction::ToServer), up + 5, "the server has got it");
    assert_eq!(proxy.bytes(Direction::ToClient), down, "the client has got nothing");
    assert_eq!((proxy.dropped_replies(), proxy.turns()), (1, 4));
    ping(&second);
    ping(&connect(&proxy));

    // Healing disarms it.
    proxy.drop_reply(1);
    proxy.heal();
    ping(&second);
    assert_eq!(proxy.dropped_replies(), 1);
}

#[test]
fn a_server_that_is_down_means_a_reset() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let proxy = Proxy::start_blocking(nobody).expect("a proxy");
    let mut stream = connect(&proxy);
    assert!(stream.read(&mut [0]).is_err(), "reset");
    eventually("nothing is left", || proxy.connections() == 0);
    assert_eq!(proxy.accepted(), 1);
}

/// The test's runtime has one thread and the test blocks it.
#[tokio::test]
async fn goes_on_while_the_tests_runtime_is_blocked() {
    let proxy = Proxy::start(echo()).await.expect("a proxy");
    let stream = connect(&proxy);
    ping(&stream);
    drop(proxy);
    assert!(!matches!((&stream).read(&mut [0]), Ok(1..)), "a dropped proxy closes its connections");
}
