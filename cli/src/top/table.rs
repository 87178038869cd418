//! The locks by contention, for people.

use std::time::Duration;

use lockwell::{Holder, LockStatus, Mode};

use super::board::{Board, Row};
use crate::say::{printable, rounded};

/// Of a terminal, in characters.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) lines: usize,
    pub(super) columns: usize,
}

pub(super) struct Table<'a> {
    pub(super) server: &'a str,
    pub(super) board: &'a Board,
    pub(super) rows: &'a [Row<'a>],
    /// Why the last look failed.
    pub(super) trouble: Option<&'a str>,
}

const TITLES: [&str; 6] = ["WAIT", "LONGEST", "HAND-OVERS/S", "HELD FOR", "NAME", "HOLDER"];

impl Table<'_> {
    /// All of it.
    pub(super) fn whole(&self) -> String {
        self.lines().join("\n") + "\n"
    }

    /// What fits on a terminal, in the place of what is there.
    pub(super) fn screen(&self, size: Size) -> String {
        // The last line of the terminal is for the cursor.
        let lines = self.lines().into_iter().take(size.lines.saturating_sub(1)).map(|line| {
            let line: String = line.chars().take(size.columns).collect();
            // The rest of an old line is erased.
            line + "\x1b[K\r\n"
        });
        // From the upper left corner on; below the last line nothing is left.
        format!("\x1b[H{}\x1b[J", lines.collect::<String>())
    }

    fn lines(&self) -> Vec<String> {
        let waiters: usize = self.rows.iter().map(|row| row.status.waiters).sum();
        let contended = self.rows.iter().filter(|row| row.status.waiters > 0).count();
        let mut lines = vec![format!(
            "{}  locks: {}, contended: {contended}, waiters: {waiters}",
            self.server,
            self.rows.len()
        )];
        if self.board.looked() < self.board.known() {
            lines.push(format!(
                "looked at {} of {} names (--most); the others have their turns",
                self.board.looked(),
                self.board.known()
            ));
        }
        if let Some(trouble) = self.trouble {
            lines.push(format!("this is old: {trouble}"));
        }
        let cells: Vec<_> =
            std::iter::once(TITLES.map(str::to_owned)).chain(self.rows.iter().map(cells)).collect();
        let widths: Vec<_> = (0..TITLES.len())
            .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
            .collect();
        for row in cells {
            let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                // Numbers to the right.
                0..4 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            });
            lines.push(padded.collect::<Vec<_>>().join("  ").trim_end().to_owned());
        }
        lines.iter().map(|line| printable(line)).collect()
    }
}

fn cells(row: &Row<'_>) -> [String; 6] {
    let status = row.status;
    let time = |time: Option<Duration>| time.map_or_else(String::new, |time| rounded(time).to_string());
    let rate = match row.grants_per_second {
        None => String::new(),
        Some(0.0) => "0".to_owned(),
        Some(rate) => format!(">= {rate:.2}"),
    };
    [
        status.waiters.to_string(),
        time(status.longest_wait),
        rate,
        time(status.holders.first().map(|holder| holder.held_for)),
        status.name.to_string(),
        holder(status),
    ]
}

fn holder(status: &LockStatus) -> String {
    let Some(first) = status.holders.first() else {
        return if status.is_free() { "(free)" } else { "(unknown)" }.to_owned();
    };
    let label = &first.label;
    match (status.holders.as_slice(), first) {
        (_, Holder { mode: Mode::Permit { limit }, .. }) => {
            format!("{label} ({} of {limit} held)", status.holders.len())
        }
        ([_], Holder { mode: Mode::Shared, .. }) => format!("{label} (reader)"),
        (many, Holder { mode: Mode::Shared, .. }) => format!("{label} ({} readers)", many.len()),
        _ => label.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use lockwell::{FencingToken, LockName};

    use super::*;

    fn status(name: &str, label: &str, mode: Mode, waiters: usize) -> LockStatus {
        let holder = Holder::new(FencingToken::new(7), label, mode, Duration::from_secs(9));
        LockStatus::new(
            LockName::new(name).unwrap(),
            vec![holder.held_for(Duration::from_millis(1234))],
            waiters,
        )
    }

    /// All, or what fits.
    fn shown(size: Option<Size>) -> String {
        let limit = NonZeroU32::new(3).unwrap();
        let contended = status("orders/42", "web-1:4711", Mode::Exclusive, 12);
        let contended = contended.longest_wait(Some(Duration::from_millis(3120)));
        let others = [status("b", "x\x1b[2J", Mode::Permit { limit }, 0), status("c", "r", Mode::Shared, 0)];
        let row = |status, grants_per_second| Row { status, grants_per_second, age: Duration::ZERO };
        let rows = [row(&contended, Some(1.504)), row(&others[0], Some(0.0)), row(&others[1], None)];
        let mut board = Board::new(2, &[]);
        board.list(["orders/42", "b", "c"].map(|name| LockName::new(name).unwrap()).into());
        board.next_names();
        let table = Table { server: "sqlite:///l.db", board: &board, rows: &rows, trouble: None };
        size.map_or_else(|| table.whole(), |size| table.screen(size))
    }

    #[test]
    fn for_people() {
        let text = shown(None);
        let expected = [
            "sqlite:///l.db  locks: 3, contended: 1, waiters: 12",
            "looked at 2 of 3 names (--most); the others have their turns",
            "WAIT   LONGEST  HAND-OVERS/S  HELD FOR  NAME       HOLDER",
            "  12  3s 120ms       >= 1.50  1s 234ms  orders/42  web-1:4711",
            "   0                       0  1s 234ms  b          x?[2J (1 of 3 held)",
            "   0                          1s 234ms  c          r (reader)",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_terminal_gets_what_fits() {
        let text = shown(Some(Size { lines: 4, columns: 12 }));
        assert_eq!(text, "\x1b[Hsqlite:///l.\x1b[K\r\nlooked at 2 \x1b[K\r\nWAIT   LONGE\x1b[K\r\n\x1b[J");
    }
}
