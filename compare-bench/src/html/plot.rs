//! Drawing: lines with bands on two axes, as SVG whose text stays text. Colours are those that the style
//! sheet knows.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};

/// Okabe and Ito's palette, which people with colour blindness can distinguish; grey instead of its yellow,
/// which paper swallows. The style sheet turns what is nearly black into the colour of the text.
pub(super) const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x01, 0x01, 0x01),
    RGBColor(0x7f, 0x7f, 0x7f),
];

/// Lines of the grid. The style sheet knows it, too.
pub(super) const GRID: RGBColor = RGBColor(0xc8, 0xc8, 0xc8);

/// Without the names at the right.
const SIZE: (u32, u32) = (700, 420);

/// Of the names at the ends of lines, in pixels.
const NAME: u32 = 15;

/// How wide a letter of them is at most, on average.
const LETTER: u32 = 8;

/// From a line to its name, and around the names.
const LEADER: u32 = 20;

/// One line.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Its place in the palette.
    pub(crate) color: usize,
    pub(crate) is_dashed: bool,
    /// Whether each point is marked: where there are few, and nothing is known between them.
    pub(crate) has_marks: bool,
    pub(crate) points: Vec<(f64, f64)>,
    /// The interval at each place: x, low, high.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

impl Series {
    /// A line through marks, without any so far.
    pub(crate) fn of_marks(name: String, color: usize) -> Self {
        Self { name, color, is_dashed: false, has_marks: true, points: Vec::new(), band: Vec::new() }
    }
}

/// How an axis is divided.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    Linear,
    Log,
    /// Percentiles: as far from 90 to 99 as from 99 to 99.9.
    Nines,
}

pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) scale: Scale,
    pub(crate) shown: fn(f64) -> String,
}

impl Scale {
    /// Where a value lies. Zero has no place on a logarithmic axis.
    pub(super) fn position(self, value: f64) -> Option<f64> {
        let place = match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Nines => -(1.0 - value).log10(),
        };
        place.is_finite().then_some(place)
    }

    pub(super) fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Log => 10_f64.powf(place),
            Self::Nines => 1.0 - 10_f64.powf(-place),
        }
    }

    /// The ends of the axis, and where it has marks.
    pub(super) fn range(self, places: &[f64]) -> (f64, f64, Vec<f64>) {
        let low = places.iter().copied().fold(f64::INFINITY, f64::min);
        let high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match self {
            Self::Nines => (0.0, high.max(2.0), whole(0.0, high.max(2.0))),
            Self::Linear => {
                let step = if high > low { round_step((high - low) / 6.0) } else { 1.0 };
                let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
                (low, high.max(low + step), steps(low, high.max(low + step), step))
            }
            Self::Log => {
                let marks: Vec<f64> = whole(low.floor() - 1.0, high.ceil() + 1.0)
                    .into_iter()
                    .flat_map(|power| [1.0_f64, 2.0, 5.0].map(|digit| power + digit.log10()))
                    .collect();
                // From the last mark that is not above all values to the first one that is not below.
                let below = marks.iter().copied().rfind(|mark| *mark <= low + 1e-9).unwrap_or(low);
                let above =
                    marks.iter().copied().find(|mark| *mark >= high - 1e-9 && *mark > below).unwrap_or(high);
                let within = |mark: &f64| (below..=above).contains(mark);
                let marks: Vec<f64> = marks.into_iter().filter(within).collect();
                // Over many powers of ten, those alone.
                let is_ten = |mark: &f64| (mark - mark.round()).abs() < 1e-9;
                let tens: Vec<f64> = marks.iter().copied().filter(is_ten).collect();
                (below, above, if marks.len() > 9 { tens } else { marks })
            }
        }
    }
}

fn whole(low: f64, high: f64) -> Vec<f64> {
    steps(low.ceil(), high, 1.0)
}

fn steps(low: f64, high: f64, step: f64) -> Vec<f64> {
    let mut marks = Vec::new();
    let mut mark = low;
    while mark <= high + step / 1000.0 && marks.len() < 50 {
        marks.push(mark);
        mark += step;
    }
    marks
}

/// One, two or five times a power of ten, and at least so much.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0];
    power * digits.into_iter().find(|digit| digit * power >= least).unwrap_or(10.0)
}

