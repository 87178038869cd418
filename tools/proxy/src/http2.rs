//! Which bytes of an HTTP/2 connection are requests, and which are the reply to one of them.
//!
//! There a server may send bytes at any time, on any stream or on none, so the direction of the last bytes
//! says nothing. Each stream is a conversation by itself. Only the headers of frames are read, which are
//! never compressed.

use std::collections::HashSet;

/// How every client begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// One connection that speaks HTTP/2.
#[derive(Debug)]
pub(super) struct Http2 {
    from_client: Frames,
    from_server: Frames,
    /// Streams on which the client has sent the last data.
    client_spoke_last: HashSet<u32>,
    /// The stream whose next reply is to be dropped.
    drop_reply: Option<u32>,
}

impl Http2 {
    /// A connection whose client begins with these bytes, if that is HTTP/2.
    pub(super) fn recognise(first: &[u8]) -> Option<Self> {
        first.starts_with(PREFACE).then(|| Self {
            from_client: Frames { to_skip: PREFACE.len(), ..Frames::default() },
            from_server: Frames::default(),
            client_spoke_last: HashSet::new(),
            drop_reply: None,
        })
    }

    /// The client has sent something. `begins` is called for each request in it, and says whether its reply
    /// is to be dropped. A request is a turn of a stream: the end of its header if it has no body, or the
    /// first data since the server's last ones.
    pub(super) fn on_request_bytes(&mut self, bytes: &[u8], mut begins: impl FnMut() -> bool) {
        let Self { from_client, client_spoke_last, drop_reply, .. } = self;
        from_client.read(bytes, |frame| {
            let speaks = match frame.kind {
                HEADERS => frame.flags & END_STREAM != 0,
                DATA => frame.length > 0,
                _ => false,
            };
            if speaks && client_spoke_last.insert(frame.stream) && begins() {
                *drop_reply = Some(frame.stream);
            }
        });
    }

    /// The server has sent something. True if the reply that is to be dropped begins in it.
    pub(super) fn on_reply_bytes(&mut self, bytes: &[u8]) -> bool {
        let Self { from_server, client_spoke_last, drop_reply, .. } = self;
        let mut met = false;
        from_server.read(bytes, |frame| {
            if matches!(frame.kind, DATA | HEADERS | RST_STREAM) {
                client_spoke_last.remove(&frame.stream);
                met |= *drop_reply == Some(frame.stream);
            }
        });
        met
    }
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Finds the frames in a stream of bytes that comes in pieces.
#[derive(Debug, Default)]
struct Frames {
    /// What is left of the present frame.
    to_skip: usize,
    /// The header of the next one, as far as it has come.
    header: Vec<u8>,
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        loop {
            let skipped = self.to_skip.min(bytes.len());
            self.to_skip -= skipped;
            bytes = &bytes[skipped..];
            let part = (9 - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            let [a, b, c, kind, flags, s0, s1, s2, s3] = self.header[..] else { return };
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            // The highest bit is reserved.
            let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
            self.header.clear();
            self.to_skip = length;
            each(Frame { length, kind, flags, stream });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(stream.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn begun() -> Http2 {
        let mut http2 = Http2::recognise(PREFACE).unwrap();
        http2.on_request_bytes(PREFACE, || panic!("no request yet"));
        http2
    }

    #[test]
    fn other_protocols_are_not_taken_for_it() {
        assert!(Http2::recognise(b"GET / HTTP/1.1\r\n").is_none());
        assert!(Http2::recognise(b"*1\r\n$4\r\nPING\r\n").is_none());
    }

    #[test]
    fn turns_belong_to_streams() {
        let mut http2 = begun();
        let mut requests = 0;
        // Settings and windows are no requests; a call with a body is one, however many pieces it has.
        for bytes in [
            frame(4, 0, 0, &[0; 6]),
            frame(HEADERS, 4, 1, b"header"),
            frame(DATA, 0, 1, b"first half"),
            frame(DATA, END_STREAM, 1, b"second half"),
            frame(HEADERS, 5, 3, b"a call without a body"),
        ] {
            http2.on_request_bytes(&bytes, || {
                requests += 1;
                false
            });
        }
        assert_eq!(requests, 2);
        // The answer to one of them ends the turn of that one.
        assert!(!http2.on_reply_bytes(&frame(HEADERS, 4, 1, b"answer")));
        http2.on_request_bytes(&frame(DATA, 0, 1, b"more"), || {
            requests += 1;
            false
        });
        http2.on_request_bytes(&frame(DATA, 0, 3, b"more"), || panic!("its turn is not over"));
        assert_eq!(requests, 3);
    }

    #[test]
    fn the_reply_of_one_stream_is_found_among_others_and_in_pieces() {
        let mut http2 = begun();
        let mut number = 0;
        for stream in [1, 3, 5] {
            http2.on_request_bytes(&frame(DATA, END_STREAM, stream, b"body"), || {
                number += 1;
                number == 2
            });
        }
        let settings = frame(4, 0, 0, &[0; 12]);
        assert!(!http2.on_reply_bytes(&settings));
        assert!(!http2.on_reply_bytes(&frame(8, 0, 3, &[0; 4])), "a window is no reply");
        assert!(!http2.on_reply_bytes(&frame(HEADERS, 4, 5, b"another's answer")));
        let reply = frame(HEADERS, 4, 3, b"the answer");
        assert!(!http2.on_reply_bytes(&reply[..5]));
        assert!(http2.on_reply_bytes(&reply[5..]));
    }
}
