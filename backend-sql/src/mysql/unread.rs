//! The first packet of a server, for its number.

use sqlx_mysql::MySqlConnectOptions;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::sql::unread::{Reread, Unread};

/// The client has said nothing yet when a server refuses its host, or has no connection left; later the text
/// is UTF-8, as the client asks for.
impl Reread for MySqlConnectOptions {
    async fn reread(&self) -> Option<Unread> {
        let mut server = TcpStream::connect((self.get_host(), self.get_port())).await.ok()?;
        // Length, number of the packet, kind of the packet, number of the error.
        let mut packet = [0; 7];
        server.read_exact(&mut packet).await.ok()?;
        let [_, _, _, _, 0xff, low, high] = packet else { return None };
        Some(Unread { code: "HY000".to_owned(), number: u16::from_le_bytes([low, high]) })
    }
}