/// The picture, or nothing where there are no points.
pub(crate) fn draw(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> Result<Option<String>> {
    let placed: Vec<Placed> = series.iter().map(|series| Placed::of(series, x.scale, y.scale)).collect();
    let xs: Vec<f64> = placed.iter().flat_map(|it| it.points.iter().map(|point| point.0)).collect();
    let points = placed.iter().flat_map(|it| it.points.iter().map(|point| point.1));
    let ys: Vec<f64> =
        points.chain(placed.iter().flat_map(|it| it.outline.iter().map(|point| point.1))).collect();
    // A single place is no line: the table has it.
    if !xs.iter().any(|x| x.total_cmp(&xs[0]).is_ne()) {
        return Ok(None);
    }
    let mut text = String::new();
    chart(&mut text, (x, y), (&xs, &ys), &placed).map_err(Error::failed)?;
    Ok(Some(labelled(&text, title)))
}

/// What the drawing says in each element and the style sheet or the browser says, too.
const USUAL: [&str; 4] =
    [" opacity=\"1\"", " font-family=\"sans-serif\"", " stroke=\"none\"", " stroke-width=\"1\""];

/// For those who hear the page. Text in the picture stays text, and is read out besides.
pub(super) fn labelled(svg: &str, title: &str) -> String {
    let svg = USUAL.iter().fold(svg.to_owned(), |svg, usual| svg.replace(usual, ""));
    let label = title.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    svg.replacen("<svg ", &format!("<svg class=\"plot\" role=\"img\" aria-label=\"{label}\" "), 1)
}

/// A series as it lies on the picture.
struct Placed<'a> {
    series: &'a Series,
    points: Vec<(f64, f64)>,
    outline: Vec<(f64, f64)>,
}

impl<'a> Placed<'a> {
    fn of(series: &'a Series, x: Scale, y: Scale) -> Self {
        let position = |(a, b): (f64, f64)| Some((x.position(a)?, y.position(b)?));
        let there = series.band.iter().filter_map(|(at, low, _)| position((*at, *low)));
        let back = series.band.iter().rev().filter_map(|(at, _, high)| position((*at, *high)));
        Self {
            points: series.points.iter().copied().filter_map(position).collect(),
            outline: there.chain(back).collect(),
            series,
        }
    }
}

/// An axis with marks where we want them.
pub(super) struct Marked {
    pub(super) ends: Range<f64>,
    pub(super) marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.ends.start) / (self.ends.end - self.ends.start);
        #[expect(clippy::cast_possible_truncation, reason = "pixels of a picture of known size")]
        let pixels = (share * f64::from(last - first)).round() as i32;
        first + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.clone()
    }
}

fn chart(
    text: &mut String,
    (x, y): (&Axis, &Axis),
    (xs, ys): (&[f64], &[f64]),
    placed: &[Placed],
) -> Result<(), String> {
    let longest = placed.iter().map(|it| it.series.name.chars().count()).max().unwrap_or_default();
    let names = u32::try_from(longest).unwrap_or(u32::MAX).saturating_mul(LETTER) + LEADER;
    let area = SVGBackend::with_string(text, (SIZE.0 + names, SIZE.1)).into_drawing_area();
    let (left, right, x_marks) = x.scale.range(xs);
    let (low, high, y_marks) = y.scale.range(ys);
    let to_text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(names)
        .x_label_area_size(52)
        .y_label_area_size(84)
        .build_cartesian_2d(
            Marked { ends: left..right, marks: x_marks },
            Marked { ends: low..high, marks: y_marks },
        )
        .map_err(to_text)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .x_desc(x.label)
        .y_desc(y.label)
        .x_label_formatter(&|place| (x.shown)(x.scale.value(*place)))
        .y_label_formatter(&|place| (y.shown)(y.scale.value(*place)))
        .draw()
        .map_err(to_text)?;
    let mut ends = Vec::new();
    for Placed { series, points, outline } in placed {
        let color = PALETTE[series.color % PALETTE.len()];
        let points = || points.iter().copied();
        if outline.len() > 2 {
            let band = Polygon::new(outline.clone(), color.mix(0.2).filled());
            chart.draw_series([band]).map_err(to_text)?;
        }
        if series.is_dashed {
            let points: Vec<_> = points().collect();
            let line = DashedLineSeries::new(points, 7, 5, color.stroke_width(1));
            chart.draw_series(line).map_err(to_text)?;
        } else {
            chart.draw_series(LineSeries::new(points(), color.stroke_width(2))).map_err(to_text)?;
        }
        if series.has_marks {
            let marks = points().map(|point| Circle::new(point, 4, color.filled()));
            chart.draw_series(marks).map_err(to_text)?;
        }
        ends.extend(points().last().map(|end| (chart.backend_coord(&end), *series)));
    }
    name_lines(&area, ends).map_err(to_text)?;
    area.present().map_err(to_text)
}

