//! The life of one connection through the proxy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::pipe::{Reset, Way};
use crate::switches::{Entry, Flow, ProxyState};
use crate::way::{TO_CLIENT, TO_SERVER};

/// Takes connections for ever.
pub(super) async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let entry = shared.enter();
                tokio::spawn(serve(entry, client));
            }
            // Out of file descriptors, or a client that has left already.
            Err(error) => {
                tracing::warn!(%error, "the proxy could not take a connection");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn serve(entry: Entry, mut client: TcpStream) {
    let mut mode = entry.shared.mode();
    let mut server = None;
    let end = tokio::select! {
        // The first is looked at first: nothing goes on in a connection that has to go.
        biased;
        _ = mode.wait_for(|mode| entry.connection.must_reset(mode)) => Err(Reset),
        end = relay(&entry, &mut client, &mut server) => end,
    };
    if end.is_err() {
        // Closing without lingering sends a reset. It fails only on a socket that is closed already.
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            if let Err(error) = stream.set_zero_linger() {
                tracing::debug!(%error, "no reset");
            }
        }
    }
    // The sockets close before the connection leaves the list: who has seen it leave finds it closed.
    drop((client, server));
    drop(entry);
}

async fn relay(entry: &Entry, client: &mut TcpStream, server: &mut Option<TcpStream>) -> Result<(), Reset> {
    passable(entry).await;
    let upstream = entry.shared.upstream();
    let connected = async {
        let stream = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        stream.set_nodelay(true)?;
        io::Result::Ok(stream)
    };
    let server = match connected.await {
        Ok(stream) => server.insert(stream),
        Err(error) => {
            tracing::debug!(%error, %upstream, "the proxy could not connect");
            return Err(Reset);
        }
    };
    let (mut from_client, mut into_client) = client.split();
    let (mut from_server, mut into_server) = server.split();
    let (requests, mut requests_end) = mpsc::unbounded_channel();
    let (replies, mut replies_end) = mpsc::unbounded_channel();
    let to_server = Way::new(entry, TO_SERVER, &requests, &replies);
    let to_client = Way::new(entry, TO_CLIENT, &replies, &requests);
    tokio::select! {
        biased;
        reset = to_server.collect(&mut from_client) => Err(reset),
        reset = to_client.collect(&mut from_server) => Err(reset),
        end = async {
            tokio::try_join!(
                to_server.deliver(&mut requests_end, &mut into_server),
                to_client.deliver(&mut replies_end, &mut into_client),
            )
        } => end.map(drop),
    }
}

/// Waits until bytes may pass both ways: no connection is made while either way is shut.
async fn passable(entry: &Entry) {
    let mut mode = entry.shared.mode();
    let open = mode.wait_for(|mode| {
        // In a black hole the client would never have got its connection, so what it sends now must not
        // arrive later. Held connections go on.
        for (way, flow) in mode.flow.iter().enumerate() {
            if *flow == Flow::Swallow {
                entry.connection.lose(way);
            }
        }
        mode.flow == [Flow::Pass; 2]
    });
    // It can not fail while the entry keeps the sender.
    drop(open.await);
}
