//! Timelines: who considered itself the holder of a lock when, and which fault was at work.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::html::plot::{GRID, Marked, PALETTE, Scale, labelled};
use crate::stats::as_float;
use faults::{Excerpt, FaultTarget, Happened, HeldSpan};

const WIDTH: u32 = 760;

/// Of one row, in pixels.
const ROW: u32 = 30;

/// Of the axis and the margins.
const AROUND: u32 = 80;

/// So many holds are in the table below a picture.
const IN_TABLE: usize = 12;

/// The longest holds, in their order.
pub(super) fn longest(excerpt: &Excerpt) -> Vec<&HeldSpan> {
    let mut holds: Vec<&HeldSpan> = excerpt.holds.iter().collect();
    holds.sort_by_key(|hold| std::cmp::Reverse(hold.until.saturating_sub(hold.from)));
    holds.truncate(IN_TABLE);
    holds.sort_by_key(|hold| hold.from);
    holds
}

/// The row in which a fault is drawn.
pub(super) fn row_of(fault: &Happened) -> String {
    match fault.planned.fault.target() {
        FaultTarget::Worker(worker) => worker_row(worker),
        FaultTarget::Server(node) => format!("server {node}"),
        FaultTarget::Servers => "servers".to_owned(),
        FaultTarget::Data => "data".to_owned(),
    }
}

fn worker_row(worker: u32) -> String {
    format!("worker {worker}")
}

/// The picture.
pub(super) fn draw(title: &str, excerpt: &Excerpt, happened: &[Happened], began: u64) -> Result<String> {
    let mut text = String::new();
    chart(&mut text, excerpt, happened, began).map_err(Error::failed)?;
    Ok(labelled(&text, title))
}

/// Workers first, then what else faults happened to.
fn row_names(excerpt: &Excerpt, happened: &[Happened]) -> Vec<String> {
    let mut workers: Vec<u32> = excerpt.holds.iter().map(|hold| hold.worker).collect();
    workers.extend(happened.iter().filter_map(|one| match one.planned.fault.target() {
        FaultTarget::Worker(worker) => Some(worker),
        _ => None,
    }));
    workers.sort_unstable();
    workers.dedup();
    let mut rows: Vec<String> = workers.into_iter().map(worker_row).collect();
    for one in happened {
        let row = row_of(one);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

fn chart(text: &mut String, excerpt: &Excerpt, happened: &[Happened], began: u64) -> Result<(), String> {
    let names = row_names(excerpt, happened);
    let height = u32::try_from(names.len()).unwrap_or(u32::MAX) * ROW + AROUND;
    let seconds = |micros: u64| as_float(micros) / 1e6;
    let ends = (seconds(excerpt.from), seconds(excerpt.until));
    let (_, _, marks) = Scale::Linear.range(&[ends.0, ends.1]);
    let marks = marks.into_iter().filter(|mark| (ends.0..=ends.1).contains(mark)).collect();
    let area = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    let to_text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(120)
        .build_cartesian_2d(Marked { ends: ends.0..ends.1, marks }, Rows(names.len()))
        .map_err(to_text)?;
    let name = |row: &f64| {
        let found = names.iter().enumerate().find(|(number, _)| (middle(*number) - row).abs() < 0.1);
        found.map_or_else(String::new, |(_, name)| name.clone())
    };
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .disable_y_mesh()
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .x_desc("seconds since the workers began")
        .y_desc("who")
        .x_label_formatter(&|at| format!("{at:.1}"))
        .y_label_formatter(&name)
        .draw()
        .map_err(to_text)?;
    // A span in a row, from so much above its middle to so much below. At least as wide as one can see.
    let least = (ends.1 - ends.0) / 400.0;
    let area_of = |row: &str, (from, until): (f64, f64), half: f64| {
        let row = middle(names.iter().position(|other| other == row)?);
        let (from, until) = (from.max(ends.0), until.max(from + least).min(ends.1));
        let corners = [(from, row - half), (until, row - half), (until, row + half), (from, row + half)];
        (from < until).then(|| corners.to_vec())
    };
    let since = |nanos: u64| seconds(nanos.saturating_sub(began) / 1000);
    let faults =
        happened.iter().filter_map(|one| area_of(&row_of(one), (since(one.from), since(one.until)), 0.46));
    chart
        .draw_series(faults.map(|area| Polygon::new(area, PALETTE[7].mix(0.4).filled())))
        .map_err(to_text)?;
    for (number, hold) in excerpt.holds.iter().enumerate() {
        let span = (seconds(hold.from), seconds(hold.until));
        // Neighbours differ in strength, so that it shows where one ends and the next begins.
        let strength = if number % 2 == 0 { 0.9 } else { 0.55 };
        let area = area_of(&worker_row(hold.worker), span, 0.26);
        let shape = area.map(|area| Polygon::new(area, PALETTE[0].mix(strength).filled()));
        chart.draw_series(shape).map_err(to_text)?;
    }
    for &(from, until) in &excerpt.overlaps {
        let both = excerpt.holds.iter().filter(|hold| hold.from < until && hold.until > from);
        for hold in both {
            let area = area_of(&worker_row(hold.worker), (seconds(from), seconds(until)), 0.34);
            let shape = area.map(|area| Polygon::new(area, PALETTE[1].filled()));
            chart.draw_series(shape).map_err(to_text)?;
        }
    }
    let dots = excerpt.refused.iter().filter_map(|(worker, at)| {
        let row = names.iter().position(|other| *other == worker_row(*worker))?;
        Some(Circle::new((seconds(*at), middle(row) - 0.3), 4, PALETTE[6].filled()))
    });
    chart.draw_series(dots).map_err(to_text)?;
    area.present().map_err(to_text)
}

/// An axis with this number of rows, from above.
struct Rows(usize);

impl Ranged for Rows {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let rows = f64::from(u32::try_from(self.0).unwrap_or(1));
        #[expect(clippy::cast_possible_truncation, reason = "pixels of a picture of known size")]
        let pixels = (value / rows * f64::from(last - first)).round() as i32;
        // The pixels of this axis are counted from below.
        last - pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0).map(middle).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..f64::from(u32::try_from(self.0).unwrap_or(1))
    }
}

