//! `lockwell top`: the locks by contention.

mod board;
mod report;
mod table;

use std::io::{self, IsTerminal as _, stdout};
use std::time::Duration;

use lockwell::{LockName, LockStatus, Locks, Operation, Registry};
use rustix::termios::tcgetwinsize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::board::Board;
use self::report::TopReport;
use self::table::{Size, Table};
use crate::args::TopArgs;
use crate::connect::{Address, Connection, Purpose};
use crate::exit::Failure;
use crate::json;
use crate::patience::Patience;
use crate::say::Voice;

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// How many locks are looked at side by side.
const SIDE_BY_SIDE: usize = 32;

/// A list of all names may cost the server much. It is made for one part in so many of the time at most.
const SHARE: u32 = 20;

pub(crate) async fn top(registry: &Registry, args: &TopArgs) -> Result<u8, Failure> {
    let address = Address::of(&args.server)?;
    let server = address.url.to_string();
    let connection = address.connect(registry, Purpose::Reading, &mut Patience::none(Voice::Usual)).await?;
    let locks = connection.locks()?;
    let board = Board::new(args.most.get(), &args.names);
    let mut top = Top { args, server, connection, locks, board, list_at: Instant::now(), trouble: None };
    top.look().await?;
    if args.once {
        // Hand-overs are seen between two looks.
        top.pause().await;
        top.look().await?;
        top.show()?;
        return Ok(0);
    }
    while top.show()? {
        top.pause().await;
        top.trouble = top.look().await.err().map(|failure| failure.text());
    }
    Ok(0)
}

struct Top<'a> {
    args: &'a TopArgs,
    /// The address without its password.
    server: String,
    connection: Connection,
    locks: Locks,
    board: Board,
    /// When the names are listed again.
    list_at: Instant,
    /// Why the last look failed, if it did. What was seen before is shown with it.
    trouble: Option<String>,
}

impl Top<'_> {
    async fn pause(&self) {
        sleep(self.args.every.max(SHORTEST)).await;
    }

    /// Looks at some locks: at those of the command line, or at some of all that are held.
    async fn look(&mut self) -> Result<(), Failure> {
        if self.args.names.is_empty() && self.list_at <= Instant::now() {
            let began = Instant::now();
            let names = self.connection.backend.names().await.map_err(|error| {
                error.during(Operation::Inspect).on_backend(self.locks.capabilities().backend())
            })?;
            self.board.list(names);
            self.list_at = began + began.elapsed() * SHARE;
        }
        for names in self.board.next_names().chunks(SIDE_BY_SIDE) {
            for status in inspect(&self.locks, names).await? {
                self.board.note(status, Instant::now());
            }
        }
        self.board.forget(Instant::now());
        Ok(())
    }

    /// Shows what was seen. False: the output is closed.
    fn show(&self) -> Result<bool, Failure> {
        let (now, board) = (Instant::now(), &self.board);
        let on_terminal = !self.args.json && !self.args.once && stdout().is_terminal();
        if let Some(trouble) = self.trouble.as_ref().filter(|_| !on_terminal) {
            // Not once more what was shown before.
            Voice::Usual.warn(trouble);
            return Ok(true);
        }
        let rows = board.rows(now);
        let text = if self.args.json {
            let report = TopReport::new(&self.server, board, &rows);
            if self.args.once { json::pretty(&report)? } else { json::line(&report)? }
        } else {
            let table = Table { server: &self.server, board, rows: &rows, trouble: self.trouble.as_deref() };
            if on_terminal { table.screen(size()) } else { table.whole() }
        };
        json::print(&text)
    }
}

/// The size of the terminal. One that does not know it is as small as the first were.
fn size() -> Size {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            Size { lines: size.ws_row.into(), columns: size.ws_col.into() }
        }
        _ => Size { lines: 24, columns: 80 },
    }
}

/// Looks at these locks, all at the same time.
async fn inspect(locks: &Locks, names: &[LockName]) -> Result<Vec<LockStatus>, Failure> {
    let mut looking = JoinSet::new();
    for name in names {
        let (locks, name) = (locks.clone(), name.clone());
        looking.spawn(async move { locks.inspect(&name).await });
    }
    let mut seen = Vec::new();
    while let Some(looked) = looking.join_next().await {
        match looked.map_err(io::Error::other)? {
            Ok(status) => seen.push(status),
            Err(error) if error.is_retryable() => return Err(error.into()),
            // A record of another program under one name must not hide the others.
            Err(error) => tracing::info!(error = format!("{error:#}"), "not inspected"),
        }
    }
    Ok(seen)
}