/// The name of each line beside its end, so that nobody has to compare colours with a legend.
fn name_lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    mut ends: Vec<((i32, i32), &Series)>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let step = i32::try_from(NAME + 3).unwrap_or(i32::MAX);
    let leader = i32::try_from(LEADER).unwrap_or(i32::MAX);
    ends.sort_by_key(|((_, y), _)| *y);
    let right = ends.iter().map(|((x, _), _)| *x).max().unwrap_or_default();
    let places = apart(&ends.iter().map(|((_, y), _)| *y).collect::<Vec<_>>(), step, BOTTOM);
    for (((x, y), series), place) in ends.into_iter().zip(places) {
        let color = PALETTE[series.color % PALETTE.len()];
        let bend = right + leader - 4;
        area.draw(&PathElement::new(vec![(x + 4, y), (right + 4, y), (bend, place)], color.stroke_width(1)))?;
        let style = ("sans-serif", NAME).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(series.name.clone(), (right + leader, place), style))?;
    }
    Ok(())
}

/// The lowest place of a name.
const BOTTOM: i32 = 356;

/// The same places in the same order, so far from each other, and none below the lowest.
fn apart(places: &[i32], step: i32, lowest: i32) -> Vec<i32> {
    let mut moved: Vec<i32> = Vec::new();
    for place in places {
        let least = moved.last().map_or(*place, |before| before + step);
        moved.push(least.max(*place));
    }
    let mut most = lowest;
    for place in moved.iter_mut().rev() {
        *place = most.min(*place);
        most = *place - step;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::show::time;

    const X: Axis = Axis { label: "tasks", scale: Scale::Log, shown: |value| format!("{value:.0}") };
    const Y: Axis = Axis { label: "time", scale: Scale::Log, shown: time };

    fn series(points: &[(f64, f64)]) -> Series {
        Series {
            name: "it".to_owned(),
            color: 1,
            is_dashed: false,
            has_marks: true,
            points: points.to_vec(),
            band: points.iter().map(|(x, y)| (*x, y * 0.9, y * 1.1)).collect(),
        }
    }

    #[test]
    fn text_stays_text_and_the_colours_are_known() {
        let svg = draw("A & B", &X, &Y, &[series(&[(1.0, 30.0), (16.0, 400.0)])]).unwrap().unwrap();
        let expected =
            ["<text", "tasks", "time", "aria-label=\"A &amp; B\"", "#D55E00", "50.0 us", "100 us", "\nit\n"];
        for expected in expected {
            assert!(svg.contains(expected), "{expected} in {svg}");
        }
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        assert_eq!(apart(&[10, 12, 50], 18, 356), [10, 28, 50]);
        assert_eq!(apart(&[300, 350, 354, 355], 18, 356), [300, 320, 338, 356]);
        assert!(apart(&[], 18, 356).is_empty());
    }

    #[test]
    fn odd_figures_draw_something_or_nothing() {
        assert!(draw("", &X, &Y, &[]).unwrap().is_none());
        assert!(draw("", &X, &Y, &[series(&[(0.0, 0.0)])]).unwrap().is_none());
        assert!(draw("", &X, &Y, &[series(&[(1.0, 5.0)])]).unwrap().is_none());
        let linear = Axis { scale: Scale::Linear, ..X };
        assert!(draw("", &linear, &Y, &[series(&[(0.0, 5.0), (1.0, 5.0)])]).unwrap().is_some());
        let nines = Axis { scale: Scale::Nines, ..X };
        assert!(draw("", &nines, &Y, &[series(&[(0.5, 5.0), (0.9, 9.0), (1.0, 99.0)])]).unwrap().is_some());
    }

    #[test]
    fn axes_have_marks_at_round_values() {
        let (_, _, marks) = Scale::Log.range(&[1.0, 2.0]);
        assert_eq!(marks.len(), 4, "{marks:?}: 10, 20, 50, 100");
        let (low, high, marks) = Scale::Log.range(&[0.0, 0.0]);
        assert!(low.abs() < 1e-9 && high > 0.1 && marks.len() == 2, "{marks:?}: 1, 2");
        assert_eq!(Scale::Log.range(&[0.1, 0.2]).2.len(), 2, "1, 2");
        let (low, high, marks) = Scale::Linear.range(&[0.0, 97.0]);
        assert!(low.abs() < 1e-9 && (high - 100.0).abs() < 1e-9 && marks.len() == 6, "{marks:?}");
    }
}