fn middle(row: usize) -> f64 {
    f64::from(u32::try_from(row).unwrap_or(0)) + 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_holders_faults_overlaps_and_what_was_refused() {
        let hold = |worker, from, until| HeldSpan {
            worker,
            task: 0,
            mode: "exclusive".to_owned(),
            token: from,
            from,
            until,
            end: "expired".to_owned(),
        };
        let excerpt = Excerpt {
            lock: 3,
            from: 1_000_000,
            until: 5_000_000,
            holds: vec![hold(0, 900_000, 2_600_000), hold(1, 2_500_000, 3_000_000)],
            overlaps: vec![(2_500_000, 2_600_000)],
            refused: vec![(0, 2_550_000)],
        };
        let json = serde_json::json!([{
            "at": 1200, "fault": "stop_worker", "worker": 0, "millis": 3000,
            "from": 1_200_000_000_u64, "until": 4_200_000_000_u64,
            "inner_from": 1_200_000_000_u64, "inner_until": 4_200_000_000_u64,
        }, {
            "at": 1300, "fault": "kill_all", "millis": 10,
            "from": 1_300_000_000_u64, "until": 1_310_000_000_u64,
            "inner_from": 1_300_000_000_u64, "inner_until": 1_310_000_000_u64,
        }]);
        let happened: Vec<Happened> = serde_json::from_value(json).unwrap();
        let svg = draw("stopped & more", &excerpt, &happened, 0).unwrap();
        for expected in [
            "worker 0",
            "worker 1",
            "servers",
            "seconds since",
            "aria-label=\"stopped &amp; more\"",
            "<circle",
        ] {
            assert!(svg.contains(expected), "{expected} in {svg}");
        }
        // Two faults, two holds, and the overlap with each of its holders.
        assert_eq!(svg.matches("<polygon").count(), 6, "{svg}");
        assert!(svg.contains("#D55E00"), "{svg}");
        assert_eq!(longest(&excerpt).len(), 2);
    }
}
