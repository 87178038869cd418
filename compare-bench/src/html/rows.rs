//! Pictures with a row for each name: box plots and timelines.

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::colors::TRANSPARENT;

use crate::html::plot::{GRID, Marked};

/// What is around the rows.
pub(super) struct RowChart<'a> {
    /// The pixels below for the marks and their title, and those at the left for the names.
    pub(super) room: (u32, u32),
    pub(super) x: Marked,
    pub(super) x_title: &'a str,
    pub(super) y_title: &'a str,
    pub(super) x_label: &'a dyn Fn(&f64) -> String,
    /// From above.
    pub(super) names: &'a [String],
}

/// The axes, drawn. The middle of each row is at [`middle`].
pub(super) fn chart<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    RowChart { room, x, x_title, y_title, x_label, names }: RowChart<'_>,
) -> Result<ChartContext<'a, SVGBackend<'b>, Cartesian2d<Marked, Rows>>, String> {
    let to_text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(room.0)
        .y_label_area_size(room.1)
        .build_cartesian_2d(x, Rows(names.len()))
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
        .x_desc(x_title)
        .y_desc(y_title)
        .x_label_formatter(&x_label)
        .y_label_formatter(&name)
        .draw()
        .map_err(to_text)?;
    Ok(chart)
}

/// An axis with this number of rows, from above.
pub(super) struct Rows(usize);

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

pub(super) fn middle(row: usize) -> f64 {
    f64::from(u32::try_from(row).unwrap_or(0)) + 0.5
}
