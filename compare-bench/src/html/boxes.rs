//! Box plots: how long it took each time, and the longest that it should take.

use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::html::plot::{Marked, PALETTE, Scale, labelled};
use crate::html::rows::{self, RowChart, middle};
use crate::view::show;

const WIDTH: u32 = 840;

/// Of one box, in pixels.
const ROW: u32 = 44;

/// Of the axis and the margins.
const AROUND: u32 = 90;

/// One box.
pub(crate) struct BoxGroup {
    pub(crate) name: String,
    pub(crate) color: usize,
    /// In microseconds.
    pub(crate) times: Vec<f64>,
    pub(crate) bound: Option<f64>,
}

/// The quarters of some times: lowest, first quarter, median, third quarter, highest.
pub(crate) fn quarters(times: &[f64]) -> Option<[f64; 5]> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let last = times.len().checked_sub(1)?;
    // Between two neighbours, in proportion.
    let at = |quarter: usize| {
        let (place, part) = (quarter * last / 4, (quarter * last) % 4);
        let next = times[(place + 1).min(last)];
        let share = [0.0, 0.25, 0.5, 0.75][part];
        times[place] + (next - times[place]) * share
    };
    Some([at(0), at(1), at(2), at(3), at(4)])
}

/// The picture, or nothing where there is nothing to draw.
pub(crate) fn draw(title: &str, groups: &[BoxGroup]) -> Result<Option<String>> {
    let values = groups.iter().flat_map(|box_group| box_group.times.iter().chain(&box_group.bound));
    let positions: Vec<f64> = values.filter_map(|value| Scale::Log.position(*value)).collect();
    if positions.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    chart(&mut text, groups, &positions).map_err(Error::failed)?;
    Ok(Some(labelled(&text, title)))
}

fn chart(text: &mut String, groups: &[BoxGroup], positions: &[f64]) -> Result<(), String> {
    let rows = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let area = SVGBackend::with_string(text, (WIDTH, rows * ROW + AROUND)).into_drawing_area();
    let (low, high, marks) = Scale::Log.range(positions);
    let to_text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let names: Vec<String> = groups.iter().map(|box_group| box_group.name.clone()).collect();
    let mut chart = rows::chart(
        &area,
        RowChart {
            room: (52, 250),
            x: Marked { ends: low..high, marks },
            x_title: "from the fault to the next grant",
            y_title: "lock",
            x_label: &|place| show::time(Scale::Log.value(*place)),
            names: &names,
        },
    )?;
    for (number, box_group) in groups.iter().enumerate() {
        let row = middle(number);
        let color = PALETTE[box_group.color % PALETTE.len()];
        let line = color.stroke_width(2);
        let path = |points: Vec<(f64, f64)>| PathElement::new(points, line);
        if let Some(quarters) = quarters(&box_group.times) {
            let at = quarters.map(|time| Scale::Log.position(time).unwrap_or(low));
            let [least, first, median, third, most] = at;
            let (above, below) = (row - 0.22, row + 0.22);
            let corners = vec![(first, above), (third, above), (third, below), (first, below)];
            let parts = [
                path(vec![(least, row), (first, row)]),
                path(vec![(third, row), (most, row)]),
                path(vec![(first, above), (third, above), (third, below), (first, below), (first, above)]),
                path(vec![(median, above), (median, below)]),
            ];
            chart.draw_series([Polygon::new(corners, color.mix(0.2).filled())]).map_err(to_text)?;
            chart.draw_series(parts).map_err(to_text)?;
            let points = box_group.times.iter().filter_map(|time| Some((Scale::Log.position(*time)?, row)));
            chart.draw_series(points.map(|point| Circle::new(point, 2, color.filled()))).map_err(to_text)?;
        }
        if let Some(bound) = box_group.bound.and_then(|bound| Scale::Log.position(bound)) {
            // Nearly black, which the style sheet turns into the colour of the text.
            let ends =
                PathElement::new(vec![(bound, row - 0.4), (bound, row + 0.4)], PALETTE[6].stroke_width(3));
            chart.draw_series([ends]).map_err(to_text)?;
        }
    }
    area.present().map_err(to_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_lie_between_neighbours() {
        assert_eq!(quarters(&[]), None);
        assert_eq!(quarters(&[7.0]), Some([7.0; 5]));
        assert_eq!(quarters(&[4.0, 1.0, 3.0, 2.0, 5.0]), Some([1.0, 2.0, 3.0, 4.0, 5.0]));
        assert_eq!(quarters(&[1.0, 2.0]), Some([1.0, 1.25, 1.5, 1.75, 2.0]));
    }

    #[test]
    fn each_box_has_its_name_and_its_bound() {
        let box_group = |name: &str, bound| BoxGroup {
            name: name.to_owned(),
            color: 1,
            times: vec![3e6, 3.5e6, 4e6, 4.4e6],
            bound,
        };
        let groups = [box_group("redis", Some(5e6)), box_group("a < b", None)];
        let svg = draw("The holder & more", &groups).unwrap().unwrap();
        for expected in ["redis", "a &lt; b", "The holder &amp; more", "5.00 s", "from the fault", "#010101"]
        {
            assert!(svg.contains(expected), "{expected} in {svg}");
        }
        // The first one is above.
        assert!(svg.find("redis") < svg.find("a &lt; b"));
        assert!(draw("", &[]).unwrap().is_none());
    }
}
