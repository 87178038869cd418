//! Connections that are held back, and what they deliver late.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::mpsc,
    thread,
};

use testbed::{Direction, Proxy};

use super::{SILENCE, TIMEOUT, assert_reset, assert_silent, connect, eventually, ping, proxy, receive, send};

#[test]
fn hold_back_keeps_old_connections_only() {
    let proxy = proxy();
    let (old, idle) = (connect(&proxy), connect(&proxy));
    ping(&old);
    ping(&idle);
    let (passed, turns) = (proxy.bytes(Direction::Both), proxy.turns());
    proxy.hold_back();
    send(&old, "late");
    assert_silent(&old);
    assert_eq!((proxy.bytes(Direction::Both), proxy.turns()), (passed, turns + 1), "nothing has passed");
    let new = connect(&proxy);
    ping(&new);
    assert_eq!(proxy.deliver(), 4);
    receive(&old, "late");
    [&old, &idle, &new].into_iter().for_each(ping);
    assert_eq!(proxy.deliver(), 0, "once");

    // Replies are kept, too, and healing delivers.
    let passed = proxy.bytes(Direction::ToServer);
    proxy.delay(SILENCE * 3);
    send(&old, "reply");
    eventually("the server has received it", || proxy.bytes(Direction::ToServer) > passed);
    proxy.hold_back();
    thread::sleep(SILENCE * 3);
    assert_silent(&old);
    proxy.heal();
    receive(&old, "reply");
    ping(&idle);
}

/// What a server has read from a connection, and how that ended.
type Read = (Vec<u8>, io::Result<usize>);

/// A server that reports each connection when it has ended.
fn listener() -> (SocketAddr, mpsc::Receiver<Read>) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = server.local_addr().expect("an address");
    let (ended, connections) = mpsc::channel();
    thread::spawn(move || {
        for stream in server.incoming().flatten() {
            let ended = ended.clone();
            thread::spawn(move || {
                let mut read = Vec::new();
                (&stream).write_all(b"hello").expect("greets");
                let end = (&stream).read_to_end(&mut read);
                // An answer, for a client that may have gone.
                let end = end.and_then(|length| (&stream).write_all(b"bye").map(|()| length));
                ended.send((read, end)).expect("the test listens");
            });
        }
    });
    (addr, connections)
}

#[test]
fn what_is_held_back_outlives_its_client() {
    let (server, connections) = listener();
    let proxy = Proxy::start_blocking(server).expect("a proxy");
    // One ends well, the other with a reset: it has not read what it was sent.
    for read in [true, false] {
        let old = connect(&proxy);
        if read {
            receive(&old, "hello");
        } else {
            eventually("it is greeted", || old.peek(&mut [0; 5]).is_ok_and(|length| length == 5));
        }
        let turns = proxy.turns();
        proxy.hold_back();
        send(&old, "too late");
        eventually("it is kept", || proxy.turns() > turns);
        drop(old);
        thread::sleep(SILENCE);
        assert!(connections.try_recv().is_err(), "the server knows of nothing");
        assert_eq!(proxy.connections(), 1);
        assert_eq!(proxy.deliver(), 8);
        let (text, end) = connections.recv_timeout(TIMEOUT).expect("the connection ends");
        assert_eq!(String::from_utf8_lossy(&text), "too late");
        assert_eq!(end.expect("an end in good order"), 8);
        eventually("nothing is left", || proxy.connections() == 0);
    }
}

#[test]
fn what_is_held_back_can_be_cut() {
    let proxy = proxy();
    let old = connect(&proxy);
    ping(&old);
    proxy.hold_back();
    send(&old, "never");
    proxy.cut_existing();
    assert_eq!((proxy.connections(), proxy.deliver()), (0, 0));
    assert_reset(&old);
    ping(&connect(&proxy));
}
